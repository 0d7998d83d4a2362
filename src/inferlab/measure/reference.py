"""What the outputs should be: made once by a child of its own from the untouched model, cached by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.child import protocol
from inferlab.errors import InferlabError
from inferlab.files import whole_file
from inferlab.machine import usable_cores
from inferlab.measure.check import Arrays
from inferlab.model.inputs import digest
from inferlab.model.shapes import batch_axis
from inferlab.records import Event, Listener, Model
from inferlab.settings import cache_folder
from inferlab.worker import ONNXRUNTIME, TORCH, Launch, Worker

# The cache keeps the newest references, up to this size in all.
_CACHE_BYTES = 500_000_000

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
    key = [label, model.digest, str(rewrite_batch), *(digest(one) for one in sets), *map(str, meant.items())]
    path = cache_folder() / "references" / (hashlib.sha256("\n".join(key).encode()).hexdigest()[:32] + ".npz")
    cached = _read(path, len(sets))
    if cached is not None:
        return Reference(label, cached)
    listener(Event("reference", {"label": label}))
    try:
        outputs = tuple(_make(model, launch, {**options, **meant}, sets, rewrite_batch, patience_s))
    except InferlabError as error:
        return Reference(label, reason=f"no reference could be made: {error}")
    _write(path, outputs)
    return Reference(label, outputs)


def _make(
    model: Model,
    launch: Launch,
    options: dict[str, str],
    sets: Sequence[Arrays],
    rewrite_batch: tuple[int, int] | None,
    patience_s: float,
) -> list[Arrays]:
    """Run every set; a batch that the model does not take is fed in portions of the model's own batch."""
    own, wanted = rewrite_batch or (1, 1)
    portions = [_portions(one, model, own, wanted) if rewrite_batch else [dict(one)] for one in sets]
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
            outputs=[one.name for one in model.outputs],
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
            results.append(answers[0] if not rewrite_batch else _joined(answers, own, wanted))
    return results


def _portions(inputs: Arrays, model: Model, own: int, wanted: int) -> list[dict[str, Any]]:
    """Cut the batched inputs into the model's own batches, the last one filled up with its last row."""
    batched = {spec.name for spec in model.inputs if batch_axis(spec, model.inputs) == 0}
    portions = []
    for start in range(0, wanted, own):
        rows = np.minimum(np.arange(start, start + own), wanted - 1)
        portions.append(
            {
                name: np.ascontiguousarray(value[rows]) if name in batched else value
                for name, value in inputs.items()
            }
        )
    return portions


def _joined(answers: Sequence[Arrays], own: int, wanted: int) -> Arrays:
    """Put the portions' outputs together; those without a batch dimension cannot be compared."""
    return {
        name: np.concatenate([answer[name] for answer in answers])[:wanted]
        for name, first in answers[0].items()
        if first.ndim and first.shape[0] == own
    }


def _read(path: Path, count: int) -> tuple[Arrays, ...] | None:
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


def _write(path: Path, outputs: Sequence[Arrays]) -> None:
    """Keep the outputs; a full disk or a read-only folder costs only the cache."""
    arrays = {f"{number}/{name}": value for number, one in enumerate(outputs) for name, value in one.items()}
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
    files = sorted(folder.glob("*.npz"), key=lambda one: one.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > _CACHE_BYTES:
            file.unlink(missing_ok=True)
