"""Measure one cell: several fresh processes share its time, because that is where the variance lies."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from inferlab.measure import process
from inferlab.measure.intervals import precise_enough
from inferlab.measure.lock import measuring_alone
from inferlab.measure.process import Process
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.setup import Job, Setup, set_up
from inferlab.measure.stats import items_per_sec, median_ms, with_samples
from inferlab.records import Cell, Event, Listener, Run

PROCESSES = 5
# Long enough to hold many calls, short enough that a disturbance can be told apart from the rest.
_WINDOW_S = 0.5
# A server gets this much longer than its requests take to arrive; what still waits then is given up.
_OVERTIME = 1.25


def measure(job: Job, listener: Listener) -> Iterator[Run]:
    """Measure a job alone on this machine, one Run for each process; raises what the engine did wrong."""
    cell = job.cell
    label = f"benchmark of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), set_up(job, listener) as prepared:
        progress = _Progress(cell, listener)
        runs: list[Run] = []
        ready_s = 0.0
        while not runs or not (time_is_up(cell, len(runs), ready_s) or precise(cell, runs)):
            with _announced(prepared, progress, len(runs), job.live) as fresh:
                ready_s = ready_s or fresh.ready_s
                runs.append(_measure(fresh, share_s(cell, ready_s), progress))
            yield runs[-1]
            if runs[-1].interrupted:
                return


def processes_for(cell: Cell, ready_s: float) -> int:
    """How many processes share the time: as asked, or 5, or so few that loading takes no longer than measuring."""
    if cell.processes is not None:
        return cell.processes
    return max(1, min(PROCESSES, int(cell.time_s / ready_s)))


def share_s(cell: Cell, ready_s: float) -> float:
    """The measuring time of one process; with a wanted precision, about what it takes to get it ready."""
    if cell.precision is None:
        return cell.time_s / processes_for(cell, ready_s)
    return min(cell.time_s / PROCESSES, max(_WINDOW_S, ready_s))


def time_is_up(cell: Cell, processes: int, ready_s: float) -> bool:
    """Whether so many processes have used up the cell's time."""
    if cell.precision is None:
        return processes >= processes_for(cell, ready_s)
    return (processes + 0.5) * share_s(cell, ready_s) > cell.time_s


def precise(cell: Cell, runs: Sequence[Run]) -> bool:
    """Whether a wanted precision is reached, of latency and throughput alike.

    A server's throughput does not count: it follows the number of requests that chance sends.
    """
    if cell.precision is None:
        return False
    runs = with_samples(runs)
    if not precise_enough([median_ms(run) for run in runs], cell.precision):
        return False
    rates = [items_per_sec(run, cell.batch_size) for run in runs]
    return cell.rate is not None or precise_enough(rates, cell.precision)


@contextmanager
def _announced(prepared: Setup, progress: _Progress, number: int, live: bool) -> Iterator[Process]:
    progress.listener(Event("loading", {"engine": prepared.job.cell.engine, "process": number + 1}))
    with Process(prepared, progress.tick if live else None) as fresh:
        if number == 0:
            progress.listener(Event("engine", process.settings(fresh)))
        yield fresh


def _measure(fresh: Process, seconds: float, progress: _Progress) -> Run:
    cell = fresh.setup.job.cell
    fresh.give_inputs()
    fresh.check_outputs()
    warmup_s = cell.warmup_s * seconds / cell.time_s
    if warmup_s > 0:
        progress.stage(Event("warming", {"seconds": cell.warmup_s}), 0.0)
        fresh.warm_up(warmup_s)
    try:
        _measure_windows(fresh, seconds, progress)
    except KeyboardInterrupt:
        # It came between two windows: those before it are kept, but the conversation may be broken off.
        if not fresh.has_windows:
            raise
        return fresh.run(interrupted=True)
    progress.stage(Event("checking"), 0.0)
    fresh.check_outputs()
    progress.processes += 1
    return fresh.run()


def _measure_windows(fresh: Process, seconds: float, progress: _Progress) -> None:
    cell = fresh.setup.job.cell
    event = Event("measuring", {"scenario": cell.scenario, "seconds": cell.time_s})
    if cell.rate is not None:
        # Every process gets arrivals of its own, the same ones each time the cell is measured.
        seed = cell.seed * 1000 + progress.processes
        progress.stage(event, seconds)
        fresh.serve(poisson_arrivals(cell.rate, seconds, seed), _OVERTIME * seconds)
        return
    count = max(1, round(seconds / _WINDOW_S))
    for _ in range(count):
        progress.stage(event, seconds / count)
        if fresh.measure(seconds / count).full or fresh.interrupted:
            return


class _Progress:
    """Tells of a stage, and again with how much of the cell's time has passed whenever the parent wakes up."""

    def __init__(self, cell: Cell, listener: Listener) -> None:
        self.listener = listener
        self.processes = 0
        self._total_s = cell.time_s
        self._event, self._began, self._done_s, self._stage_s = Event(""), 0.0, 0.0, 0.0

    def stage(self, event: Event, seconds: float) -> None:
        if self.processes == 0:
            self.listener(event)
        self._done_s += self._stage_s
        self._event, self._began, self._stage_s = event, time.monotonic(), seconds

    def tick(self) -> None:
        if self._event.code:
            stage_s = min(self._stage_s, time.monotonic() - self._began)
            fraction = min(1.0, (self._done_s + stage_s) / self._total_s)
            self.listener(dataclasses.replace(self._event, fraction=fraction))
