"""Goals as people write them."""

from __future__ import annotations

import pytest

from inferlab.errors import BadInput
from inferlab.optimizing.recipes import parse_goal, parse_loss
from inferlab.records.optimization import Goal


@pytest.mark.parametrize(
    ("text", "speedup", "size_ratio"),
    [
        ("2x faster", 2.0, None),
        ("2 × faster", 2.0, None),
        ("1.5 times as fast", 1.5, None),
        ("30% faster", 1.3, None),
        ("2x smaller", None, 2.0),
        ("75% smaller", None, 4.0),
        ("1.5x faster, 2x smaller", 1.5, 2.0),
        ("2X smaller and 10 % FASTER", 1.1, 2.0),
    ],
)
def test_a_goal_is_read(text: str, speedup: float | None, size_ratio: float | None) -> None:
    assert parse_goal(text, "2%") == Goal(speedup, size_ratio, 0.02)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("faster", "cannot be read"),
        ("2x better", "cannot be read"),
        ("2 faster", "cannot be read"),
        ("2x faster,", "cannot be read"),
        ("-2x faster", "cannot be read"),
        ("1x faster", "asks for no change"),
        ("0.5x faster", "asks for no change"),
        ("0% faster", "asks for no change"),
        ("100% smaller", "more than there is"),
        ("2x faster, 30% faster", "says twice how fast"),
        ("2x smaller, 3x smaller", "says twice how small"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_goal(text)


@pytest.mark.parametrize(
    ("text", "loss"), [("1%", 0.01), ("0.01", 0.01), (0.05, 0.05), ("0", 0.0), ("0.5 %", 0.005)]
)
def test_a_loss_is_a_share(text: str | float, loss: float) -> None:
    assert parse_loss(text) == pytest.approx(loss)


@pytest.mark.parametrize("text", ["1", "150%", "-1%", "nan", "much", ""])
def test_a_loss_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"1% or 0\.01"):
        parse_loss(text)
