"""The times of two arms at moments that were equally quiet, told by the canary that sang beside their calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.measure.stats import service_ns
from inferlab.records import Run, Samples, Window

Metric = Literal["median", "throughput"]

# After a pause threads wake up and caches fill: what began in this time is dropped.
SETTLE_NS = 50_000_000
# Moments of one pair are sorted by their canaries into so many levels of noise, with as many calls in each.
_LEVELS = 8
_FEWEST = 2
# No level is so steady that it decides alone: a tenth of a per cent, squared.
_LEAST_VARIANCE = 1e-6
# The distance between the quartiles of a normal distribution, in standard deviations.
_QUARTILES = 1.349


@dataclass(frozen=True, slots=True)
class Calls:
    """What one arm did in a pair: how long each call took, and the canary beside it."""

    times_ns: NDArray[np.int64]
    canaries_ns: NDArray[np.int64]
    streams: int


def times_ms(a: Run, b: Run, metric: Metric) -> tuple[float, float]:
    """The time of a batch of both arms: the median call, or what a batch takes with all streams at work.

    A neighbour on the same core makes calls a third slower, for a tenth of a second at a time, and whoever
    met it more often looks slower. So arms are compared level by level of noise, told by the canary, and
    levels count by how much their calls agree. Of identical arms on a shared virtual machine the ratios then
    spread by 0.5 to 2 % a pair, where those of plain medians spread by 1.4 to 12 %.
    """
    arms = calls(a), calls(b)
    levels = np.quantile(np.concatenate([arm.canaries_ns for arm in arms]), np.linspace(0, 1, _LEVELS + 1)[1:-1])
    sums, weights = np.zeros(2), 0.0
    for level in range(_LEVELS):
        logs = [np.log(arm.times_ns[np.searchsorted(levels, arm.canaries_ns) == level]) for arm in arms]
        if min(map(len, logs)) >= _FEWEST:
            weight = _weight(*logs)
            sums += weight * np.array([_centre(one, metric) for one in logs])
            weights += weight
    if not weights:  # so few calls that no level has some of both arms
        sums, weights = np.array([_centre(np.log(arm.times_ns), metric) for arm in arms]), 1.0
    times = np.exp(sums / weights) / 1e6
    shared = [1 if metric == "median" else arm.streams for arm in arms]
    return float(times[0]) / shared[0], float(times[1]) / shared[1]


def _centre(logs: NDArray[np.float64], metric: Metric) -> float:
    """Of one arm's calls at one level: throughput goes by the mean, however unlike the calls are."""
    return float(np.median(logs)) if metric == "median" else math.log(float(np.mean(np.exp(logs))))


def _weight(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """The inverse of the variance of the difference of two medians, by the spread between quartiles."""
    low, high = np.percentile(np.concatenate([a - np.median(a), b - np.median(b)]), (25, 75))
    variance = ((high - low) / _QUARTILES) ** 2 + _LEAST_VARIANCE
    return float(len(a) * len(b) / (len(a) + len(b)) / variance)


def calls(run: Run) -> Calls:
    """All calls of a run, but for those that began while the process woke up."""
    streams = [stream for window in run.windows for stream in settled(window).streams if len(stream)]
    return Calls(
        np.concatenate([service_ns(stream) for stream in streams]),
        np.concatenate([_canaries(stream) for stream in streams]),
        len(run.windows[0].streams),
    )


def _canaries(stream: Samples) -> NDArray[np.int64]:
    """The canary beside each call; where none sang, all moments are alike."""
    if stream.canaries_ns is None:
        return np.zeros(len(stream), np.int64)
    return np.frombuffer(stream.canaries_ns, np.int64)


def settled(window: Window) -> Window:
    """The window without the calls that began while the process woke up; the last call always stays."""
    return replace(window, streams=tuple(map(_settled, window.streams)))


def _settled(stream: Samples) -> Samples:
    if not len(stream):
        return stream
    starts = np.frombuffer(stream.starts_ns, np.int64)
    first = min(int(np.searchsorted(starts, starts[0] + SETTLE_NS)), len(starts) - 1)
    canaries = None if stream.canaries_ns is None else stream.canaries_ns[first:]
    return Samples(stream.starts_ns[first:], stream.ends_ns[first:], canaries_ns=canaries)
