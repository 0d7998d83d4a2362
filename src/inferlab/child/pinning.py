"""Binding the child, and each of its streams, to CPUs."""

from __future__ import annotations

import os
from typing import Sequence


def pin(cpus: Sequence[int]) -> bool:
    """Bind the calling thread, and the threads it will start, to these CPUs; False where that cannot be."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, cpus)
    return True
