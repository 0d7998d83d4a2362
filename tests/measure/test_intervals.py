"""Intervals with exact answers, and simulations of how often they are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from inferlab.measure import intervals
from inferlab.measure.intervals import across, quantile
from inferlab.records import Estimate, SpreadPrior

TRIALS = 5_000
VALUES = st.lists(st.floats(0.1, 100.0), min_size=2, max_size=12)


def within(low: float | None, high: float | None) -> Estimate:
    """A ratio known to lie between these."""
    return Estimate(math.sqrt(low * high) if low and high else 1.0, low, high, 0.98, "signed-rank")


def test_students_interval_is_that_of_the_logarithms() -> None:
    estimate = intervals.student([math.exp(1), math.exp(2), math.exp(3)])
    # Two degrees of freedom: t = 4.302653; the standard error of 1, 2, 3 is 1 / sqrt(3).
    half_width = 4.302652729911275 / math.sqrt(3)
    assert estimate.value == pytest.approx(math.exp(2))
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(2 - half_width), math.exp(2 + half_width)))
    assert (estimate.level, estimate.method) == (0.95, "student")


def test_one_value_has_no_interval() -> None:
    estimate = intervals.student([7.0])
    assert estimate.value == pytest.approx(7.0)
    assert (estimate.low, estimate.high) == (None, None)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one data point"):
        intervals.student([])
    with pytest.raises(ValueError, match="at least one data point"):
        intervals.welch([1.0], [])
    with pytest.raises(ValueError, match="at least one data point"):
        intervals.moderated([], 0.98, PRIOR)


def test_equal_values_have_an_interval_without_width() -> None:
    assert intervals.relative_half_width(intervals.student([2.0, 2.0, 2.0])) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("values", [[0.0, 1.0], [-1.0, 1.0]])
def test_values_that_are_not_positive_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"math domain error|positive"):
        intervals.student(values)


@given(VALUES, st.floats(0.001, 1000.0))
def test_students_interval_scales_with_its_values(values: list[float], factor: float) -> None:
    one, other = intervals.student(values), intervals.student([factor * value for value in values])
    assert one.low is not None
    assert one.high is not None
    assert (other.value, other.low, other.high) == pytest.approx(
        (factor * one.value, factor * one.low, factor * one.high), rel=1e-6
    )
    assert one.low <= one.value <= one.high


def test_welchs_interval_agrees_with_scipy() -> None:
    a, b = [1.0, 1.1, 1.3, 0.9], [2.0, 2.6, 1.7]
    expected = scipy.stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.98)
    estimate = intervals.welch(a, b)
    assert estimate.value == pytest.approx(scipy.stats.gmean(b) / scipy.stats.gmean(a))
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert (estimate.level, estimate.method) == (0.98, "welch")


@pytest.mark.parametrize(("a", "b"), [([1.0], [2.0, 2.0]), ([1.0, 1.0], [2.0]), ([1.0], [2.0])])
def test_a_side_of_one_value_leaves_the_ratio_without_an_interval(a: list[float], b: list[float]) -> None:
    estimate = intervals.welch(a, b)
    assert estimate.value == pytest.approx(2.0)
    assert (estimate.low, estimate.high) == (None, None)


def test_two_sides_without_spread_have_a_ratio_without_width() -> None:
    estimate = intervals.welch([1.0, 1.0], [2.0, 2.0, 2.0])
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_side_without_spread_leaves_the_others_degrees_of_freedom() -> None:
    estimate = intervals.welch([1.0, 1.0], [2.0, 3.0, 4.0], 0.95)
    alone = intervals.student([2.0, 3.0, 4.0])
    assert (estimate.low, estimate.high) == pytest.approx((alone.low, alone.high))


@given(VALUES, VALUES)
def test_the_ratio_turned_round_is_the_reciprocal(a: list[float], b: list[float]) -> None:
    one, other = intervals.welch(a, b), intervals.welch(b, a)
    assert one.low is not None
    assert one.high is not None
    assert (other.value, other.low, other.high) == pytest.approx(
        (1 / one.value, 1 / one.high, 1 / one.low), rel=1e-6
    )


PRIOR = SpreadPrior(0.02, 2.0)


def test_the_moderated_interval_takes_the_prior_for_pairs_measured_before() -> None:
    log_ratios = [0.01, 0.03, 0.02]
    estimate = intervals.moderated(log_ratios, 0.98, PRIOR)
    # A variance of 0.02² with two degrees of freedom and one of 0.01² with two: 0.00025, with four.
    half_width = scipy.stats.t.ppf(0.99, 4) * math.sqrt(0.00025 / 3)
    assert estimate.value == pytest.approx(math.exp(0.02))
    assert (estimate.low, estimate.high) == pytest.approx(
        (math.exp(0.02 - half_width), math.exp(0.02 + half_width))
    )
    assert (estimate.level, estimate.method) == (0.98, "moderated")


def test_pairs_of_unlike_precision_count_by_their_weights() -> None:
    estimate = intervals.moderated([0.04, 0.0], 0.98, SpreadPrior(0.01, 2.0), [0.5, 1.5])
    # Around 0.01: 0.5 * 0.03² + 1.5 * 0.01², and 2 * 0.01² of the prior, with three degrees of freedom.
    half_width = scipy.stats.t.ppf(0.99, 3) * math.sqrt(0.0008 / 3 / 2)
    assert estimate.value == pytest.approx(math.exp(0.01))
    assert estimate.high == pytest.approx(math.exp(0.01 + half_width))


def test_the_interval_of_pairs_of_unlike_precision_covers_the_truth() -> None:
    trials, precision = 4000, np.array([1 / 8] * 3 + [1.0] * 9)
    draws = 0.01 / np.sqrt(precision) * np.random.default_rng(5).standard_normal((trials, 12))
    found = [intervals.moderated(one, 0.98, PRIOR, list(precision / precision.mean())) for one in draws.tolist()]
    assert sum(covers(one, 1.0) for one in found) / trials >= 0.975


def test_without_freedom_the_prior_leaves_students_interval() -> None:
    log_ratios = [0.01 * i**2 for i in range(6)]
    estimate = intervals.moderated(log_ratios, 0.98, SpreadPrior(0.5, 0.0))
    low, high = scipy.stats.t.interval(0.98, 5, np.mean(log_ratios), scipy.stats.sem(log_ratios))
    assert (estimate.low, estimate.high) == pytest.approx((math.exp(low), math.exp(high)))


def test_two_pairs_that_agree_by_chance_are_not_certain_and_one_pair_has_no_interval() -> None:
    twice = intervals.moderated([0.1, 0.1], 0.98, PRIOR)
    assert twice.ends is not None and twice.ends[0] < math.exp(0.08)
    assert intervals.moderated([0.1], 0.98, PRIOR).ends is None


@pytest.mark.parametrize("true_sd", [0.02 / 3, 0.02, 0.06])
@pytest.mark.parametrize("pairs", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("effect", [0.0, 0.02, 0.5])
def test_the_interval_covers_the_truth_even_where_the_prior_is_wrong_by_a_factor_of_three(
    true_sd: float, pairs: int, effect: float
) -> None:
    log_ratios = effect + true_sd * np.random.default_rng(4).standard_normal((TRIALS, pairs))
    # What the prior is made of: a quarter more than what was seen.
    prior = SpreadPrior(1.25 * 0.02, 2.0)
    covered = sum(covers(sequential(trial, 0.01, prior), math.exp(effect)) for trial in log_ratios.tolist())
    assert covered / TRIALS >= 0.94


@pytest.mark.parametrize(
    ("low", "high", "said", "is_clear"),
    [
        (None, None, "inconclusive", False),
        (0.995, 1.005, "same", True),
        (1 / 1.01, 1.01, "same", True),
        (1.002, 1.008, "same", True),
        (0.992, 0.998, "same", True),
        (0.9900, 1.0, "inconclusive", False),
        (0.9900, 0.999, "faster", False),
        (0.95, 1 / 1.01, "faster", False),
        (0.95, 0.99, "faster", True),
        (1.0, 1.02, "inconclusive", False),
        (1.001, 1.02, "slower", False),
        (1.01, 1.02, "slower", False),
        (1.011, 1.02, "slower", True),
        (0.9, 1.1, "inconclusive", False),
    ],
)
def test_a_verdict_follows_from_the_interval_and_a_margin_of_a_percent(
    low: float | None, high: float | None, said: str, is_clear: bool
) -> None:
    assert intervals.verdict(within(low, high), 0.01) == said
    assert intervals.clear(within(low, high), 0.01) == is_clear


def test_without_a_margin_only_identical_times_are_the_same() -> None:
    assert intervals.verdict(within(1.0, 1.0), 0.0) == "same"
    assert intervals.verdict(within(1.0, 1.0001), 0.0) == "inconclusive"


@given(st.floats(0.5, 2.0), st.floats(1.0, 1.5), st.floats(0.0, 0.2))
def test_the_arms_exchanged_exchange_the_verdict(low: float, width: float, margin: float) -> None:
    forth, back = within(low, low * width), within(1 / (low * width), 1 / low)
    exchanged = {"faster": "slower", "slower": "faster", "same": "same", "inconclusive": "inconclusive"}
    # Rounding may move an end that lies on a boundary.
    if all(abs(end - edge) > 1e-9 for end in (low, low * width) for edge in (1.0, 1 + margin, 1 / (1 + margin))):
        assert intervals.verdict(back, margin) == exchanged[intervals.verdict(forth, margin)]


@pytest.mark.parametrize(
    ("centre", "half_width", "pairs", "needed"),
    [
        # Nearer to a difference: a half-width of 0.02 must shrink to 0.9 × 0.015.
        (0.015, 0.02, 20, 44),
        # Nearer to none: to 0.9 × (log 1.01 - 0.001).
        (-0.001, 0.02, 20, 124),
        (0.02, 0.0201, 10, 13),
        # Narrow enough already: one more at least.
        (0.02, 0.0150, 10, 11),
    ],
)
def test_the_pairs_that_would_settle_it(centre: float, half_width: float, pairs: int, needed: int) -> None:
    estimate = within(math.exp(centre - half_width), math.exp(centre + half_width))
    assert intervals.pairs_to_settle(estimate, 0.01, pairs) == needed


def test_without_an_interval_or_a_margin_to_reach_nothing_tells_how_many_pairs_would_settle_it() -> None:
    assert intervals.pairs_to_settle(within(None, None), 0.01, 2) is None
    assert intervals.pairs_to_settle(within(0.5, 2.0), 0.0, 10) is None


@pytest.mark.parametrize(
    ("medians", "expected"),
    [
        ([], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([5.0, 2.0, 1.01, 1.0, 1.02], True),
        ([1.0, 1.01, 1.03], False),
        ([1.0, 1.0, 1.0, 1.5], False),
    ],
)
def test_a_warm_up_ends_when_three_chunks_in_a_row_agree(medians: list[float], expected: bool) -> None:
    assert intervals.steady(medians) is expected


def test_the_relative_half_width_is_that_of_the_logarithms() -> None:
    assert intervals.relative_half_width(within(math.exp(-0.01), math.exp(0.03))) == pytest.approx(0.02)
    assert intervals.relative_half_width(within(None, None)) is None


def test_fewer_than_five_processes_are_never_precise_enough() -> None:
    assert not intervals.precise_enough([], 0.01)
    assert not intervals.precise_enough([1.0] * 4, 0.01)
    assert intervals.precise_enough([1.0] * 5, 0.01)


def test_precise_enough_means_that_the_watched_interval_is_within_the_precision() -> None:
    values = [1.0, 1.01, 0.99, 1.02, 1.0]
    half_width = intervals.relative_half_width(intervals.watched(values))
    assert half_width is not None
    assert half_width == pytest.approx(scipy.stats.t.ppf(0.985, 4) * scipy.stats.sem(np.log(values)))
    assert intervals.precise_enough(values, half_width + 1e-9)
    assert not intervals.precise_enough(values, half_width - 1e-9)
    assert intervals.watched(values).level == 0.95


def covers(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def process_medians(levels: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """What processes of these levels would measure: each the median of 201 iterations with a long upper tail."""
    noise = [
        np.median(np.exp(0.1 * rng.standard_normal((*part.shape, 201), np.float32)), axis=-1)
        for part in np.array_split(levels, 20)
    ]
    measured: NDArray[np.float64] = levels * np.concatenate(noise)
    return measured


@pytest.mark.parametrize(("distribution", "spread"), [("normal", 0.05), ("lognormal", 0.05), ("lognormal", 0.20)])
def test_students_interval_covers_the_truth_as_often_as_it_says(distribution: str, spread: float) -> None:
    rng = np.random.default_rng(0)
    deviations = spread * rng.standard_normal((TRIALS, 12))
    levels = 1 + deviations if distribution == "normal" else np.exp(deviations)
    measured = process_medians(levels, rng).tolist()
    for processes in (3, 5, 12):
        covered = sum(covers(intervals.student(trial[:processes]), 1.0) for trial in measured)
        assert covered / TRIALS >= 0.94


@pytest.mark.parametrize(("spread", "precision"), [(0.003, 0.005), (0.05, 0.05), (0.02, 0.01)])
def test_adding_processes_until_it_is_precise_keeps_the_coverage(spread: float, precision: float) -> None:
    trials, covered = 4000, 0
    for trial in np.exp(spread * np.random.default_rng(1).standard_normal((trials, 40))).tolist():
        stop = next((n for n in range(5, 40) if intervals.precise_enough(trial[:n], precision)), 40)
        covered += covers(intervals.watched(trial[:stop]), 1.0)
    assert covered / trials >= 0.94


def sequential(log_ratios: list[float], margin: float, prior: SpreadPrior = PRIOR) -> Estimate:
    """The estimate at which a comparison with all its looks ends."""
    looks = intervals.Looks(margin, prior)
    for pairs in range(1, len(log_ratios)):
        if looks.look(log_ratios[:pairs]):
            break
    return looks.estimate(log_ratios)


def test_all_looks_together_spend_no_more_than_alpha_and_leave_half_for_the_last() -> None:
    shares = [intervals.look_share(number) for number in range(1, len(intervals.LOOKS) + 1)]
    assert shares[0] == pytest.approx(0.005) and sum(shares) < intervals.ALPHA / 2 == 0.01


def test_a_large_difference_stops_at_the_first_look() -> None:
    log_ratios = np.random.default_rng(2).normal(math.log(2.4), 0.01, 24).tolist()
    estimate = sequential(log_ratios, 0.01)
    assert estimate.level == pytest.approx(0.995)
    assert intervals.verdict(estimate, 0.01) == "slower"


@pytest.mark.parametrize("pairs", [3, 6, 12, 24])
@pytest.mark.parametrize("tails", ["normal", "heavy"])
@pytest.mark.parametrize("margin", [0.0, 0.01])
def test_equal_arms_are_rarely_told_apart(pairs: int, tails: str, margin: float) -> None:
    # A margin of nothing is the hardest case: every look that leaves 1 out stops there.
    trials, prior = 4000, SpreadPrior(0.00625, 2.0)
    rng = np.random.default_rng(3)
    outliers = (rng.random((trials, pairs)) < 0.1) & (tails == "heavy")
    log_ratios = np.where(outliers, 0.04, 0.005) * rng.standard_normal((trials, pairs))
    alarms = sum(
        intervals.verdict(sequential(trial, margin, prior), margin) in ("faster", "slower")
        for trial in log_ratios.tolist()
    )
    # Three standard deviations of the simulation above what was designed.
    assert alarms / trials <= intervals.ALPHA + 3 * math.sqrt(intervals.ALPHA / trials)


@pytest.mark.parametrize(
    ("low", "high", "value", "open_"),
    [
        (0.4, 0.6, 0.5, True),
        (0.4, 0.5, 0.5, True),
        (0.4, 0.49, 0.5, False),
        (0.51, 0.6, 0.5, False),
        (None, None, 1, True),
    ],
)
def test_an_interval_leaves_a_value_open_that_it_holds(
    low: float | None, high: float | None, value: float, open_: bool
) -> None:
    assert intervals.covers(within(low, high), value) == open_


@pytest.mark.parametrize("freedom", [1, 1.01, 1.5, 2, 2.7, 4, 9, 19.3, 100, 1000, 10_000])
def test_the_quantile_is_that_of_scipy(freedom: float) -> None:
    for p in (0.9, 0.95, 0.975, 0.985, 0.99, 0.9975, 0.9999):
        assert quantile(freedom, p) == pytest.approx(float(scipy.special.stdtrit(freedom, p)), rel=1e-10)


#: Student's t of 95 % with 2 degrees of freedom.
T2 = 4.302652729749464


def test_each_machine_counts_once_however_many_processes_it_has() -> None:
    found = across([[1.0] * 5, [2.0] * 5, [4.0] * 5])
    assert found.typical.value == pytest.approx(2.0)
    assert found.typical.high == pytest.approx(2 * math.exp(T2 * math.log(2) / math.sqrt(3)))
    assert (found.machines, found.within) == (3, 0.0)
    assert found.between == pytest.approx(math.log(2))


def test_machines_that_are_alike_differ_by_nothing() -> None:
    spread = [math.exp(x) for x in (-0.1, 0.0, 0.1)]
    found = across([spread, spread, spread])
    assert found.between == 0.0
    assert found.within == pytest.approx(0.1)
    assert found.typical.ends == pytest.approx((1.0, 1.0))


def test_the_interval_is_wider_than_one_that_takes_processes_for_machines_and_covers_the_type() -> None:
    rng = np.random.default_rng(0)
    covered, trials = 0, 400
    for _ in range(trials):
        machines = rng.normal(0.0, 0.05, 4)
        found = across([list(np.exp(rng.normal(machine, 0.02, 5))) for machine in machines])
        low, high = found.typical.ends or (0.0, 0.0)
        covered += low <= 1.0 <= high
    assert 0.92 < covered / trials < 0.98


def test_one_process_a_machine_tells_nothing_of_processes() -> None:
    found = across([[1.0], [math.e]])
    assert found.within == 0.0
    assert found.between == pytest.approx(math.sqrt(0.5))
