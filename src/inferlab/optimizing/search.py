"""Search for a recipe that reaches a goal: make, look at the loss, and time only what may be worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from inferlab.errors import InferlabError
from inferlab.optimizing import pareto
from inferlab.optimizing.attempts import Attempt, Attempts, SearchSpace, attempts_in
from inferlab.records import Event, Listener
from inferlab.records.optimization import Candidate, Goal, Interval, Recipe

# Of the whole time: a first look at the speed of each, a longer one where the first leaves the goal open, and the
# longest where it seems to be reached, which is a better use of the time than to go on.
_SHORT, _LONG, _LONGEST = 1 / 16, 1 / 4, 1 / 2
_OVER = "time ran out"
_TOO_LOSSY = "it loses more than allowed"
_TOO_LARGE = "it is not small enough"


@dataclass(frozen=True, slots=True)
class BuiltCopy:
    """A model that was made of a recipe."""

    recipe: Recipe
    #: Where it is; whoever made it knows what that means.
    path: str
    size_bytes: int
    #: None where its outputs tell nothing.
    loss: float | None
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How much faster than the original a copy is; without a speed-up it does not count, for a reason."""

    speedup: float | None
    interval: Interval | None
    level: float | None = None
    reason: str = ""
    interrupted: bool = False


class Bench(Protocol):
    """Makes models and times them."""

    def make(self, recipe: Recipe) -> BuiltCopy:
        """Carry out a recipe, or raise why not."""

    def time(self, copy: BuiltCopy, seconds: float, goal: float | None) -> Speed:
        """Compare a copy with the original, interleaved; it may end early where its interval excludes the goal."""

    def discard(self, copy: BuiltCopy) -> None:
        """Forget a copy that is not needed any more."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a search tried, and how it ended."""

    candidates: tuple[Candidate, ...]
    complete: bool
    interrupted: bool
    seconds: float


def search(
    space: SearchSpace,
    original_bytes: int,
    bench: Bench,
    time_s: float,
    listener: Listener,
    clock: Callable[[], float],
) -> Iterator[SearchState]:
    """Try one recipe after the other until one surely reaches the goal, all were tried, or the time is over.

    What is known so far comes after each. What loses too much, or is too large, is timed only after all others and
    only if the goal was not reached, to show what more would cost. Ctrl-C ends it with what there is.
    """
    state = _Search(space, original_bytes, bench, time_s, listener, clock)
    try:
        for _ in state.steps():
            yield state.found()
    except KeyboardInterrupt:
        yield replace(state.found(), complete=False, interrupted=True)


class _Search:
    """A search on its way."""

    def __init__(
        self,
        space: SearchSpace,
        original_bytes: int,
        bench: Bench,
        time_s: float,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._space, self._original_bytes = space, original_bytes
        self._bench, self._time_s, self._listener, self._clock = bench, time_s, listener, clock
        self._began = clock()
        self.candidates: list[Candidate] = []
        #: By the place of their candidate, copies that may be timed in the end.
        self._waiting: dict[int, BuiltCopy] = {}
        self._complete = False

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    @property
    def _goal(self) -> Goal:
        return self._space.goal

    @property
    def _over(self) -> bool:
        return self.seconds >= self._time_s

    def found(self) -> SearchState:
        """What is known by now."""
        candidates = pareto.mark_candidates(self.candidates, self._goal, self._original_bytes)
        return SearchState(candidates, self._complete, False, self.seconds)

    def steps(self) -> Iterator[None]:
        """Try the attempts up to the goal; where it is not reached, time what was put off."""
        attempts = attempts_in(self._space)
        attempt: Attempt | None = next(attempts)
        while attempt is not None:
            outcome = self._try(attempt)
            yield
            if self._over or pareto.reaches(outcome, self._goal, self._original_bytes):
                return
            attempt = _next(attempts, outcome)
        yield from self._time_the_rest()
        self._complete = not self._over
        yield

    def _try(self, attempt: Attempt) -> Candidate:
        place = len(self.candidates)
        self.candidates.append(_untried(attempt))
        if attempt.reason:
            return self.candidates[place]
        self._tell(place)
        try:
            copy = self._bench.make(attempt.recipe)
        except InferlabError as error:
            self.candidates[place] = replace(self.candidates[place], reason=str(error))
            return self.candidates[place]
        made = replace(
            self.candidates[place],
            recipe=copy.recipe,
            loss=copy.loss,
            accuracy=copy.accuracy,
            size_bytes=copy.size_bytes,
        )
        # Kept at once: Ctrl-C may come while it is timed.
        self.candidates[place] = made
        if not pareto.may_reach(made, self._goal, self._original_bytes):
            lossy = not pareto.keeps_loss(made, self._goal)
            self.candidates[place] = replace(made, reason=_TOO_LOSSY if lossy else _TOO_LARGE)
            self._waiting[place] = copy
        else:
            self._time(place, copy)
            self._bench.discard(copy)
        return self.candidates[place]

    def _time(self, place: int, copy: BuiltCopy) -> None:
        """Time it shortly, and again for longer where that leaves open whether it reaches the goal."""
        for part in (_SHORT, _LONG, _LONGEST):
            known = self.candidates[place]
            if known.speedup is not None and not self._open(known):
                return
            if part == _LONGEST and (known.speedup or 0.0) < (self._goal.speedup or 0.0):
                return
            if self._over:
                self.candidates[place] = replace(known, reason=known.reason or _OVER)
                return
            seconds = min(part * self._time_s, self._time_s - self.seconds)
            try:
                speed = self._bench.time(copy, seconds, self._goal.speedup)
            except InferlabError as error:
                self.candidates[place] = replace(known, reason=str(error))
                return
            if speed.speedup is None or not (speed.interrupted and known.speedup is not None):
                self.candidates[place] = _timed(known, speed)
            if speed.interrupted:
                raise KeyboardInterrupt
            if speed.speedup is None:
                return

    def _open(self, candidate: Candidate) -> bool:
        """Whether a longer comparison may tell if it reaches the goal."""
        goal, size = self._goal, self._original_bytes
        return pareto.may_reach(candidate, goal, size) and not pareto.reaches(candidate, goal, size)

    def _time_the_rest(self) -> Iterator[None]:
        """Time what was put off, the least lossy first, so that the front shows it."""
        for place in sorted(self._waiting, key=self._lossiness):
            if self._over:
                return
            self._tell(place)
            self._time(place, self._waiting[place])
            yield

    def _tell(self, place: int) -> None:
        self._listener(Event("trying", {"number": place + 1, "label": self.candidates[place].label}))
        self._listener(Event("searching", {}, min(1.0, self.seconds / self._time_s)))

    def _lossiness(self, place: int) -> float:
        loss = self.candidates[place].loss
        return float("inf") if loss is None else loss


def _next(attempts: Attempts[None], outcome: Candidate) -> Attempt | None:
    try:
        return attempts.send(outcome)
    except StopIteration:
        return None


def _untried(attempt: Attempt) -> Candidate:
    return Candidate(attempt.label, attempt.recipe, None, None, None, None, reason=attempt.reason)


def _timed(candidate: Candidate, speed: Speed) -> Candidate:
    reason = "; ".join(part for part in (candidate.reason, speed.reason) if part)
    return replace(
        candidate, speedup=speed.speedup, speedup_interval=speed.interval, level=speed.level, reason=reason
    )
