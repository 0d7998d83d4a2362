"""The best few candidates of a search, compared in pairs: who wins, and on what evidence."""

from __future__ import annotations

from inferlab.errors import InferlabError
from inferlab.measure import candidates, compare
from inferlab.measure.candidates import TIE, Candidate, label
from inferlab.measure.compare import Contest
from inferlab.measure.explore import Explorer
from inferlab.measure.jobs import with_inputs_of
from inferlab.records import Comparison, Event, Listener

# As many pairs as give an interval: by ranks where arms are close, Student's where they are clearly apart.
_PAIRS, _PAIRS_APART = 10, 5
_FEWEST_PAIRS = 3


class Finals:
    """The best few in pairs: the leader against each of the others."""

    def __init__(self, explorer: Explorer, listener: Listener) -> None:
        self._explorer, self._listener = explorer, listener
        self.comparisons: list[Comparison] = []
        self.troubles: list[str] = []
        self.simpler = False
        self._winner: Candidate | None = None

    @property
    def winner(self) -> Candidate | None:
        """By pairs where there were some, else by what was measured alone."""
        sound = self._winner is not None and not self._explorer.records[self._winner].wrong
        return self._winner if sound else candidates.best_of(self._explorer.known)

    def play(self) -> None:
        """Compare until the leader is known; the simplest of those that are as fast as the leader wins."""
        finalists = self._explorer.finalists()
        if not finalists:
            return
        leader, *others = finalists
        tied = [leader]
        for position, other in enumerate(others):
            found = self._compare(leader, other, len(others) - position)
            if found is None:
                continue
            self.comparisons.append(found)
            wrong = self._find_wrong((leader, other), found)
            if leader in wrong:
                leader, tied = other, [other]
            elif other in wrong or found.ratio.low is None:
                pass  # without an interval a pair or two say nothing: the leader stays
            elif candidates.prefers_simpler(found.ratio.value, found.verdict):
                tied.append(other)
            elif found.verdict == "faster":
                # An estimate alone does not unseat the leader, however far it is from 1.
                leader, tied = other, [other]
            self._winner = candidates.simplest(tied)
            self.simpler = self._winner != leader
            if found.interrupted:
                raise KeyboardInterrupt
        self._winner = self._winner or leader

    def _find_wrong(self, arms: tuple[Candidate, Candidate], found: Comparison) -> list[Candidate]:
        """Whoever computed something wrong in a pair is out, however fast it was."""
        for pair in found.pairs:
            for arm, run in zip(arms, (pair.a, pair.b), strict=True):
                if run.check.status == "mismatch":
                    self._explorer.records[arm].wrong = run.check
        return [arm for arm in arms if self._explorer.records[arm].wrong]

    def _compare(self, leader: Candidate, other: Candidate, left: int) -> Comparison | None:
        """Compare two, in a fair share of the time that is left and no more than it takes."""
        explorer = self._explorer
        known = explorer.known
        pair_s = explorer.records[leader].cost_s + explorer.records[other].cost_s
        apart = candidates.clearly_worse(known[other], known[leader], candidates.spread(known))
        left_s = explorer.search.time_s * (1 - explorer.spent)
        fair_s = max(left_s / left, min(left_s, _FEWEST_PAIRS * pair_s))
        time_s = min(fair_s, pair_s * (_PAIRS_APART if apart else _PAIRS))
        labels = (label(leader), label(other))
        if time_s < _FEWEST_PAIRS * pair_s:
            self.troubles.append(f"no time was left to compare {labels[0]} with {labels[1]} in pairs")
            return None
        self._listener(Event("finals", {"a": labels[0], "b": labels[1]}))
        a, b = explorer.job(leader), explorer.job(other)
        try:
            contest = Contest(a, with_inputs_of(b, a), labels, time_s, TIE)
            return compare.compare(contest, explorer.quietly)
        except InferlabError as error:
            self.troubles.append(f"comparing {labels[0]} with {labels[1]} failed: {error}")
            return None
