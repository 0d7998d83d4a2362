"""Queueing theory with exact answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import queueing
from inferlab.measure.queueing import carried, meets, parse_objective, samples_needed, value_s

Requests = tuple[NDArray[np.int64], NDArray[np.int64]]
gaps_and_services = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), max_size=60)


def requests(pairs: list[tuple[int, int]]) -> Requests:
    arrivals = np.cumsum(np.array([gap for gap, _ in pairs], np.int64))
    return arrivals, np.array([service for _, service in pairs], np.int64)


def lindley_by_hand(arrivals: NDArray[np.int64], services: NDArray[np.int64]) -> list[int]:
    found: list[int] = []
    free_at = 0
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        found.append(max(0, free_at - arrival))
        free_at = max(free_at, arrival) + service
    return found


def test_three_requests_in_a_row_wait_for_those_before_them() -> None:
    assert queueing.waits(np.array([0, 5, 6]), 10).tolist() == [0, 5, 14]


def test_an_idle_server_forgets_its_past() -> None:
    assert queueing.waits(np.array([3, 5, 100, 104]), np.array([10, 20, 7, 1])).tolist() == [0, 8, 0, 3]


def test_two_servers_share_the_queue_in_order_of_arrival() -> None:
    # Until 10 and 30 both are busy; the third begins at 10 and ends at 15, the fourth begins at 15.
    waits = queueing.waits(np.array([0, 0, 2, 3, 100]), np.array([10, 30, 5, 5, 5]), servers=2)
    assert waits.tolist() == [0, 0, 8, 12, 0]


@pytest.mark.parametrize("servers", [1, 2])
def test_an_empty_queue_has_no_waits(servers: int) -> None:
    assert queueing.waits(np.array([], np.int64), 10, servers).tolist() == []


@given(gaps_and_services)
def test_the_cumulative_form_is_lindleys_recursion(pairs: list[tuple[int, int]]) -> None:
    arrivals, services = requests(pairs)
    found = queueing.waits(arrivals, services)
    assert found.dtype == np.int64
    assert found.tolist() == lindley_by_hand(arrivals, services)


@given(gaps_and_services, st.integers(2, 4))
def test_with_more_servers_no_request_waits_longer(pairs: list[tuple[int, int]], servers: int) -> None:
    arrivals, services = requests(pairs)
    fewer = queueing.waits(arrivals, services, servers - 1)
    assert (queueing.waits(arrivals, services, servers) <= fewer).all()


@given(gaps_and_services, st.integers(1, 3))
def test_the_servers_do_all_the_work_and_idle_only_while_nobody_waits(
    pairs: list[tuple[int, int]], servers: int
) -> None:
    arrivals, services = requests(pairs)
    starts = arrivals + queueing.waits(arrivals, services, servers)
    ends = starts + services
    moments = range(int(ends.max(initial=0)) + 1)
    in_service = [int(((starts <= now) & (now < ends)).sum()) for now in moments]
    assert sum(in_service) == services.sum()
    assert max(in_service) <= servers
    for now in moments:
        if ((arrivals <= now) & (now < starts)).any():
            assert in_service[now] == servers


@given(gaps_and_services, st.integers(1, 3))
def test_requests_begin_in_the_order_of_their_arrival(pairs: list[tuple[int, int]], servers: int) -> None:
    arrivals, services = requests(pairs)
    assert (np.diff(arrivals + queueing.waits(arrivals, services, servers)) >= 0).all()


def test_poisson_arrivals_follow_from_their_seed() -> None:
    again = [queueing.poisson_arrivals(100.0, 2.0, seed).tolist() for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]


@pytest.mark.parametrize(("rate", "seconds"), [(0.01, 1.0), (3.0, 1.0), (5000.0, 4.0)])
def test_poisson_arrivals_are_sorted_and_lie_within_their_time(rate: float, seconds: float) -> None:
    for seed in range(20):
        arrivals = queueing.poisson_arrivals(rate, seconds, seed)
        assert arrivals.dtype == np.int64
        assert (np.diff(arrivals) >= 0).all()
        assert ((arrivals >= 0) & (arrivals < seconds * 1e9)).all()


def test_a_longer_time_adds_arrivals_and_moves_none() -> None:
    short, long = (queueing.poisson_arrivals(100.0, seconds, 7) for seconds in (1.0, 3.0))
    assert long[: len(short)].tolist() == short.tolist()
    assert (long[len(short) :] >= 1e9).all()


def test_gaps_are_exponential_and_counts_are_poisson() -> None:
    arrivals = queueing.poisson_arrivals(1000.0, 200.0, seed=0)
    gaps_s = np.diff(arrivals) / 1e9
    counts = np.bincount(arrivals // 100_000_000, minlength=2000)
    assert gaps_s.mean() == pytest.approx(0.001, rel=0.01)
    assert gaps_s.std() == pytest.approx(0.001, rel=0.02)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.15)


def test_pollaczek_khinchine_for_fixed_and_for_exponential_services() -> None:
    # M/D/1 at 80 %: 0.8 / (2 × 0.2) services; M/M/1: twice that.
    assert queueing.pollaczek_khinchine(800.0, 0.001, 0.0) == pytest.approx(0.002)
    assert queueing.pollaczek_khinchine(800.0, 0.001, 1.0) == pytest.approx(0.004)
    assert queueing.pollaczek_khinchine(1000.0, 0.001, 0.0) == math.inf


def test_exponential_services_wait_as_pollaczek_and_khinchine_say() -> None:
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.standard_exponential(1_000_000)) / 500.0
    services = random.standard_exponential(1_000_000) * 0.001
    assert queueing.waits(arrivals, services).mean() == pytest.approx(
        queueing.pollaczek_khinchine(500.0, 0.001, 1.0), rel=0.02
    )


def test_two_servers_with_exponential_services_wait_as_erlang_says() -> None:
    # M/M/2: the mean wait is ρ² / (1 − ρ²) services, 1.776 of them at 80 %.
    random = np.random.default_rng(1)
    arrivals = np.cumsum(random.standard_exponential(500_000)) / 1.6
    services = random.standard_exponential(500_000)
    assert queueing.waits(arrivals, services, 2).mean() == pytest.approx(0.64 / 0.36, rel=0.03)


@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0, 3.0])
def test_the_highest_rate_for_a_mean_response_is_that_of_the_inverted_formula(factor: float) -> None:
    service_s = 0.01
    # s + ρ s / (2 (1 − ρ)) = x s, so ρ = 2 (x − 1) / (2 x − 1).
    load = 2 * (factor - 1) / (2 * factor - 1)
    found = queueing.highest_rate(
        np.array([service_s]), 1, lambda responses: float(responses.mean()) < factor * service_s, seed=0
    )
    assert found == pytest.approx(load / service_s, rel=0.03)


def test_an_objective_below_the_service_time_is_kept_at_no_rate() -> None:
    assert (
        queueing.highest_rate(np.array([0.01]), 1, lambda responses: bool(responses.max() < 0.01), seed=0) == 0.0
    )


def test_an_objective_that_is_always_kept_allows_the_full_load() -> None:
    assert queueing.highest_rate(np.array([0.01, 0.03]), 2, lambda _: True, seed=0) == pytest.approx(100.0)


def test_two_servers_bear_more_than_twice_the_rate_of_one() -> None:
    def p99_below_30_ms(responses: NDArray[np.float64]) -> bool:
        return float(np.percentile(responses, 99)) < 0.03

    one, two = (queueing.highest_rate(np.array([0.008, 0.012]), n, p99_below_30_ms, seed=3) for n in (1, 2))
    assert 0 < 2 * one < two < 200


@pytest.mark.parametrize(
    ("text", "statistic", "limit_s"),
    [
        ("p99<20ms", "p99", 0.02),
        ("p95 < 5 ms", "p95", 0.005),
        (" P99.9 <= 1.5 S ", "p99.9", 1.5),
        ("p99.90<1s", "p99.9", 1.0),
        ("median<3ms", "median", 0.003),
        ("p50<3ms", "median", 0.003),
        ("mean<250us", "mean", 0.00025),
        ("mean<250µs", "mean", 0.00025),
        ("mean≤.5ms", "mean", 0.0005),
    ],
)
def test_an_objective_is_a_statistic_and_a_limit_in_seconds(text: str, statistic: str, limit_s: float) -> None:
    objective = parse_objective(text)
    assert objective.statistic == statistic
    assert objective.limit_s == pytest.approx(limit_s)
    assert " " not in objective.text


@pytest.mark.parametrize(
    "text",
    ["", "fast", "p99", "p99<", "p99<20", "p99<20 furlongs", "p99>20ms", "p99<-1ms", "p99=20ms", "99<20ms",
     "p99<20ms and p50<1ms", "p99<1e400s", "p99<nanms", "max<20ms"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match="p99<20ms") as refused:
        parse_objective(text)
    assert f"'{text}'" in str(refused.value)


@pytest.mark.parametrize("text", ["p0<1ms", "p10<1ms", "p100<1ms", "p250<1ms"])
def test_percentiles_that_are_none_to_serve_by_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="p50 to below p100"):
        parse_objective(text)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="limit of 0"):
        parse_objective("p99<0.0ms")


def test_the_limit_itself_is_kept_and_what_is_above_is_not() -> None:
    times_s = np.array([0.001, 0.002, 0.006])
    assert value_s(parse_objective("mean<3ms"), times_s) == pytest.approx(0.003)
    assert meets(parse_objective("median<2ms"), times_s)
    assert meets(parse_objective("mean<3.001ms"), times_s)
    assert not meets(parse_objective("mean<2.999ms"), times_s)
    assert not meets(parse_objective("p90<2ms"), times_s)


def test_a_statistic_is_there_only_where_the_times_carry_it() -> None:
    times_s = np.arange(661.0)
    assert carried(times_s, "p99") is None
    assert carried(np.arange(662.0), "p99") == pytest.approx(654.39)
    assert carried(times_s, "mean") == 330.0
    assert carried(times_s, "median") == 330.0
    assert carried(np.empty(0), "mean") is None


def test_a_percentile_needs_its_samples_and_everything_a_hundred() -> None:
    assert [samples_needed(parse_objective(text)) for text in ("p99<1s", "p95<1s", "median<1s", "mean<1s")] == [
        662,
        130,
        100,
        100,
    ]
