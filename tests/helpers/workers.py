"""A worker on the scripted engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.worker import Launch, Worker

FAKE = Launch("fake", {"builtin": "fake", "class": "Fake"})


def load(
    worker: Worker, options: Mapping[str, str], groups: int = 1, patience_s: float | None = None, **changes: Any
) -> dict[str, Any]:
    """Load a model; `patience_s` is for this alone, and not for starting the worker's process."""
    request = {
        "model": "none.onnx",
        "kind": "onnx",
        "groups": [[]] * groups,
        "layout": "each",
        "threads": 1,
        "cores": 1,
        "scheduler": "single_stream",
        "pinning": "none",
        "batch_size": 1,
        "shapes": {},
        "options": dict(options),
        "outputs": ["y"],
    }
    worker.send("load", **{**request, **changes})
    return worker.wait("load", patience_s=patience_s).data
