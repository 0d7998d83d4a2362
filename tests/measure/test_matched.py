"""Arms compared at moments that were equally quiet."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.measure.paired import times_ms
from inferlab.records import Run, Samples, Window
from tests.helpers.runs import a_run

MS = 1_000_000


def arm(times_ms: list[float], canaries_us: list[int] | None = None, streams: int = 1) -> Run:
    """A run of one window whose calls took these times beside these canaries; the first 50 ms are empty."""
    starts = array("q", [0, *(100 * MS * (1 + number) for number in range(len(times_ms)))])
    ends = array("q", [MS, *(start + int(one * MS) for start, one in zip(starts[1:], times_ms, strict=True))])
    canaries = None if canaries_us is None else array("q", [0, *(1000 * one for one in canaries_us)])
    stream = Samples(starts, ends, canaries_ns=canaries)
    return a_run(Window((stream,) * streams, {}, 50_000))


def test_without_a_canary_the_plain_medians_are_compared() -> None:
    a, b = arm([1.0, 2.0, 9.0, 2.0]), arm([4.0, 4.0, 4.0, 1.0])
    assert times_ms(a, b, "median") == pytest.approx((2.0, 4.0))


def test_an_arm_that_met_more_noise_is_not_called_slower() -> None:
    quiet, noisy = 50, 80
    # Both take 10 ms when it is quiet and 15 ms beside a neighbour; B met the neighbour most of the time.
    a = arm([10.0] * 30 + [15.0] * 10, [quiet] * 30 + [noisy] * 10)
    b = arm([10.0] * 10 + [15.0] * 30, [quiet] * 10 + [noisy] * 30)
    of_a, of_b = times_ms(a, b, "median")
    assert of_b / of_a == pytest.approx(1.0)


def test_a_difference_shows_at_every_level_of_noise() -> None:
    rng = np.random.default_rng(1)

    def calls(factor: float, share: float) -> Run:
        noisy = rng.random(400) < share
        canaries = np.where(noisy, rng.integers(75, 90, 400), rng.integers(50, 54, 400))
        times = factor * np.where(noisy, 14.0, 10.0) * rng.normal(1, 0.01, 400)
        return arm(times.tolist(), canaries.tolist())

    of_a, of_b = times_ms(calls(1.0, 0.7), calls(1.03, 0.3), "median")
    assert of_b / of_a == pytest.approx(1.03, rel=0.003)


def test_throughput_goes_by_the_mean_and_the_streams() -> None:
    a, b = arm([1.0, 1.0, 4.0, 2.0]), arm([1.0, 1.0, 4.0, 2.0], streams=2)
    assert times_ms(a, b, "throughput") == pytest.approx((2.0, 1.0))


def test_two_calls_that_met_other_noise_are_compared_all_the_same() -> None:
    assert times_ms(arm([2.0], [50]), arm([3.0], [90]), "median") == pytest.approx((2.0, 3.0))


samples = st.lists(st.tuples(st.floats(0.1, 50), st.integers(40, 120)), min_size=1, max_size=40)


@given(samples, samples)
def test_swapping_the_arms_swaps_their_times(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> None:
    a, b = (arm([time for time, _ in calls], [song for _, song in calls]) for calls in (one, other))
    for metric in ("median", "throughput"):
        forth, back = times_ms(a, b, metric), times_ms(b, a, metric)
        assert forth == pytest.approx((back[1], back[0]))


@given(samples, st.floats(0.5, 2))
def test_times_scale_with_the_calls(calls: list[tuple[float, int]], factor: float) -> None:
    songs = [song for _, song in calls]
    a, b = arm([time for time, _ in calls], songs), arm([factor * time for time, _ in calls], songs)
    of_a, of_b = times_ms(a, b, "median")
    assert of_b / of_a == pytest.approx(factor, rel=1e-4)
