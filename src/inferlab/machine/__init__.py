"""What the machine is: cores, instruction sets, memory, quota; and which CPUs a measurement gets."""

from __future__ import annotations

import functools
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.records import Machine, Pinning

#: Whether a reader of models can have a process of its own here.
CAN_FORK = hasattr(os, "fork") and hasattr(socket, "send_fds")
_ROOT = Path("/")
_SYS_CPU = "sys/devices/system/cpu"
_SYS_NODE = "sys/devices/system/node"
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
    return group_cores(_allowed_cpus(), _ROOT)


def group_cores(cpus: Sequence[int], root: Path) -> tuple[Core, ...]:
    """The physical cores that these CPUs belong to, ordered by NUMA node, then by CPU."""
    nodes = _node_of_cpu(root)
    siblings: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        siblings.setdefault(_siblings(cpu, root), []).append(cpu)
    grouped = [Core(tuple(sorted(threads)), nodes.get(threads[0], 0)) for threads in siblings.values()]
    return tuple(sorted(grouped, key=lambda core: (core.node, core.cpus)))


def usable_cores() -> int:
    """How many cores a measurement gets by default: all, or what the container's quota pays for."""
    quota = cpu_quota()
    return len(cores()) if quota is None else max(1, min(len(cores()), int(quota)))


def choose_cpus(num_cores: int, pinning: Pinning, cpu_list: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The CPUs to bind to: one for each core, or all of the NUMA nodes that have those cores; none for 'none'.

    Of a list that the user gave, the first so many; refuses CPUs that this process may not use.
    """
    if cpu_list:
        return _listed(cpu_list, pinning)[:num_cores]
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


def _listed(cpu_list: tuple[int, ...], pinning: Pinning) -> tuple[int, ...]:
    """The CPUs that the user gave, if threads can be bound to them."""
    allowed = _allowed_cpus()
    if pinning != "core":
        raise BadInput(f"--cpu-list binds threads to CPUs, and -pin {pinning} does not: leave one of them out.")
    if not hasattr(os, "sched_setaffinity"):
        raise BadInput("This system cannot bind a process to CPUs: leave out --cpu-list.")
    if missing := [str(cpu) for cpu in cpu_list if cpu not in allowed]:
        allowed_text = ", ".join(map(str, allowed))
        raise BadInput(f"--cpu-list names CPU {', '.join(missing)}, but this process may use only {allowed_text}.")
    return cpu_list


@functools.cache
def describe() -> Machine:
    """The machine's description, for every record."""
    return Machine(
        node=node_name(),
        cpu=_cpu_name(),
        architecture=platform.machine(),
        instruction_sets=instruction_sets(cpu_info()),
        physical_cores=len(cores()),
        logical_cpus=sum(len(core.cpus) for core in cores()),
        numa_nodes=len({core.node for core in cores()}),
        memory_bytes=memory_field("MemTotal"),
        cpu_quota=cpu_quota(),
        system=f"{platform.system()} {platform.release()}",
        instance_type=instance_type(),
    )


def host_name() -> str:
    """The name of this machine, which several nodes on it share."""
    return platform.node()


def node_name() -> str:
    """The name of this node; INFERLAB_NODE tells several nodes on one machine apart."""
    return os.environ.get("INFERLAB_NODE") or socket.gethostname()


def instance_type(root: Path = _ROOT) -> str | None:
    """What a cloud calls this machine: INFERLAB_INSTANCE_TYPE, or what Amazon's firmware says; nobody is asked."""
    if named := os.environ.get("INFERLAB_INSTANCE_TYPE"):
        return named
    firmware = root / "sys/devices/virtual/dmi/id"
    # Other clouds write the same name on all their machines.
    if read_text(firmware / "sys_vendor").strip() != "Amazon EC2":
        return None
    return read_text(firmware / "product_name").strip() or None


def available_memory_bytes() -> int | None:
    """Memory that could be taken without swapping; None where the system does not say."""
    return memory_field("MemAvailable")


def vector_width(instruction_sets: Sequence[str]) -> str:
    """The widest vector instructions, by the name that DeepSparse users know."""
    for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"), ("avx", "avx"), ("sve", "sve"), ("asimd", "neon")):
        if flag in instruction_sets:
            return name
    return "none"


def has_vnni(instruction_sets: Sequence[str]) -> bool:
    """Whether the CPU has instructions for INT8 dot products."""
    return any(name in instruction_sets for name in ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs' worth of time that this process's cgroups allow, version 2 or 1; None without a limit."""
    quotas = (_quota_of(folder) for folder in cgroup_folders("cpu", root))
    return min((quota for quota in quotas if quota is not None), default=None)


def cgroup_folders(controller: str, root: Path = _ROOT) -> list[Path]:
    """The folders of the cgroups that limit this process: its own first, then those that enclose it."""
    mounts = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        # Version 2 has no names and one tree; version 1 has a tree for each set of names.
        for base in (mounts / names, mounts / controller) if names else (mounts,):
            own = base / path.strip("/")
            folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(base)]
    # A container may see its own cgroup as the root, whatever its path outside is.
    folders += [mounts, mounts / controller, mounts / "cpu,cpuacct"]
    return [folder for folder in dict.fromkeys(folders) if ".." not in folder.parts and folder.is_dir()]


def _quota_of(folder: Path) -> float | None:
    fields = read_text(folder / "cpu.max").split()
    if len(fields) == 2 and fields[0] != "max":
        return int(fields[0]) / int(fields[1])
    quota = read_text(folder / "cpu.cfs_quota_us").strip()
    period = read_text(folder / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def _allowed_cpus() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _siblings(cpu: int, root: Path) -> tuple[int, ...]:
    text = read_text(root / _SYS_CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list")
    return tuple(parse_cpu_list(text)) or (cpu,)


def _node_of_cpu(root: Path) -> dict[int, int]:
    nodes = {}
    for folder in sorted((root / _SYS_NODE).glob("node[0-9]*")):
        for cpu in parse_cpu_list(read_text(folder / "cpulist")):
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


def cpu_info(root: Path = _ROOT) -> dict[str, str]:
    """What /proc/cpuinfo says of the first CPU."""
    first = read_text(root / "proc/cpuinfo").split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def instruction_sets(info: Mapping[str, str]) -> tuple[str, ...]:
    """Those that engines choose their kernels by, out of what `cpu_info` read."""
    flags = (info.get("flags") or info.get("Features") or "").split()
    return tuple(name for name in _KNOWN_SETS if name in flags)


def _cpu_name() -> str:
    return cpu_info().get("model name") or platform.processor() or platform.machine()


def memory_field(name: str, root: Path = _ROOT) -> int | None:
    """One field of /proc/meminfo in bytes; None where it is not there."""
    for line in read_text(root / "proc/meminfo").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def read_text(path: Path) -> str:
    """A file of the system; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
