"""Shapes for what a model leaves open: the first of many that it runs with, found once and remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferlab.atomic import whole_file
from inferlab.errors import BadInput, EngineFailed
from inferlab.model.shapes import candidates, open_inputs
from inferlab.records import Model, Shape, TensorSpec
from inferlab.settings import cache_folder
from inferlab.worker import Launch, Worker

#: Changes with what is tried: what an older version remembered is then found again.
VERSION = 1

_ONNXRUNTIME = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})
_TRYING_S = 20.0
_PATIENCE_S = 120.0


def with_fitted_shapes(model: Model) -> Model:
    """The model with a shape for every input that leaves more open than its batch and its sequence length."""
    if model.kind != "onnx" or not open_inputs(model.inputs) or any(one.dims is None for one in model.inputs):
        return model
    file = cache_folder() / "shapes" / f"{model.digest}-v{VERSION}.json"
    shapes = _remembered(file, model)
    if shapes is None:
        shapes = _tried(model)
        if shapes is None:
            return model
        _remember(file, shapes)
    return replace(model, inputs=tuple(replace(one, fitted=shapes.get(one.name) or None) for one in model.inputs))


def _tried(model: Model) -> dict[str, Shape] | None:
    """The first candidate that runs; empty where none does, None where ONNX Runtime could not try."""
    tries = candidates(model.inputs)
    arguments = {
        "model": model.path,
        "inputs": [{"name": one.name, "dtype": one.dtype, "fill": _fill(one)} for one in model.inputs],
        "candidates": [{name: list(shape) for name, shape in one.items()} for one in tries],
        "seconds": _TRYING_S,
    }
    try:
        with Worker(_ONNXRUNTIME, patience_s=_PATIENCE_S) as worker:
            number = worker.ask("task", task="fit_shapes", arguments=arguments).data["number"]
    except (BadInput, EngineFailed):
        return None
    return {} if number is None else tries[number]


def _fill(spec: TensorSpec) -> int:
    if spec.known_values and len(spec.dims or ()) <= 1:
        return max(spec.known_values)
    return 1 if spec.below is None else min(1, spec.below - 1)


def _remembered(file: Path, model: Model) -> dict[str, Shape] | None:
    """What was found for this model, if it still fits its inputs."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        shapes = {str(name): tuple(int(size) for size in shape) for name, shape in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    ranks = {one.name: len(one.dims or ()) for one in model.inputs}
    fits = all(len(shape) == ranks.get(name) and min(shape, default=1) > 0 for name, shape in shapes.items())
    return shapes if fits else None


def _remember(file: Path, shapes: dict[str, Shape]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as target:
            target.write(json.dumps(shapes).encode())
    except OSError:
        return  # it is found again next time
