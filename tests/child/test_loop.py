"""The measuring loop, on a clock that the tests own."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from inferlab.child import loop, scenarios


class Clock:
    """Advances by a step each time it is read."""

    def __init__(self, step_ns: int = 1) -> None:
        self.now = 0
        self.step = step_ns

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def test_each_call_is_stamped_before_and_after() -> None:
    clock = Clock()
    starts, ends = array("q", [0] * 5), array("q", [0] * 5)

    def call() -> None:
        clock.now += 10

    assert loop.fill(call, clock, [1 << 60], starts, ends, 0) == 5
    assert list(starts) == [1, 13, 25, 37, 49]
    assert list(ends) == [12, 24, 36, 48, 60]


def test_a_stream_ends_with_the_first_call_that_reaches_the_deadline() -> None:
    clock = Clock()

    def call() -> None:
        clock.now += 98

    taken = loop.run_stream(call, [250], expected=0, clock=clock)
    assert list(taken.ends) == [100, 200, 300]
    assert not taken.full


def test_a_stream_grows_its_arrays_and_loses_nothing() -> None:
    clock = Clock()
    taken = loop.run_stream(lambda: None, [30_000], expected=10, clock=clock)
    assert len(taken.starts) == 15_000
    assert list(taken.starts) == list(range(1, 30_000, 2))
    assert list(taken.ends) == list(range(2, 30_001, 2))


def test_a_stream_stops_at_the_most_samples_and_says_so() -> None:
    taken = loop.run_stream(lambda: None, [1 << 60], expected=0, clock=Clock(), most=10_000)
    assert len(taken.starts) == 10_000
    assert taken.full


def test_a_deadline_brought_forward_ends_the_stream() -> None:
    deadline = [1 << 60]
    calls: Iterator[int] = iter(range(100))

    def call() -> None:
        if next(calls) == 6:
            deadline[0] = 0

    assert len(loop.run_stream(call, deadline, expected=0, clock=Clock()).starts) == 7


def test_several_streams_start_no_earlier_than_told_and_end_together() -> None:
    import time

    start = time.perf_counter_ns() + 20_000_000
    deadline = [0]
    taken = scenarios.closed_loop([lambda: time.sleep(0.001)] * 3, [[]] * 3, start, 0.02, [0] * 3, deadline)
    assert len(taken) == 3
    # Where tidying up took longer than the lead, all begin later, but together.
    begun = deadline[0] - 20_000_000
    assert begun >= start
    for one in taken:
        assert one.starts[0] >= begun
        assert one.ends[-1] >= deadline[0]
        assert list(one.ends)[:-1] == [end for end in one.ends if end < deadline[0]]


def test_an_error_in_one_stream_ends_all_and_is_raised() -> None:
    import time

    def breaks() -> None:
        raise ValueError("as ordered")

    start = time.perf_counter_ns()
    with pytest.raises(ValueError, match="as ordered"):
        scenarios.closed_loop([breaks, lambda: None], [[], []], start, 3600.0, [0, 0], [0])


def test_the_harness_cost_is_a_positive_number_of_nanoseconds() -> None:
    assert loop.harness_cost_ns() > 0
