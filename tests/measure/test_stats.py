"""Statistics with exact answers."""

from __future__ import annotations

import dataclasses
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab import machine
from inferlab.measure import stats
from inferlab.records import OutputCheck, Run, Samples


def samples(*spans_ns: tuple[int, int]) -> Samples:
    return Samples(array("q", [start for start, _ in spans_ns]), array("q", [end for _, end in spans_ns]))


def a_run(*streams: Samples) -> Run:
    return Run(
        cell_id="",
        started_at="",
        streams=streams,
        warmup=(),
        stream_mode="single",
        load_s=0,
        first_inference_s=0,
        peak_memory_bytes=None,
        baseline_memory_bytes=None,
        harness_ns=0,
        check=OutputCheck("match"),
        counters={},
        versions={},
        settings={},
        model_path="",
        machine=machine.describe(),
    )


def test_one_stream_is_summarized_exactly() -> None:
    summary = stats.summarize(a_run(samples((0, 1_000_000), (1_000_000, 4_000_000), (4_000_000, 6_000_000))), 8)
    assert summary is not None
    assert summary.items_per_sec == pytest.approx(3 * 8 / 0.006)
    assert (summary.mean_ms, summary.median_ms, summary.iterations) == (2.0, 2.0, 3)
    assert summary.std_ms == pytest.approx(np.std([1, 3, 2]))
    assert summary.seconds_ran == 0.006


def test_the_rates_of_streams_add_up_although_they_end_at_different_times() -> None:
    fast = samples(*((i * 1_000_000, (i + 1) * 1_000_000) for i in range(10)))
    slow = samples((0, 10_000_000), (10_000_000, 20_000_000))
    summary = stats.summarize(a_run(fast, slow), 1)
    assert summary is not None
    assert summary.items_per_sec == pytest.approx(1000 + 100)
    assert summary.iterations == 12


def test_a_run_without_samples_has_no_summary() -> None:
    assert stats.summarize(a_run(samples()), 1) is None


@pytest.mark.parametrize(("p", "needed"), [(25, 24), (75, 24), (90, 64), (95, 130), (99, 662), (99.9, 6636)])
def test_a_percentile_needs_this_many_samples(p: float, needed: int) -> None:
    assert stats.samples_needed(p) == needed
    assert stats.percentile(np.arange(needed - 1, dtype=float), p) is None
    assert stats.percentile(np.arange(needed, dtype=float), p) == pytest.approx(p / 100 * (needed - 1))


def test_the_median_needs_one_sample() -> None:
    assert stats.percentile(np.array([7.0]), 50.0) == 7.0


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(1, 64))
def test_a_single_stream_without_gaps_has_the_throughput_of_its_mean(durations: list[int], batch: int) -> None:
    ends = np.cumsum(durations).tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    summary = stats.summarize(a_run(samples(*spans)), batch)
    assert summary is not None
    assert summary.items_per_sec * summary.mean_ms / 1e3 == pytest.approx(batch)
    assert min(durations) / 1e6 <= summary.median_ms <= max(durations) / 1e6


def test_a_run_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_run().load_s = 1.0  # type: ignore[misc]
