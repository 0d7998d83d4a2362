"""Facts about this process and this moment: what it may take, what else has the CPUs, which noise can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inferlab import machine
from inferlab.machine import hardware
from inferlab.machine.hardware import System
from inferlab.records import Fact
from inferlab.settings import CONFINEMENT


def examine(system: System | None = None) -> tuple[Fact, ...]:
    """Every fact about this machine, or about the given one; watches it for 0.3 seconds."""
    system = system or System()
    sample = watch(system)
    return (
        hardware.cpu(system),
        hardware.cores(system),
        hardware.smt(system),
        hardware.numa(system),
        hardware.isolated_cpus(system),
        hardware.governor(system),
        hardware.turbo(system),
        hardware.frequency(system),
        cpu_quota(system),
        thread_pools(system),
        thread_variables(system),
        memory(system),
        swap(system, sample),
        huge_pages(system),
        engine_confinement(system),
        hardware.clock_source(system),
        hardware.clock_cost(system),
        virtual_machine(system),
        busy(sample),
        steal(sample),
        pressure(system),
        noise_counters(system),
    )


_WATCH_S = 0.3
# Shares above which a disturbance is worth a warning: of all our CPUs, of one of them;
# since boot, and in a moment of some thirty ticks.
_BUSY, _BUSY_ONE = 0.10, 0.50
_STEAL, _STEAL_NOW = 0.02, 0.10
_PRESSURE = 0.10
# Processes are named from this share of a CPU on, the busiest first.
_NAMED_FROM, _MOST_NAMED = 0.05, 3
# What inferlab records around every measurement, as child/counters.py names it.
COUNTERS = ("run_queue_wait_s", "involuntary_switches", "throttled_s", "steal_s", "cpu_pressure_s")
# ARM has no flag for a hypervisor; these makers and products of machines are virtual ones.
_VIRTUAL = ("kvm", "qemu", "vmware", "virtual", "xen", "bochs", "google compute engine", "amazon ec2", "openstack")
_NOT_VIRTUAL = ".metal"


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Time that a CPU has spent, in the kernel's ticks."""

    busy: int
    idle: int
    stolen: int

    @property
    def total(self) -> int:
        return self.busy + self.idle + self.stolen

    def __add__(self, other: Self) -> _Ticks:
        return _Ticks(self.busy + other.busy, self.idle + other.idle, self.stolen + other.stolen)

    def __sub__(self, other: Self) -> _Ticks:
        return _Ticks(self.busy - other.busy, self.idle - other.idle, self.stolen - other.stolen)


_NO_TICKS = _Ticks(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Sample:
    """What happened on the CPUs that this process may use while it slept."""

    cpus: Mapping[int, _Ticks]
    since_boot: _Ticks
    #: Name, process id and ticks of every other process that ran.
    processes: tuple[tuple[str, int, int], ...]
    #: Pages that went to or came from the disk.
    swapped_pages: int


def watch(system: System) -> Sample:
    """Sleep a moment and see what the CPUs did meanwhile."""
    # The processes are listed outside the two readings of the CPUs: listing them is work too.
    processes, pages, before = _processes(system), _swapped(system), _cpu_ticks(system)
    system.sleep(_WATCH_S)
    after, pages_after, processes_after = _cpu_ticks(system), _swapped(system), _processes(system)
    ran = [
        (name, pid, ticks - processes.get(pid, (name, 0))[1])
        for pid, (name, ticks) in processes_after.items()
        if pid != system.process_id
    ]
    return Sample(
        cpus={cpu: after[cpu] - before[cpu] for cpu in after if cpu in before},
        since_boot=sum(after.values(), _NO_TICKS),
        processes=tuple(sorted((process for process in ran if process[2] > 0), key=lambda process: -process[2])),
        swapped_pages=pages_after - pages,
    )


def _cpu_ticks(system: System) -> dict[int, _Ticks]:
    ticks = {}
    for line in system.text("proc/stat").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in system.cpus and len(fields) >= 8:
            user, nice, kernel, idle, io_wait, irq, soft_irq, stolen = map(int, fields[:8])
            ticks[int(name[3:])] = _Ticks(user + nice + kernel + irq + soft_irq, idle + io_wait, stolen)
    return ticks


def _processes(system: System) -> dict[int, tuple[str, int]]:
    """The name and the ticks of every process that can be seen."""
    processes = {}
    for folder in (system.root / "proc").glob("[0-9]*"):
        # The name stands in brackets and may hold brackets and blanks itself.
        head, _, tail = machine.read_text(folder / "stat").rpartition(")")
        fields = tail.split()
        if len(fields) > 12:
            processes[int(folder.name)] = (head.partition("(")[2], int(fields[11]) + int(fields[12]))
    return processes


def _swapped(system: System) -> int:
    lines = (line.split() for line in system.text("proc/vmstat").splitlines())
    return sum(int(line[1]) for line in lines if line[:1] in (["pswpin"], ["pswpout"]))


def busy(sample: Sample) -> Fact:
    """How busy other programs keep the CPUs now, and which they are."""
    total = sum(sample.cpus.values(), _NO_TICKS)
    if not total.total:
        return Fact("busy", "unknown")
    shares = {cpu: ticks.busy / ticks.total for cpu, ticks in sample.cpus.items() if ticks.total}
    ticks_of_one_cpu = total.total / len(shares)
    named = [
        {"name": name, "process_id": pid, "cpus": ticks / ticks_of_one_cpu}
        for name, pid, ticks in sample.processes[:_MOST_NAMED]
        if ticks / ticks_of_one_cpu >= _NAMED_FROM
    ]
    share = total.busy / total.total
    data = {
        "share": share,
        "of_each_cpu": {str(cpu): of_one for cpu, of_one in shares.items()},
        "seconds": _WATCH_S,
        "by": named,
    }
    return Fact("busy", "warn" if share > _BUSY or max(shares.values()) > _BUSY_ONE else "good", data)


def steal(sample: Sample) -> Fact:
    """How much of the CPUs' time the hypervisor gave to others: now, and of all the time they were wanted."""
    total = sum(sample.cpus.values(), _NO_TICKS)
    demand = sample.since_boot.busy + sample.since_boot.stolen
    if not total.total or not demand:
        return Fact("steal", "unknown")
    data = {"share": total.stolen / total.total, "share_since_boot": sample.since_boot.stolen / demand}
    disturbed = data["share"] > _STEAL_NOW or data["share_since_boot"] > _STEAL
    return Fact("steal", "warn" if disturbed else "good", data)


def swap(system: System, sample: Sample) -> Fact:
    """Whether memory lies on the disk, and whether it is being moved."""
    total, free = (machine.memory_field(name, system.root) for name in ("SwapTotal", "SwapFree"))
    if total is None or free is None:
        return Fact("swap", "unknown")
    data = {"total_bytes": total, "used_bytes": total - free, "pages_moved": sample.swapped_pages}
    return Fact("swap", "warn" if sample.swapped_pages else "info" if total > free else "good", data)


def pressure(system: System) -> Fact:
    """The share of the last 10 and 60 seconds in which some thread waited for a CPU."""
    for line in system.text("proc/pressure/cpu").splitlines():
        if line.startswith("some "):
            fields = dict(pair.split("=") for pair in line.split()[1:])
            data = {"share_10_s": float(fields["avg10"]) / 100, "share_60_s": float(fields["avg60"]) / 100}
            return Fact("pressure", "warn" if data["share_10_s"] > _PRESSURE else "good", data)
    return Fact("pressure", "unknown")


def virtual_machine(system: System) -> Fact:
    """Whether a hypervisor lies below: by the CPU's flag, or by the machine's maker."""
    info = machine.cpu_info(system.root)
    names = [system.text(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    product = " ".join(name for name in names if name)
    if "flags" in info:
        virtual = "hypervisor" in info["flags"].split()
    elif product:
        virtual = any(word in product.lower() for word in _VIRTUAL) and _NOT_VIRTUAL not in product
    else:
        return Fact("virtual-machine", "unknown")
    return Fact("virtual-machine", "info" if virtual else "good", {"virtual": virtual, "product": product})


def noise_counters(system: System) -> Fact:
    """Which disturbances inferlab can see while it measures, and which it cannot."""
    seen = system.counters(system.cpus)
    data = {
        "readable": [name for name in COUNTERS if name in seen],
        "missing": [name for name in COUNTERS if name not in seen],
    }
    return Fact("noise-counters", "unknown" if data["missing"] else "good", data)


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
    limits_of_folders = [_limit(folder) for folder in machine.cgroup_folders("memory", system.root)]
    limits = [each for each in limits_of_folders if each and (total is None or each[0] < total)]
    limit, free = min(limits, key=lambda limit: limit[1], default=(None, None))
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
