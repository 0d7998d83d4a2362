"""Whether this machine is fit for measuring: what is known of it, as facts."""

from __future__ import annotations

from inferlab.machine_state import clock, limits, moment, processor
from inferlab.machine_state.facts import Fact, State, System

__all__ = ["Fact", "State", "System", "examine"]


def examine(system: System | None = None) -> tuple[Fact, ...]:
    """Every fact about this machine, or about the given one; watches it for 0.3 seconds."""
    system = system or System()
    sample = moment.watch(system)
    return (
        processor.cpu(system),
        processor.cores(system),
        processor.smt(system),
        processor.numa(system),
        processor.isolated_cpus(system),
        processor.governor(system),
        processor.turbo(system),
        processor.frequency(system),
        limits.cpu_quota(system),
        limits.thread_pools(system),
        limits.thread_variables(system),
        limits.memory(system),
        moment.swap(system, sample),
        limits.huge_pages(system),
        limits.engine_confinement(system),
        clock.clock_source(system),
        clock.clock_cost(system),
        moment.virtual_machine(system),
        moment.busy(sample),
        moment.steal(sample),
        moment.pressure(system),
        moment.noise_counters(system),
    )
