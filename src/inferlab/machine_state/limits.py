"""Facts about what this process may take: CPU time, threads, memory."""

from __future__ import annotations

from pathlib import Path

from inferlab import machine
from inferlab.machine_state.facts import Fact, System
from inferlab.worker import CONFINEMENT

# How many threads: inferlab sets the number itself where an engine lets it.
_COUNTS = (
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
# Where threads run and how they wait: these act against inferlab's own pinning, or change the speed.
_BEHAVIOUR = (
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_DYNAMIC",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "KMP_AFFINITY",
    "KMP_HW_SUBSET",
    "KMP_BLOCKTIME",
    "MKL_DYNAMIC",
    "NM_BIND_THREADS_TO_CORES",
)
_LITTLE_MEMORY_BYTES = 1 << 30
# Version 1 writes "no limit" as the largest number of whole pages.
_NO_LIMIT_BYTES = 1 << 60


def cpu_quota(system: System) -> Fact:
    """How much CPU time the cgroup allows."""
    if not machine.cgroup_folders("cpu", system.root):
        return Fact("cpu-quota", "unknown")
    quota = machine.cpu_quota(system.root)
    return Fact("cpu-quota", "good" if quota is None else "info", {"quota": quota})


def thread_pools(system: System) -> Fact:
    """Whether a program that starts a thread for each CPU that it sees would have a CPU for each."""
    quota = machine.cpu_quota(system.root)
    data = {"threads": system.cpu_count, "cpus": len(system.cpus), "quota": quota}
    if quota is not None and quota < len(system.cpus):
        return Fact("thread-pools", "warn", data)
    return Fact("thread-pools", "info" if len(system.cpus) < system.cpu_count else "good", data)


def thread_variables(system: System) -> Fact:
    """Environment variables that engines and their libraries obey."""
    counts = {name: system.environ[name] for name in _COUNTS if name in system.environ}
    behaviour = {name: system.environ[name] for name in _BEHAVIOUR if name in system.environ}
    data = {"counts": counts, "behaviour": behaviour}
    return Fact("thread-variables", "warn" if behaviour else "info" if counts else "good", data)


def memory(system: System) -> Fact:
    """Memory that a model could take, in the machine and in the cgroup."""
    total = machine.memory_field("MemTotal", system.root)
    available = machine.memory_field("MemAvailable", system.root)
    found = [_limit(folder) for folder in machine.cgroup_folders("memory", system.root)]
    limits = [one for one in found if one and (total is None or one[0] < total)]
    limit, free = min(limits, key=lambda one: one[1], default=(None, None))
    usable = min((count for count in (available, free) if count is not None), default=None)
    data = {"total_bytes": total, "available_bytes": available, "limit_bytes": limit, "usable_bytes": usable}
    if usable is None:
        return Fact("memory", "unknown", data)
    return Fact("memory", "warn" if usable < _LITTLE_MEMORY_BYTES else "good", data)


def _limit(folder: Path) -> tuple[int, int] | None:
    """A cgroup's memory limit, and what is left of it: files that were read can be dropped again."""
    for limit, usage, droppable in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, used = (machine.read_text(folder / name).strip() for name in (limit, usage))
        if most.isdecimal() and used.isdecimal() and int(most) < _NO_LIMIT_BYTES:
            lines = (line.split() for line in machine.read_text(folder / "memory.stat").splitlines())
            spare = sum(int(line[1]) for line in lines if line[:1] == [droppable])
            return int(most), max(0, int(most) - max(0, int(used) - spare))
    return None


def engine_confinement(system: System) -> Fact:
    """What of the confinement of engines, which load models that are not trusted, this system does not allow."""
    off = system.environ.get(CONFINEMENT) == "off"
    missing = dict(system.confinement())
    if not system.can_fork:
        missing["readers"] = "this system cannot fork"
    return Fact("confinement", "info" if off or missing else "good", {"off": off, "missing": missing})


def huge_pages(system: System) -> Fact:
    """Whether the kernel gives large pages by itself."""
    text = system.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = text.partition("[")[2].partition("]")[0]
    if chosen not in ("always", "madvise", "never"):
        return Fact("huge-pages", "unknown")
    return Fact("huge-pages", "info" if chosen == "always" else "good", {"mode": chosen})
