"""The search for the highest rate that meets an objective, of whatever can be asked at a rate: a `Probe`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure.queueing import meets, poisson_arrivals, value_s
from inferlab.measure.stats import SharesTime
from inferlab.records import Event, Finding, Listener
from inferlab.records.capacity import CapacityProcess, GenerationTrial, Objective, Reach, SearchProgress
from inferlab.units import duration

#: The closest that the answer can come to saturation: beyond it the queue grows for as long as requests come.
CEILING = 0.98
#: The highest rate that is tried: a queue that is watched for a short time shows only beyond saturation.
MOST_LOAD = 1.25
#: Rungs of the curve below the search's: about 3/4, 1/2 and 1/4 of its rate.
CURVE = (-4, -10, -20)
# From one rung to the next but one; so far apart may two rungs be that the rate is interpolated between.
_STEP = 1.15
_WIDEST = 2
# A search takes so many rungs as a rule: two around the limit, and one or two for bad luck.
_RUNGS = 3.5
# The part of a process's time that the search gets; the rest is for the lower part of the curve.
_SEARCH = 0.7
# Requests on one rung at most: more make no interval narrower, because processes differ.
_MOST_REQUESTS = 50_000
# A rung gets at least this much longer than its requests take to arrive; what still waits then is given up.
_OVERTIME = 0.25
# Rates below this share of saturation are not searched, and no search begins below the second one: from there it
# descends in few steps.
_LOWEST = 0.01
_LOW_LOAD = 0.1
# So much longer than asked it may take to end a search that has begun.
_LATE = 1.1


@dataclass(frozen=True, slots=True)
class Budget:
    """How the time is spent: processes, requests on each rung of a search, seconds on each rung of the curve."""

    processes: int
    requests: int
    curve_s: float


def budget(
    time_s: float, processes: int, at_least: int, overhead_s: float, rate: float, needed: int
) -> Budget | None:
    """As many processes as can each search around `rate` with the requests needed; None where none can."""
    for count in range(processes, at_least - 1, -1):
        left_s = time_s / count - overhead_s
        requests = int(_SEARCH * left_s * rate / _RUNGS)
        if requests >= needed:
            return Budget(count, max(needed, min(requests, _MOST_REQUESTS)), (1 - _SEARCH) * left_s / len(CURVE))
    return None


def time_needed_s(processes: int, overhead_s: float, rate: float, needed: int) -> float:
    """The time in which so many processes can carry the objective, rounded up to two digits."""
    # A twentieth more, because neither loading nor the rate will be the same again.
    seconds = 1.05 * processes * (overhead_s + _RUNGS * (needed + 1) / (rate * _SEARCH))
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / unit) * unit


def smoothed(values: Sequence[float]) -> NDArray[np.float64]:
    """Statistics in the order of their rates, made to rise: what falls from one rung to the next is averaged.

    A running maximum would rise, too, but let one disturbed rung decide for all above it.
    """
    from scipy.optimize import isotonic_regression

    return np.asarray(np.exp(isotonic_regression(np.log(values)).x), np.float64)


def crossing(rates: Sequence[float], values: Sequence[float], limit: float) -> float | None:
    """The rate at which the rising statistic meets the limit; None where it does not between these rates.

    Reciprocals are interpolated: in a busy queue the latency is a constant over the free share of the server.
    """
    ordered = sorted(zip(rates, values, strict=True))
    xs, ys = [rate for rate, _ in ordered], smoothed([value for _, value in ordered])
    beyond = int(np.searchsorted(ys, limit, side="right"))
    if beyond in (0, len(xs)):
        return None
    low, high = beyond - 1, beyond
    share = (1 / ys[low] - 1 / limit) / (1 / ys[low] - 1 / ys[high])
    return float(xs[low] + share * (xs[high] - xs[low]))


def rate_of(start: float, rung: int) -> float:
    """The rate of a rung; rung 0 is where the first process began, so that all processes share their rates."""
    return float(start * _STEP ** (rung / 2))


def rung_of(start: float, rate: float) -> int:
    """The last rung that is not above a rate."""
    return math.floor(2 * math.log(rate / start) / math.log(_STEP) + 1e-9)


def bracket(rungs: Sequence[int], values: Sequence[float], limit: float) -> tuple[int, int] | None:
    """The neighbouring rungs between which the statistic meets the limit."""
    rate = crossing(rungs, values, limit)
    if rate is None:
        return None
    return max(rung for rung in rungs if rung <= rate), min(rung for rung in rungs if rung > rate)


def next_rung(
    rungs: Sequence[int], values: Sequence[float], limit: float, lowest: int, highest: int
) -> int | None:
    """What to measure next; None where the limit is met between close rungs, or no rung is left to try."""
    between = bracket(rungs, values, limit)
    if between is not None:
        low, high = between
        return None if high - low <= _WIDEST else (low + high) // 2
    # Steps that grow: a prediction that is far off is soon left behind.
    step = _WIDEST * 2 ** max(0, len(rungs) - 2)
    if keeps_all(values, limit):
        return None if max(rungs) >= highest else min(highest, max(rungs) + step)
    return None if min(rungs) <= lowest else max(lowest, min(rungs) - step)


def keeps_all(values: Sequence[float], limit: float) -> bool:
    """Of statistics that do not meet the limit: whether they stay below it."""
    return geometric_mean(values) <= limit


@dataclass(frozen=True, slots=True)
class Reading:
    """What one process answered at one rate."""

    rate: float
    #: Requests that were given up are last, with the time that they had waited: it is beyond the limit.
    responses_s: NDArray[np.float64]
    services_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one process found."""

    #: The record of all that it measured.
    run: Any
    readings: tuple[Reading, ...]
    saturation_rate: float
    #: The highest rate on this process's arrivals.
    measured_rate: float
    #: What to multiply it by, because these arrivals were easier or harder than usual.
    luck: float
    reach: Reach

    @property
    def rate(self) -> float:
        """The highest rate of this process, whatever the arrivals."""
        return min(self.measured_rate * self.luck, CEILING * self.saturation_rate)

    @property
    def record(self) -> CapacityProcess:
        """What is saved of it."""
        return CapacityProcess(
            started_at=self.run.started_at,
            saturation_rate=self.saturation_rate,
            measured_rate=self.measured_rate,
            luck=self.luck,
            reach=self.reach,
            rate=self.rate,
        )


class Probe:
    """A fresh process that is asked at one rate after another, for the highest that meets an objective."""

    #: What is told when it is known where the search begins.
    saturation_event = "saturation"
    #: Whether a first search that does not end in time is refused, rather than told of.
    must_end = True

    def __init__(
        self, objective: Objective, seed: int, listener: Listener, number: int, patience_s: float
    ) -> None:
        """`patience_s` is how long the last request may take at least."""
        self._objective, self._seed, self._patience_s = objective, seed, patience_s
        self._listener, self._number = listener, number
        #: The rate of rung 0.
        self.start = 0.0
        self.saturation_rate = 0.0
        self._requests = 0
        self._search: dict[int, Reading] = {}
        self._curve: list[Reading] = []

    def settings(self) -> dict[str, Any]:
        """What is in force, for the log."""
        raise NotImplementedError

    def saturate(self) -> None:
        """Check what the process computes, warm it up, and find out what it serves at most."""
        raise NotImplementedError

    def predict(self, afford: Callable[[float], object]) -> float | None:
        """The highest rate that should meet the objective; None where no rate will do.

        `afford` refuses a rate at which the time is too short to find that out.
        """
        raise NotImplementedError

    def serve(self, rate: float, arrivals_ns: NDArray[np.int64], most_s: float) -> Reading:
        """Measure requests that arrive at these moments; what is not served after `most_s` is given up."""
        raise NotImplementedError

    def luck(self) -> float:
        """What to multiply the measured rate by, because these arrivals were easier or harder than usual."""
        return 1.0

    def end(self) -> Any:
        """Check what it computes once more; the record of all that was measured."""
        raise NotImplementedError

    def trial(self, run: Any) -> Trial:
        """The record of all that was asked; without a search, the record that no rate will do."""
        if not self._search:
            return Trial(run, (), self.saturation_rate, 0.0, 1.0, "none")
        factor = 1.0 if self.near is None else self.luck()
        return Trial(run, self.readings, self.saturation_rate, self.measured_rate, factor, self.reach)

    def _read(self, rate: float, requests: int) -> Reading:
        """Every rung replays the same arrivals, faster or slower: only the rate differs, not the luck."""
        self._listener(Event("rung", {"rate": rate, "process": self._number}))
        arrivals_ns = poisson_arrivals(rate, (2 * requests + 10) / rate, self._seed)[:requests]
        last_s = float(arrivals_ns[-1]) / 1e9
        return self.serve(rate, arrivals_ns, last_s + max(_OVERTIME * last_s, self._patience_s))

    def search(self, rungs: Sequence[int], requests: int, deadline: float) -> None:
        """Measure these rungs, then others until the limit is met or no time is left for one more."""
        self._requests = requests
        for rung in rungs:
            self._search[rung] = self._read(rate_of(self.start, rung), requests)
        lowest, highest = self._ends()
        while True:
            tested_rung = next_rung(*self._tried(), self._objective.limit_s, lowest, highest)
            if tested_rung is None or time.monotonic() + requests / rate_of(self.start, tested_rung) > deadline:
                return
            self._search[tested_rung] = self._read(rate_of(self.start, tested_rung), requests)

    def trace(self, rungs: Sequence[int], seconds: float) -> None:
        """Measure rungs for the curve alone, with as many requests as the time gives."""
        for rung in rungs:
            rate = rate_of(self.start, rung)
            requests = min(self._requests, int(seconds * rate))
            if rung not in self._search and requests > 0:
                self._curve.append(self._read(rate, requests))

    @property
    def reach(self) -> Reach:
        """How the search ended."""
        rungs, values = self._tried()
        lowest, highest = self._ends()
        if self.near is not None:
            return "crossing"
        if keeps_all(values, self._objective.limit_s):
            return "saturation" if max(rungs) >= highest else "bound"
        too_slow = not meets(self._objective, self._search[min(rungs)].services_s)
        return "none" if too_slow or min(rungs) <= lowest else "bound"

    @property
    def near(self) -> tuple[int, int] | None:
        """The rungs between which the limit is met."""
        return bracket(*self._tried(), self._objective.limit_s)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """All that was measured, from the lowest rate up."""
        return tuple(sorted([*self._search.values(), *self._curve], key=lambda reading: reading.rate))

    @property
    def measured_rate(self) -> float:
        """The highest rate on this process's arrivals."""
        rates, limit_s = [reading.rate for reading in self._search.values()], self._objective.limit_s
        rung = crossing(rates, self._tried()[1], limit_s)
        if rung is not None and self.near is not None:
            return rung
        if keeps_all(self._tried()[1], limit_s):
            return max(rates)
        return 0.0 if self.reach == "none" else min(rates)

    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest rung that are worth trying."""
        lowest, highest = _LOWEST * self.saturation_rate, MOST_LOAD * self.saturation_rate
        return rung_of(self.start, lowest), rung_of(self.start, highest)

    def _tried(self) -> tuple[list[int], list[float]]:
        values = [value_s(self._objective, reading.responses_s) for reading in self._search.values()]
        return list(self._search), values


class SearchedCell(SharesTime, Protocol):
    """A cell whose processes share the time of a search."""

    @property
    def engine(self) -> str:
        """What runs it."""


class RateSearch:
    """The search, process after process; the first one finds out where to begin and what the time allows."""

    def __init__(
        self,
        cell: SearchedCell,
        objective: Objective,
        needed: int,
        usual_processes: int,
        probe: Callable[[int], AbstractContextManager[Probe]],
        listener: Listener,
        on_trial: Callable[[], None] | None = None,
    ) -> None:
        """`needed` requests carry the objective; `probe` makes the process of a number, counted from 1.

        `on_trial` is called whenever one more process has been measured.
        """
        self._cell, self._objective, self._needed = cell, objective, needed
        self._probe, self._listener, self._on_trial = probe, listener, on_trial
        self._wanted = cell.processes or usual_processes
        self._began = time.monotonic()
        self._budget = Budget(1, 0, 0.0)
        #: What a process takes before its search, the rate of rung 0, and the rungs that the search begins with.
        self._overhead_s = 0.0
        self._start = 0.0
        self._rungs: tuple[int, ...] = (0,)
        self._out_of_reach = False
        self.predicted_rate = 0.0
        self.trials: list[Trial] = []
        self.interrupted = False

    def run(self) -> None:
        """Measure as many processes as the time allows; Ctrl-C keeps those that are complete."""
        try:
            while not self.trials or self._another():
                self.trials.append(self._try(len(self.trials) + 1))
                if self._on_trial is not None:
                    self._on_trial()
        except KeyboardInterrupt:
            if not self.trials:
                raise
            self.interrupted = True

    def take(self, trials: Sequence[Trial], before: SearchProgress) -> None:
        """Go on with a search that was cut off, after the processes that it had measured."""
        self.trials = [*trials]
        self._began -= before.seconds
        self._overhead_s, self._start, self._rungs = before.overhead_s, before.start_rate, before.rungs
        self._out_of_reach = before.start_rate == 0

    def progress(self, trials: Sequence[GenerationTrial]) -> SearchProgress:
        """What `take` goes on with, and with these trials as they are saved."""
        seconds = time.monotonic() - self._began
        return SearchProgress(seconds, self._overhead_s, self._start, tuple(self._rungs), tuple(trials))

    @property
    def fraction(self) -> float:
        """How much of the time has passed."""
        return min(1.0, (time.monotonic() - self._began) / self._cell.time_s)

    @property
    def wanted_s(self) -> float | None:
        """The time that all wanted processes would take; None where they were measured, or need not be."""
        if self.interrupted or self._out_of_reach or len(self.trials) >= self._wanted:
            return None
        return math.ceil(self._cell.time_s * self._wanted / len(self.trials))

    def _another(self) -> bool:
        """Whether one more process is wanted and has time; what is left is divided again."""
        left, left_s = self._wanted - len(self.trials), self._began + self._cell.time_s - time.monotonic()
        if self._out_of_reach or left <= 0:
            return False
        rate = rate_of(self._start, self._rungs[0])
        share = budget(left_s, left, 1, self._overhead_s, rate, self._needed)
        self._budget = share or self._budget
        return share is not None

    def _try(self, number: int) -> Trial:
        began = time.monotonic()
        self._listener(Event("loading", {"engine": self._cell.engine, "process": number}))
        with self._probe(number) as probe:
            if number == 1:
                self._listener(Event("engine", probe.settings()))
            probe.saturate()
            if number == 1:
                self._overhead_s = time.monotonic() - began
                self._plan(probe)
            if not self._out_of_reach:
                self._search(probe)
            run = probe.end()
        return probe.trial(run)

    def _plan(self, probe: Probe) -> None:
        """Where to begin, and with how many requests and processes; or that no rate will do."""
        predicted, saturation = probe.predict(self._afford), probe.saturation_rate
        self._out_of_reach = predicted is None
        self.predicted_rate = predicted or 0.0
        data = {"rate": saturation, "predicted": self.predicted_rate, "slo": self._objective.text}
        self._listener(Event(probe.saturation_event, data))
        if not self._out_of_reach:
            self._start = saturation * min(CEILING, max(_LOW_LOAD, self.predicted_rate / saturation))
            self._budget = self._afford(self._start)

    def _afford(self, rate: float) -> Budget:
        """How to spend the time on a search around a rate; refuses where it is too short for the objective."""
        fewest, needed, time_s = self._cell.processes or 1, self._needed, self._cell.time_s
        share = budget(time_s, self._wanted, fewest, self._overhead_s, rate, needed)
        if share is None:
            few_s, all_s = (
                time_needed_s(count, self._overhead_s, rate, needed) for count in (fewest, self._wanted)
            )
            hint = f" or -t {all_s:g} for {self._wanted} processes and an interval"
            raise BadInput(
                f"{duration(time_s)} is too short for {self._objective.text}: that takes {needed} requests at "
                f"each of several rates, and they come at about {rate:.3g} per second. "
                f"Give -t {few_s:g}{hint if fewest < self._wanted else ''}."
            )
        return share

    def _search(self, probe: Probe) -> None:
        """Search around the rungs where the first process found its rate, then trace the curve below."""
        probe.start = self._start
        probe.search(self._rungs, self._budget.requests, self._began + _LATE * self._cell.time_s)
        if not self.trials:
            if probe.reach == "bound" and probe.must_end:
                raise BadInput(
                    f"The search for the highest rate did not end within {duration(self._cell.time_s)}. "
                    f"Stop other programs (inferlab doctor shows them), or give -t {2 * self._cell.time_s:g}."
                )
            self._rungs = probe.near or self._rungs
        probe.trace([self._rungs[0] + below for below in CURVE], self._budget.curve_s)


def search_findings(
    cell: SearchedCell, trials: Sequence[Trial], wanted_s: float | None, interrupted: bool
) -> list[Finding]:
    """What the reader must know of a search; `wanted_s` is the time that all wanted processes would take."""
    reaches = [trial.reach for trial in trials]
    findings = []
    if "none" in reaches and len(set(reaches)) > 1:
        findings.append(Finding("some-out-of-reach", {"processes": reaches.count("none"), "of": len(trials)}))
    if "saturation" in reaches:
        tried = max(
            trial.readings[-1].rate / trial.saturation_rate for trial in trials if trial.reach == "saturation"
        )
        data = {"processes": reaches.count("saturation"), "of": len(trials), "tried": tried}
        findings.append(Finding("kept-to-saturation", data))
    if "bound" in reaches:
        findings.append(Finding("search-cut", {"processes": reaches.count("bound"), "of": len(trials)}))
    if wanted_s is not None:
        findings.append(Finding("few-processes", {"processes": len(trials), "seconds": wanted_s}))
    if cell.processes == 1:
        findings.append(Finding("one-process-asked"))
    if interrupted:
        findings.append(Finding("search-interrupted", {"processes": len(trials)}))
    return findings


def readings_by_rate(trials: Sequence[Trial]) -> dict[float, list[Reading]]:
    """What all processes answered at each rate, from the lowest up."""
    readings: dict[float, list[Reading]] = {}
    for trial in trials:
        for reading in trial.readings:
            readings.setdefault(reading.rate, []).append(reading)
    return dict(sorted(readings.items()))
