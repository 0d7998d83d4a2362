"""Facts about the clock: where it comes from, what a reading costs, how fine its steps are."""

from __future__ import annotations

from itertools import pairwise

from inferlab.machine_state.facts import Fact, System

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
