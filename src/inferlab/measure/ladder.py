"""The search for the highest rate that keeps an objective: pure functions from rates and times to rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferlab.measure.objective import Objective
from inferlab.measure.queueing import highest_rate

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
    found = crossing(rungs, values, limit)
    if found is None:
        return None
    return max(one for one in rungs if one <= found), min(one for one in rungs if one > found)


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
    """What to multiply a process's highest rate by because its arrivals were kinder or harder than usual.

    Its arrivals (they follow from the seed) and fifty thousand others meet the same simulated queue with the
    measured service times; the ratio of the two highest rates is their luck. Simulated for fixed services,
    700 requests and a p99, it takes a bias of +7 % away and leaves a quarter of the spread.
    """
    services_s = without_stalls(services_s)
    shuffle = np.random.default_rng(seed).permutation
    # Other services for the same arrivals, so that it is theirs alone.
    here = [
        highest_rate(shuffle(services_s), streams, objective.keeps, seed, requests, 2 * MOST_LOAD)
        for _ in range(max(1, min(_MOST_DRAWS, _LONG_RUN // requests)))
    ]
    usually = highest_rate(services_s, streams, objective.keeps, seed + 500, _LONG_RUN)
    return usually / _geometric_mean(here) if min(here) > 0 and usually > 0 else 1.0


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
