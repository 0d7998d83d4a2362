"""Write an INT8 copy of an ONNX model (static QDQ), calibrated on inputs and run once before it counts as done."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferlab import machine
from inferlab.child import sets
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineRefused
from inferlab.model.graph import read_onnx
from inferlab.records import Event, Listener, Model, ignore
from inferlab.worker import Worker

_PATIENCE_S = 3600.0


def quantize(
    model: Model,
    inputs: Sequence[Mapping[str, np.ndarray[Any, Any]]],
    folder: Path,
    listener: Listener = ignore,
) -> Model:
    """Write the copy into `folder`: weights in INT8 by channel, activations in UINT8 with ranges as on `inputs`.

    Operators that cannot be quantised stay as they are. Where the CPU has no INT8 dot products the weights have
    7 bits, since 8 could overflow there.
    """
    if model.kind != "onnx":
        raise BadInput(f"Only ONNX models can be quantised; {model.source} is of the kind {model.kind}.")
    if model.quantization:
        raise BadInput(f"{model.source} is quantised already ({model.quantization}).")
    if not inputs:
        raise BadInput("Quantising needs at least one set of inputs to find the ranges of values with.")
    original = Path(model.path).resolve()
    target = folder / Path(model.path).name
    if folder.resolve() in (original.parent, Path(model.path).parent.resolve()):
        raise BadInput(f"{target} is the model itself. Choose another folder for its copy.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the last step is a rename and a half-written file is never seen.
        with tempfile.TemporaryDirectory(prefix=".inferlab-int8-", dir=folder) as place:
            made = _in_child(model, inputs, Path(place), target.name, listener)
            for file in sorted(made.iterdir(), key=lambda one: one.name == target.name):
                shutil.move(file, folder / file.name)
    except OSError as error:
        raise BadInput(f"The INT8 copy cannot be written to {folder}: {error.strerror or error}.") from error
    listener(Event("quantizing", {"model": model.source}, 1.0))
    return read_onnx(target, str(target))


def _in_child(
    model: Model,
    inputs: Sequence[Mapping[str, np.ndarray[Any, Any]]],
    place: Path,
    name: str,
    listener: Listener,
) -> Path:
    """Prepare, quantise and check in a child; the folder that holds nothing but the copy's files."""
    (place / "out").mkdir()
    prepared, out = str(place / "prepared.onnx"), str(place / "out" / name)
    packed, blocks = sets.pack(inputs, None)
    reduce_range = not machine.has_vnni(machine.describe().instruction_sets)
    steps: list[tuple[float | None, dict[str, Any], list[Any]]] = [
        (None, {"step": "prepare", "model": model.path, "out": prepared}, []),
        (0.2, {"step": "quantize", "model": prepared, "out": out, "reduce_range": reduce_range, **packed}, blocks),
        (0.8, {"step": "check", "model": model.path, "out": out, **packed}, blocks),
    ]
    with Worker(registry.launch("onnxruntime"), patience_s=_PATIENCE_S) as worker:
        for fraction, arguments, data in steps:
            listener(Event("quantizing", {"model": model.source, "step": arguments["step"]}, fraction))
            try:
                worker.ask("task", data, task="quantize_static", arguments=arguments)
            except EngineRefused:
                raise
            except BadInput as error:
                raise EngineRefused(f"No INT8 copy of {model.source} could be made. {error}") from error
    return Path(out).parent
