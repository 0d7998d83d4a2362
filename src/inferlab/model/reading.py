"""A model by its source: found, read for what it is, and given shapes that it runs with where some are open."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.files import whole_file
from inferlab.model.confined import confined
from inferlab.model.onnx_file import files_digest, read_onnx
from inferlab.model.shapes import CHANNELS, IMAGE, SEQUENCE, is_open, open_inputs, resolve
from inferlab.model.sources import locate
from inferlab.records import Kind, Listener, Model, Shape, TensorSpec, engine_name, ignore
from inferlab.settings import cache_folder
from inferlab.worker import ONNXRUNTIME, OPENVINO, TORCH, Launch, Worker, run_task

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
# Weights that inferlab quantised; transformers, and so an export, does not load them.
_INT8_WEIGHTS = "model.int8.safetensors"
_NOT_FOR_FOLDERS = frozenset({"onnxruntime", "openvino", "mnn", "deepsparse", "executor", "llamacpp"})


def read_model(name: str, listener: Listener = ignore, engines: Sequence[str] = ()) -> Model:
    """Find a model by its source and read what it is, unless none of the engines could run it."""
    located = locate(name, listener)
    if located.kind == "gguf":
        raise BadInput(f"{name} is a GGUF file, which generates tokens. Measure it with: inferlab generate {name}")
    if located.kind == "transformers" and engines and _NOT_FOR_FOLDERS.issuperset(map(engine_name, engines)):
        if (Path(located.path) / _INT8_WEIGHTS).is_file():
            raise BadInput(
                f"{name} is a Hugging Face folder in INT8, which only the engine torch runs (-e torch). For other "
                "engines export the folder that it was made from, and quantise the ONNX file: inferlab optimize "
                "model.onnx -o int8.onnx --int8 dynamic"
            )
        raise BadInput(
            f"{name} is a Hugging Face folder, which the engine torch runs (-e torch). "
            f"Export it first for other engines: inferlab export {name} -o model.onnx"
        )
    if located.kind == "onnx":
        return with_fitted_shapes(read_onnx(located.path, name))
    return inspect_foreign(located.path, located.kind, name)


def inspect_foreign(located_path: Path, kind: Kind, source: str) -> Model:
    """The model in an OpenVINO, torch.export or TorchScript file, or in a Hugging Face folder."""
    files = [located_path]
    described: list[Path] = []
    if kind == "openvino":
        weights = located_path.with_suffix(".bin")
        files += [weights] if weights.exists() else []
    if kind == "transformers":
        files, described = weight_files(located_path), [located_path / "config.json"]
    digest = files_digest([*described, *files])
    answer = _inspect_in_child(str(located_path), kind, digest)
    return Model(
        kind=kind,
        source=source,
        path=str(located_path),
        digest=digest,
        inputs=tuple(tensor_spec(spec) for spec in answer["inputs"]),
        outputs=tuple(tensor_spec(spec) for spec in answer["outputs"]),
        size_bytes=sum(file.stat().st_size for file in files),
        parameters=answer["parameters"],
        zero_fraction=answer["zero_fraction"],
        precision=answer["precision"],
        quantization=answer.get("quantization", ""),
    )


@functools.lru_cache(maxsize=32)
def _inspect_in_child(path: str, kind: Kind, digest: str) -> Any:
    """What a child says of a model; asked once, for it takes seconds to load one."""
    with Worker(OPENVINO if kind == "openvino" else need_torch()) as worker:
        return worker.ask("inspect", model=path, kind=kind).data["model"]


def weight_files(folder: Path) -> list[Path]:
    """The files of a Hugging Face folder that its weights are loaded from."""
    for name in ("model.int8.safetensors", "model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            files = [folder / name for name in _indexed(index)]
            for file in files:
                if not file.is_file():
                    raise BadInput(f"{folder} lacks {file.name}, which its {index.name} names.")
            return files
    raise BadInput(
        f"{folder} has no weights that transformers loads: neither model.safetensors nor pytorch_model.bin."
    )


@confined(reads=["index"])
def _indexed(index: Path) -> list[str]:
    """The names of the files that an index of weights lists, without their folders."""
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        return [Path(part).name for part in parts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{index} cannot be read: it is cut off or damaged ({error}).") from error


def need_torch() -> Launch:
    """How to start a child with torch; a sentence where it is not installed."""
    from importlib.util import find_spec

    # Looks for it without importing it.
    if find_spec("torch") is None:
        raise BadInput(
            "This needs PyTorch, which is not installed. Install it with: pip install 'inferlab[torch]'"
        )
    return TORCH


def tensor_spec(described: dict[str, Any]) -> TensorSpec:
    """A child's description of an input or output as a record."""
    dims = described["dims"]
    return TensorSpec(
        described["name"], described["dtype"], None if dims is None else tuple(dims), described.get("below")
    )


def with_fitted_shapes(model: Model) -> Model:
    """The model with a shape for every input that leaves more open than its batch and its sequence length."""
    if model.kind != "onnx" or not open_inputs(model.inputs) or any(spec.dims is None for spec in model.inputs):
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
        given = [replace(spec, fitted=_filled(spec, bare, size)) for spec in bare]
        shapes = resolve(given, None, None, {}).shapes
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
