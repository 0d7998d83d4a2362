"""A worker on the scripted engine, and whether a process is stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
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


def is_stopped(pid: int) -> bool:
    """Whether Linux says so; a process that waits for a CPU stops when it gets one."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.001)
    return False
