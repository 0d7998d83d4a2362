"""What copies take beside the model, on a machine that others use too."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inferlab.errors import EngineFailed
from inferlab.profiling.interleaved import typical_ms


def logs(*turns: tuple[float, float]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([[math.log(a * 1e6), math.log(b * 1e6)] for a, b in turns])


def test_the_median_ratio_of_the_turns_counts_where_the_model_takes_what_it_took() -> None:
    before, after = typical_ms(logs((10, 5), (11, 5.5), (9, 3), (10, 5)), usual_ms=10)
    assert after / before == pytest.approx(0.5)


def test_the_quietest_turns_count_where_other_programs_took_most_of_them() -> None:
    # The model was waiting for a CPU in three of four turns, the copy in one: the medians say 92 times as fast.
    turns = logs((920, 10), (920, 10), (920, 500), (12, 10))
    before, after = typical_ms(turns, usual_ms=12)
    assert (before, after) == pytest.approx((12, 10))


def test_a_copy_is_not_timed_where_the_model_was_never_as_fast_as_before() -> None:
    with pytest.raises(EngineFailed, match=r"the model itself took 76\.7 times as long as alone"):
        typical_ms(logs((920, 10), (930, 10), (940, 10)), usual_ms=12)
