"""Comparing outputs with a reference."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from inferlab.measure import check

ONES = np.ones(4, np.float32)
STRICT = check.standard_for("FP32")
FEW_BITS = check.standard_for("INT8")


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
    found = check.difference({"y": np.array([1, 2, 3, 5])}, {"y": np.array([1, 2, 3, 4])}, STRICT)
    assert found == check.Difference(0.25, "y", "share", 1e-3)
    text = {"y": np.array(["a", "b"])}
    assert check.difference(text, text, STRICT) == check.Difference(0.0, "y", "share", 1e-3)
    assert check.share_that_differs(np.zeros(3, np.int64), np.zeros(4, np.int64)) == float("inf")


def test_an_empty_output_matches_an_empty_output() -> None:
    assert check.error(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


def test_the_worst_output_decides() -> None:
    found = check.difference({"a": ONES, "b": ONES * 2, "c": ONES}, {"a": ONES, "b": ONES}, STRICT)
    assert found is not None and found.output == "b" and found.error == pytest.approx(0.5, rel=1e-3)
    assert check.judge([found, None], "ref").status == "mismatch"
    assert check.judge([check.Difference(1e-4, "a", "max", 1e-3)], "ref").status == "match"


def test_outputs_in_common_are_needed() -> None:
    assert check.difference({"a": ONES}, {"b": ONES}, STRICT) is None
    assert check.judge([None], "ref").status == "unchecked"


def test_the_loosest_precision_sets_the_standard() -> None:
    assert check.Standard("max", check.Tolerance(1e-3, 1e-3)) == STRICT
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


def labels(wrong: int, of: int = 1000) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.int64]]]:
    """Labels of which so many are wrong, and the right ones."""
    expected = np.arange(of) % 7
    actual = expected.copy()
    actual[:wrong] += 1
    return {"y": actual}, {"y": expected}


@pytest.mark.parametrize(
    ("wrong", "status", "deviates"),
    [(0, "match", False), (9, "match", False), (10, "match", True), (100, "match", True), (101, "mismatch", True)],
)
def test_labels_of_a_model_of_few_bits_may_differ_in_near_ties_and_more_is_said(
    wrong: int, status: str, deviates: bool
) -> None:
    found = check.judge([check.difference(*labels(wrong), FEW_BITS)], "ref")
    assert (found.status, found.error, found.metric) == (status, wrong / 1000, "share")
    assert check.deviates(found.error, found.metric) is deviates


@pytest.mark.parametrize(
    ("change", "status", "deviates"), [(0.04, "match", False), (0.17, "match", True), (0.3, "mismatch", True)]
)
def test_numbers_of_few_bits_deviate_before_they_mismatch(change: float, status: str, deviates: bool) -> None:
    expected = np.array([100.0, -100.0])
    found = check.judge([check.difference({"y": expected * (1 + change)}, {"y": expected}, FEW_BITS)], "ref")
    assert (found.status, found.metric, found.tolerance) == (status, "rms", 0.25)
    assert found.error == pytest.approx(change, rel=1e-4)
    assert check.deviates(found.error, found.metric) is deviates


def test_an_error_of_the_worst_element_never_only_deviates() -> None:
    assert not check.deviates(0.09, "max")
    assert not check.deviates(None, "rms")


def test_single_bytes_of_a_model_of_few_bits_are_quantised_numbers() -> None:
    expected = np.full(100, 100, np.uint8)
    found = check.difference({"y": expected + np.uint8(1)}, {"y": expected}, FEW_BITS)
    assert found is not None and (found.metric, found.matches) == ("rms", True)
    assert found.error == pytest.approx(0.01, rel=1e-3)
    found = check.difference({"y": expected + np.uint8(1)}, {"y": expected}, STRICT)
    assert found == check.Difference(1.0, "y", "share", 1e-3)


def test_complex_outputs_are_compared_as_numbers() -> None:
    expected = np.array([3 + 4j, -3 - 4j], np.complex64)
    close = check.difference({"y": expected * np.complex64(1 + 1e-5)}, {"y": expected}, STRICT)
    assert close is not None and close.metric == "max" and close.matches and 0 < close.error < 1e-4
    turned = check.difference({"y": expected.conj()}, {"y": expected}, STRICT)
    assert turned is not None and not turned.matches
    # The imaginary parts are 8 apart; their own size is 4, the RMS of all parts √12.5.
    assert turned.error == pytest.approx(8 / (4 + 12.5**0.5), rel=1e-3)
    assert check.error(expected.real, expected) == pytest.approx(4 / (4 + 12.5**0.5), rel=1e-3)


def test_of_two_outputs_that_are_judged_differently_the_one_further_beyond_its_tolerance_decides() -> None:
    actual, expected = labels(50)
    actual, expected = actual | {"z": np.array([1.2])}, expected | {"z": np.array([1.0])}
    found = check.difference(actual, expected, FEW_BITS)
    assert found is not None and (found.output, found.metric) == ("z", "rms")
    actual["y"] = actual["y"] + 1
    found = check.difference(actual, expected, FEW_BITS)
    assert found is not None and (found.output, found.metric) == ("y", "share")
