"""What one fresh process tells of the highest rate: it is saturated, then asked at one rate after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.measure import ladder, queueing
from inferlab.measure.objective import Objective
from inferlab.measure.process import Process
from inferlab.measure.stats import latencies_ns, service_ns
from inferlab.records import Run, Window

#: Where the search ended: between two rungs, at saturation, at no rate at all, or out of time.
Reach = Literal["crossing", "saturation", "none", "bound"]

# A rung gets at least this much longer than its requests take to arrive; what still waits then is given up.
_OVERTIME = 0.25
# Rates below this share of saturation are not searched.
_LOWEST = 0.01
# Requests one by one come this much slower than they are served, so that none meets another.
_APART = 1.2


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

    run: Run
    readings: tuple[Reading, ...]
    saturation_rate: float
    #: The highest rate on this process's arrivals.
    measured_rate: float
    #: What to multiply it by, because these arrivals were kinder or harder than usual.
    luck: float
    reach: Reach

    @property
    def rate(self) -> float:
        """The highest rate of this process, whatever the arrivals."""
        return min(self.measured_rate * self.luck, ladder.CEILING * self.saturation_rate)


class Prober:
    """A process that is asked at one rate after another; Ctrl-C raises."""

    def __init__(self, process: Process, objective: Objective, seed: int, tell: Callable[[float], None]) -> None:
        self._process, self._objective, self._seed, self._tell = process, objective, seed, tell
        #: The rate of rung 0.
        self.start = 0.0
        cell = process.setup.job.cell
        self._streams = cell.num_streams * cell.instances
        self._services_s: NDArray[np.float64] = np.empty(0)
        self._requests = 0
        self._search: dict[int, Reading] = {}
        self._curve: list[Reading] = []
        self.saturation_rate = 0.0

    def saturate(self, seconds: float) -> None:
        """Let all streams work without a pause."""
        window = self._complete(self._process.measure(seconds))
        self._services_s = _services_s(window)
        self.saturation_rate = sum(
            len(one) * 1e9 / (one.ends_ns[-1] - one.starts_ns[0]) for one in window.streams if len(one)
        )

    def predict(self) -> float:
        """The highest rate that should keep the objective, by the service times known so far."""
        services_s = ladder.without_stalls(self._services_s)
        return queueing.highest_rate(services_s, self._streams, self._objective.keeps, self._seed)

    @property
    def lone_rate(self) -> float:
        """A rate at which requests that come evenly do not meet."""
        return 1.0 / (_APART * float(np.mean(self._services_s)))

    def one_by_one(self, requests: int) -> NDArray[np.float64]:
        """The service times of requests that do not meet; predictions are then made from them."""
        arrivals_ns = (np.arange(requests) * 1e9 / self.lone_rate).astype(np.int64)
        window = self._complete(self._process.serve(arrivals_ns, 2 * requests / self.lone_rate + 1.0))
        self._services_s = _services_s(window)
        return self._services_s

    def search(self, rungs: Sequence[int], requests: int, deadline: float) -> None:
        """Measure these rungs, then others until the limit is met or no time is left for one more."""
        self._requests = requests
        for rung in rungs:
            self._search[rung] = self._read(ladder.rate_of(self.start, rung), requests)
        lowest, highest = self._ends()
        while True:
            found = ladder.next_rung(*self._tried(), self._objective.limit_s, lowest, highest)
            if found is None or time.monotonic() + requests / ladder.rate_of(self.start, found) > deadline:
                return
            self._search[found] = self._read(ladder.rate_of(self.start, found), requests)

    def trace(self, rungs: Sequence[int], seconds: float) -> None:
        """Measure rungs for the curve alone, with as many requests as the time gives."""
        for rung in rungs:
            rate = ladder.rate_of(self.start, rung)
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
        if ladder.keeps_all(values, self._objective.limit_s):
            return "saturation" if max(rungs) >= highest else "bound"
        too_slow = not self._objective.keeps(self._search[min(rungs)].services_s)
        return "none" if too_slow or min(rungs) <= lowest else "bound"

    @property
    def near(self) -> tuple[int, int] | None:
        """The rungs between which the limit is met."""
        return ladder.bracket(*self._tried(), self._objective.limit_s)

    def trial(self, run: Run) -> Trial:
        """The record of all that was asked; without a search, the record that no rate will do."""
        if not self._search:
            return Trial(run, (), self.saturation_rate, 0.0, 1.0, "none")
        reach, factor, limit_s = self.reach, 1.0, self._objective.limit_s
        readings = sorted([*self._search.values(), *self._curve], key=lambda one: one.rate)
        rates = [one.rate for one in self._search.values()]
        found = ladder.crossing(rates, self._tried()[1], limit_s)
        if found is not None and self.near is not None:
            services_s = np.concatenate([self._search[rung].services_s for rung in self.near])
            factor = ladder.luck(self._objective, services_s, self._streams, self._seed, self._requests)
        else:
            keeps = ladder.keeps_all(self._tried()[1], limit_s)
            found = max(rates) if keeps else 0.0 if reach == "none" else min(rates)
        return Trial(run, tuple(readings), self.saturation_rate, found, factor, reach)

    def _ends(self) -> tuple[int, int]:
        """The lowest and the highest rung that are worth trying."""
        lowest, highest = _LOWEST * self.saturation_rate, ladder.MOST_LOAD * self.saturation_rate
        return ladder.rung_of(self.start, lowest), ladder.rung_of(self.start, highest)

    def _tried(self) -> tuple[list[int], list[float]]:
        values = [self._objective.value_s(one.responses_s) for one in self._search.values()]
        return list(self._search), values

    def _read(self, rate: float, requests: int) -> Reading:
        """Every rung replays the same arrivals, faster or slower: only the rate differs, not the luck."""
        self._tell(rate)
        arrivals_ns = queueing.poisson_arrivals(rate, (2 * requests + 10) / rate, self._seed)[:requests]
        last_s = float(arrivals_ns[-1]) / 1e9
        most_s = last_s + max(_OVERTIME * last_s, self._objective.limit_s)
        window = self._complete(self._process.serve(arrivals_ns, most_s))
        served_s = np.concatenate([latencies_ns(one) for one in window.streams]) / 1e9
        given_up_s = most_s - arrivals_ns[len(served_s) :] / 1e9
        return Reading(rate, np.concatenate([served_s, given_up_s]), _services_s(window))

    def _complete(self, window: Window) -> Window:
        if self._process.interrupted:
            raise KeyboardInterrupt
        return window


def _services_s(window: Window) -> NDArray[np.float64]:
    return np.concatenate([service_ns(one) for one in window.streams]) / 1e9
