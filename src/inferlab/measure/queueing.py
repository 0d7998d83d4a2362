"""Queueing theory: when requests arrive, how long they must wait, and what rate a server can bear."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    found: NDArray[Any] = backlog - np.minimum.accumulate(backlog)
    return found


def _several(arrivals: NDArray[Any], services: NDArray[Any], servers: int) -> NDArray[Any]:
    free_at = [0] * servers
    found = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        start = max(arrival, free_at[0])
        heapq.heapreplace(free_at, start + service)
        found.append(start - arrival)
    return np.array(found, np.result_type(arrivals, services))


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
    """The highest rate of Poisson arrivals at which the response times, in seconds, should keep an objective.

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
