"""Read a model that only its engine can read, by asking a child with that engine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.records import Kind, Model, TensorSpec
from inferlab.worker import Launch, Worker

OPENVINO = Launch("openvino", {"builtin": "openvino", "class": "OpenVino"})
TORCH = Launch("torch", {"builtin": "torch", "class": "Torch"})


def inspect_foreign(located_path: Path, kind: Kind, source: str) -> Model:
    """The model in an OpenVINO, torch.export or TorchScript file."""
    files = [located_path]
    if kind == "openvino":
        weights = located_path.with_suffix(".bin")
        files += [weights] if weights.exists() else []
    with Worker(OPENVINO if kind == "openvino" else need_torch()) as worker:
        found = worker.ask("inspect", model=str(located_path), kind=kind).data["model"]
    return Model(
        kind=kind,
        source=source,
        path=str(located_path),
        digest=_digest(files),
        inputs=tuple(tensor_spec(one) for one in found["inputs"]),
        outputs=tuple(tensor_spec(one) for one in found["outputs"]),
        size_bytes=sum(file.stat().st_size for file in files),
        parameters=found["parameters"],
        zero_fraction=found["zero_fraction"],
        precision=found["precision"],
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
