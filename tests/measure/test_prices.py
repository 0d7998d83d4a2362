"""What a million inferences cost."""

from __future__ import annotations

import pytest

from inferlab.measure.stats import cost_per_million
from inferlab.records import Estimate


def test_the_cost_follows_from_throughput_and_price_and_its_ends_change_places() -> None:
    found = cost_per_million(Estimate(100.0, 50.0, 200.0, 0.95, "student"), 0.36)
    # 0.36 an hour at 100 a second: a million takes 10,000 s.
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 0.5, 2.0))
    assert cost_per_million(Estimate(100.0, None, None, 0.95, "student"), 0.36).ends is None
