"""Comparing outputs with a reference."""

from __future__ import annotations

import numpy as np
import pytest

from inferlab.measure import check

ONES = np.ones(4, np.float32)
STRICT = check.Standard("max", 1e-3)


def test_equal_arrays_have_no_error() -> None:
    assert check.error(ONES, ONES) == 0.0


def test_the_error_is_relative_to_the_value_and_the_scale_of_the_whole() -> None:
    assert check.error(np.array([1.0, 1.1], np.float64), np.array([1.0, 1.0])) == pytest.approx(0.05, rel=1e-3)


def test_a_small_absolute_error_near_zero_is_small() -> None:
    expected = np.array([0.0, 10.0, -10.0, 10.0])
    assert check.error(expected + np.array([1e-6, 0, 0, 0]), expected) < 2e-7


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_where_the_reference_is_counts_as_infinitely_wrong(bad: float) -> None:
    assert check.error(np.array([1, bad, 1, 1], np.float32), ONES) == float("inf")
    assert check.error(ONES, np.array([1, bad, 1, 1], np.float32)) == float("inf")


def test_nan_and_infinity_that_both_have_are_no_error() -> None:
    both = np.array([np.nan, np.inf, -np.inf, 2.0])
    assert check.error(both, both.copy()) == 0.0


def test_masked_logits_do_not_hide_an_error_in_the_others() -> None:
    expected = np.array([np.finfo(np.float32).min] * 9 + [1.0], np.float32)
    actual = expected.copy()
    actual[-1] = 2.0
    assert check.error(actual, expected) == pytest.approx(0.5, rel=1e-3)


def test_another_shape_is_infinitely_wrong() -> None:
    assert check.error(ONES, np.ones((1, 4), np.float32)) == float("inf")


def test_integers_and_strings_are_compared_by_the_share_that_differs() -> None:
    assert check.error(np.array([1, 2, 3, 5]), np.array([1, 2, 3, 4])) == 0.25
    assert check.error(np.array(["a", "b"]), np.array(["a", "b"])) == 0.0


def test_an_empty_output_matches_an_empty_output() -> None:
    assert check.error(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


def test_the_worst_output_decides() -> None:
    found = check.difference({"a": ONES, "b": ONES * 2, "c": ONES}, {"a": ONES, "b": ONES})
    assert found is not None and found.output == "b" and found.error == pytest.approx(0.5, rel=1e-3)
    assert check.judge([found, None], STRICT, "ref").status == "mismatch"
    assert check.judge([check.Difference(1e-4, "a")], STRICT, "ref").status == "match"


def test_outputs_in_common_are_needed() -> None:
    assert check.difference({"a": ONES}, {"b": ONES}) is None
    assert check.judge([None], STRICT, "ref").status == "unchecked"


def test_the_loosest_precision_sets_the_standard() -> None:
    assert check.standard_for("FP32", "f32") == STRICT
    assert check.standard_for("FP32", "bf16") == check.Standard("max", check.TOLERANCES["BF16"])
    assert check.standard_for("INT8", "f32") == check.Standard("rms", check.TOLERANCES["INT8"])
    assert check.standard_for("something new", "") == STRICT


def test_few_bits_are_judged_as_a_whole() -> None:
    expected = np.ones(100)
    actual = expected.copy()
    actual[7] = 2.0
    assert check.error(actual, expected, "rms") == pytest.approx(0.1, rel=2e-3)
    assert check.error(actual, expected, "max") == pytest.approx(0.5, rel=2e-3)


def test_noise_in_outputs_that_are_next_to_nothing_is_no_error() -> None:
    assert check.error(np.full(9, 2e-7), np.full(9, 5e-8)) < 1e-3
