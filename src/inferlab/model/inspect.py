"""Read a model that only its engine can read, by asking a child with that engine."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.records import Kind, Model, TensorSpec
from inferlab.timeouts import timeout_s
from inferlab.worker import Launch, Worker

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
    digest = _digest([*described, *files])
    found = _asked(str(located_path), kind, digest)
    return Model(
        kind=kind,
        source=source,
        path=str(located_path),
        digest=digest,
        inputs=tuple(tensor_spec(one) for one in found["inputs"]),
        outputs=tuple(tensor_spec(one) for one in found["outputs"]),
        size_bytes=sum(file.stat().st_size for file in files),
        parameters=found["parameters"],
        zero_fraction=found["zero_fraction"],
        precision=found["precision"],
        quantization=found.get("quantization", ""),
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


def tensor_spec(found: dict[str, Any]) -> TensorSpec:
    """A child's description of an input or output as a record."""
    dims = found["dims"]
    return TensorSpec(found["name"], found["dtype"], None if dims is None else tuple(dims), found.get("below"))


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
