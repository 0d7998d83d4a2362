"""A model by its source: found, and read for what it is."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.fitting import with_fitted_shapes
from inferlab.model.onnx_file import files_digest, read_onnx
from inferlab.model.sources import locate
from inferlab.records import Kind, Listener, Model, TensorSpec, ignore
from inferlab.worker import OPENVINO, TORCH, Launch, Worker

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
