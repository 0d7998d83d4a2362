"""How a cell's time is shared by its processes, and when there are enough of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.measure.stats import precise, processes_for, share_s, time_is_up
from tests.helpers.runs import a_cell, a_run, a_window, samples, steady_run


@pytest.mark.parametrize(
    ("time_s", "ready_s", "expected"),
    [(10.0, 0.5, 5), (10.0, 2.0, 5), (10.0, 2.1, 4), (10.0, 4.9, 2), (10.0, 6.0, 1), (0.1, 30.0, 1)],
)
def test_five_processes_share_the_time_or_fewer_where_loading_takes_longer(
    time_s: float, ready_s: float, expected: int
) -> None:
    cell = a_cell(time_s=time_s)
    assert processes_for(cell, ready_s) == expected
    assert share_s(cell, ready_s) == pytest.approx(time_s / expected)


def test_as_many_processes_as_asked_share_the_time_whatever_loading_takes() -> None:
    cell = a_cell(time_s=12.0, processes=3)
    assert processes_for(cell, 100.0) == 3
    assert share_s(cell, 100.0) == 4.0


@given(st.floats(0.01, 1000), st.floats(0.01, 1000), st.one_of(st.none(), st.integers(1, 50)))
def test_the_processes_use_the_time_that_was_asked_for_and_no_more(
    time_s: float, ready_s: float, processes: int | None
) -> None:
    cell = a_cell(time_s=time_s, processes=processes)
    count = processes_for(cell, ready_s)
    assert count * share_s(cell, ready_s) == pytest.approx(time_s)
    assert not time_is_up(cell, count - 1, ready_s)
    assert time_is_up(cell, count, ready_s)


@given(st.floats(0.01, 1000), st.floats(0.01, 1000))
def test_a_wanted_precision_stays_within_the_time_and_allows_five_processes(time_s: float, ready_s: float) -> None:
    cell = a_cell(time_s=time_s, precision=0.01)
    count = next(number for number in range(1, 100_000) if time_is_up(cell, number, ready_s))
    assert count >= 5
    assert count * share_s(cell, ready_s) <= time_s * (1 + 0.5 / 5)


def test_with_a_wanted_precision_a_process_measures_about_as_long_as_it_takes_to_get_ready() -> None:
    cell = a_cell(time_s=60.0, precision=0.01)
    assert share_s(cell, 0.2) == 0.5
    assert share_s(cell, 3.0) == 3.0
    assert share_s(cell, 30.0) == 12.0


def test_a_precision_is_reached_by_five_processes_that_agree() -> None:
    runs = [steady_run(2.0)] * 5
    assert precise(a_cell(precision=0.01), runs)
    assert not precise(a_cell(precision=0.01), runs[:4])
    assert not precise(a_cell(), runs)


def test_a_precision_is_of_latency_and_throughput_alike() -> None:
    # Equal medians, but calls that are far apart in the second half of the processes.
    gaps = [
        a_run(a_window(samples((0, 2), (wait, wait + 2), (2 * wait, 2 * wait + 2)))) for wait in (2, 2, 2, 9, 9)
    ]
    assert not precise(a_cell(precision=0.05), gaps)


def test_processes_without_a_request_do_not_count_towards_a_precision() -> None:
    cell = a_cell(scenario="server", rate=10.0, precision=0.05)
    busy = a_run(a_window(samples((0, 2), (100, 102), due_ms=(0, 100)), arrivals=2))
    idle = a_run(a_window(samples(due_ms=[]), arrivals=0))
    assert not precise(cell, [idle] * 9)
    assert not precise(cell, [busy] * 4 + [idle] * 5)
    assert precise(cell, [busy] * 5 + [idle])


def test_the_precision_of_a_server_is_that_of_its_latency() -> None:
    cell = a_cell(scenario="server", rate=10.0, precision=0.05)
    few, many = (
        a_run(a_window(samples(*((at, at + 2) for at in due), due_ms=due), arrivals=len(due)))
        for due in ([0.0, 400.0], [0.0, 100.0, 200.0, 300.0, 400.0])
    )
    assert precise(cell, [few, many, few, many, few])
