"""The highest rate of requests that meets a latency objective, and the curve of latency over rate."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import findings, intervals, rate_search
from inferlab.measure.cell import PreparedCell, measuring_alone, prepare_cell
from inferlab.measure.cells import Job
from inferlab.measure.check import worst
from inferlab.measure.children import Children
from inferlab.measure.queueing import carried, meets, samples_needed, value_s
from inferlab.measure.rate_search import Prober, Reading, Trial
from inferlab.measure.stats import PROCESSES
from inferlab.records import Cell, Estimate, Event, Finding, Listener, Model
from inferlab.records.capacity import Capacity, CapacityProcess, LoneRequest, Objective, RatePoint
from inferlab.units import duration

if TYPE_CHECKING:
    from inferlab.records.generation_results import GenerationCapacity

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


def find_capacity(job: Job, objective: Objective, listener: Listener) -> Capacity:
    """Search the highest rate in fresh processes, one after the other, within the cell's time.

    Ctrl-C keeps the processes that are complete. Raises BadInput where the time is too short for the objective.
    """
    job = replace(job, cell=replace(job.cell, scenario="server", rate=None))
    label = f"capacity of {job.model.source} on {job.cell.engine}"
    with measuring_alone(label, listener), prepare_cell(job, listener) as prepared:
        return _Finder(prepared, objective, listener).find()


class _Finder:
    """The search, process after process; the first one finds out where to begin and what the time allows."""

    def __init__(self, prepared: PreparedCell, objective: Objective, listener: Listener) -> None:
        self._setup, self._objective, self._listener = prepared, objective, listener
        self._cell = prepared.job.cell
        self._num_processes = self._cell.processes or PROCESSES
        self._began = time.monotonic()
        self._budget = rate_search.Budget(1, 0, 0.0)
        self._predicted = 0.0
        #: What a process takes before its search, the rate of rung 0, and the rungs that the search begins with.
        self._overhead_s = 0.0
        self._start = 0.0
        self._rungs: tuple[int, ...] = (0,)
        self._lone: LoneRequest | None = None
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
        wanted_s = None if interrupted else self._wanted_s()
        model = self._setup.job.model
        capacity = capacity_of(
            self._cell, model, self._objective, self._predicted, self._trials, wanted_s, interrupted
        )
        return replace(capacity, lone=self._lone)

    def _another(self) -> bool:
        """Whether one more process is wanted and has time; what is left is divided again."""
        left, left_s = self._num_processes - len(self._trials), self._began + self._cell.time_s - time.monotonic()
        if self._lone is not None or left <= 0:
            return False
        rate, needed = rate_search.rate_of(self._start, self._rungs[0]), samples_needed(self._objective)
        budget = rate_search.budget(left_s, left, 1, self._overhead_s, rate, needed)
        self._budget = budget or self._budget
        return budget is not None

    def _wanted_s(self) -> float | None:
        """The time that all wanted processes would take; None where they were measured, or need not be."""
        if self._lone is not None or len(self._trials) >= self._num_processes:
            return None
        return math.ceil(self._cell.time_s * self._num_processes / len(self._trials))

    def _try(self, number: int) -> Trial:
        began = time.monotonic()
        self._listener(Event("loading", {"engine": self._cell.engine, "process": number}))
        with Children(self._setup, self._tick if self._setup.job.live else None) as fresh:
            if number == 1:
                self._listener(Event("engine", fresh.settings()))
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
        data = {"rate": saturation, "predicted": predicted, "slo": self._objective.text}
        self._listener(Event("saturation", data))
        self._predicted = predicted
        if self._lone is None:
            self._start = saturation * min(rate_search.CEILING, max(_LOW_LOAD, predicted / saturation))
            self._budget = self._afford(self._start)

    def _too_slow_alone(self, prober: Prober) -> LoneRequest | None:
        """How long requests take that come one by one, where even that is beyond the limit."""
        times_s = prober.one_by_one(_GLANCE)
        if float(np.min(times_s)) > self._objective.limit_s:
            return LoneRequest(float(np.median(times_s)), "median")
        self._afford(prober.lone_rate)
        times_s = prober.one_by_one(samples_needed(self._objective))
        if meets(self._objective, times_s):
            return None
        return LoneRequest(value_s(self._objective, times_s), self._objective.statistic)

    def _afford(self, rate: float) -> rate_search.Budget:
        """How to spend the time on a search around a rate; refuses where it is too short for the objective."""
        fewest, needed = self._cell.processes or 1, samples_needed(self._objective)
        budget = rate_search.budget(self._cell.time_s, self._num_processes, fewest, self._overhead_s, rate, needed)
        if budget is None:
            hint = (
                f" or -t {self._time_needed_s(self._num_processes, rate):g} for {self._num_processes} processes "
                "and an interval"
            )
            raise BadInput(
                f"{duration(self._cell.time_s)} is too short for {self._objective.text}: that takes {needed} "
                f"requests at each of several rates, and they come at about {rate:.3g} per second. "
                f"Give -t {self._time_needed_s(fewest, rate):g}{hint if fewest < self._num_processes else ''}."
            )
        return budget

    def _search(self, prober: Prober) -> None:
        """Search around the rungs where the first process found its rate, then trace the curve below."""
        prober.start = self._start
        prober.search(self._rungs, self._budget.requests, self._began + _LATE * self._cell.time_s)
        if not self._trials:
            if prober.reach == "bound":
                raise BadInput(
                    f"The search for the highest rate did not end within {duration(self._cell.time_s)}. "
                    f"Stop other programs (inferlab doctor shows them), or give -t {2 * self._cell.time_s:g}."
                )
            self._rungs = prober.near or self._rungs
        prober.trace([self._rungs[0] + below for below in rate_search.CURVE], self._budget.curve_s)

    def _time_needed_s(self, processes: int, rate: float) -> float:
        return rate_search.time_needed_s(processes, self._overhead_s, rate, samples_needed(self._objective))

    def _tell(self, rate: float) -> None:
        self._listener(Event("rung", {"rate": rate, "process": len(self._trials) + 1}))

    def _tick(self) -> None:
        fraction = min(1.0, (time.monotonic() - self._began) / self._cell.time_s)
        self._listener(Event("searching", fraction=fraction))


def capacity_of(
    cell: Cell,
    model: Model,
    objective: Objective,
    predicted_rate: float,
    trials: Sequence[Trial],
    wanted_s: float | None = None,
    interrupted: bool = False,
) -> Capacity:
    """What the processes of a search say together; `wanted_s` is the time that all wanted ones would take."""
    runs = [trial.run for trial in trials]
    return Capacity(
        cell=cell,
        model=model,
        objective=objective,
        predicted_rate=predicted_rate,
        processes=tuple(map(_process, trials)),
        curve=_curve(objective, trials),
        stream_mode=runs[0].stream_mode,
        check=worst([run.check for run in runs]),
        findings=(
            *(finding for finding in findings.find(cell, runs) if finding.code not in _NOT_OURS),
            *_search_findings(cell, trials, wanted_s, interrupted),
        ),
        machine=runs[0].machine,
        versions=runs[0].versions,
        settings=runs[0].settings,
        interrupted=interrupted,
    )


def _process(trial: Trial) -> CapacityProcess:
    return CapacityProcess(
        started_at=trial.run.started_at,
        saturation_rate=trial.saturation_rate,
        measured_rate=trial.measured_rate,
        luck=trial.luck,
        reach=trial.reach,
        rate=trial.rate,
    )


def max_rate(capacity: Capacity | GenerationCapacity) -> Estimate:
    """The typical process's highest rate, with its interval; 0 where the objective is out of reach.

    Where some processes meet the objective at no rate and others do, their middle one, without an interval.
    """
    rates = [process.rate for process in capacity.processes]
    if min(rates) > 0:
        return intervals.student(rates)
    return Estimate(statistics.median(rates), None, None, 0.95, "student")


def saturation_rate(processes: Sequence[CapacityProcess | Trial]) -> float:
    """Requests per second of the typical process when its streams never pause."""
    return intervals.student([process.saturation_rate for process in processes]).value


def _curve(objective: Objective, trials: Sequence[Trial]) -> tuple[RatePoint, ...]:
    """Latency over rate, from the lowest rate up."""
    readings: dict[float, list[Reading]] = {}
    for trial in trials:
        for reading in trial.readings:
            readings.setdefault(reading.rate, []).append(reading)
    saturation = saturation_rate(trials)
    return tuple(_rate_point(readings[rate], rate / saturation, objective) for rate in sorted(readings))


def _rate_point(readings: list[Reading], load: float, objective: Objective) -> RatePoint:
    waited_s = np.concatenate([reading.responses_s for reading in readings])
    responses_s = np.concatenate([_with_unserved(reading) for reading in readings])
    services_s = np.concatenate([reading.services_s for reading in readings])
    names = [*STATISTICS, *(() if objective.statistic in STATISTICS else (objective.statistic,))]
    # What was given up had waited for longer than the limit, so that the objective is judged even where its
    # statistic is unknown.
    value_s = carried(waited_s, objective.statistic)
    return RatePoint(
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


def _search_findings(
    cell: Cell, trials: Sequence[Trial], wanted_s: float | None, interrupted: bool
) -> list[Finding]:
    """What the reader must know of the search."""
    reaches = [trial.reach for trial in trials]
    search_findings = []
    if "none" in reaches and len(set(reaches)) > 1:
        search_findings.append(
            Finding("some-out-of-reach", {"processes": reaches.count("none"), "of": len(trials)})
        )
    if "saturation" in reaches:
        tried = max(
            trial.readings[-1].rate / trial.saturation_rate for trial in trials if trial.reach == "saturation"
        )
        data = {"processes": reaches.count("saturation"), "of": len(trials), "tried": tried}
        search_findings.append(Finding("kept-to-saturation", data))
    if "bound" in reaches:
        search_findings.append(Finding("search-cut", {"processes": reaches.count("bound"), "of": len(trials)}))
    if wanted_s is not None:
        search_findings.append(Finding("few-processes", {"processes": len(trials), "seconds": wanted_s}))
    if cell.processes == 1:
        search_findings.append(Finding("one-process-asked"))
    if interrupted:
        search_findings.append(Finding("search-interrupted", {"processes": len(trials)}))
    return search_findings
