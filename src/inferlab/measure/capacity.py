"""The highest rate of requests that meets a latency objective, and the curve of latency over rate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inferlab.measure import findings, intervals
from inferlab.measure.cell import measuring_alone, prepare_cell
from inferlab.measure.cells import Job
from inferlab.measure.check import worst
from inferlab.measure.children import Children
from inferlab.measure.queueing import carried, highest_rate, meets, samples_needed, value_s
from inferlab.measure.rate_search import (
    MOST_LOAD,
    Probe,
    RateSearch,
    Reading,
    Trial,
    readings_by_rate,
    search_findings,
)
from inferlab.measure.stats import PROCESSES, latencies_ns, service_ns
from inferlab.records import Cell, Estimate, Event, Listener, Model, Run, Window
from inferlab.records.capacity import Capacity, CapacityProcess, LoneRequest, Objective, RatePoint

if TYPE_CHECKING:
    from inferlab.records.capacity import GenerationCapacity

STATISTICS = ("mean", "median", "p90", "p95", "p99")
# The share of all the time that a process is saturated for, but no less than this.
_SETTLE, _SETTLE_S = 0.02, 0.25
# Each process warms up until it is steady, for so long at most: all of it is part of the time.
_WARMUP_S = 0.5
# If so many requests, one by one, all miss the limit, then no statistic from the median up keeps it.
_GLANCE = 20
# Requests one by one come this much slower than they are served, so that none meets another.
_APART = 1.2
# Requests of a simulated queue whose luck does not matter any more.
_LONG_RUN = 50_000
_MOST_DRAWS = 8
# Service times beyond this percentile are stalls of the machine as a rule.
_STALLS = 95.0
# What findings.find says of one fixed rate; a search has words of its own.
_NOT_OURS = ("overloaded", "one-process", "interrupted")


def find_capacity(job: Job, objective: Objective, listener: Listener) -> Capacity:
    """Search the highest rate in fresh processes, one after the other, within the cell's time.

    Ctrl-C keeps the processes that are complete. Raises BadInput where the time is too short for the objective.
    """
    cell = replace(job.cell, scenario="server", rate=None)
    job, probes = replace(job, cell=cell), list[CellProbe]()
    label = f"capacity of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), prepare_cell(job, listener) as prepared:

        @contextmanager
        def probe(number: int) -> Iterator[CellProbe]:
            with Children(prepared, tick if job.live else None) as process:
                probes.append(CellProbe(process, objective, number, listener))
                yield probes[-1]

        def tick() -> None:
            listener(Event("searching", fraction=search.fraction))

        search = RateSearch(cell, objective, samples_needed(objective), PROCESSES, probe, listener)
        search.run()
    capacity = capacity_of(
        cell, job.model, objective, search.predicted_rate, search.trials, search.wanted_s, search.interrupted
    )
    return replace(capacity, lone=probes[0].lone)


class CellProbe(Probe):
    """A cell's processes that are asked at one rate after another; Ctrl-C raises."""

    def __init__(self, process: Children, objective: Objective, number: int, listener: Listener) -> None:
        self._process, self._cell = process, process.prepared.job.cell
        super().__init__(objective, self._cell.seed * 1000 + number, listener, number, objective.limit_s)
        self._streams = self._cell.num_streams * self._cell.instances
        self._services_s: NDArray[np.float64] = np.empty(0)
        #: How long requests take that come one by one, where even that is beyond the limit.
        self.lone: LoneRequest | None = None

    def settings(self) -> dict[str, Any]:
        """What is in force, for the log."""
        return self._process.settings()

    def saturate(self) -> None:
        """Let all streams work without a pause."""
        self._process.check_outputs()
        self._process.warm_up(min(_WARMUP_S, self._cell.warmup_s))
        window = self._complete(self._process.measure(max(_SETTLE_S, _SETTLE * self._cell.time_s)))
        self._services_s = _services_s(window)
        self.saturation_rate = sum(
            len(stream) * 1e9 / (stream.ends_ns[-1] - stream.starts_ns[0])
            for stream in window.streams
            if len(stream)
        )

    def predict(self, afford: Callable[[float], object]) -> float | None:
        """The highest rate that should meet the objective, by the service times, if too long, one by one."""
        if (predicted := self._predicted()) > 0.0:
            return predicted
        self.lone = self._too_slow_alone(afford)
        return None if self.lone else self._predicted()

    def _predicted(self) -> float:
        services_s = without_stalls(self._services_s)
        return highest_rate(services_s, self._streams, partial(meets, self._objective), self._seed)

    def _too_slow_alone(self, afford: Callable[[float], object]) -> LoneRequest | None:
        times_s = self._one_by_one(_GLANCE)
        if float(np.min(times_s)) > self._objective.limit_s:
            return LoneRequest(float(np.median(times_s)), "median")
        afford(self._lone_rate)
        times_s = self._one_by_one(samples_needed(self._objective))
        if meets(self._objective, times_s):
            return None
        return LoneRequest(value_s(self._objective, times_s), self._objective.statistic)

    @property
    def _lone_rate(self) -> float:
        """A rate at which requests that come evenly do not meet."""
        return 1.0 / (_APART * float(np.mean(self._services_s)))

    def _one_by_one(self, requests: int) -> NDArray[np.float64]:
        """The service times of requests that do not meet; predictions are then made from them."""
        arrivals_ns = (np.arange(requests) * 1e9 / self._lone_rate).astype(np.int64)
        window = self._complete(self._process.serve(arrivals_ns, 2 * requests / self._lone_rate + 1.0))
        self._services_s = _services_s(window)
        return self._services_s

    def serve(self, rate: float, arrivals_ns: NDArray[np.int64], most_s: float) -> Reading:
        """Measure requests that arrive at these moments."""
        window = self._complete(self._process.serve(arrivals_ns, most_s))
        served_s = np.concatenate([latencies_ns(stream) for stream in window.streams]) / 1e9
        given_up_s = most_s - arrivals_ns[len(served_s) :] / 1e9
        return Reading(rate, np.concatenate([served_s, given_up_s]), _services_s(window))

    def luck(self) -> float:
        """By the service times around the limit."""
        assert self.near is not None, "luck is asked for where the limit is met"
        services_s = np.concatenate([self._search[rung].services_s for rung in self.near])
        return luck(self._objective, services_s, self._streams, self._seed, self._requests)

    def end(self) -> Run:
        """Check the outputs once more; the record of all that was measured."""
        self._process.check_outputs()
        return self._process.run()

    def _complete(self, window: Window) -> Window:
        if self._process.interrupted:
            raise KeyboardInterrupt
        return window


def _services_s(window: Window) -> NDArray[np.float64]:
    return np.concatenate([service_ns(stream) for stream in window.streams]) / 1e9


def without_stalls(services_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Service times cut at their 95th percentile: what simulations rest on must not hang on a moment's stall."""
    return np.minimum(services_s, np.percentile(services_s, _STALLS))


def luck(objective: Objective, services_s: NDArray[np.float64], streams: int, seed: int, requests: int) -> float:
    """What to multiply a process's highest rate by because its arrivals were easier or harder than usual.

    Its arrivals (they follow from the seed) and fifty thousand others meet the same simulated queue with the
    measured service times; the ratio of the two highest rates is their luck. Simulated for fixed services,
    700 requests and a p99, it takes a bias of +7 % away and leaves a quarter of the spread.
    """
    services_s = without_stalls(services_s)
    shuffle = np.random.default_rng(seed).permutation
    # Other services for the same arrivals, so that it is theirs alone.
    here = [
        highest_rate(shuffle(services_s), streams, partial(meets, objective), seed, requests, 2 * MOST_LOAD)
        for _ in range(max(1, min(_MOST_DRAWS, _LONG_RUN // requests)))
    ]
    usually = highest_rate(services_s, streams, partial(meets, objective), seed + 500, _LONG_RUN)
    return usually / geometric_mean(here) if min(here) > 0 and usually > 0 else 1.0


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
    runs: list[Run] = [trial.run for trial in trials]
    saturation = saturation_rate(trials)
    return Capacity(
        cell=cell,
        model=model,
        objective=objective,
        predicted_rate=predicted_rate,
        processes=tuple(trial.record for trial in trials),
        curve=tuple(
            _rate_point(readings, rate / saturation, objective)
            for rate, readings in readings_by_rate(trials).items()
        ),
        stream_mode=runs[0].stream_mode,
        check=worst([run.check for run in runs]),
        findings=(
            *(finding for finding in findings.find(cell, runs) if finding.code not in _NOT_OURS),
            *search_findings(cell, trials, wanted_s, interrupted),
        ),
        machine=runs[0].machine,
        versions=runs[0].versions,
        settings=runs[0].settings,
        interrupted=interrupted,
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
