"""A worker on the scripted engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.worker import Launch, Worker

FAKE = Launch("fake", {"builtin": "fake", "class": "Fake"})


def load(worker: Worker, options: Mapping[str, str], groups: int = 1) -> dict[str, Any]:
    return worker.ask(
        "load",
        model="none.onnx",
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
    ).data
