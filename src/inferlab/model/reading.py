"""A model by its source: found, read for what it is, and its open dimensions given shapes that it runs with."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferlab.atomic import whole_file
from inferlab.errors import BadInput, EngineFailed
from inferlab.model.onnx_file import files_digest, read_onnx
from inferlab.model.shapes import candidates, open_inputs
from inferlab.model.sources import locate
from inferlab.records import Kind, Listener, Model, Shape, TensorSpec, ignore
from inferlab.settings import cache_folder
from inferlab.timeouts import timeout_s
from inferlab.worker import Launch, Worker

# Weights that inferlab quantised; transformers, and so an export, does not load them.
_INT8_WEIGHTS = "model.int8.safetensors"
_NOT_FOR_FOLDERS = frozenset({"onnxruntime", "openvino", "deepsparse", "executor"})


def read_model(name: str, listener: Listener = ignore, engines: Sequence[str] = ()) -> Model:
    """Find a model by its source and read what it is, unless none of the engines could run it."""
    located = locate(name, listener)
    if located.kind == "transformers" and engines and _NOT_FOR_FOLDERS.issuperset(engines):
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


OPENVINO = Launch("openvino", {"builtin": "openvino", "class": "OpenVino"})
TORCH = Launch("torch", {"builtin": "torch", "class": "Torch"})


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
    answer = _asked(str(located_path), kind, digest)
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
def _asked(path: str, kind: Kind, digest: str) -> Any:
    """What a child says of a model; asked once, for it takes seconds to load one."""
    with Worker(OPENVINO if kind == "openvino" else need_torch(), patience_s=timeout_s()) as worker:
        return worker.ask("inspect", model=path, kind=kind).data["model"]


def weight_files(folder: Path) -> list[Path]:
    """The files of a Hugging Face folder that its weights are loaded from."""
    for name in ("model.int8.safetensors", "model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            try:
                parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
                files = [folder / Path(part).name for part in parts]
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise BadInput(f"{index} cannot be read: it is cut off or damaged ({error}).") from error
            for file in files:
                if not file.is_file():
                    raise BadInput(f"{folder} lacks {file.name}, which its {index.name} names.")
            return files
    raise BadInput(
        f"{folder} has no weights that transformers loads: neither model.safetensors nor pytorch_model.bin."
    )


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


#: Changes with what is tried: what an older version remembered is then found again.
VERSION = 1

_ONNXRUNTIME = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})
_TRYING_S = 20.0
_PATIENCE_S = 120.0


def with_fitted_shapes(model: Model) -> Model:
    """The model with a shape for every input that leaves more open than its batch and its sequence length."""
    if model.kind != "onnx" or not open_inputs(model.inputs) or any(spec.dims is None for spec in model.inputs):
        return model
    file = cache_folder() / "shapes" / f"{model.digest}-v{VERSION}.json"
    shapes = _remembered(file, model)
    if shapes is None:
        shapes = _tried(model)
        if shapes is None:
            return model
        _remember(file, shapes)
    return replace(
        model, inputs=tuple(replace(spec, fitted=shapes.get(spec.name) or None) for spec in model.inputs)
    )


def _tried(model: Model) -> dict[str, Shape] | None:
    """The first candidate that runs; empty where none does, None where ONNX Runtime could not try."""
    tries = candidates(model.inputs)
    arguments = {
        "model": model.path,
        "inputs": [{"name": spec.name, "dtype": spec.dtype, "fill": _fill(spec)} for spec in model.inputs],
        "candidates": [{name: list(shape) for name, shape in shapes.items()} for shapes in tries],
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
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        shapes = {str(name): tuple(int(size) for size in shape) for name, shape in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    ranks = {spec.name: len(spec.dims or ()) for spec in model.inputs}
    fits = all(len(shape) == ranks.get(name) and min(shape, default=1) > 0 for name, shape in shapes.items())
    return shapes if fits else None


def _remember(file: Path, shapes: dict[str, Shape]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as target:
            target.write(json.dumps(shapes).encode())
    except OSError:
        return  # it is found again next time
