"""Facts about the hardware: which CPUs there are, how they share cores, how fast they and the clock are."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from inferlab import machine
from inferlab.child import confinement, counters
from inferlab.machine import CAN_FORK, parse_cpu_list, read_text
from inferlab.records import Fact

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


# ARM's /proc/cpuinfo has numbers instead of a name: those of the cores that servers and small boards have.
_ARM_IMPLEMENTER = "0x41"
_ARM_PARTS = {
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse N1",
    "0xd40": "Neoverse V1",
    "0xd49": "Neoverse N2",
    "0xd4f": "Neoverse V2",
}
# CPUs whose highest clock speeds differ by more than this are of different kinds; favoured ones differ by less.
_SAME_KIND = 0.9
_TURBO_FILES = (
    # The file, and what it says when turbo is on.
    (f"{SYS_CPU}/intel_pstate/no_turbo", "0"),
    (f"{SYS_CPU}/cpufreq/boost", "1"),
    (f"{SYS_CPU}/cpu0/cpufreq/boost", "1"),
)


def cpu(system: System) -> Fact:
    """The CPU's name and the instructions that engines care for."""
    info = machine.cpu_info(system.root)
    name = info.get("model name") or _arm_name(info) or system.processor
    data = {
        "name": name,
        "architecture": system.architecture,
        "instruction_sets": list(machine.instruction_sets(info)),
    }
    return Fact("cpu", "info" if name or info else "unknown", data)


def _arm_name(info: Mapping[str, str]) -> str:
    return _ARM_PARTS.get(info.get("CPU part", ""), "") if info.get("CPU implementer") == _ARM_IMPLEMENTER else ""


def cores(system: System) -> Fact:
    """Physical cores, logical CPUs, and which of them this process may use."""
    data = {
        "physical_cores": None,
        "logical_cpus": len(system.online),
        "usable_cores": None,
        "usable_cpus": list(system.cpus),
    }
    if not system.of_each_cpu("topology/thread_siblings_list"):
        return Fact("cores", "unknown", data)
    data["physical_cores"] = len(machine.group_cores(system.online, system.root))
    data["usable_cores"] = len(machine.group_cores(system.cpus, system.root))
    return Fact("cores", "good" if set(system.cpus) >= set(system.online) else "info", data)


def smt(system: System) -> Fact:
    """Whether two threads share a core."""
    siblings = system.of_each_cpu("topology/thread_siblings_list")
    active = system.text(f"{SYS_CPU}/smt/active")
    if not active and not siblings:
        return Fact("smt", "unknown")
    threads = max((len(machine.parse_cpu_list(text)) for text in siblings.values()), default=1)
    on = active == "1" if active else threads > 1
    return Fact("smt", "info" if on else "good", {"on": on, "threads_per_core": threads if on else 1})


def numa(system: System) -> Fact:
    """The NUMA nodes that have CPUs."""
    folders = sorted(
        (system.root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])
    )
    nodes = {folder.name[4:]: machine.read_text(folder / "cpulist").strip() for folder in folders}
    nodes = {node: cpus for node, cpus in nodes.items() if cpus}
    if not nodes:
        return Fact("numa", "unknown")
    return Fact("numa", "good" if len(nodes) == 1 else "info", {"nodes": nodes})


def isolated_cpus(system: System) -> Fact:
    """CPUs that the scheduler keeps other programs away from, and those without a timer tick."""
    files = {name: f"{SYS_CPU}/{name}" for name in ("isolated", "nohz_full")}
    if not any(system.has(path) for path in files.values()):
        return Fact("isolated-cpus", "unknown")
    # Kernels without a list of tickless CPUs write "(null)".
    lists = {name: system.text(path).replace("(null)", "") for name, path in files.items()}
    isolated = set(machine.parse_cpu_list(lists["isolated"]))
    inside = bool(isolated) and set(system.cpus) <= isolated
    return Fact("isolated-cpus", "good" if inside else "info", {**lists, "inside": inside})


def governor(system: System) -> Fact:
    """What decides the clock speed of the CPUs that this process may use."""
    governors = Counter(system.of_each_cpu("cpufreq/scaling_governor").values())
    if not governors:
        return Fact("governor", "unknown")
    drivers = sorted(set(system.of_each_cpu("cpufreq/scaling_driver").values()))
    data = {"governors": dict(governors), "driver": ", ".join(drivers)}
    return Fact("governor", "good" if set(governors) == {"performance"} else "warn", data)


def turbo(system: System) -> Fact:
    """Whether CPUs may exceed their nominal clock speed for a while."""
    for path, says_on in _TURBO_FILES:
        text = system.text(path)
        if text:
            on = text == says_on
            return Fact("turbo", "info" if on else "good", {"on": on, "file": f"/{path}"})
    return Fact("turbo", "unknown")


def frequency(system: System) -> Fact:
    """The range of clock speeds that the CPUs may have, and whether they are of one kind."""
    lowest, highest, hardware = (
        [int(text) / 1000 for text in system.of_each_cpu(f"cpufreq/{name}").values() if text.isdecimal()]
        for name in ("scaling_min_freq", "scaling_max_freq", "cpuinfo_max_freq")
    )
    if not lowest or not highest:
        now = machine.cpu_info(system.root).get("cpu MHz")
        return Fact("frequency", "unknown", {"now_mhz": float(now) if now else None})
    data = {
        "min_mhz": min(lowest),
        "max_mhz": max(highest),
        "hardware_max_mhz": max(hardware, default=None),
        "slowest_hardware_max_mhz": min(hardware, default=None),
    }
    if hardware and min(hardware) < _SAME_KIND * max(hardware):
        return Fact("frequency", "warn", data)
    return Fact("frequency", "good" if min(lowest) == max(highest) else "info", data)


_FOLDER = "sys/devices/system/clocksource/clocksource0"
# Read without entering the kernel.
_FAST = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource", "timebase"}
# Read through the kernel, from a device or the hypervisor.
_SLOW = {"hpet", "acpi_pm", "xen", "jiffies", "refined-jiffies", "pit"}
# Two readings surround each inference; at this price they would be 1 % of one that takes 100 µs.
_DEAR_NS = 500
_COARSE_NS = 1000
_BATCHES = 10
_READINGS = 500


def clock_source(system: System) -> Fact:
    """The hardware behind the system's clock."""
    name = system.text(f"{_FOLDER}/current_clocksource")
    if not name:
        return Fact("clock-source", "unknown")
    available = system.text(f"{_FOLDER}/available_clocksource").split()
    data = {"name": name, "available": available}
    return Fact("clock-source", "warn" if name in _SLOW else "good" if name in _FAST else "info", data)


def clock_cost(system: System) -> Fact:
    """What one reading of the clock costs, at best of a few batches, and the smallest step that was seen."""
    clock, costs = system.clock_ns, []
    steps: set[int] = set()
    for _ in range(_BATCHES):
        readings = [clock() for _ in range(_READINGS)]
        costs.append((readings[-1] - readings[0]) / (_READINGS - 1))
        steps.update(later - earlier for earlier, later in pairwise(readings))
    step = min((step for step in steps if step > 0), default=None)
    good = step is not None and step <= _COARSE_NS and min(costs) <= _DEAR_NS
    return Fact("clock-cost", "good" if good else "warn", {"cost_ns": min(costs), "step_ns": step})
