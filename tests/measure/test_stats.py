"""Statistics with exact answers."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.measure import stats
from inferlab.records import Cell, Pair, Run, Summary
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples, steady_run


def summarize(cell: Cell, *runs: Run) -> Summary:
    summary = stats.summarize(cell, runs)
    assert summary is not None
    return summary


def test_one_stream_is_summarized_exactly() -> None:
    summary = summarize(a_cell(batch_size=8), a_run(a_window(back_to_back(1, 3, 2))))
    assert summary.items_per_sec.value == pytest.approx(3 * 8 / 0.006)
    assert (summary.mean_ms, summary.iterations) == (2.0, 3)
    assert summary.median_ms.value == pytest.approx(2.0)
    assert summary.std_ms == pytest.approx(np.std([1, 3, 2]))
    assert summary.seconds_ran == 0.006
    assert (summary.service_percentiles_ms, summary.unserved_share) == (None, 0.0)


def test_the_rates_of_streams_add_up_although_they_end_at_different_times() -> None:
    fast, slow = back_to_back(*[1] * 10), back_to_back(10, 10)
    summary = summarize(a_cell(num_streams=2), a_run(a_window(fast, slow)))
    assert summary.items_per_sec.value == pytest.approx(1000 + 100)
    assert summary.iterations == 12


def test_a_run_without_samples_has_no_summary() -> None:
    assert stats.summarize(a_cell(), [a_run(a_window(samples()))]) is None
    assert stats.summarize(a_cell(), []) is None


def test_only_the_time_inside_windows_counts() -> None:
    run = a_run(
        a_window(back_to_back(1, 1, begin_ms=0)),
        a_window(back_to_back(2, begin_ms=500)),
        a_window(back_to_back(1, 1, 1, begin_ms=9_000)),
    )
    summary = summarize(a_cell(batch_size=2), run)
    assert summary.seconds_ran == pytest.approx(0.007)
    assert summary.items_per_sec.value == pytest.approx(2 * 6 / 0.007)


def test_the_typical_process_counts_however_many_calls_it_made() -> None:
    summary = summarize(a_cell(), steady_run(1.0, calls=1000), steady_run(4.0, calls=10))
    assert summary.median_ms.value == pytest.approx(2.0)
    assert summary.items_per_sec.value == pytest.approx(500.0)
    assert summary.percentiles_ms[50.0] == 1.0
    assert summary.mean_ms == pytest.approx((1000 * 1.0 + 10 * 4.0) / 1010)


def test_the_interval_is_students_on_the_logarithms_of_the_processes_medians() -> None:
    # ln 1, ln 2, ln 4: mean ln 2, standard error ln 2 / √3; Student's t for 2 degrees of freedom is 4.302653.
    summary = summarize(a_cell(batch_size=10), *map(steady_run, (1.0, 2.0, 4.0)))
    factor = math.exp(4.302653 * math.log(2) / math.sqrt(3))
    for estimate, value in ((summary.median_ms, 2.0), (summary.items_per_sec, 5000.0)):
        assert estimate.value == pytest.approx(value)
        assert estimate.low == pytest.approx(value / factor, rel=1e-6)
        assert estimate.high == pytest.approx(value * factor, rel=1e-6)
        assert (estimate.level, estimate.method) == (0.95, "student")


def test_with_a_wanted_precision_the_interval_is_wider_and_still_called_95_percent() -> None:
    runs = [steady_run(latency) for latency in (1.0, 2.0, 4.0)]
    # Student's t for 2 degrees of freedom at 97 % is 5.642778.
    factor = math.exp(5.642778 * math.log(2) / math.sqrt(3))
    estimate = summarize(a_cell(precision=0.05), *runs).median_ms
    assert estimate.high == pytest.approx(2.0 * factor, rel=1e-6)
    assert estimate.level == 0.95


def test_one_process_has_no_interval() -> None:
    summary = summarize(a_cell(), steady_run(2.0))
    assert (summary.median_ms.low, summary.median_ms.high) == (None, None)
    assert (summary.items_per_sec.low, summary.items_per_sec.high) == (None, None)


def test_a_percentile_is_that_of_numpy_to_the_last_bit() -> None:
    random = np.random.default_rng(0)
    for count in (1, 2, 17, 662, 1000, 6637):
        for values in (random.lognormal(size=count), random.integers(0, 9, count) / 1e6):
            found = {p: stats.percentile(values, p) for p in stats.PERCENTILES}
            assert all(one is None or one == np.percentile(values, p) for p, one in found.items())
            assert found[50.0] is not None


def test_percentiles_are_of_all_processes_together_and_only_where_the_samples_carry_them() -> None:
    summary = summarize(a_cell(), steady_run(1.0, calls=330), steady_run(1.0, calls=331))
    assert summary.percentiles_ms[99.0] is None
    assert summary.percentiles_ms[95.0] == pytest.approx(1.0)
    summary = summarize(a_cell(), steady_run(1.0, calls=331), steady_run(1.0, calls=331))
    assert summary.percentiles_ms[99.0] == pytest.approx(1.0)
    assert summary.percentiles_ms[99.9] is None


def test_a_servers_latency_counts_from_the_scheduled_arrival_and_its_service_stands_beside() -> None:
    served = samples((0, 10), (10, 20), (20, 30), (100, 110), due_ms=(0, 5, 6, 100))
    summary = summarize(a_cell(scenario="server", rate=40.0), a_run(a_window(served, arrivals=5)))
    assert summary.mean_ms == pytest.approx((10 + 15 + 24 + 10) / 4)
    # The fifth request was not served: it is the slowest of five.
    assert summary.percentiles_ms[50.0] == pytest.approx(15.0)
    assert summary.service_percentiles_ms is not None
    assert summary.service_percentiles_ms[50.0] == pytest.approx(10.0)
    assert summary.unserved_share == pytest.approx(0.2)


def test_a_servers_throughput_is_what_it_served_and_not_what_its_streams_could() -> None:
    # Ten requests a second apart, by turns on two streams that need a millisecond each.
    due = [1000.0 * number for number in range(10)]
    streams = [samples(*((at, at + 1) for at in due[one::2]), due_ms=due[one::2]) for one in (0, 1)]
    cell = a_cell(scenario="server", rate=1.0, num_streams=2, batch_size=3)
    assert summarize(cell, a_run(a_window(*streams, arrivals=10))).items_per_sec.value == pytest.approx(
        3 * 10 / 10.001
    )


def test_a_single_request_has_about_the_throughput_of_its_rate() -> None:
    run = a_run(a_window(samples((700, 701), due_ms=[700]), samples(due_ms=[]), arrivals=1))
    cell = a_cell(scenario="server", rate=0.5, num_streams=2)
    assert summarize(cell, run).items_per_sec.value == pytest.approx(1 / 2.001)


def test_an_overloaded_server_has_the_throughput_that_it_reached() -> None:
    # 200 requests arrive in a second, each takes 10 ms: 125 are done when time is up after 1.25 s.
    served = samples(
        *((10.0 * n, 10.0 * n + 10) for n in range(125)), due_ms=[5.0 * number for number in range(125)]
    )
    cell = a_cell(scenario="server", rate=200.0)
    summary = summarize(cell, a_run(a_window(served, arrivals=200)))
    assert summary.items_per_sec.value == pytest.approx(125 / 1.255)
    assert summary.unserved_share == pytest.approx(0.375)


def test_a_process_that_saw_no_request_says_nothing_of_the_others() -> None:
    busy = a_run(a_window(samples((5, 6), (1005, 1006), due_ms=(5, 1005)), arrivals=2))
    idle = a_run(a_window(samples(due_ms=[]), arrivals=0))
    cell = a_cell(scenario="server", rate=1.0)
    summary = summarize(cell, idle, busy, idle)
    assert summary == summarize(cell, busy)
    assert summary.median_ms.low is None


@pytest.mark.parametrize(("p", "needed"), [(25, 24), (75, 24), (90, 64), (95, 130), (99, 662), (99.9, 6636)])
def test_a_percentile_needs_this_many_samples(p: float, needed: int) -> None:
    assert stats.samples_needed(p) == needed
    assert stats.percentile(np.arange(needed - 1, dtype=float), p) is None
    assert stats.percentile(np.arange(needed, dtype=float), p) == pytest.approx(p / 100 * (needed - 1))


def test_the_median_needs_one_sample() -> None:
    assert stats.percentile(np.array([7.0]), 50.0) == 7.0


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(1, 64))
def test_a_single_stream_without_gaps_has_the_throughput_of_its_mean(latencies: list[int], batch: int) -> None:
    summary = summarize(a_cell(batch_size=batch), a_run(a_window(back_to_back(*latencies))))
    assert summary.items_per_sec.value * summary.mean_ms / 1e3 == pytest.approx(batch)
    assert min(latencies) * 0.999 <= summary.median_ms.value <= max(latencies) * 1.001


def test_a_run_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_run().load_s = 1.0  # type: ignore[misc]


def a_server(served: int, arrivals: int) -> Run:
    """A run whose requests were all due at once and served one after the other, a millisecond each."""
    spans = [(float(number), number + 1.0) for number in range(served)]
    return a_run(a_window(samples(*spans, due_ms=[0.0] * served), arrivals=arrivals))


def test_a_request_that_was_not_served_is_later_than_every_one_that_was() -> None:
    cell = a_cell(scenario="server", rate=1000.0)
    summary = summarize(cell, a_server(900, 1000))
    assert summary.unserved_share == pytest.approx(0.1)
    # Of 1,000 requests the 250th took 250 ms; the slowest hundred were not served.
    assert summary.percentiles_ms[25.0] == pytest.approx(250.75)
    assert summary.percentiles_ms[50.0] == pytest.approx(500.5)
    assert summary.percentiles_ms[75.0] == pytest.approx(750.25)
    assert [summary.percentiles_ms[p] for p in (90.0, 95.0, 99.0)] == [None, None, None]
    assert summary.median_ms.value == pytest.approx(500.5)
    assert summary.iterations == 900
    assert summary.mean_ms == pytest.approx(450.5)


def test_where_most_requests_were_not_served_the_median_is_at_least_the_longest() -> None:
    summary = summarize(a_cell(scenario="server", rate=1000.0), a_server(400, 1000))
    assert summary.percentiles_ms[50.0] is None
    assert summary.median_ms.value == pytest.approx(400.0)


def test_requests_that_were_all_served_have_their_own_percentiles() -> None:
    summary = summarize(a_cell(scenario="server", rate=1000.0), a_server(1000, 1000))
    assert summary.unserved_share == 0.0
    assert summary.median_ms.value == pytest.approx(500.5)
    assert summary.percentiles_ms[99.0] == pytest.approx(990.01)


def test_memory_and_loading_of_two_arms_are_compared_pair_by_pair() -> None:
    def pair(a_bytes: int | None, b_bytes: int, b_load_s: float = 2.0) -> Pair:
        run = a_run(a_window(back_to_back(1.0)), peak_memory_bytes=a_bytes, load_s=1.0)
        other = dataclasses.replace(run, peak_memory_bytes=b_bytes, load_s=b_load_s)
        return Pair(run, other, 0.0)

    pairs = [pair(100, 150), pair(200, 300)]
    memory = stats.resource_ratio(pairs, "memory")
    assert memory is not None and memory.ends is not None
    assert memory.value == pytest.approx(1.5)
    # Two pairs that agree count beside two of 2 %, three degrees of freedom in all.
    half = 4.5407 * 0.02 * math.sqrt(2 / 3 / 2)
    assert memory.ends == pytest.approx((1.5 * math.exp(-half), 1.5 * math.exp(half)), rel=1e-4)
    load = stats.resource_ratio(pairs, "load")
    assert load is not None and load.value == pytest.approx(2.0) and load.ends is not None
    assert load.ends[1] / load.ends[0] > memory.ends[1] / memory.ends[0]
    only_one = stats.resource_ratio(pairs[:1], "memory")
    assert only_one is not None and only_one.ends is None
    assert stats.resource_ratio([pair(None, 150)], "memory") is None
    assert stats.resource_ratio([], "load") is None
