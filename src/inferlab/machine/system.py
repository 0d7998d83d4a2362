"""The system that facts about a machine are read from."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.child import confinement, counters
from inferlab.machine import CAN_FORK, parse_cpu_list, read_text

SYS_CPU = "sys/devices/system/cpu"


def _affinity() -> tuple[int, ...] | None:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None


@dataclass(frozen=True, slots=True)
class System:
    """The files below `root`, and what only the running process can say; tests lay out their own."""

    root: Path = Path("/")
    #: CPUs that a program sees when it asks how many threads to start.
    cpu_count: int = field(default_factory=lambda: os.cpu_count() or 1)
    #: CPUs that this process may use; None where the system has no such limit.
    affinity: tuple[int, ...] | None = field(default_factory=_affinity)
    architecture: str = field(default_factory=platform.machine)
    #: The CPU's name where no file has it.
    processor: str = field(default_factory=platform.processor)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    counters: Callable[[Sequence[int]], Mapping[str, float]] = counters.read
    #: What of the confinement of engines the system does not allow, and why.
    confinement: Callable[[], Mapping[str, str]] = confinement.support
    #: Whether inferlab's readers of models can have processes of their own.
    can_fork: bool = CAN_FORK
    clock_ns: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep
    process_id: int = field(default_factory=os.getpid)

    @property
    def online(self) -> tuple[int, ...]:
        """The machine's CPUs, as far as they can be seen."""
        listed = tuple(parse_cpu_list(self.text(f"{SYS_CPU}/online")))
        return listed or self.affinity or tuple(range(self.cpu_count))

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs that this process may use."""
        return self.affinity or self.online

    def text(self, path: str) -> str:
        """A file of the system without the white space around it; empty where it cannot be read."""
        return read_text(self.root / path).strip()

    def has(self, path: str) -> bool:
        """Whether there is such a file, empty or not."""
        return (self.root / path).is_file()

    def of_each_cpu(self, name: str) -> dict[int, str]:
        """What this file says for each CPU that this process may use, where it is there."""
        texts = {cpu: self.text(f"{SYS_CPU}/cpu{cpu}/{name}") for cpu in self.cpus}
        return {cpu: text for cpu, text in texts.items() if text}
