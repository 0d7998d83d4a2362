"""Intervals as text."""

from __future__ import annotations

import pytest

from inferlab.views import fields


@pytest.mark.parametrize(
    ("value", "ends", "told"),
    [
        (107.3, (63.2, 181.9), "107 (63 to 182)"),
        (2.0, (1.9981, 2.0019), "2.0000 (1.9981 to 2.0019)"),
        (1.01283, (0.9812, 1.0454), "1.013 (0.981 to 1.045)"),
        (22221.0, (21034.0, 23475.0), "22200 (21000 to 23500)"),
        (0.00986, (0.0097, 0.01003), "0.00986 (0.00970 to 0.01003)"),
        (2.0, (1.99999999, 2.00000001), "2.0000 (2.0000 to 2.0000)"),
        (2.0, (2.0, 2.0), "2.0000 (2.0000 to 2.0000)"),
        (2.0, (1.0, 4.0), "2.0 (1.0 to 4.0)"),
        (2.0, (0.9, 4.1), "2.0000 (too noisy for an interval)"),
        (1.0, (0.0000010992, 103323.0), "1.0000 (too noisy for an interval)"),
        (1.0, (0.0, 1.5), "1.0000 (too noisy for an interval)"),
        (1.0, None, "1.0000 (no interval)"),
        # Of a file that was damaged: its ends have changed places.
        (1.0, (1.5, 1.2), "1.0000 (too noisy for an interval)"),
    ],
)
def test_a_value_has_the_digits_that_its_interval_supports(
    value: float, ends: tuple[float, float] | None, told: str
) -> None:
    assert f"{fields.rounded(value, ends)} ({fields.between(ends)})" == told


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (0.95, "95"),
        (0.9883, "98"),
        (0.99, "99"),
        (0.995, "99.5"),
        (0.99833, "99.8"),
        (0.99982, "99.98"),
        (1.0, "100"),
    ],
)
def test_a_level_is_rounded_down_and_never_100(level: float, told: str) -> None:
    assert fields.level_percent(level) == told


def test_an_interval_names_its_level_only_where_it_says_something() -> None:
    assert fields.interval_text((0.9, 1.1), 0.98) == "98% interval 0.90 to 1.10"
    assert fields.interval_text((0.1, 11.0), 0.98) == "too noisy for an interval"
    assert fields.interval_text(None, 0.98) == "too few processes for an interval"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (90.0, "About 90 s would settle it."),
        (3600.0, "About 3600 s would settle it."),
        (86490.0, "It cannot be settled here: that would take more than 3600 s. Close other programs "),
    ],
)
def test_what_cannot_be_settled_in_an_hour_is_said_to_be_so(seconds: float, told: str) -> None:
    assert fields.would_settle(seconds).startswith(told)


def test_an_interval_stands_behind_its_value_with_what_it_rests_on() -> None:
    assert fields.between_at((0.9, 1.1), 0.98) == "0.90 to 1.10 (98 %)"
    assert fields.between_at((0.1, 11.0), 0.98) == "too noisy for an interval"
    assert fields.in_brackets((0.9, 1.1)) == " (0.90 to 1.10)"
    assert fields.in_brackets(None) == ""
    assert fields.in_brackets((0.1, 11.0), processes=3) == " (too noisy for an interval (3 processes))"
    assert [fields.half_width(ends) for ends in (None, (0.5, 2.0), (0.1, 11.0))] == ["", "100 %", "too noisy"]
    assert fields.advice([None, (0.9, 1.1)]) == []
    assert len(fields.advice([(0.1, 11.0), (0.1, 11.0)])) == 1
