"""Queueing theory: when requests arrive, how long they wait, what rate a server can bear within an objective."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import stats

if TYPE_CHECKING:
    from inferlab.records import Objective

# Halvings of the interval between no load and full load: to a millionth of full load.
_HALVINGS = 20


def poisson_arrivals(rate: float, seconds: float, seed: int) -> NDArray[np.int64]:
    """Nanoseconds at which requests arrive in [0, seconds), `rate` a second on average."""
    mean = rate * seconds
    # Ten standard deviations more than are expected: fewer would do in all but one of 10¹⁵ cases.
    count = int(mean + 10 * math.sqrt(mean) + 20)
    times_s = np.cumsum(np.random.default_rng(seed).standard_exponential(count)) / rate
    return (times_s[times_s < seconds] * 1e9).astype(np.int64)


def waits(arrivals: NDArray[Any], services: NDArray[Any] | float, servers: int = 1) -> NDArray[Any]:
    """How long each request waits, first come, first served, in the unit of arrivals and services."""
    services = np.broadcast_to(np.asarray(services), arrivals.shape)
    return _lindley(arrivals, services) if servers == 1 else _several(arrivals, services, servers)


def _lindley(arrivals: NDArray[Any], services: NDArray[Any]) -> NDArray[Any]:
    # w[n+1] = max(0, w[n] + s[n] - gap[n]), unrolled: the backlog had the server never been idle, above its
    # lowest point so far.
    steps = services[:-1] - np.diff(arrivals)
    backlog = np.concatenate([np.zeros(min(1, len(arrivals)), steps.dtype), np.cumsum(steps)])
    waits_ns: NDArray[Any] = backlog - np.minimum.accumulate(backlog)
    return waits_ns


def _several(arrivals: NDArray[Any], services: NDArray[Any], servers: int) -> NDArray[Any]:
    free_at = [0] * servers
    queued = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        start = max(arrival, free_at[0])
        heapq.heapreplace(free_at, start + service)
        queued.append(start - arrival)
    return np.array(queued, np.result_type(arrivals, services))


def pollaczek_khinchine(rate: float, mean_service_s: float, squared_cv: float) -> float:
    """Mean wait in seconds of Poisson arrivals at one server; the services' variance is given over their mean²."""
    load = rate * mean_service_s
    return load * mean_service_s * (1 + squared_cv) / (2 * (1 - load)) if load < 1 else math.inf


def highest_rate(
    services_s: NDArray[np.float64],
    servers: int,
    keeps: Callable[[NDArray[np.float64]], bool],
    seed: int,
    requests: int = 20_000,
    most_load: float = 1.0,
) -> float:
    """The highest rate of Poisson arrivals at which the response times, in seconds, should meet an objective.

    Services are drawn from those measured. Every rate is tried with the same draws, so a higher rate
    makes no request quicker. 0.0 where the objective is missed even without a queue. A few requests may
    keep it beyond full load, up to `most_load`, because their queue had no time to grow.
    """
    random = np.random.default_rng(seed)
    # The arrivals at rate 1.
    arrivals = np.cumsum(random.standard_exponential(requests))
    services = random.choice(services_s, requests)
    if not keeps(services):
        return 0.0
    low, high = 0.0, most_load * servers / float(np.mean(services_s))
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        if keeps(services + waits(arrivals / rate, services, servers)):
            low = rate
        else:
            high = rate
    return low


_FORM = re.compile(
    r"(?P<statistic>mean|median|p(?P<percent>\d+(\.\d+)?))(<=?|≤)(?P<number>\d+(\.\d+)?|\.\d+)(?P<unit>us|µs|μs|ms|s)"
)
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLES = (
    "Write it as p99<20ms, median<3ms or mean<2ms, with us, ms or s, and quote it: the shell reads a bare <."
)
# Fewer requests do not show how a queue behaves, whatever their number says of a percentile.
_FEWEST = 100


def samples_needed(objective: Objective) -> int:
    """The fewest requests that carry an objective's statistic."""
    p = percent(objective.statistic)
    return _FEWEST if p is None else max(_FEWEST, stats.samples_needed(p))


def value_s(objective: Objective, times_s: NDArray[np.float64]) -> float:
    """An objective's statistic of these times, however few they are."""
    p = percent(objective.statistic)
    return float(np.mean(times_s) if p is None else np.percentile(times_s, p))


def meets(objective: Objective, times_s: NDArray[np.float64]) -> bool:
    """Whether these times meet an objective."""
    return value_s(objective, times_s) <= objective.limit_s


def percent(statistic: str) -> float | None:
    """Which percentile a statistic is; None for the mean."""
    return {"mean": None, "median": 50.0}[statistic] if statistic[0] == "m" else float(statistic[1:])


def carried(times_s: NDArray[np.float64], statistic: str) -> float | None:
    """The statistic, or None where these times are too few to carry it or it is not finite."""
    if not len(times_s):
        return None
    p = percent(statistic)
    if p is None:
        mean = float(np.mean(times_s))
        return mean if math.isfinite(mean) else None
    return stats.percentile(times_s, p)


def parse_objective(text: str) -> Objective:
    """Read an objective; spaces and capitals do not matter."""
    from inferlab.records.capacity import Objective

    plain = "".join(text.split()).lower()
    match = _FORM.fullmatch(plain)
    if not match:
        raise BadInput(f"The objective '{text}' cannot be read. {_EXAMPLES}")
    share, limit_s = match["percent"], float(match["number"]) * _UNITS_S[match["unit"]]
    if share is not None and not 50 <= float(share) < 100:
        raise BadInput(
            f"The objective '{text}' names a percentile outside the range: choose one from p50 to below p100."
        )
    if limit_s == 0:
        raise BadInput(f"The objective '{text}' has a limit of 0, which no request can meet. {_EXAMPLES}")
    statistic = match["statistic"] if share is None else f"p{float(share):.10g}"
    return Objective("median" if statistic == "p50" else statistic, limit_s, plain)
