"""Are the outputs right? Comparing arrays with a reference, by tolerances that stand in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab.records import OutputCheck

Arrays = Mapping[str, NDArray[Any]]

#: The largest error that still counts as a match, by precision of the model or of the engine's arithmetic.
TOLERANCES = {"FP64": 1e-3, "FP32": 1e-3, "FP16": 2e-2, "BF16": 1e-1, "INT8": 2.5e-1, "INT4": 2.5e-1}
# Engines name precisions in their own way.
_ALIASES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest error found, and the output that has it."""

    error: float
    output: str


def tolerance_for(*precisions: str) -> float:
    """The loosest tolerance of the precisions at work."""
    names = (_ALIASES.get(name, name) for name in precisions)
    return max(TOLERANCES[name] for name in names if name in TOLERANCES)


def difference(outputs: Arrays, reference: Arrays) -> Difference | None:
    """The largest error over the outputs that both have; None where they have none in common."""
    found = [Difference(error(outputs[name], reference[name]), name) for name in reference if name in outputs]
    return max(found, key=lambda one: one.error, default=None)


def error(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest |actual − expected| / (|expected| + RMS of expected): large values count by their own size,
    small ones by the size of the whole. Infinite where shapes differ or only one side is finite."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.size == 0:
        return 0.0
    if expected.dtype.kind not in "fc" or actual.dtype.kind not in "fc":
        return float(np.mean(actual != expected))
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if np.any(~np.isfinite(a) & ~same) or np.any(~finite & ~same):
        return float("inf")
    # Masked-out logits are near the largest number there is: they must not set the scale for the rest.
    ordinary = finite & (np.abs(b) < 1e30)
    rms = float(np.sqrt(np.mean(np.square(b[ordinary])))) if np.any(ordinary) else 0.0
    distance = np.abs(np.where(same, 0.0, a - np.where(finite, b, 0.0)))
    with np.errstate(invalid="ignore", over="ignore"):
        relative = distance / np.maximum(np.abs(np.where(finite, b, 0.0)) + rms, np.finfo(np.float32).tiny)
    return float(np.max(relative))


def judge(differences: Iterable[Difference | None], tolerance: float, reference: str) -> OutputCheck:
    """The check's result from all comparisons made before and after timing."""
    found = [one for one in differences if one is not None]
    if not found:
        return OutputCheck(
            "unchecked", reference=reference, detail="the engine gave no outputs that could be compared"
        )
    worst = max(found, key=lambda one: one.error)
    status = "match" if worst.error <= tolerance else "mismatch"
    return OutputCheck(status, worst.error, tolerance, reference, worst.output)  # type: ignore[arg-type]
