"""Are the outputs right? Comparing arrays with a reference, by tolerances that stand in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab.records import Metric, OutputCheck

Arrays = Mapping[str, NDArray[Any]]

#: The largest error that still counts as a match, by precision of the model or of the engine's arithmetic.
TOLERANCES = {
    "FP64": 1e-3,
    "FP32": 1e-3,
    "FP16": 2e-2,
    "BF16": 1e-1,
    "FP8": 2.5e-1,
    "INT8": 2.5e-1,
    "INT4": 2.5e-1,
}
# Rounding to few bits makes single elements jump, differently in each engine, so the whole is judged.
_ROUNDED = ("FP8", "INT8", "INT4")
# Engines name precisions in their own way.
_ALIASES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
# Values below this are nothing: a sigmoid near 0 is exact only to the last bit of 1.
_NOTHING = 1e-3


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest error found, and the output that has it."""

    error: float
    output: str


@dataclass(frozen=True, slots=True)
class Standard:
    """By what outputs are judged: the worst element or the whole, and how much error is allowed."""

    metric: Metric
    tolerance: float


def standard_for(*precisions: str) -> Standard:
    """The loosest standard of the precisions at work."""
    names = [_ALIASES.get(name, name) for name in precisions]
    metric: Metric = "rms" if any(name in _ROUNDED for name in names) else "max"
    return Standard(metric, max(TOLERANCES.get(name, 0.0) for name in [*names, "FP32"]))


def difference(outputs: Arrays, reference: Arrays, metric: Metric = "max") -> Difference | None:
    """The largest error over the outputs that both have; None where they have none in common."""
    found = [
        Difference(error(outputs[name], reference[name], metric), name) for name in reference if name in outputs
    ]
    return max(found, key=lambda one: one.error, default=None)


def error(actual: NDArray[Any], expected: NDArray[Any], metric: Metric = "max") -> float:
    """How far outputs are from the expected ones.

    "max" is the largest |actual − expected| / (|expected| + RMS of expected): large values count by their own
    size, small ones by the size of the whole. "rms" is the RMS of the difference over the RMS of expected.
    Integers and text count by the share that differs. Infinite where shapes differ or only one side is finite.
    """
    if actual.shape != expected.shape:
        return float("inf")
    if actual.size == 0:
        return 0.0
    if expected.dtype.kind != "f" or actual.dtype.kind != "f":
        return float(np.mean(actual != expected))
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


def judge(differences: Iterable[Difference | None], standard: Standard, reference: str) -> OutputCheck:
    """The check's result from all comparisons made before and after timing."""
    found = [one for one in differences if one is not None]
    if not found:
        return OutputCheck(
            "unchecked", reference=reference, detail="the engine gave no outputs that could be compared"
        )
    worst = max(found, key=lambda one: one.error)
    matches = worst.error <= standard.tolerance
    return OutputCheck(
        "match" if matches else "mismatch",
        worst.error,
        standard.metric,
        standard.tolerance,
        reference,
        worst.output,
    )


def worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    """The check that says most against the outputs: a mismatch, then one not made, then the largest error."""
    severity = {"mismatch": 2, "unchecked": 1, "match": 0}
    return max(checks, key=lambda one: (severity[one.status], one.error or 0.0))
