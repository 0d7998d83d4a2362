"""Measure the candidates of a search in rounds of fresh processes, until few remain that may be the best."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import EngineHung, InferlabError
from inferlab.measure import candidates
from inferlab.measure.candidates import Evidence
from inferlab.measure.cell import PreparedCell, convert_ahead, prepare_cell
from inferlab.measure.cells import SHORT_CALL_S, Job, Layout
from inferlab.measure.children import Children
from inferlab.measure.findings import WORTH_A_WORD
from inferlab.measure.headline import ms_per_item
from inferlab.measure.queueing import samples_needed, value_s
from inferlab.measure.stats import items_per_sec, latencies_ns, median_ms, seconds
from inferlab.records import Event, Listener, Model, OutputCheck, Plan, Run, StreamMode
from inferlab.records.capacity import Objective
from inferlab.records.comparison import Spreads
from inferlab.records.recommendation import Candidate

# Of the whole time: when the first round must end, and when the others must.
_FIRST_ROUND, _ROUNDS = 0.5, 0.65
#: So many are compared in pairs, after so many processes each.
FINALISTS = 3
_WARMUP_S, _GLANCE_S, _LOOK_S, _LONGEST_LOOK_S = 0.3, 0.3, 0.5, 3.0
# Two failures and no success: what an engine cannot do at first it cannot do with another batch size either.
_PATIENCE_WITH_FAILURES = 2
# A hung engine must leave time for the others, unless loading takes that long.
_PATIENCE_SHARE, _LEAST_PATIENCE_S = 0.25, 10.0
# A batch takes at most so much longer than its share of a smaller one.
_LONGER = 1.5
# Nothing is made of what was hardly measured.
_MOST_LOST = 0.8
_WORTH_TELLING = ("reference", "converting", "waiting", "unlocked", "comparing", "pair")


@dataclass(frozen=True, slots=True)
class Search:
    """What is to be found: the plan's best configuration within a time; an empty tuple leaves a choice open."""

    plan: Plan
    model: Model
    objective: Objective | None
    #: Seconds in all, loading and comparing included, without conversions, which are made once for all searches.
    time_s: float
    spreads: Spreads = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """What happened to a candidate so far."""

    runs: list[Run] = field(default_factory=list)
    evidence: Evidence | None = None
    layout: Layout | None = None
    #: Options of the engine that were left to us, as they were decided.
    decided: Mapping[str, str] = field(default_factory=dict)
    #: Why it has no figures, or none that count.
    problem: str = ""
    #: Its outputs are wrong.
    wrong: OutputCheck | None = None
    #: The measured candidate that shows that it need not be measured.
    spared_by: Candidate | None = None
    #: Seconds that its last process took, loading included.
    cost_s: float = 0.0


class Explorer:
    """Knows all candidates, what was measured of them, and what time is left."""

    def __init__(
        self, search: Search, grid: tuple[Candidate, ...], bases: dict[int, Job], listener: Listener
    ) -> None:
        self.search, self._bases, self._listener = search, bases, listener
        self.records: dict[Candidate, Record] = {candidate: Record() for candidate in grid}
        self.began = time.monotonic()
        self._converting_s = 0.0
        self._failures: Counter[str] = Counter()
        self._open: dict[Candidate, tuple[ExitStack, PreparedCell]] = {}

    @property
    def spent(self) -> float:
        """The share of the time that has passed."""
        return (self._counted_s() - self.began) / self.search.time_s

    def _counted_s(self) -> float:
        """A clock that stands still while a model is converted."""
        return time.monotonic() - self._converting_s

    @property
    def measurements(self) -> dict[Candidate, Evidence]:
        """What was measured, without what failed or is wrong."""
        return {
            candidate: record.evidence
            for candidate, record in self.records.items()
            if record.evidence and not record.problem and not record.wrong
        }

    def latencies_s(self, candidate: Candidate) -> NDArray[np.float64]:
        """Of all its processes together."""
        return latencies_s(self.records[candidate].runs)

    def explore(self) -> None:
        """Look at all once, then again and again at those that may be the best, at most half of them each time."""
        self.began = time.monotonic()  # now, not when we began to wait for another measurement to end
        try:
            self._first_round()
            number, most = 2, len(self.measurements) // 2
            while self.spent < _ROUNDS:
                again = candidates.contending(self.measurements)[: max(FINALISTS, most)]
                if len(again) < 2:
                    again = self.finalists()
                if (len(again) <= FINALISTS and number > FINALISTS) or not self._round(number, again):
                    return
                number, most = number + 1, len(again) // 2
        finally:
            self._close(keep=())

    def finalists(self) -> list[Candidate]:
        """Those to compare in pairs, the best first: at least two where two meet the objective."""
        measurements = self.measurements
        left = [candidate for candidate in candidates.contending(measurements) if measurements[candidate].keeps]
        others = [
            candidate
            for candidate in candidates.ranked(measurements)
            if measurements[candidate].keeps and candidate not in left
        ]
        return left[:FINALISTS] if len(left) > 1 else [*left, *others[:1]]

    def job(self, candidate: Candidate) -> Job:
        """The candidate's job, with the inputs that all of its batch size share."""
        base = self._bases[candidate.batch_size]
        cell = replace(
            base.cell,
            engine=candidate.engine,
            scenario=candidate.scenario,
            num_cores=candidate.num_cores,
            num_streams=candidate.num_streams,
            stream_mode=self._stream_mode(candidate),
        )
        patience_s = max(_LEAST_PATIENCE_S, _PATIENCE_SHARE * self.search.time_s)
        return replace(base, cell=cell, patience_s=min(base.patience_s, patience_s))

    def _stream_mode(self, candidate: Candidate) -> StreamMode:
        """How its streams run, where it was tried, or where another batch size tells whether calls are short.

        Trying it out ("auto") takes one more load.
        """
        own = self.records[candidate].layout
        if own is not None:
            return "auto" if own.mode == "single" else cast(StreamMode, own.mode)
        for other, record in self.records.items():
            if candidates.differ_in_batch(candidate, other) and record.layout and record.runs:
                mode = cast(StreamMode, record.layout.mode)
                times = candidate.batch_size / other.batch_size
                call_s = float(np.median(self.latencies_s(other)))
                short = times < 1 or _LONGER * times * call_s < SHORT_CALL_S
                if candidate.num_streams > 1 and (short if mode == "processes" else times > 1):
                    return mode
        return "auto"

    def quietly(self, event: Event) -> None:
        """Pass on the events that are worth telling of so many candidates."""
        if event.code in _WORTH_TELLING:
            self._listener(event)

    def _first_round(self) -> None:
        waiting = list(self.records)
        self._listener(Event("round", {"number": 1, "candidates": len(waiting)}))
        while waiting and self.spent < _FIRST_ROUND:
            measurements = self.measurements
            for candidate, other in candidates.spared(waiting, measurements).items():
                self.records[candidate].spared_by = other
            waiting = [
                each for each in waiting if not self.records[each].spared_by and not self._given_up(each.engine)
            ]
            fitting = [each for each in waiting if self._fits(each, self._nearest(each), _FIRST_ROUND)]
            if not fitting:
                return
            candidate = candidates.next_up(fitting, measurements, self._failures)
            waiting.remove(candidate)
            self._measure(candidate, 1, len(waiting))
            self._close(keep=candidates.still_in(self.measurements))

    def _round(self, number: int, again: Sequence[Candidate]) -> bool:
        """One more process for each of these; False if there was no time for any."""
        self._close(keep=again)
        self._listener(Event("round", {"number": number, "candidates": len(again)}))
        fitted = False
        for position, candidate in enumerate(again):
            if self._fits(candidate, candidate, _ROUNDS):
                fitted = True
                self._measure(candidate, number, len(again) - position - 1)
        return fitted

    def _given_up(self, engine: str) -> bool:
        heard = any(record.runs for candidate, record in self.records.items() if candidate.engine == engine)
        return self._failures[engine] >= _PATIENCE_WITH_FAILURES and not heard

    def _nearest(self, candidate: Candidate) -> Candidate | None:
        measured = [
            each for each, record in self.records.items() if record.cost_s and each.engine == candidate.engine
        ]
        return min(measured, key=lambda each: candidates.distance(each, candidate), default=None)

    def _fits(self, candidate: Candidate, like: Candidate | None, share: float) -> bool:
        """Whether there is time for a candidate, if it takes as long per item as one that is like it."""
        if like is None:
            return True
        cost_s = self.records[like].cost_s
        if self.records[like].runs:
            # Each stream is checked with two inputs, twice; then it warms up and is measured.
            calls = 4 * candidate.num_streams + 3
            longer = max(0.0, candidate.batch_size / like.batch_size - 1.0)
            cost_s += calls * longer * float(np.median(self.latencies_s(like)))
        return self.spent + cost_s / self.search.time_s <= share

    def _measure(self, candidate: Candidate, number: int, left: int) -> None:
        """Measure a candidate in one more fresh process; what goes wrong stays with the candidate."""
        record, began = self.records[candidate], self._counted_s()
        self._listener(Event("searching", {}, fraction=min(1.0, self.spent)))
        try:
            record.wrong = self._run(candidate, _GLANCE_S if number == 1 else self._look_s(candidate))
        except InferlabError as error:
            record.problem = str(error)
            self._failures[candidate.engine] += _PATIENCE_WITH_FAILURES if isinstance(error, EngineHung) else 1
        record.cost_s = self._counted_s() - began
        self._listener(
            Event(
                "tried",
                {
                    "candidate": candidate,
                    "items_per_sec": items_per_sec(record.runs[-1], candidate.batch_size) if record.runs else None,
                    "problem": record.problem or ("its outputs are wrong" if record.wrong else ""),
                    "left": left,
                },
            )
        )

    def _run(self, candidate: Candidate, seconds: float) -> OutputCheck | None:
        """Add a run; gives the check of the outputs if they are wrong: their speed is not worth the time."""
        record, prepared = self.records[candidate], self._setup(candidate)
        with Children(prepared) as fresh:
            fresh.check_outputs()
            if fresh.output_check().status != "mismatch":
                fresh.warm_up(_WARMUP_S)
                fresh.measure(seconds)
                if fresh.interrupted:
                    raise KeyboardInterrupt
                fresh.check_outputs()
                record.runs.append(fresh.run())
                record.evidence = self._evidence(candidate, record)
            check = fresh.output_check()
        return check if check.status == "mismatch" else None

    def _look_s(self, candidate: Candidate) -> float:
        """Long enough that the processes of a finalist together carry the objective's statistic."""
        objective = self.search.objective
        if objective is None:
            return _LOOK_S
        call_s = float(np.median(self.latencies_s(candidate)))
        wanted_s = samples_needed(objective) * call_s / candidate.num_streams / (FINALISTS - 1)
        return min(_LONGEST_LOOK_S, max(_LOOK_S, wanted_s))

    def _setup(self, candidate: Candidate) -> PreparedCell:
        if candidate not in self._open:
            stack, job = ExitStack(), self.job(candidate)
            # Its time does not count, so it may take as long as anywhere.
            self._convert(replace(job, patience_s=self._bases[candidate.batch_size].patience_s))
            prepared = stack.enter_context(prepare_cell(job, self.quietly))
            self._open[candidate] = stack, prepared
            self.records[candidate].layout = prepared.layout
            self.records[candidate].decided = prepared.decided
        return self._open[candidate][1]

    def _convert(self, job: Job) -> None:
        began = time.monotonic()
        try:
            convert_ahead(job, self.quietly)
        finally:
            self._converting_s += time.monotonic() - began

    def _close(self, keep: Sequence[Candidate]) -> None:
        """Let go of what was written for candidates that are out: a copy of the model each, for some engines."""
        for candidate in [each for each in self._open if each not in keep]:
            self._open.pop(candidate)[0].close()

    def _evidence(self, candidate: Candidate, record: Record) -> Evidence:
        rates = tuple(undisturbed_rate(run, candidate) for run in record.runs)
        objective = self.search.objective
        strain = value_s(objective, latencies_s(record.runs)) / objective.limit_s if objective else 0.0
        return Evidence(rates, strain)


def latencies_s(runs: Sequence[Run]) -> NDArray[np.float64]:
    """The time of every batch, of all processes together."""
    streams = [stream for run in runs for window in run.windows for stream in window.streams]
    return np.concatenate([latencies_ns(stream) for stream in streams]) / 1e9


def undisturbed_rate(run: Run, candidate: Candidate) -> float:
    """Items a second by the time per item, as if nobody had taken the CPUs: machines change while a search runs.

    What its threads waited for counts only as far as its cores were not busy with itself. A median leaves out what
    disturbed few calls, and what disturbed all of them is divided out of the mean.
    """
    total_s = candidate.num_cores * sum(map(seconds, run.windows))
    lost_s = sum(window.counters.get(name, 0.0) for window in run.windows for name in WORTH_A_WORD)
    used_s = sum(window.counters.get("cpu_s", 0.0) for window in run.windows)
    share = min(lost_s, max(0.0, total_s - used_s)) / total_s
    throughput = items_per_sec(run, candidate.batch_size)
    time_ms = ms_per_item(candidate.scenario, candidate.batch_size, median_ms(run), throughput)
    assert time_ms is not None, "a run that counts has samples"
    lost = min(_MOST_LOST, share)
    return max(1e3 / time_ms, throughput / (1.0 - lost)) if lost else 1e3 / time_ms
