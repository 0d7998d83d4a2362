"""A worker on the scripted engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.worker import Launch, Worker

FAKE = Launch("fake", {"builtin": "fake", "class": "Fake"})


def load(
    worker: Worker,
    options: Mapping[str, str],
    groups: int = 1,
    model: str = "none.onnx",
    patience_s: float | None = None,
) -> dict[str, Any]:
    """Load a model; `patience_s` is for this alone, and not for starting the worker's process."""
    worker.send(
        "load",
        model=model,
        kind="onnx",
        groups=[[]] * groups,
        layout="each",
        threads=1,
        cores=1,
        scheduler="single_stream",
        pinning="none",
        batch_size=1,
        shapes={},
        options=dict(options),
        outputs=["y"],
    )
    return worker.wait("load", patience_s=patience_s).data
