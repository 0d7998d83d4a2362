"""The highest rate of requests that keeps a latency objective, and the curve of latency over rate."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import children, findings, intervals, rate_search
from inferlab.measure.children import Process
from inferlab.measure.lock import measuring_alone
from inferlab.measure.prepare import Job, Setup, set_up
from inferlab.measure.queueing import Objective, carried
from inferlab.measure.rate_search import Prober, Reading, Trial
from inferlab.measure.stats import PROCESSES
from inferlab.records import Cell, Estimate, Event, Finding, Listener, Model
from inferlab.units import duration

STATISTICS = ("mean", "median", "p90", "p95", "p99")
# The share of all the time that a process is saturated for, but no less than this.
_SETTLE, _SETTLE_S = 0.02, 0.25
# Each process warms up until it is steady, for so long at most: all of it is part of the time.
_WARMUP_S = 0.5
# If so many requests, one by one, all miss the limit, then no statistic from the median up keeps it.
_GLANCE = 20
# So much longer than asked it may take to end a search that has begun.
_LATE = 1.1
# The lowest share of saturation to begin at: from there a search descends in few steps.
_LOW_LOAD = 0.1
# What findings.find says of one fixed rate; a search has words of its own.
_NOT_OURS = ("overloaded", "one-process", "interrupted")


@dataclass(frozen=True, slots=True)
class Lone:
    """How long requests take that come one by one: a glance at a few gives their median, more the objective's."""

    seconds: float
    statistic: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was found out about one cell and one objective."""

    cell: Cell
    model: Model
    objective: Objective
    #: What queueing theory makes of the first process's service times, saturated or, if too long, one by one.
    predicted_rate: float
    trials: tuple[Trial, ...]
    #: With no rate at all: the service time of requests that came one by one.
    lone: Lone | None = None
    #: The time that the wanted processes would have taken, where fewer were measured.
    wanted_s: float | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One rate of the curve, the requests of all processes together; None where too few carry a statistic."""

    rate: float
    #: The rate as a share of saturation.
    load: float
    requests: int
    processes: int
    unserved_share: float
    responses_s: dict[str, float | None]
    services_s: dict[str, float | None]
    #: Whether the objective is kept; None where the requests do not carry its statistic.
    kept: bool | None


def find_capacity(job: Job, objective: Objective, listener: Listener) -> Capacity:
    """Search the highest rate in fresh processes, one after the other, within the cell's time.

    Ctrl-C keeps the processes that are complete. Raises BadInput where the time cannot carry the objective.
    """
    job = replace(job, cell=replace(job.cell, scenario="server", rate=None))
    label = f"capacity of {job.model.source} on {job.cell.engine}"
    with measuring_alone(label, listener), set_up(job, listener) as prepared:
        return _Finder(prepared, objective, listener).find()


class _Finder:
    """The search, process after process; the first one finds out where to begin and what the time allows."""

    def __init__(self, prepared: Setup, objective: Objective, listener: Listener) -> None:
        self._setup, self._objective, self._listener = prepared, objective, listener
        self._cell = prepared.job.cell
        self._wanted = self._cell.processes or PROCESSES
        self._began = time.monotonic()
        self._budget = rate_search.Budget(1, 0, 0.0)
        self._predicted = 0.0
        #: What a process takes before its search, the rate of rung 0, and the rungs that the search begins with.
        self._overhead_s = 0.0
        self._start = 0.0
        self._rungs: tuple[int, ...] = (0,)
        self._lone: Lone | None = None
        self._trials: list[Trial] = []

    def find(self) -> Capacity:
        """Measure as many processes as the time allows."""
        interrupted = False
        try:
            while not self._trials or self._another():
                self._trials.append(self._try(len(self._trials) + 1))
        except KeyboardInterrupt:
            if not self._trials:
                raise
            interrupted = True
        return Capacity(
            self._cell,
            self._setup.job.model,
            self._objective,
            self._predicted,
            tuple(self._trials),
            self._lone,
            None if interrupted else self._wanted_s(),
            interrupted,
        )

    def _another(self) -> bool:
        """Whether one more process is wanted and has time, which what is left is divided for anew."""
        left, left_s = self._wanted - len(self._trials), self._began + self._cell.time_s - time.monotonic()
        if self._lone is not None or left <= 0:
            return False
        rate, needed = rate_search.rate_of(self._start, self._rungs[0]), self._objective.samples_needed
        budget = rate_search.budget(left_s, left, 1, self._overhead_s, rate, needed)
        self._budget = budget or self._budget
        return budget is not None

    def _wanted_s(self) -> float | None:
        """The time that all wanted processes would take; None where they were measured, or need not be."""
        if self._lone is not None or len(self._trials) >= self._wanted:
            return None
        return math.ceil(self._cell.time_s * self._wanted / len(self._trials))

    def _try(self, number: int) -> Trial:
        began = time.monotonic()
        self._listener(Event("loading", {"engine": self._cell.engine, "process": number}))
        with Process(self._setup, self._tick if self._setup.job.live else None) as fresh:
            if number == 1:
                self._listener(Event("engine", children.settings(fresh)))
            fresh.give_inputs()
            fresh.check_outputs()
            settle_s = max(_SETTLE_S, _SETTLE * self._cell.time_s)
            fresh.warm_up(min(_WARMUP_S, self._cell.warmup_s))
            prober = Prober(fresh, self._objective, self._cell.seed * 1000 + number, self._tell)
            prober.saturate(settle_s)
            if number == 1:
                self._overhead_s = time.monotonic() - began
                self._plan(prober)
            if self._lone is None:
                self._search(prober)
            fresh.check_outputs()
            run = fresh.run()
        return prober.trial(run)

    def _plan(self, prober: Prober) -> None:
        """Where to begin, and with how many requests and processes; or that no rate will do."""
        predicted, saturation = prober.predict(), prober.saturation_rate
        if predicted == 0.0:
            self._lone = self._too_slow_alone(prober)
            predicted = 0.0 if self._lone else prober.predict()
        told = {"rate": saturation, "predicted": predicted, "slo": self._objective.text}
        self._listener(Event("saturation", told))
        self._predicted = predicted
        if self._lone is None:
            self._start = saturation * min(rate_search.CEILING, max(_LOW_LOAD, predicted / saturation))
            self._budget = self._afford(self._start)

    def _too_slow_alone(self, prober: Prober) -> Lone | None:
        """How long requests take that come one by one, where even that is beyond the limit."""
        times_s = prober.one_by_one(_GLANCE)
        if float(np.min(times_s)) > self._objective.limit_s:
            return Lone(float(np.median(times_s)), "median")
        self._afford(prober.lone_rate)
        times_s = prober.one_by_one(self._objective.samples_needed)
        if self._objective.keeps(times_s):
            return None
        return Lone(self._objective.value_s(times_s), self._objective.statistic)

    def _afford(self, rate: float) -> rate_search.Budget:
        """How to spend the time on a search around a rate; refuses where it cannot carry the objective."""
        fewest, needed = self._cell.processes or 1, self._objective.samples_needed
        found = rate_search.budget(self._cell.time_s, self._wanted, fewest, self._overhead_s, rate, needed)
        if found is None:
            wanted = (
                f" or -t {self._time_needed_s(self._wanted, rate):g} for {self._wanted} processes and an interval"
            )
            raise BadInput(
                f"{duration(self._cell.time_s)} cannot carry {self._objective.text}: that takes {needed} requests "
                f"at each of several rates, and they come at about {rate:.3g} a second. "
                f"Give -t {self._time_needed_s(fewest, rate):g}{wanted if fewest < self._wanted else ''}."
            )
        return found

    def _search(self, prober: Prober) -> None:
        """Search around the rungs where the first process found its rate, then trace the curve below."""
        prober.start = self._start
        prober.search(self._rungs, self._budget.requests, self._began + _LATE * self._cell.time_s)
        if not self._trials:
            if prober.reach == "bound":
                raise BadInput(
                    f"The search for the highest rate did not end within {duration(self._cell.time_s)}. "
                    f"Stop other programs (inferlab doctor tells), or give -t {2 * self._cell.time_s:g}."
                )
            self._rungs = prober.near or self._rungs
        prober.trace([self._rungs[0] + below for below in rate_search.CURVE], self._budget.curve_s)

    def _time_needed_s(self, processes: int, rate: float) -> float:
        return rate_search.time_needed_s(processes, self._overhead_s, rate, self._objective.samples_needed)

    def _tell(self, rate: float) -> None:
        self._listener(Event("rung", {"rate": rate, "process": len(self._trials) + 1}))

    def _tick(self) -> None:
        fraction = min(1.0, (time.monotonic() - self._began) / self._cell.time_s)
        self._listener(Event("searching", fraction=fraction))


def max_rate(capacity: Capacity) -> Estimate:
    """The typical process's highest rate; 0 where the objective is out of reach.

    Where some processes keep the objective at no rate and others do, their middle one, without an interval.
    """
    rates = [one.rate for one in capacity.trials]
    if min(rates) > 0:
        return intervals.student(rates)
    return Estimate(statistics.median(rates), None, None, 0.95, "student")


def saturation_rate(capacity: Capacity) -> float:
    """Requests a second of the typical process when its streams never pause."""
    return intervals.student([one.saturation_rate for one in capacity.trials]).value


def curve(capacity: Capacity) -> tuple[Rung, ...]:
    """Latency over rate, from the lowest rate up."""
    found: dict[float, list[Reading]] = {}
    for trial in capacity.trials:
        for reading in trial.readings:
            found.setdefault(reading.rate, []).append(reading)
    saturation = saturation_rate(capacity)
    return tuple(_rung(found[rate], rate / saturation, capacity.objective) for rate in sorted(found))


def _rung(readings: list[Reading], load: float, objective: Objective) -> Rung:
    waited_s = np.concatenate([one.responses_s for one in readings])
    responses_s = np.concatenate([_with_unserved(one) for one in readings])
    services_s = np.concatenate([one.services_s for one in readings])
    names = [*STATISTICS, *(() if objective.statistic in STATISTICS else (objective.statistic,))]
    # What was given up had waited for longer than the limit, so that the objective is judged even where its
    # statistic is unknown.
    value_s = carried(waited_s, objective.statistic)
    return Rung(
        rate=readings[0].rate,
        load=load,
        requests=len(responses_s),
        processes=len(readings),
        unserved_share=1.0 - len(services_s) / len(responses_s),
        responses_s={name: carried(responses_s, name) for name in names},
        services_s={name: carried(services_s, name) for name in names},
        kept=None if value_s is None else value_s <= objective.limit_s,
    )


def _with_unserved(reading: Reading) -> NDArray[np.float64]:
    """The response times of a reading; what was given up is later than all that was served."""
    unserved = len(reading.responses_s) - len(reading.services_s)
    return np.concatenate([reading.responses_s[: len(reading.services_s)], np.full(unserved, np.inf)])


def find(capacity: Capacity) -> tuple[Finding, ...]:
    """Everything that the reader must know, as for a benchmark and of the search."""
    cell, trials = capacity.cell, capacity.trials
    reaches = [one.reach for one in trials]
    found = [one for one in findings.find(cell, [trial.run for trial in trials]) if one.code not in _NOT_OURS]
    if "none" in reaches and len(set(reaches)) > 1:
        found.append(Finding("some-out-of-reach", {"processes": reaches.count("none"), "of": len(trials)}))
    if "saturation" in reaches:
        tried = max(one.readings[-1].rate / one.saturation_rate for one in trials if one.reach == "saturation")
        data = {"processes": reaches.count("saturation"), "of": len(trials), "tried": tried}
        found.append(Finding("kept-to-saturation", data))
    if "bound" in reaches:
        found.append(Finding("search-cut", {"processes": reaches.count("bound"), "of": len(trials)}))
    if capacity.wanted_s is not None:
        found.append(Finding("few-processes", {"processes": len(trials), "seconds": capacity.wanted_s}))
    if cell.processes == 1:
        found.append(Finding("one-process-asked"))
    if capacity.interrupted:
        found.append(Finding("search-interrupted", {"processes": len(trials)}))
    return tuple(found)
