"""The search for the highest rate: its pure parts with exact answers, then the fake engine end to end."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from inferlab import Lab, Plan
from inferlab.errors import BadInput, EngineFailed
from inferlab.measure import capacity, queueing, rate_search
from inferlab.measure.capacity import capacity_of
from inferlab.measure.queueing import meets, parse_objective
from inferlab.measure.rate_search import Reading, Trial
from inferlab.records import Benchmark, Capacity, Event, Model, Objective, Reach
from inferlab.units import share
from inferlab.views import results
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_cell, a_run

# It sleeps: a machine with other work hardly delays that.
FIXED = (("latency_us", "5000"),)


def test_the_rate_lies_where_the_reciprocal_of_the_latency_meets_the_limits() -> None:
    # 1/10 and 1/20 in the unit of the latency: the limit's 1/16 is three quarters of the way.
    assert rate_search.crossing([100, 200], [10, 20], 16) == pytest.approx(175)
    assert rate_search.crossing([200, 100], [20, 10], 16) == pytest.approx(175)


def test_a_busy_queue_is_interpolated_exactly() -> None:
    rates = [0.5, 0.8, 0.95]
    assert rate_search.crossing(rates, [1 / (1 - rate) for rate in rates], 10) == pytest.approx(0.9)


def test_without_a_crossing_there_is_no_rate() -> None:
    assert rate_search.crossing([100, 200], [10, 20], 5) is None
    assert rate_search.crossing([100, 200], [10, 20], 20) is None
    assert rate_search.crossing([100], [10], 10) is None


def test_a_disturbed_rung_is_averaged_with_those_that_contradict_it() -> None:
    assert rate_search.smoothed([1, 4, 1, 8]) == pytest.approx([1, 2, 2, 8])
    # A running maximum would end at the disturbed rung; the average lets the rates above it speak.
    found = rate_search.crossing([1, 2, 3, 4], [1, 4, 1, 8], 3)
    assert found is not None and 3 < found < 4


def test_a_search_climbs_in_growing_steps_until_the_limit_is_broken() -> None:
    assert rate_search.next_rung([0], [1.0], 2.0, -50, 50) == 2
    assert rate_search.next_rung([0, 2], [1.0, 1.1], 2.0, -50, 50) == 4
    assert rate_search.next_rung([0, 2, 4], [1.0, 1.1, 1.2], 2.0, -50, 50) == 8
    assert rate_search.next_rung([0, 2, 4, 8], [1.0, 1.1, 1.2, 1.3], 2.0, -50, 9) == 9
    assert rate_search.next_rung([0, 2, 4, 8, 9], [1.0, 1.1, 1.2, 1.3, 1.4], 2.0, -50, 9) is None


def test_a_search_descends_in_growing_steps_until_the_limit_is_kept() -> None:
    assert rate_search.next_rung([0], [3.0], 2.0, -50, 50) == -2
    assert rate_search.next_rung([0, -2], [3.0, 2.5], 2.0, -50, 50) == -4
    assert rate_search.next_rung([0, -2, -4], [3.0, 2.5, 2.2], 2.0, -50, 50) == -8
    assert rate_search.next_rung([0, -2, -4, -8], [3.0, 2.5, 2.2, 2.1], 2.0, -8, 50) is None


def test_a_wide_gap_is_halved_and_a_narrow_one_ends_the_search() -> None:
    assert rate_search.next_rung([0, 2, 6], [1.0, 1.1, 3.0], 2.0, -50, 50) == 4
    assert rate_search.next_rung([0, 2, 6, 4], [1.0, 1.1, 3.0, 1.5], 2.0, -50, 50) is None


def test_rungs_and_rates_are_each_others_inverse() -> None:
    for rung in (-20, -3, 0, 1, 8):
        assert rate_search.rung_of(40.0, rate_search.rate_of(40.0, rung)) == rung
    assert rate_search.rate_of(100.0, 2) == pytest.approx(115)
    assert [round(rate_search.rate_of(1.0, below), 2) for below in rate_search.CURVE] == [0.76, 0.5, 0.25]


def test_the_budget_gives_as_many_processes_as_can_carry_the_objective() -> None:
    # 5 processes of 11 s: 70 % of it for 3.5 rungs at 100 a second.
    found = rate_search.budget(60, 5, 1, 1.0, 100, 100)
    assert found is not None and found.processes == 5 and found.requests in (219, 220)
    assert found.curve_s == pytest.approx(1.1)
    found = rate_search.budget(80, 5, 1, 1.0, 100, 662)
    assert found is not None and found.processes == 2
    assert rate_search.budget(60, 5, 5, 1.0, 100, 662) is None
    assert rate_search.budget(20, 5, 1, 1.0, 100, 662) is None


@pytest.mark.parametrize("processes", [1, 5])
def test_the_time_that_is_asked_for_is_enough(processes: int) -> None:
    for overhead_s, rate, needed in ((0.5, 37.0, 662), (20.0, 0.3, 100), (0.1, 9000.0, 6636)):
        seconds = rate_search.time_needed_s(processes, overhead_s, rate, needed)
        assert rate_search.budget(seconds, processes, processes, overhead_s, rate, needed) is not None
        assert rate_search.budget(0.8 * seconds, processes, processes, overhead_s, rate, needed) is None


def test_luck_makes_the_rates_of_different_arrivals_agree() -> None:
    objective, services_s = parse_objective("p95<6ms"), np.array([0.002])
    usual = queueing.highest_rate(services_s, 1, partial(meets, objective), 12345, 200_000)
    seeds = range(1, 9)
    found = [queueing.highest_rate(services_s, 1, partial(meets, objective), seed, 200) for seed in seeds]
    factors = [capacity.luck(objective, services_s, 1, seed, 200) for seed in seeds]
    corrected = [rate * factor for rate, factor in zip(found, factors, strict=True)]
    assert max(found) / min(found) > 1.2
    assert max(corrected) / min(corrected) < 1.05
    assert np.mean(corrected) == pytest.approx(usual, rel=0.02)


def test_arrivals_that_say_nothing_are_not_corrected() -> None:
    assert capacity.luck(parse_objective("mean<1ms"), np.array([0.002]), 1, 0, 100) == 1.0


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("model") / "linear.onnx", "batch")


@pytest.fixture(scope="module")
def benchmark(linear: Path) -> Benchmark:
    return Lab().benchmark(Plan(str(linear), engines=("fake",), time_s=0.1, warmup_s=0, processes=1, verify=False))


def measured(benchmark: Benchmark, *rates: float, reach: Reach = "crossing") -> Capacity:
    """A capacity of processes that found these rates, on a run that was really made."""
    (done,) = benchmark.outcomes
    times_s = np.full(100, 0.002)
    reading = Reading(50.0, np.append(times_s, 0.5), times_s)
    trials = tuple(Trial(done.runs[0], (reading,), 1000.0, rate, 1.0, reach) for rate in rates)
    return capacity_of(done.cell, benchmark.model, parse_objective("median<3ms"), 100.0, trials)


def test_the_answer_is_the_geometric_mean_of_the_processes_with_students_interval(benchmark: Benchmark) -> None:
    found = capacity.max_rate(measured(benchmark, 100.0, 400.0))
    assert found.value == pytest.approx(200.0)
    # Two values that differ by ln 4: the half-width is 12.706 · ln 4 / 2.
    assert found.high == pytest.approx(200 * math.exp(12.706 * math.log(4) / 2), rel=1e-3)


def test_where_some_processes_keep_it_at_no_rate_the_middle_one_counts(benchmark: Benchmark) -> None:
    found = capacity.max_rate(measured(benchmark, 0.0, 100.0, 120.0))
    assert (found.value, found.low, found.high) == (100.0, None, None)


def test_no_answer_is_above_saturation(benchmark: Benchmark) -> None:
    assert capacity.max_rate(measured(benchmark, 1250.0, 1250.0, reach="saturation")).value == pytest.approx(980)


def test_the_curve_puts_the_requests_of_all_processes_together(benchmark: Benchmark) -> None:
    (rung,) = measured(benchmark, 100.0, 120.0).curve
    assert (rung.rate, rung.requests, rung.processes) == (50.0, 202, 2)
    assert rung.load == pytest.approx(0.05)
    assert rung.unserved_share == pytest.approx(2 / 202)
    assert rung.responses_s["median"] == 0.002 and rung.kept
    assert rung.responses_s["p99"] is None and rung.responses_s["p95"] == 0.002
    assert rung.services_s["mean"] == pytest.approx(0.002)


def search(linear: Path, slo: str, time_s: float, heard: list[Event] | None = None, **more: object) -> Capacity:
    fields: dict[str, object] = {"engines": ("fake",), "engine_options": FIXED, "num_cores": (1,), "verify": False}
    plan = dataclasses.replace(Plan(str(linear), time_s=time_s), **(fields | more))  # type: ignore[arg-type]
    return Lab().capacity(plan, parse_objective(slo), (heard if heard is not None else []).append)


def decided(linear: Path, slo: str, least: float, **more: object) -> tuple[Capacity, list[Event]]:
    """Search again where other work made it too long or the rate too low, which is all that other work can do."""
    for time_s in (12.0, 12.0, 24.0, 48.0):
        heard: list[Event] = []
        with contextlib.suppress(BadInput):
            found = search(linear, slo, time_s, heard, **more)
            if capacity.max_rate(found).value > least:
                break
    return found, heard


@pytest.mark.alone
def test_the_fake_engine_bears_what_queueing_theory_says(linear: Path) -> None:
    found, heard = decided(linear, "mean<20ms", 30, engine_options=(("latency_us", "10000"),))
    # One service of waiting: a load of two thirds, 67 requests a second, fewer on a machine with other work.
    assert 30 < capacity.max_rate(found).value < 75
    assert {"loading", "saturation", "rung"} <= {event.code for event in heard}
    rates = [rung.rate for rung in found.curve]
    assert rates == sorted(set(rates)) and len(rates) >= 4


def test_an_objective_below_the_service_time_is_out_of_reach(linear: Path) -> None:
    found = search(linear, "p99<1ms", 5.0)
    assert capacity.max_rate(found).value == 0.0
    assert found.curve == ()
    assert found.lone is not None and found.lone.seconds >= 0.005
    assert len(found.processes) == 1


def test_an_objective_that_a_short_queue_never_breaks_is_kept_to_saturation(linear: Path) -> None:
    found = search(linear, "p95<30s", 5.0, processes=1, engine_options=(("latency_us", "1000"),))
    (trial,) = found.processes
    assert trial.reach == "saturation"
    assert trial.rate == pytest.approx(0.98 * trial.saturation_rate)
    (said,) = [finding for finding in found.findings if finding.code == "kept-to-saturation"]
    tried = max(rung.load for rung in found.curve)
    assert said.data == {"processes": 1, "of": 1, "tried": pytest.approx(tried)} and tried > rate_search.CEILING
    lines = results.lines(found)
    assert f"at every rate tried, up to {share(tried)} of saturation. The answer is 98 % of" in "\n".join(lines)
    # Beyond the answer nothing is kept for good, and no row says so.
    rows = [line for line in lines if line.endswith((" yes", " while tried"))]
    judged = [rung for rung in found.curve if rung.kept is not None]
    for rung, row in zip(judged, rows, strict=True):
        assert rung.kept and row.endswith(" yes" if rung.load <= 0.98 else " while tried")


def test_a_request_that_was_given_up_is_later_than_all_that_were_served() -> None:
    responses_s = np.concatenate([np.arange(1, 951) / 1e3, np.full(50, 2.0)])
    reading = Reading(100.0, responses_s, np.full(950, 0.001))
    trial = Trial(a_run(), (reading,), 200.0, 0.0, 1.0, "none")
    (rung,) = capacity_of(
        a_cell(), Model("onnx", "", "", "", (), (), 0), parse_objective("p99<1s"), 0.0, (trial,)
    ).curve
    assert rung.unserved_share == pytest.approx(0.05)
    assert (rung.responses_s["median"], rung.responses_s["p90"]) == pytest.approx((0.5005, 0.9001))
    assert (rung.responses_s["p99"], rung.responses_s["mean"]) == (None, None)
    assert rung.kept is False


def test_a_time_that_cannot_carry_the_objective_is_refused_with_one_that_can(linear: Path) -> None:
    with pytest.raises(
        BadInput, match=r"1 s is too short for p99.9<60ms: that takes 6636 requests .* Give -t \d+ or"
    ):
        search(linear, "p99.9<60ms", 1.0)


def test_what_the_engine_did_wrong_is_raised(linear: Path) -> None:
    with pytest.raises(EngineFailed, match="SIGABRT"):
        search(linear, "mean<10ms", 5.0, engine_options=(*FIXED, ("fail", "abort"), ("at", "30")))


def test_an_objective_is_a_plain_record() -> None:
    assert parse_objective("p99<20ms") == Objective("p99", 0.02, "p99<20ms")
