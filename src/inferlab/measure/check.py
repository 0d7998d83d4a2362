"""Are the outputs right? What a reference computes, and how far others may be off, by one table of tolerances."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inferlab.child import protocol
from inferlab.errors import InferlabError
from inferlab.files import whole_file
from inferlab.machine import usable_cores
from inferlab.model.inputs import digest
from inferlab.model.shapes import batch_axis
from inferlab.records import Event, Listener, Metric, Model, OutputCheck
from inferlab.settings import cache_folder
from inferlab.worker import ONNXRUNTIME, TORCH, Launch, Worker

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

_TORCH = ("torch", TORCH, {"mode": "eager"})
_MAKERS: dict[str, tuple[str, Launch, dict[str, str]]] = {
    # Without optimisation: the reference is what the model says, not what a fusion makes of it.
    "onnx": (
        "onnxruntime",
        ONNXRUNTIME,
        {"graph_optimization": "disabled", "io_binding": "0"},
    ),
    "torch-export": _TORCH,
    "torchscript": _TORCH,
    "transformers": _TORCH,
}
# Engine options that say what is computed, not how: the reference computes the same.
_MEANING = {"transformers": ("head",)}
# The cache keeps the newest references, up to this size in all.
_CACHE_BYTES = 500_000_000


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
    bounds = [TOLERANCES[name] for name in [*names, "FP32"] if name in TOLERANCES]
    tolerance = Tolerance(max(bound.numbers for bound in bounds), max(bound.labels for bound in bounds))
    return Standard("rms" if any(name in _ROUNDED for name in names) else "max", tolerance)


def difference(outputs: Arrays, reference: Arrays, standard: Standard) -> Difference | None:
    """The worst of the outputs that both have, by its own tolerance; None where they have none in common."""
    common = [name for name in reference if name in outputs]
    return worst_difference([_difference(name, outputs[name], reference[name], standard) for name in common])


def worst_difference(differences: Iterable[Difference | None]) -> Difference | None:
    """The one whose error is largest as a multiple of its tolerance."""
    comparable = [each for each in differences if each is not None]
    return max(comparable, key=lambda each: each.error / each.tolerance, default=None)


def _difference(output: str, actual: NDArray[Any], expected: NDArray[Any], standard: Standard) -> Difference:
    if all(_are_numbers(array, standard) for array in (actual, expected)):
        deviation = error(actual, expected, standard.metric)
        return Difference(deviation, output, standard.metric, standard.tolerance.numbers)
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
        actual, expected = (np.stack([array.real, array.imag]) for array in (actual, expected))
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
    largest = worst_difference(differences)
    if largest is None:
        return OutputCheck(
            "unchecked", reference=reference, detail="the engine gave no outputs that could be compared"
        )
    status: Literal["match", "mismatch"] = "match" if largest.matches else "mismatch"
    return OutputCheck(status, largest.error, largest.metric, largest.tolerance, reference, largest.output)


def deviates(error: float | None, metric: Metric) -> bool:
    """Whether outputs that match are so far off that it must be said."""
    return error is not None and error >= DEVIATES.get(metric, math.inf)


def worst(checks: Sequence[OutputCheck]) -> OutputCheck:
    """The check that says most against the outputs: a mismatch, then one not made, then the largest error."""
    severity = {"mismatch": 2, "unchecked": 1, "match": 0}
    return max(checks, key=lambda check: (severity[check.status], (check.error or 0.0) / (check.tolerance or 1.0)))


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs for each set of inputs, or the reason why there are none."""

    label: str
    outputs: tuple[Arrays, ...] = ()
    reason: str = ""


def reference_for(
    model: Model,
    sets: Sequence[Arrays],
    rewrite_batch: tuple[int, int] | None,
    patience_s: float,
    listener: Listener,
    engine_options: Mapping[str, str],
) -> Reference:
    """The reference outputs of a model; never raises for the model's or the engine's faults."""
    if model.kind not in _MAKERS:
        return Reference("", reason=f"there is no reference for a model of kind {model.kind}")
    if model.random:
        return Reference("", reason="the model has random operators")
    package, launch, options = _MAKERS[model.kind]
    meant = {name: engine_options[name] for name in _MEANING.get(model.kind, ()) if name in engine_options}
    label = f"{package} {metadata.version(package)}" + (
        ", eager" if package == "torch" else ", graph not optimised"
    )
    key = [label, model.digest, str(rewrite_batch), *(digest(inputs) for inputs in sets), *map(str, meant.items())]
    path = cache_folder() / "references" / (hashlib.sha256("\n".join(key).encode()).hexdigest()[:32] + ".npz")
    cached = read_cached(path, len(sets))
    if cached is not None:
        return Reference(label, cached)
    listener(Event("reference", {"label": label}))
    try:
        outputs = tuple(_make_reference(model, launch, {**options, **meant}, sets, rewrite_batch, patience_s))
    except InferlabError as error:
        return Reference(label, reason=f"no reference could be made: {error}")
    cache_outputs(path, outputs)
    return Reference(label, outputs)


def _make_reference(
    model: Model,
    launch: Launch,
    options: dict[str, str],
    sets: Sequence[Arrays],
    rewrite_batch: tuple[int, int] | None,
    patience_s: float,
) -> list[Arrays]:
    """Run every set; a batch that the model does not take is fed in portions of the model's own batch."""
    own, batch = rewrite_batch or (1, 1)
    portions = [_portions(inputs, model, own, batch) if rewrite_batch else [dict(inputs)] for inputs in sets]
    with Worker(launch, patience_s=patience_s) as worker:
        worker.ask(
            "load",
            model=model.path,
            kind=model.kind,
            groups=[[]],
            layout="each",
            threads=usable_cores(),
            cores=usable_cores(),
            scheduler="single_stream",
            pinning="none",
            batch_size=own,
            shapes={name: list(value.shape) for name, value in portions[0][0].items()},
            options=options,
            outputs=[output.name for output in model.outputs],
        )
        number = 0
        results: list[Arrays] = []
        for parts in portions:
            answers = []
            for part in parts:
                heads, blocks = protocol.pack_arrays(part)
                worker.ask("inputs", blocks, arrays=heads)
                answers.append(worker.ask("infer", stream=0, set=number).arrays())
                number += 1
            results.append(answers[0] if not rewrite_batch else _joined(answers, own, batch))
    return results


def _portions(inputs: Arrays, model: Model, own: int, batch: int) -> list[dict[str, Any]]:
    """Cut the batched inputs into the model's own batches, the last one filled up with its last row."""
    batched = {spec.name for spec in model.inputs if batch_axis(spec, model.inputs) == 0}
    portions = []
    for start in range(0, batch, own):
        rows = np.minimum(np.arange(start, start + own), batch - 1)
        portions.append(
            {
                name: np.ascontiguousarray(value[rows]) if name in batched else value
                for name, value in inputs.items()
            }
        )
    return portions


def _joined(answers: Sequence[Arrays], own: int, batch: int) -> Arrays:
    """Put the portions' outputs together; those without a batch dimension cannot be compared."""
    return {
        name: np.concatenate([answer[name] for answer in answers])[:batch]
        for name, first in answers[0].items()
        if first.ndim and first.shape[0] == own
    }


def read_cached(path: Path, count: int) -> tuple[Arrays, ...] | None:
    """The sets of outputs in a file of the cache; None where there is none."""
    sets: tuple[dict[str, Any], ...] = tuple({} for _ in range(count))
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                number, _, name = key.partition("/")
                sets[int(number)][name] = file[key]
    except FileNotFoundError:
        return None
    except Exception:  # a damaged cache is only a cache: it is made again
        path.unlink(missing_ok=True)
        return None
    return sets


def cache_outputs(path: Path, outputs: Sequence[Arrays]) -> None:
    """Keep the outputs; a full disk or a read-only folder costs only the cache."""
    arrays = {f"{number}/{name}": value for number, output in enumerate(outputs) for name, value in output.items()}
    if sum(value.nbytes for value in arrays.values()) > _CACHE_BYTES // 4:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _prune(path.parent)
    except OSError:
        return


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*.npz"), key=lambda file: file.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > _CACHE_BYTES:
            file.unlink(missing_ok=True)
