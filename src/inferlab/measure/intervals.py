"""Intervals, verdicts and changes: pure functions from process-level numbers to what can be said of them.

Where a series changed: E-divisive (Matteson and James, 2014) with Student's test, as Hunter (2023) has it. A
series is split where the energy distance between both sides is largest, and each side again. What comes of that
is only a candidate: from the least sure on, those are dropped that Student's test between both segments does not
support, so that a step and its return do not hide each other (Fleming et al., "Hunter: Using Change Point
Detection to Hunt for Performance Regressions", ICPE 2023; today Apache Otava). Student's test in place of
Matteson's permutations needs no randomness and no thousand repetitions.

Two differences from there, tried on the noise of a real machine (`python -m benchmarks change_points`):
neighbours are alike, for a machine's mood lasts longer than one entry, so the test counts fewer points than
there are; and a single slow entry is no change, so values far from their segment are drawn in before they are
tested.
"""

from __future__ import annotations

import itertools
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
    from inferlab.records import SpreadPrior, Verdict


#: How often a comparison of equal arms may call one of them faster, over all its looks.
ALPHA = 0.02
#: After how many pairs a comparison looks whether it may stop; the last look is when its time is up.
LOOKS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: How much of ALPHA is left for the last look, whichever the others were.
_RESERVED = 0.5

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


def next_over_series(values: Sequence[float], value: float, level: float, inflation: float = 1.0) -> Estimate:
    """One more value of a series over its geometric mean, with Student's interval for a single new value.

    `inflation` is by how much values that are alike widen the variance of their mean.
    """
    logs = _logs(values)
    count, sd = len(logs), float(np.std(logs, ddof=1))
    error = sd * math.sqrt(1 + inflation / count)
    return _interval(math.log(value) - fmean(logs), error, count - 1, level, "student")


def moderated(
    log_ratios: Sequence[float], level: float, prior: SpreadPrior, weights: Sequence[float] | None = None
) -> Estimate:
    """The ratio of paired arms: Student's interval on the logarithms, their spread moderated by what was expected.

    Few pairs tell little of their spread, and by chance may say that there is none. So the prior counts like pairs
    measured before (a moderated t, Smyth 2004). Simulated: the intervals of 2 to 40 pairs cover the truth
    in 94 % or more even where the prior is wrong by a factor of 3 either way.

    `weights`, 1 on average, say how precise pairs are beside each other; the prior is about one of weight 1.
    """
    values, count = np.array(log_ratios), len(log_ratios)
    precision = np.ones(count) if weights is None else np.array(weights)
    centre = fmean(values * precision)
    if count < 2:
        return Estimate(math.exp(centre), None, None, level, "moderated")
    freedom = prior.freedom + count - 1
    squares = prior.freedom * prior.sd**2 + float(np.sum(precision * (values - centre) ** 2))
    return _interval(centre, math.sqrt(squares / freedom / count), freedom, level, "moderated")


def look_share(number: int) -> float:
    """How much of ALPHA the look of this number, from 1, may spend.

    The shares of all looks add up (Bonferroni) to what is not reserved for the last, however many there are and
    however much they depend on each other: a comparison may stop at any of them.
    """
    return ALPHA * (1 - _RESERVED) / (number * (number + 1))


def at_least(prior: SpreadPrior, sd: float) -> SpreadPrior:
    """A prior that expects no less than what is known to make pairs differ."""
    return prior if prior.sd >= sd else replace(prior, sd=sd)


class Looks:
    """The looks that a comparison takes at its pairs while they are measured: it may stop at any of them."""

    def __init__(self, margin: float, prior: SpreadPrior, goal: float | None = None) -> None:
        self._margin, self._prior, self._goal = margin, prior, goal
        self._spent = 0.0
        self._clear: Estimate | None = None

    def look(
        self, log_ratios: Sequence[float], weights: Sequence[float] | None = None, least_sd: float = 0.0
    ) -> bool:
        """Whether the comparison may stop with these pairs, where a look is due."""
        if len(log_ratios) not in LOOKS:
            return False
        share = look_share(LOOKS.index(len(log_ratios)) + 1)
        self._spent += share
        estimate = moderated(log_ratios, 1 - share, at_least(self._prior, least_sd), weights)
        if clear(estimate, self._margin) and not (self._goal and covers(estimate, self._goal)):
            self._clear = estimate
        return self._clear is not None

    def estimate(
        self, log_ratios: Sequence[float], weights: Sequence[float] | None = None, least_sd: float = 0.0
    ) -> Estimate:
        """That of the look that was clear, or else one of all pairs with all that is left to spend."""
        prior = at_least(self._prior, least_sd)
        return self._clear or moderated(log_ratios, 1 - (ALPHA - self._spent), prior, weights)


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


#: A change is told where a series without one would look so less often than this, at one place.
CHANGE_ALPHA = 0.001
#: A segment has so many points at least.
LEAST_SEGMENT = 3
#: With fewer points nothing is told.
LEAST_POINTS = 2 * LEAST_SEGMENT
# A candidate is a place where both sides differ at least so much.
_WEAK = 0.1
# So many standard deviations from the median of its segment a value counts at most.
_FAR = 3.0
# Of a normal distribution, the standard deviation over the median absolute deviation.
_MAD = 1.4826
# Beyond it a series is a drift, of which no few points tell a step.
_MOST_ALIKE = 0.8
_Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """A place where a series changed."""

    #: The index of the first value after it.
    index: int
    #: What came after over what was before.
    ratio: Estimate
    p_value: float


def change_points(values: Sequence[float], alpha: float = CHANGE_ALPHA) -> list[Change]:
    """Where positive values changed lastingly, in the order of time."""
    logs = np.log(np.array(values, np.float64))
    if len(logs) < LEAST_POINTS:
        return []
    kept = _supported(logs, sorted(_candidates(logs, 0, len(logs))), alpha)
    edges = [0, *kept, len(logs)]
    found = []
    for left, middle, right in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = (np.exp(_drawn_in(part)) for part in (logs[left:middle], logs[middle:right]))
        p_value = _p_value(logs, edges, left, middle, right)
        found.append(Change(middle, welch(before.tolist(), after.tolist(), LEVEL), p_value))
    return found


def _candidates(logs: _Values, low: int, high: int) -> list[int]:
    """All places that a recursive search splits at."""
    if high - low < LEAST_POINTS:
        return []
    distance = _energy(logs[low:high])
    place = low + LEAST_SEGMENT + int(np.argmax(distance[LEAST_SEGMENT - 1 : len(distance) - LEAST_SEGMENT + 1]))
    if _chance(_drawn_in(logs[low:place]), _drawn_in(logs[place:high]), 1.0) >= _WEAK:
        return []
    return [*_candidates(logs, low, place), place, *_candidates(logs, place, high)]


def _energy(logs: _Values) -> _Values:
    """The energy distance between both sides of every place, scaled by their lengths (Matteson and James)."""
    count = len(logs)
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = np.abs(logs[:, None] - logs[None, :]).cumsum(0).cumsum(1)
    left = np.arange(1, count)
    right = count - left
    within_left = sums[left, left]
    across = sums[left, count] - within_left
    within_right = sums[count, count] - within_left - 2 * across
    distance = 2 * across / (left * right)
    distance -= within_left / np.maximum(left * (left - 1), 1) + within_right / np.maximum(right * (right - 1), 1)
    scaled: _Values = distance * left * right / count
    return scaled


def _supported(logs: _Values, places: list[int], alpha: float) -> list[int]:
    """The candidates that are left when the least sure one is dropped until all are sure."""
    while places:
        edges = [0, *places, len(logs)]
        sure = [_p_value(logs, edges, *edges[index : index + 3]) for index in range(len(places))]
        worst = int(np.argmax(sure))
        if sure[worst] < alpha:
            break
        places = [*places[:worst], *places[worst + 1 :]]
    return places


def _p_value(logs: _Values, edges: Sequence[int], left: int, middle: int, right: int) -> float:
    """How often two segments next to each other would differ so by chance."""
    before, after = _drawn_in(logs[left:middle]), _drawn_in(logs[middle:right])
    return _chance(before, after, inflation(logs, edges))


def _chance(before: _Values, after: _Values, inflation: float) -> float:
    from scipy.special import stdtr  # late: it takes a while

    freedom = len(before) + len(after) - 2
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    variance = squares / freedom * (1 / len(before) + 1 / len(after)) * inflation
    difference = abs(float(after.mean() - before.mean()))
    if variance <= 0:
        return 0.0 if difference > 0 else 1.0
    return float(2 * stdtr(freedom, -difference / math.sqrt(variance)))


def _drawn_in(part: _Values) -> _Values:
    """The values of a segment, those far from its median no further than some standard deviations."""
    centre = float(np.median(part))
    far = _FAR * _MAD * float(np.median(np.abs(part - centre)))
    drawn: _Values = np.clip(part, centre - far, centre + far) if far > 0 else part
    return drawn


def inflation(logs: _Values, edges: Sequence[int]) -> float:
    """By how much neighbours that are alike widen the variance of a mean between edges: (1 + r) / (1 - r)."""
    parts = [_drawn_in(logs[low:high]) for low, high in itertools.pairwise(edges)]
    residuals = [part - part.mean() for part in parts]
    squares = sum(float((part**2).sum()) for part in residuals)
    products = sum(float((part[1:] * part[:-1]).sum()) for part in residuals)
    pairs = sum(len(part) - 1 for part in residuals)
    if squares <= 0 or pairs < 1:
        return 1.0
    # Means taken off make neighbours look less alike, by about one pair for each segment.
    correlation = products / squares + len(parts) / len(logs)
    correlation = min(max(correlation, 0.0), _MOST_ALIKE)
    return (1 + correlation) / (1 - correlation)
