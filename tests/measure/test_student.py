"""Student's t against SciPy's."""

from __future__ import annotations

import pytest
from scipy.special import stdtrit

from inferlab.measure.intervals import quantile


@pytest.mark.parametrize("freedom", [1, 1.01, 1.5, 2, 2.7, 4, 9, 19.3, 100, 1000, 10_000])
def test_the_quantile_is_that_of_scipy(freedom: float) -> None:
    for p in (0.9, 0.95, 0.975, 0.985, 0.99, 0.9975, 0.9999):
        assert quantile(freedom, p) == pytest.approx(float(stdtrit(freedom, p)), rel=1e-10)
