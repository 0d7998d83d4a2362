"""The search for the highest rate that meets an objective: its rules, and what one fresh process says of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from inferlab.measure import queueing
from inferlab.measure.children import Children
from inferlab.measure.queueing import highest_rate, meets, value_s
from inferlab.measure.stats import latencies_ns, service_ns
from inferlab.records import Run, Window
from inferlab.records.capacity import Objective, Reach

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
# Requests of a simulated queue whose luck does not matter any more.
_LONG_RUN = 50_000
_MOST_DRAWS = 8
# Service times beyond this percentile are stalls of the machine as a rule.
_STALLS = 95.0


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
    return _geometric_mean(values) <= limit


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
    return usually / _geometric_mean(here) if min(here) > 0 and usually > 0 else 1.0


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


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
    #: What to multiply it by, because these arrivals were easier or harder than usual.
    luck: float
    reach: Reach

    @property
    def rate(self) -> float:
        """The highest rate of this process, whatever the arrivals."""
        return min(self.measured_rate * self.luck, CEILING * self.saturation_rate)


class RateLadder:
    """A process that is asked at one rate after another, for the highest that meets an objective."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        #: The rate of rung 0.
        self.start = 0.0
        self.saturation_rate = 0.0
        self._requests = 0
        self._search: dict[int, Reading] = {}
        self._curve: list[Reading] = []

    def _read(self, rate: float, requests: int) -> Reading:
        """Measure so many requests at one rate."""
        raise NotImplementedError

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


class Prober(RateLadder):
    """A process that is asked at one rate after another; Ctrl-C raises."""

    def __init__(self, process: Children, objective: Objective, seed: int, tell: Callable[[float], None]) -> None:
        super().__init__(objective)
        self._process, self._seed, self._tell = process, seed, tell
        cell = process.prepared.job.cell
        self._streams = cell.num_streams * cell.instances
        self._services_s: NDArray[np.float64] = np.empty(0)

    def saturate(self, seconds: float) -> None:
        """Let all streams work without a pause."""
        window = self._complete(self._process.measure(seconds))
        self._services_s = _services_s(window)
        self.saturation_rate = sum(
            len(stream) * 1e9 / (stream.ends_ns[-1] - stream.starts_ns[0])
            for stream in window.streams
            if len(stream)
        )

    def predict(self) -> float:
        """The highest rate that should meet the objective, by the service times known so far."""
        services_s = without_stalls(self._services_s)
        return queueing.highest_rate(services_s, self._streams, partial(meets, self._objective), self._seed)

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

    def trial(self, run: Run) -> Trial:
        """The record of all that was asked; without a search, the record that no rate will do."""
        if not self._search:
            return Trial(run, (), self.saturation_rate, 0.0, 1.0, "none")
        factor = 1.0
        if self.near is not None:
            services_s = np.concatenate([self._search[rung].services_s for rung in self.near])
            factor = luck(self._objective, services_s, self._streams, self._seed, self._requests)
        return Trial(run, self.readings, self.saturation_rate, self.measured_rate, factor, self.reach)

    def _read(self, rate: float, requests: int) -> Reading:
        """Every rung replays the same arrivals, faster or slower: only the rate differs, not the luck."""
        self._tell(rate)
        arrivals_ns = queueing.poisson_arrivals(rate, (2 * requests + 10) / rate, self._seed)[:requests]
        last_s = float(arrivals_ns[-1]) / 1e9
        most_s = last_s + max(_OVERTIME * last_s, self._objective.limit_s)
        window = self._complete(self._process.serve(arrivals_ns, most_s))
        served_s = np.concatenate([latencies_ns(stream) for stream in window.streams]) / 1e9
        given_up_s = most_s - arrivals_ns[len(served_s) :] / 1e9
        return Reading(rate, np.concatenate([served_s, given_up_s]), _services_s(window))

    def _complete(self, window: Window) -> Window:
        if self._process.interrupted:
            raise KeyboardInterrupt
        return window


def _services_s(window: Window) -> NDArray[np.float64]:
    return np.concatenate([service_ns(stream) for stream in window.streams]) / 1e9
