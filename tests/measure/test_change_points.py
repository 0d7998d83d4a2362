"""Where a series changed."""

from __future__ import annotations

import pytest

from inferlab.measure.intervals import LEAST_POINTS, change_points
from tests.helpers.series import wobbling


def test_a_step_is_found_at_its_place_with_its_size() -> None:
    (change,) = change_points([*wobbling(1.0, 16), *wobbling(1.05, 8)])
    assert change.index == 16
    assert change.ratio.value == pytest.approx(1.05, rel=1e-3)
    assert change.ratio.low is not None and change.ratio.high is not None
    assert change.ratio.low < 1.05 < change.ratio.high
    assert change.p_value < 1e-6


def test_a_step_and_its_return_do_not_hide_each_other() -> None:
    found = change_points([*wobbling(1.0, 16), *wobbling(1.03, 16), *wobbling(1.0, 16)])
    assert [change.index for change in found] == [16, 32]


def test_a_single_slow_entry_is_no_change() -> None:
    values = wobbling(1.0, 24)
    values[12] *= 1.5
    assert change_points(values) == []


def test_a_step_is_at_its_place_as_soon_as_three_points_are_after_it() -> None:
    values = [*wobbling(1.0, 30), *wobbling(1.03, 3)]
    assert change_points(values[:31]) == []
    assert [change.index for change in change_points(values)] == [30]


@pytest.mark.parametrize("values", [[], [1.0], wobbling(1.0, 24), [2.0] * 24, [1.0, 1.0, 1.0, 2.0, 2.0]])
def test_where_nothing_changed_or_little_is_known_nothing_is_found(values: list[float]) -> None:
    assert len(values) >= 24 or len(values) < LEAST_POINTS
    assert change_points(values) == []


def test_a_mood_that_lasts_is_no_step() -> None:
    """Neighbours that are alike count as fewer points: a slow swing is not cut into pieces."""
    swing = [1.0, 1.005, 1.01, 1.015, 1.02, 1.015, 1.01, 1.005]
    assert change_points(swing * 2) == []
