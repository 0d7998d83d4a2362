"""Intervals and verdicts: pure functions from process-level numbers to what can be said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inferlab.records import Estimate, Method

if TYPE_CHECKING:  # late: a benchmark compares nothing
    from inferlab.records import Verdict

#: How often a comparison of equal arms may call one of them faster, over all its looks.
ALPHA = 0.02
#: When a comparison looks: the share of its time, and how much of ALPHA may be spent by then.
#: The shares of the looks add up (Bonferroni), which holds however much the looks depend on each other.
LOOKS = ((0.5, 0.005), (0.75, 0.010), (1.0, ALPHA))

# With fewer processes the spread is too uncertain to decide by; 97 % is what covers 95 % (see `watched`).
_MIN_WATCHED = 5
_WATCHED_LEVEL = 0.97
#: The confidence of the intervals of single results.
LEVEL = 0.95


def student(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """The geometric mean of positive values, with Student's interval on their logarithms."""
    return _student(_logs(values), level)


def welch(a: Sequence[float], b: Sequence[float], level: float = 0.98) -> Estimate:
    """The ratio of b's geometric mean over a's, unpaired, with Welch's interval on the logarithms."""
    logs_a, logs_b = _logs(a), _logs(b)
    centre = fmean(logs_b) - fmean(logs_a)
    if min(len(logs_a), len(logs_b)) < 2:
        return Estimate(math.exp(centre), None, None, level, "welch")
    of_a = float(np.var(logs_a, ddof=1)) / len(logs_a)
    of_b = float(np.var(logs_b, ddof=1)) / len(logs_b)
    variance = of_a + of_b
    # Shares rather than squares of variances: they neither underflow nor divide by a zero of one side.
    share = of_a / variance if variance > 0 else 0.5
    freedom = 1 / (share**2 / (len(logs_a) - 1) + (1 - share) ** 2 / (len(logs_b) - 1))
    return _interval(centre, math.sqrt(variance), freedom, level, "welch")


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the averages of all pairs of values, each value with itself included."""
    return float(np.median(_walsh(values)))


def signed_rank_interval(values: Sequence[float], level: float) -> tuple[float, float] | None:
    """The shortest equal-tailed signed-rank interval of exact confidence `level` or more; None for too few values.

    It assumes that the values are independent and symmetric about one centre, not that they are normal.
    """
    if not possible(len(values), level):
        return None
    averages = np.sort(_walsh(values))
    drop = int(np.searchsorted(2 * _lower_tail(len(values)), 1 - level, side="right"))
    return float(averages[drop - 1]), float(averages[-drop])


def possible(count: int, level: float) -> bool:
    """Whether signed ranks of so many values can reach the level at all."""
    return 2 * 0.5**count <= 1 - level


def paired(log_ratios: Sequence[float], level: float) -> Estimate:
    """The ratio of paired arms: Hodges–Lehmann with signed ranks, or Student's where ranks need more pairs."""
    interval = signed_rank_interval(log_ratios, level)
    if interval is not None:
        low, high = interval
        centre = hodges_lehmann(log_ratios)
        return Estimate(math.exp(centre), math.exp(low), math.exp(high), level, "signed-rank")
    estimate = _student(np.asarray(log_ratios, np.float64), level)
    return estimate if len(log_ratios) >= 3 else replace(estimate, low=None, high=None)


def look_level(cumulative: float, spent: float) -> float:
    """The level of a look by which `cumulative` of ALPHA may be spent and `spent` has been.

    A look that is skipped spends nothing, so that its share goes to the next one.
    """
    return 1 - (cumulative - spent)


def verdict(estimate: Estimate, margin: float) -> Verdict:
    """What the ratio of B's time over A's says of B; differences within the margin do not matter."""
    if estimate.low is None or estimate.high is None:
        return "inconclusive"
    if 1 / (1 + margin) <= estimate.low and estimate.high <= 1 + margin:
        return "same"
    if estimate.low > 1:
        return "slower"
    return "faster" if estimate.high < 1 else "inconclusive"


def clear(estimate: Estimate, margin: float) -> bool:
    """Whether a comparison may stop early: the arms are the same, or differ by more than the margin."""
    if estimate.low is None or estimate.high is None:
        return False
    beyond = estimate.low > 1 + margin or estimate.high < 1 / (1 + margin)
    return beyond or verdict(estimate, margin) == "same"


def covers(estimate: Estimate, value: float) -> bool:
    """Whether the interval leaves open on which side of a value the truth lies; without one it does."""
    return estimate.low is None or estimate.high is None or estimate.low <= value <= estimate.high


def pairs_to_settle(estimate: Estimate, margin: float, pairs: int) -> int | None:
    """How many pairs in all would settle an inconclusive comparison; None where nothing tells."""
    half_width = relative_half_width(estimate)
    effect = abs(math.log(estimate.value))
    # Either the interval leaves 1 out or it fits into the margin, with a tenth to spare.
    wanted = 0.9 * max(effect, math.log1p(margin) - effect)
    if half_width is None or wanted == 0:
        return None
    return max(pairs + 1, math.ceil(pairs * (half_width / wanted) ** 2))


def smallest_visible(estimate: Estimate, pairs: int, wanted_pairs: float) -> float | None:
    """The least difference that so many pairs would show nine times out of ten, told by equal arms."""
    half_width = relative_half_width(estimate)
    if half_width is None:
        return None
    # The interval must leave 1 out even where the estimate is off by 1.28 standard errors.
    normal = NormalDist().inv_cdf
    errors = normal(1 - (1 - estimate.level) / 2)
    return half_width * math.sqrt(pairs / wanted_pairs) * (1 + normal(0.9) / errors)


def relative_half_width(estimate: Estimate) -> float | None:
    """Half the interval's width on the logarithmic scale: 0.01 is ± 1 %."""
    if estimate.low is None or estimate.high is None:
        return None
    return math.log(estimate.high / estimate.low) / 2


def watched(values: Sequence[float]) -> Estimate:
    """The 95 % interval of values that were added until it was narrow enough.

    Whoever stops at a narrow interval stops at lucky ones: Student's 95 % then cover 92 %, his 97 % cover 95 %.
    """
    return replace(student(values, _WATCHED_LEVEL), level=0.95)


def precise_enough(values: Sequence[float], precision: float) -> bool:
    """Whether no more processes are needed: `watched` is then within ± precision.

    Simulated with a look after each of 5 to 40 processes: it covers the truth in 94.8 % or more of all trials,
    whatever the ratio of spread to precision.
    """
    if len(values) < _MIN_WATCHED:
        return False
    half_width = relative_half_width(watched(values))
    return half_width is not None and half_width <= precision


def steady(medians: Sequence[float], tolerance: float = 0.02) -> bool:
    """Whether a warm-up has ended: the medians of its last three chunks lie within the tolerance."""
    last = medians[-3:]
    return len(last) == 3 and max(last) <= min(last) * (1 + tolerance)


def _logs(values: Sequence[float]) -> NDArray[np.float64]:
    # math.log refuses what is not positive; numpy's would go on with a nan.
    return np.array([math.log(value) for value in values])


def _student(logs: NDArray[np.float64], level: float) -> Estimate:
    centre, count = fmean(logs), len(logs)
    if count < 2:
        return Estimate(math.exp(centre), None, None, level, "student")
    return _interval(centre, float(np.std(logs, ddof=1)) / math.sqrt(count), count - 1, level, "student")


def _interval(centre: float, error: float, freedom: float, level: float, method: Method) -> Estimate:
    half_width = quantile(freedom, (1 + level) / 2) * error
    low, high = math.exp(centre - half_width), math.exp(centre + half_width)
    return Estimate(math.exp(centre), low, high, level, method)


def _walsh(values: Sequence[float]) -> NDArray[np.float64]:
    """The averages of all pairs."""
    array = np.asarray(values, np.float64)
    first, second = np.triu_indices(len(array))
    averages: NDArray[np.float64] = (array[first] + array[second]) / 2
    return averages


@lru_cache(maxsize=16)
def _lower_tail(count: int) -> NDArray[np.float64]:
    """P(T <= t) of the signed-rank statistic T of so many values, for t up to its centre; exact, by recursion."""
    chances = np.zeros(count * (count + 1) // 4 + 1)
    chances[0] = 1.0
    for rank in range(1, count + 1):
        # Each rank counts or not, with equal chances.
        with_rank = np.zeros_like(chances)
        with_rank[rank:] = chances[:-rank]
        chances = (chances + with_rank) / 2
    return np.cumsum(chances)


@lru_cache(maxsize=64)
def quantile(freedom: float, p: float) -> float:
    """What Student's t stays below with probability p, which is 0.9 or more.

    Exact to 1e-10, up to 10,000 degrees of freedom.
    """
    half = freedom / 2
    scale = math.lgamma(half + 0.5) - math.lgamma(half) - math.log(math.pi * freedom) / 2
    t = NormalDist().inv_cdf(p)
    # The tail is convex and the normal's quantile lies below ours, so that Newton's steps rise to it.
    for _ in range(100):
        density = math.exp(scale - (half + 0.5) * math.log1p(t * t / freedom))
        step = _tail_over_density(freedom, t) - (1 - p) / density
        t += step
        if abs(step) <= 1e-14 * t:
            break
    return t


def _tail_over_density(freedom: float, t: float) -> float:
    """The chance of more than t over the density at t: the incomplete beta function's continued fraction."""
    a, x = freedom / 2, freedom / (freedom + t * t)
    fraction = 1.0
    for m in range(40 + math.isqrt(int(freedom)), 0, -1):
        fraction = 1 + m * (0.5 - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) / fraction
        k = m - 1
        fraction = 1 - (a + k) * (a + 0.5 + k) * x / ((a + 2 * k) * (a + 2 * k + 1)) / fraction
    return t / (freedom * fraction)


@dataclass(frozen=True, slots=True)
class Across:
    """What several machines of one type measured of the same cell."""

    #: The typical machine, with Student's interval over the machines: it contains what they differ by.
    typical: Estimate
    #: Standard deviations on the logarithmic scale, 0.01 being 1 %: of machines, and of processes of one machine.
    between: float
    within: float
    machines: int


def across(machines: Sequence[Sequence[float]]) -> Across:
    """From the processes' values of each machine (at least two machines) to the type.

    Each machine counts once, by its geometric mean: processes of one machine are no independent witnesses of the
    type. The variances are those of a one-way analysis with random effects; below zero they are zero.
    """
    logs = [[math.log(value) for value in values] for values in machines]
    means = [fmean(values) for values in logs]
    typical = student([math.exp(mean) for mean in means], LEVEL)
    counts = [len(values) for values in logs]
    total = sum(counts)
    freedom = total - len(logs)
    residue = sum((value - mean) ** 2 for values, mean in zip(logs, means, strict=True) for value in values)
    within = residue / freedom if freedom else 0.0
    grand = fmean([value for values in logs for value in values])
    spread = sum(count * (mean - grand) ** 2 for count, mean in zip(counts, means, strict=True)) / (len(logs) - 1)
    # The count of processes that a machine would have if all had as many.
    usual = (total - sum(count**2 for count in counts) / total) / (len(logs) - 1)
    between = max(0.0, (spread - within) / usual)
    return Across(typical, math.sqrt(between), math.sqrt(within), len(logs))
