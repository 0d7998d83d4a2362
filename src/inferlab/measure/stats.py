"""Statistics: pure functions from samples to numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from inferlab.records import Run, Samples, Summary

PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
# A percentile is shown only if, with this confidence, at least two samples lie beyond it.
_CONFIDENCE = 0.99


def summarize(run: Run, batch_size: int) -> Summary | None:
    """Throughput and latency of a run; None where it has no samples."""
    streams = [stream for stream in run.streams if len(stream)]
    if not streams:
        return None
    latencies_ms = np.concatenate([latencies_ns(stream) for stream in streams]) / 1e6
    first = min(stream.starts_ns[0] for stream in streams)
    last = max(stream.ends_ns[-1] for stream in streams)
    return Summary(
        items_per_sec=batch_size * sum(rate(stream) for stream in streams),
        seconds_ran=(last - first) / 1e9,
        iterations=len(latencies_ms),
        mean_ms=float(np.mean(latencies_ms)),
        median_ms=float(np.median(latencies_ms)),
        std_ms=float(np.std(latencies_ms)),
        percentiles_ms={p: percentile(latencies_ms, p) for p in PERCENTILES},
    )


def latencies_ns(stream: Samples) -> NDArray[np.int64]:
    """How long each inference took."""
    return np.frombuffer(stream.ends_ns, np.int64) - np.frombuffer(stream.starts_ns, np.int64)


def rate(stream: Samples) -> float:
    """Inferences a second of one stream, from its first start to its last end.

    Streams stop at their own last inference, so each has its own span: a common one would count the
    wait for the slowest stream as work.
    """
    return len(stream) / ((stream.ends_ns[-1] - stream.starts_ns[0]) / 1e9)


def percentile(values: NDArray[np.float64], p: float) -> float | None:
    """The percentile, or None where there are too few samples to carry it; the median is always there."""
    if p != 50.0 and len(values) < samples_needed(p):
        return None
    return float(np.percentile(values, p))


def samples_needed(p: float) -> int:
    """The fewest samples of which two or more lie beyond percentile p with 99 % confidence: 662 for p99."""
    tail = min(p, 100.0 - p) / 100.0

    def doubt(count: int) -> float:
        """The probability that at most one of `count` samples lies beyond."""
        none = math.exp(count * math.log1p(-tail))
        return none + count * tail * none / (1.0 - tail)

    low, high = 1, 2
    while doubt(high) > 1.0 - _CONFIDENCE:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if doubt(middle) <= 1.0 - _CONFIDENCE else (middle, high)
    return high
