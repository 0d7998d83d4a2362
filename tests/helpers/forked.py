"""Workers of tests as forks of processes that have imported an engine: new ones take most of a test's time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inferlab import worker
from inferlab.warm import kept_warm
from inferlab.worker import ForkPool, Host, Launch

# What an engine's process does not look at.
_OURS = ("INFERLAB_", "PYTEST_", "COLUMNS")
# Nor do those of ours. Importing scikit-learn, Ray or PyTorch sets some of them for good: every later test of a
# worker would be without forks.
_OTHERS = ("KMP_", "RAY_", "TORCHINDUCTOR_")
_ENGINES = ("fake", "onnxruntime", "openvino", "torch")
# What PyTorch imports for them takes longer than PyTorch itself.
_KINDS = ("transformers", "torch-export")
# What tasks on ONNX models import: it takes longer than the tasks on small ones.
_MODULES = {
    "onnxruntime": ("onnx_ir.passes.common", "onnxruntime.quantization", "onnxruntime.transformers.float16"),
}


def _surroundings() -> tuple[Path, dict[str, str]]:
    """The folder and the environment that a process would be started with."""
    seen = {name: value for name, value in os.environ.items() if not name.startswith((*_OURS, *_OTHERS))}
    return Path.cwd(), seen


class Pool:
    """Lends processes for forks that nobody can tell from new ones, and none where a test may tell them."""

    def __init__(self, warm: ForkPool) -> None:
        self._warm = warm
        self._usual = _surroundings()

    def lend(self, launch: Launch, cpus: Sequence[int], confined: bool) -> Host | None:
        """None for a test's own engine or environment, and in a thread: its children end with it."""
        ours = launch.reference.get("builtin") in _ENGINES and launch.interpreter == sys.executable
        here = threading.current_thread() is threading.main_thread()
        own = any(not name.startswith(_OTHERS) for name in launch.environment)
        if not ours or own or not here or _surroundings() != self._usual:
            return None
        # A process with PyTorch takes seconds to make and 300 MB; its forks bind themselves to their CPUs.
        return self._warm.lend(launch, () if launch.name == "torch" else cpus, confined)

    def give_back(self, host: Host) -> None:
        """Let the next worker fork from this process."""
        self._warm.give_back(host)


@contextmanager
def new_pool() -> Iterator[Pool]:
    """A pool for a test run, not in use yet; its processes end with it."""
    with kept_warm(_KINDS, modules=_MODULES):
        assert worker.pool is not None
        made, worker.pool = Pool(worker.pool), None
        yield made


@contextmanager
def workers_from(pool: ForkPool | None) -> Iterator[None]:
    """Let workers be forks of a pool's processes, or new processes."""
    before, worker.pool = worker.pool, pool
    try:
        yield
    finally:
        worker.pool = before
