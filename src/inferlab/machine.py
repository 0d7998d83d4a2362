"""What the machine is: cores, instruction sets, memory, quota; and which CPUs a measurement gets."""

from __future__ import annotations

import functools
import os
import platform
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.records import Machine, Pinning

_SYS_CPU = Path("/sys/devices/system/cpu")
_SYS_NODE = Path("/sys/devices/system/node")
# The instruction sets that engines choose their kernels by.
_KNOWN_SETS = [
    "sse4_1",
    "sse4_2",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "sve2",
]


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: its logical CPUs that we may use, and the NUMA node it belongs to."""

    cpus: tuple[int, ...]
    node: int


@functools.cache
def cores() -> tuple[Core, ...]:
    """The physical cores that this process may use, ordered by NUMA node, then by CPU."""
    allowed = _allowed_cpus()
    nodes = _node_of_cpu()
    siblings: dict[tuple[int, ...], list[int]] = {}
    for cpu in allowed:
        siblings.setdefault(_siblings(cpu), []).append(cpu)
    found = [Core(tuple(sorted(cpus)), nodes.get(cpus[0], 0)) for cpus in siblings.values()]
    return tuple(sorted(found, key=lambda core: (core.node, core.cpus)))


def usable_cores() -> int:
    """How many cores a measurement gets by default: all, or what the container's quota pays for."""
    quota = cpu_quota()
    return len(cores()) if quota is None else max(1, min(len(cores()), int(quota)))


def choose_cpus(num_cores: int, pinning: Pinning) -> tuple[int, ...]:
    """The CPUs to bind to: one for each core, or all of the NUMA nodes that have those cores; none for 'none'."""
    available = cores()
    if num_cores > len(available):
        raise BadInput(
            f"{num_cores} cores were asked for, but this machine has {len(available)} "
            f"physical core{'s' if len(available) != 1 else ''} to use. Give -ncores {len(available)} or fewer."
        )
    chosen = available[:num_cores]
    if pinning == "none" or not hasattr(os, "sched_setaffinity"):
        return ()
    if pinning == "core":
        return tuple(core.cpus[0] for core in chosen)
    nodes = {core.node for core in chosen}
    return tuple(cpu for core in available if core.node in nodes for cpu in core.cpus)


@functools.cache
def describe() -> Machine:
    """The machine's description, for every record."""
    return Machine(
        node=node_name(),
        cpu=_cpu_name(),
        architecture=platform.machine(),
        instruction_sets=tuple(name for name in _KNOWN_SETS if name in _cpu_flags()),
        physical_cores=len(cores()),
        logical_cpus=sum(len(core.cpus) for core in cores()),
        numa_nodes=len({core.node for core in cores()}),
        memory_bytes=_memory("MemTotal"),
        cpu_quota=cpu_quota(),
        system=f"{platform.system()} {platform.release()}",
    )


def node_name() -> str:
    """The name of this node; INFERLAB_NODE tells several nodes on one machine apart."""
    return os.environ.get("INFERLAB_NODE") or socket.gethostname()


def available_memory_bytes() -> int | None:
    """Memory that could be taken without swapping; None where the system does not say."""
    return _memory("MemAvailable")


def vector_width(instruction_sets: Sequence[str]) -> str:
    """The widest vector instructions, by the name that DeepSparse users know."""
    for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"), ("avx", "avx"), ("sve", "sve"), ("asimd", "neon")):
        if flag in instruction_sets:
            return name
    return "none"


def has_vnni(instruction_sets: Sequence[str]) -> bool:
    """Whether the CPU has instructions for INT8 dot products."""
    return any(name in instruction_sets for name in ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"))


def cpu_quota() -> float | None:
    """CPUs' worth of time that the cgroup allows, version 2 or 1; None without a limit."""
    fields = _text(Path("/sys/fs/cgroup/cpu.max")).split()
    if len(fields) == 2 and fields[0] != "max":
        return int(fields[0]) / int(fields[1])
    for folder in ("cpu", "cpu,cpuacct"):
        quota = _text(Path("/sys/fs/cgroup") / folder / "cpu.cfs_quota_us").strip()
        period = _text(Path("/sys/fs/cgroup") / folder / "cpu.cfs_period_us").strip()
        if quota and period and int(quota) > 0:
            return int(quota) / int(period)
    return None


def _allowed_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _siblings(cpu: int) -> tuple[int, ...]:
    text = _text(_SYS_CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list")
    return tuple(parse_cpu_list(text)) or (cpu,)


def _node_of_cpu() -> dict[int, int]:
    nodes = {}
    for folder in sorted(_SYS_NODE.glob("node[0-9]*")):
        for cpu in parse_cpu_list(_text(folder / "cpulist")):
            nodes[cpu] = int(folder.name[4:])
    return nodes


def parse_cpu_list(text: str) -> list[int]:
    """The CPUs of a list such as '0-3,8,10-11', as Linux writes it."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


@functools.cache
def _cpu_info() -> dict[str, str]:
    first = _text(Path("/proc/cpuinfo")).split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _cpu_name() -> str:
    return _cpu_info().get("model name") or platform.processor() or platform.machine()


def _cpu_flags() -> set[str]:
    return set((_cpu_info().get("flags") or _cpu_info().get("Features") or "").split())


def _memory(field: str) -> int | None:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
