"""Are the outputs right? Comparing arrays with a reference, by tolerances that stand in one table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.records import Metric, OutputCheck

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest errors that still count as a match."""

    #: Of numbers: of the worst element, or of the whole where few bits are judged.
    numbers: float
    #: Of labels (integers, truth values, text): the share that differs.
    labels: float


#: By precision of the model or of the engine's arithmetic.
TOLERANCES = {
    "FP64": Tolerance(1e-3, 1e-3),
    "FP32": Tolerance(1e-3, 1e-3),
    "FP16": Tolerance(2e-2, 2e-2),
    "BF16": Tolerance(1e-1, 5e-2),
    "FP8": Tolerance(2.5e-1, 1e-1),
    "INT8": Tolerance(2.5e-1, 1e-1),
    "INT4": Tolerance(2.5e-1, 1e-1),
}
#: From this error on outputs that match deviate, which is said: of few bits, and of labels beyond near ties.
DEVIATES: Mapping[Metric, float] = {"rms": 5e-2, "share": 1e-2}
# Rounding to few bits makes single elements jump, differently in each engine, so the whole is judged.
_ROUNDED = ("FP8", "INT8", "INT4")
# Engines name precisions in their own way.
_ALIASES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
# Values below this are nothing: a sigmoid near 0 is exact only to the last bit of 1.
_NOTHING = 1e-3


@dataclass(frozen=True, slots=True)
class Standard:
    """By what outputs are judged: the worst element or the whole, and how much error is allowed."""

    metric: Literal["max", "rms"]
    tolerance: Tolerance


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one output is off, and by what it is judged."""

    error: float
    output: str
    metric: Metric
    tolerance: float

    @property
    def matches(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance


def standard_for(*precisions: str) -> Standard:
    """The loosest standard of the precisions at work."""
    names = [_ALIASES.get(name, name) for name in precisions]
    known = [TOLERANCES[name] for name in [*names, "FP32"] if name in TOLERANCES]
    tolerance = Tolerance(max(one.numbers for one in known), max(one.labels for one in known))
    return Standard("rms" if any(name in _ROUNDED for name in names) else "max", tolerance)


def difference(outputs: Arrays, reference: Arrays, standard: Standard) -> Difference | None:
    """The worst of the outputs that both have, by its own tolerance; None where they have none in common."""
    common = [name for name in reference if name in outputs]
    return worst_difference([_difference(name, outputs[name], reference[name], standard) for name in common])


def worst_difference(differences: Iterable[Difference | None]) -> Difference | None:
    """The one whose error is largest as a multiple of its tolerance."""
    known = [one for one in differences if one is not None]
    return max(known, key=lambda one: one.error / one.tolerance, default=None)


def _difference(output: str, actual: NDArray[Any], expected: NDArray[Any], standard: Standard) -> Difference:
    if all(_are_numbers(array, standard) for array in (actual, expected)):
        found = error(actual, expected, standard.metric)
        return Difference(found, output, standard.metric, standard.tolerance.numbers)
    return Difference(share_that_differs(actual, expected), output, "share", standard.tolerance.labels)


def _are_numbers(array: NDArray[Any], standard: Standard) -> bool:
    """Floats and complex numbers; in models of few bits also single bytes, which are quantised values there."""
    quantised = standard.metric == "rms" and array.dtype.kind in "iu" and array.dtype.itemsize == 1
    return array.dtype.kind in "fc" or quantised


def share_that_differs(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """The share of labels that are not the same; infinite where shapes differ."""
    if actual.shape != expected.shape:
        return float("inf")
    return float(np.mean(actual != expected)) if actual.size else 0.0


def error(actual: NDArray[Any], expected: NDArray[Any], metric: Literal["max", "rms"] = "max") -> float:
    """How far numbers are from the expected ones.

    "max" is the largest |actual − expected| / (|expected| + RMS of expected): large values count by their own
    size, small ones by the size of the whole. "rms" is the RMS of the difference over the RMS of expected.
    Infinite where shapes differ or only one side is finite. Both parts of a complex number count.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if actual.size == 0:
        return 0.0
    if "c" in (actual.dtype.kind, expected.dtype.kind):
        actual, expected = (np.stack([one.real, one.imag]) for one in (actual, expected))
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if np.any(~same & ~(np.isfinite(a) & np.isfinite(b))):
        return float("inf")
    # Masked-out logits are near the largest number there is: they must not set the scale for the rest.
    ordinary = np.isfinite(b) & (np.abs(b) < 1e30)
    scale = _rms(b[ordinary]) + _NOTHING
    distance = np.abs(np.where(same, 0.0, np.subtract(a, b, where=~same, out=np.zeros_like(a))))
    if metric == "rms":
        return _rms(distance[ordinary]) / scale
    return float(np.max(distance / (np.abs(np.where(same, 0.0, b)) + scale)))


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


def judge(differences: Iterable[Difference | None], reference: str) -> OutputCheck:
    """The check's result from all comparisons made before and after timing."""
    found = worst_difference(differences)
    if found is None:
        return OutputCheck(
            "unchecked", reference=reference, detail="the engine gave no outputs that could be compared"
        )
    status: Literal["match", "mismatch"] = "match" if found.matches else "mismatch"
    return OutputCheck(status, found.error, found.metric, found.tolerance, reference, found.output)


def deviates(error: float | None, metric: Metric) -> bool:
    """Whether outputs that match are so far off that it must be said."""
    return error is not None and error >= DEVIATES.get(metric, math.inf)


def worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    """The check that says most against the outputs: a mismatch, then one not made, then the largest error."""
    severity = {"mismatch": 2, "unchecked": 1, "match": 0}
    return max(checks, key=lambda one: (severity[one.status], (one.error or 0.0) / (one.tolerance or 1.0)))
