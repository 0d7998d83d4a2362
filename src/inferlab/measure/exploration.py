"""A search for the best configuration until few remain that may be it.

Its rules are pure functions of what was measured; the `Explorer` measures candidates in rounds of fresh processes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import cast

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import EngineHung, InferlabError
from inferlab.measure.cell import PreparedCell, convert_ahead, prepare_cell
from inferlab.measure.cells import SHORT_CALL_S, Job, Layout
from inferlab.measure.children import Children
from inferlab.measure.findings import WORTH_A_WORD
from inferlab.measure.queueing import samples_needed, value_s
from inferlab.measure.stats import items_per_sec, latencies_ns, median_ms, ms_per_item, seconds
from inferlab.records import Event, Listener, Model, OutputCheck, Plan, Run, StreamMode
from inferlab.records.capacity import Objective
from inferlab.records.comparison import MachineSpreads
from inferlab.records.recommendation import Candidate
from inferlab.units import plural

#: Differences up to this share do not matter: the simpler configuration is then the better one.
TIE = 0.03
# Until processes tell, equal ones are taken to differ so much (log scale): one alone is dropped from 25 % on.
_SPREAD, _SPREAD_FREEDOM = 0.068, 4
# So many standard errors are clear, although the best of many is always a lucky one.
_CLEAR = 3.0
# What a ratio found at one batch size may be off at another.
_OFF = 1.25
_RIDGE = 0.1
# Half as much again as the limit, in one process, clearly misses an objective; tails are noisier than rates.
_MISSED = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of a candidate: items a second of each process, and the objective's statistic as a share of the limit."""

    rates: tuple[float, ...]
    strain: float = 0.0

    @property
    def rate(self) -> float:
        """The typical process's items a second."""
        return math.exp(fmean(math.log(rate) for rate in self.rates))

    @property
    def keeps(self) -> bool:
        """Whether the objective is met; always, where there is none."""
        return self.strain <= 1

    @property
    def clearly_misses(self) -> bool:
        """Whether the objective is missed by more than noise explains."""
        return self.strain > 1 + _MISSED / len(self.rates)


Measurements = Mapping[Candidate, Evidence]


def label(candidate: Candidate) -> str:
    """A candidate in words."""
    return (
        f"{candidate.engine}, {plural(candidate.num_cores, 'core')}, "
        f"{plural(candidate.num_streams, 'stream')}, batch {candidate.batch_size}"
    )


def spread(measurements: Measurements) -> float:
    """How much processes of one candidate differ (standard deviation of logarithms), over all candidates."""
    squares, freedom = _SPREAD_FREEDOM * _SPREAD**2, _SPREAD_FREEDOM
    for evidence in measurements.values():
        if len(evidence.rates) > 1:
            squares += (len(evidence.rates) - 1) * variance(math.log(rate) for rate in evidence.rates)
            freedom += len(evidence.rates) - 1
    return math.sqrt(squares / freedom)


def clearly_worse(evidence: Evidence, best: Evidence, sigma: float) -> bool:
    """Whether one's throughput is below the best's by more than processes differ."""
    error = sigma * math.sqrt(1 / len(evidence.rates) + 1 / len(best.rates))
    return math.log(best.rate / evidence.rate) > _CLEAR * error


def ranked(measurements: Measurements) -> list[Candidate]:
    """The best first, by a throughput that each can be trusted with: a single process may have been lucky."""
    sigma = spread(measurements)
    return sorted(
        measurements,
        key=lambda candidate: (
            sigma / math.sqrt(len(measurements[candidate].rates)) - math.log(measurements[candidate].rate)
        ),
    )


def best_of(measurements: Measurements) -> Candidate | None:
    """The highest throughput that meets the objective."""
    return next((candidate for candidate in ranked(measurements) if measurements[candidate].keeps), None)


def still_in(measurements: Measurements) -> list[Candidate]:
    """The candidates that may yet be the best, the best first."""
    sigma, best = spread(measurements), best_of(measurements)
    return [
        candidate
        for candidate in ranked(measurements)
        if not measurements[candidate].clearly_misses
        and (best is None or not clearly_worse(measurements[candidate], measurements[best], sigma))
    ]


def contending(measurements: Measurements) -> list[Candidate]:
    """Those to look at again: the best, simpler ones that may be as fast (simplest first), the rest."""
    best, left, sigma = best_of(measurements), still_in(measurements), spread(measurements)
    if best is None:
        return left
    simpler = [
        candidate for candidate in left if measurements[candidate].keeps and candidate.simplicity < best.simplicity
    ]
    ties = [candidate for candidate in simpler if _may_tie(measurements[candidate], measurements[best], sigma)]
    first = [best, *sorted(ties, key=lambda tie: tie.simplicity)]
    return first + [candidate for candidate in left if candidate not in first]


def _may_tie(evidence: Evidence, best: Evidence, sigma: float) -> bool:
    """Whether what is missing is within the margin, as far as one standard error tells."""
    error = sigma * math.sqrt(1 / len(evidence.rates) + 1 / len(best.rates))
    return math.log(best.rate / evidence.rate) <= math.log1p(TIE) + error


def spared(waiting: Sequence[Candidate], measurements: Measurements) -> dict[Candidate, Candidate]:
    """Those that need not be measured, each with the measured one whose figures show it.

    A larger batch takes no less time than a smaller one. Fewer cores give no more than the same streams
    repeated on more cores, and about the same share of it as they gave at another batch size.
    """
    best = best_of(measurements)
    sparing = {
        candidate: _spared_by(candidate, measurements, measurements[best].rate if best else None)
        for candidate in waiting
    }
    return {candidate: other for candidate, other in sparing.items() if other is not None}


def _spared_by(candidate: Candidate, measurements: Measurements, best: float | None) -> Candidate | None:
    for other, evidence in measurements.items():
        smaller = differ_in_batch(candidate, other) and other.batch_size < candidate.batch_size
        if smaller and evidence.clearly_misses:
            return other
        if best is None:
            continue
        bound = None
        if smaller:
            bound = evidence.rate * candidate.batch_size / other.batch_size
        elif _repeats(candidate, other) and other.batch_size == candidate.batch_size:
            bound = evidence.rate * min(1.0, _OFF * _share(candidate, other, measurements))
        if bound is not None and clearly_worse(Evidence((bound,)), Evidence((best,)), _SPREAD):
            return other
    return None


def differ_in_batch(candidate: Candidate, other: Candidate) -> bool:
    """Whether two candidates differ in nothing but the batch size."""
    return _shape(candidate) == _shape(other) and candidate != other


def _repeats(candidate: Candidate, other: Candidate) -> bool:
    """Whether the other is one's streams, several times side by side."""
    return (
        candidate.engine == other.engine
        and candidate.num_cores < other.num_cores
        and candidate.num_cores * other.num_streams == candidate.num_streams * other.num_cores
    )


def _share(candidate: Candidate, other: Candidate, measurements: Measurements) -> float:
    """The largest share of the other's throughput that one had at any batch size; 1 where nothing tells."""
    rates = {(_shape(each), each.batch_size): evidence.rate for each, evidence in measurements.items()}
    shares = [
        rate / rates[_shape(other), batch]
        for (shape, batch), rate in rates.items()
        if shape == _shape(candidate) and (_shape(other), batch) in rates
    ]
    return max(shares, default=1.0)


def _shape(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.engine, candidate.num_cores, candidate.num_streams


def next_up(waiting: Sequence[Candidate], measurements: Measurements, failures: Mapping[str, int]) -> Candidate:
    """Whom to measure next: engines of which nothing is known, then whoever promises most.

    An engine begins with all cores divided among streams, and if that fails, with all cores for one request.
    """
    heard = {candidate.engine for candidate in measurements}
    new = [candidate for candidate in waiting if candidate.engine not in heard]
    if new:
        engine = new[0].engine
        sign = 1 if failures.get(engine) else -1
        return min(
            (candidate for candidate in new if candidate.engine == engine),
            key=lambda candidate: (-candidate.num_cores, sign * candidate.num_streams, candidate.batch_size),
        )
    promise = foreseen(waiting, measurements)
    return max(
        waiting,
        key=lambda candidate: (promise[candidate], -min(distance(candidate, other) for other in measurements)),
    )


def foreseen(waiting: Sequence[Candidate], measurements: Measurements) -> dict[Candidate, float]:
    """The figure of candidates of known engines if engine, cores, streams and batch had one effect each.

    Least squares on logarithms; it only orders what is measured, so that what is left out for want of time is
    the least promising.
    """
    engines = sorted({candidate.engine for candidate in measurements})

    def row(candidate: Candidate) -> list[float]:
        return [*(float(candidate.engine == name) for name in engines), *map(math.log2, candidate.simplicity)]

    x = np.array([row(candidate) for candidate in measurements])
    y = np.log([_score(evidence) for evidence in measurements.values()])
    # Held towards no effect where nothing tells of one.
    ridge = np.diag([1e-6] * len(engines) + [_RIDGE] * 3)
    weights = np.linalg.solve(x.T @ x + ridge, x.T @ y)
    return {candidate: math.exp(float(np.dot(row(candidate), weights))) for candidate in waiting}


def _score(evidence: Evidence) -> float:
    return evidence.rate / max(1.0, evidence.strain)


def distance(candidate: Candidate, other: Candidate) -> float:
    """In doublings of cores, streams and batch size."""
    pairs = zip(candidate.simplicity, other.simplicity, strict=True)
    return sum(abs(math.log2(a / b)) for a, b in pairs)


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
    #: How much pairs of processes are expected to differ where it is searched.
    spreads: MachineSpreads = field(default_factory=dict)


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
                again = contending(self.measurements)[: max(FINALISTS, most)]
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
        left = [candidate for candidate in contending(measurements) if measurements[candidate].keeps]
        others = [
            candidate
            for candidate in ranked(measurements)
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
            if differ_in_batch(candidate, other) and record.layout and record.runs:
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
            for candidate, other in spared(waiting, measurements).items():
                self.records[candidate].spared_by = other
            waiting = [
                each for each in waiting if not self.records[each].spared_by and not self._given_up(each.engine)
            ]
            fitting = [each for each in waiting if self._fits(each, self._nearest(each), _FIRST_ROUND)]
            if not fitting:
                return
            candidate = next_up(fitting, measurements, self._failures)
            waiting.remove(candidate)
            self._measure(candidate, 1, len(waiting))
            self._close(keep=still_in(self.measurements))

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
        return min(measured, key=lambda each: distance(each, candidate), default=None)

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
