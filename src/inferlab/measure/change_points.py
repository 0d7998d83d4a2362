"""Where a series changed: E-divisive (Matteson and James, 2014) with Student's test, as Hunter (2023) has it.

A series is split where the energy distance between both sides is largest, and each side again. What comes of that
is only a candidate: from the least sure on, those are dropped that Student's test between both segments does not
support, so that a step and its return do not hide each other (Fleming et al., "Hunter: Using Change Point
Detection to Hunt for Performance Regressions", ICPE 2023; today Apache Otava). Student's test in place of
Matteson's permutations needs no randomness and no thousand repetitions.

Two differences from there, tried on the noise of a real machine (`python -m benchmarks change_points`): neighbours
are alike, for a machine's mood lasts longer than one entry, so the test counts fewer points than there are; and a
single slow entry is no change, so values far from their segment are drawn in before they are tested.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferlab.measure.intervals import LEVEL, welch
from inferlab.records import Estimate

#: A change is told where a series without one would look so less often than this, at one place.
ALPHA = 0.001
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


def change_points(values: Sequence[float], alpha: float = ALPHA) -> list[Change]:
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
    if _student(_drawn_in(logs[low:place]), _drawn_in(logs[place:high]), 1.0) >= _WEAK:
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
    return _student(before, after, inflation(logs, edges))


def _student(before: _Values, after: _Values, inflation: float) -> float:
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
