"""Shapes that a model runs with, found by trying where it leaves more open than its batch and sequence length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.files import whole_file
from inferlab.model.shapes import CHANNELS, IMAGE, SEQUENCE, is_open, open_inputs, resolve
from inferlab.records import Model, Shape, TensorSpec
from inferlab.settings import cache_folder
from inferlab.worker import ONNXRUNTIME, run_task

#: Changes with what is tried: what an older version remembered is then found again.
VERSION = 1

_TRYING_S = 20.0
_PATIENCE_S = 120.0

# Tried where a model does not run with the usual ones. A second of sound has 16,000 samples; a chunk has 512.
_LENGTHS = (
    *(16000, 512, 256, 1024, 64, 32, 16, 80, 100, 400, 1536),
    *(2048, 3000, 4096, 8000, 32000, 48000, 8, 4, 2, 1),
)
_SOUND_LENGTHS = (16000, 512)
_SOUNDS = ("samples", "waveform", "wav", "audio", "speech", "signal", "pcm")
_SPECTRA = ("mel", "feat", "spec", "frames", "fbank")
# Text lines are low and wide.
_PICTURES = (
    *((48, 320), (32, 320), (640, 640), (320, 320), (512, 512), (256, 256), (160, 160), (112, 112), (96, 96)),
    *((64, 64), (64, 256), (32, 100), (32, 128), (48, 48), (32, 32), (28, 28), (24, 24), (12, 12), (1024, 1024)),
)
_LOW_PICTURE = 80


def with_fitted_shapes(model: Model) -> Model:
    """An ONNX model with a shape for every input that leaves more open than its batch and its sequence length."""
    if any(spec.dims is None for spec in model.inputs):
        return model
    file = cache_folder() / "shapes" / f"{model.digest}-v{VERSION}.json"
    shapes = _cached_shapes(file, model)
    if shapes is None:
        shapes = _first_that_runs(model)
        if shapes is None:
            return model
        _cache_shapes(file, shapes)
    return replace(
        model, inputs=tuple(replace(spec, fitted=shapes.get(spec.name) or None) for spec in model.inputs)
    )


def _first_that_runs(model: Model) -> dict[str, Shape] | None:
    """The first candidate that runs; empty where none does, None where ONNX Runtime could not try."""
    tries = candidates(model.inputs)
    arguments = {
        "model": model.path,
        "inputs": [{"name": spec.name, "dtype": spec.dtype, "fill": _fill(spec)} for spec in model.inputs],
        "candidates": [{name: list(shape) for name, shape in shapes.items()} for shapes in tries],
        "seconds": _TRYING_S,
    }
    try:
        number = run_task(ONNXRUNTIME, "fit_shapes", arguments, patience_s=_PATIENCE_S)["number"]
    except (BadInput, EngineFailed):
        return None
    return {} if number is None else tries[number]


def _fill(spec: TensorSpec) -> int:
    if spec.known_values and len(spec.dims or ()) <= 1:
        return max(spec.known_values)
    return 1 if spec.below is None else min(1, spec.below - 1)


def _cached_shapes(file: Path, model: Model) -> dict[str, Shape] | None:
    """What was found for this model, if it still fits its inputs."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        shapes = {str(name): tuple(int(size) for size in shape) for name, shape in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    ranks = {spec.name: len(spec.dims or ()) for spec in model.inputs}
    fits = all(len(shape) == ranks.get(name) and min(shape, default=1) > 0 for name, shape in shapes.items())
    return shapes if fits else None


def _cache_shapes(file: Path, shapes: dict[str, Shape]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as target:
            target.write(json.dumps(shapes).encode())
    except OSError:
        return  # it is found again next time


def candidates(inputs: Sequence[TensorSpec]) -> list[dict[str, Shape]]:
    """Shapes to try one after the other, for one item: what `resolve` takes on its own first, usual ones next."""
    bare = [replace(spec, fitted=None) for spec in inputs]
    tries: list[dict[str, Shape]] = []
    for size in _tried_sizes(bare):
        specs = [replace(spec, fitted=_filled(spec, bare, size)) for spec in bare]
        shapes = resolve(specs, None, None, {}).shapes
        if shapes not in tries:
            tries.append(shapes)
    return tries


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What open dimensions get: of sequences and sounds, of pictures."""

    length: int
    height: int
    width: int
    channels: int


def _tried_sizes(inputs: Sequence[TensorSpec]) -> list[_Sizes]:
    opened = open_inputs(inputs)
    pictures = any(len(spec.dims or ()) >= 4 for spec in opened)
    names = " ".join(spec.name.lower() + " " + " ".join(map(str, spec.dims or ())).lower() for spec in opened)
    sound = any(word in names for word in _SOUNDS)
    spectrum = any(word in names for word in _SPECTRA)
    lengths = [*(_SOUND_LENGTHS if sound and not spectrum else ()), SEQUENCE, *_LENGTHS]
    sizes = [_Sizes(lengths[0], IMAGE, IMAGE, CHANNELS)]
    if pictures:
        fixed = next((spec for spec in opened if len(spec.dims or ()) == 4), None)
        low = fixed is not None and isinstance(height := (fixed.dims or ())[2], int) and height <= _LOW_PICTURE
        wide = [(height, width) for height, width in _PICTURES if (width > height) == low]
        rest = [(height, width) for height, width in _PICTURES if (width > height) != low]
        for channels in (CHANNELS, 1, 4):
            both = [*wide, *rest] if low else [(IMAGE, IMAGE), *_PICTURES]
            sizes += [_Sizes(lengths[0], height, width, channels) for height, width in both]
        sizes = sizes[1:] if low else sizes
    return sizes + [_Sizes(length, IMAGE, IMAGE, CHANNELS) for length in lengths]


def _filled(spec: TensorSpec, inputs: Sequence[TensorSpec], size: _Sizes) -> Shape:
    """A shape whose open dimensions have these sizes; others are as `resolve` finds them."""
    dims = spec.dims or ()
    channels_last = len(dims) == 4 and dims[3] in (1, 3, 4)
    names = ("height", "width", "channels") if channels_last else ("channels", "height", "width")
    shape = []
    for axis, dim in enumerate(dims):
        if not is_open(spec, axis, inputs):
            shape.append(dim if isinstance(dim, int) else 1)
        elif len(dims) == 4 and axis:
            shape.append(int(getattr(size, names[axis - 1])))
        elif (
            len(dims) == 3 and dims[2] in (1, 3, 4) and axis < 2 and all(not isinstance(d, int) for d in dims[:2])
        ):
            shape.append(size.height if axis == 0 else size.width)
        elif len(dims) == 3 and dims[0] in (1, 3) and axis and all(not isinstance(d, int) for d in dims[1:]):
            shape.append(size.height if axis == 1 else size.width)
        else:
            shape.append(size.length)
    return tuple(shape)
