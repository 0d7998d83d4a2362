"""Which stream runs where: cores divided or shared, in threads, in processes, or by the engine itself."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from inferlab.errors import BadInput
from inferlab.records import Scenario, StreamMode

# Above this a call is so long that Python's lock no longer shows; below it, streams need their own processes.
SHORT_CALL_S = 0.002
# Copies of the model in several processes may take this share of the memory that is available.
_MEMORY_SHARE = 0.7

SCHEDULERS = {
    "sync": "single_stream",
    "async": "multi_stream",
    "elastic": "elastic",
    "server": "multi_stream",
    "offline": "multi_stream",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the streams of a cell are laid out over processes, loaded models and CPUs."""

    mode: str
    #: For each process, the CPUs that each of its streams is bound to; empty where nothing is pinned.
    children: tuple[tuple[tuple[int, ...], ...], ...]
    #: Threads of one inference.
    threads: int
    #: One loaded model serves all streams of a process.
    shared: bool
    #: Cores of one loaded model.
    cores_each: int

    @property
    def first_stream(self) -> Layout:
        """The first stream alone, with the cores that it would have beside the others."""
        return Layout("single", ((self.children[0][0],),), self.threads, False, self.threads)


def default_streams(scenario: Scenario, num_cores: int) -> int:
    """One stream for sync; otherwise one for each core."""
    return 1 if scenario == "sync" else num_cores


def check_streams(
    scenario: Scenario, num_streams: int | None, instances: int, rate: float | None, mode: StreamMode
) -> None:
    """Refuse what contradicts itself."""
    if instances < 1:
        raise BadInput(f"The number of instances must be at least 1, not {instances}.")
    if scenario == "server" and rate is None:
        raise BadInput("The scenario server needs the rate of requests: --rate 50 for 50 requests a second.")
    if scenario != "server" and rate is not None:
        raise BadInput(f"A rate of requests belongs to the scenario server, not to {scenario}. Use -s server.")
    if rate is not None and not 0 < rate < math.inf:
        raise BadInput(f"The rate must be more than 0 requests a second and finite, not {rate:g}.")
    if scenario == "sync" and num_streams not in (None, 1):
        raise BadInput(
            f"The scenario sync has one stream, not {num_streams}. Use -s async or -s elastic for more."
        )
    if scenario == "elastic" and mode == "processes":
        raise BadInput("Elastic streams share one engine, so they cannot run in processes. Use -s async.")


def divide(cpus: tuple[int, ...], num_cores: int, num_streams: int) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Divide the CPUs among the streams as evenly as possible; gives the groups and each stream's threads.

    More streams than cores take turns on them. Unpinned streams get no CPUs, only their thread count;
    CPUs of whole NUMA nodes (more than cores) are shared by all.
    """
    threads = max(1, num_cores // num_streams)
    if len(cpus) != num_cores:
        return (cpus,) * num_streams, threads
    if num_streams >= num_cores:
        return tuple((cpus[index % num_cores],) for index in range(num_streams)), threads
    return tuple(cpus[index * threads : (index + 1) * threads] for index in range(num_streams)), threads


def lay_out(
    mode: str,
    scenario: Scenario,
    cpus: tuple[int, ...],
    num_cores: int,
    num_streams: int,
    powers: Collection[str],
    instances: int = 1,
) -> Layout:
    """The layout of a cell in a given mode; refuses a mode that the engine does not have."""
    portions, cores_each = divide(cpus, num_cores, instances)
    parts = [_lay_out_one(mode, scenario, portion, cores_each, num_streams, powers) for portion in portions]
    children = tuple(child for part in parts for child in part.children)
    return replace(parts[0], children=children)


def _lay_out_one(
    mode: str, scenario: Scenario, cpus: tuple[int, ...], num_cores: int, num_streams: int, powers: Collection[str]
) -> Layout:
    if num_streams == 1:
        return Layout("single", ((cpus,),), num_cores, False, num_cores)
    together = ((cpus,) * num_streams,)
    if scenario == "elastic":
        shared = mode == "native" or (mode == "auto" and "shared_streams" in powers)
        if shared and "shared_streams" not in powers:
            raise BadInput(
                "This engine has no streams of its own that share all cores. Use --stream-mode threads."
            )
        return Layout("native" if shared else "threads", together, num_cores, shared, num_cores)
    groups, threads = divide(cpus, num_cores, num_streams)
    if mode == "native":
        if "native_streams" not in powers:
            raise BadInput(
                "This engine has no streams of its own with divided cores. Use --stream-mode threads or processes."
            )
        return Layout("native", together, threads, True, num_cores)
    children = tuple((group,) for group in groups) if mode == "processes" else (groups,)
    return Layout(mode, children, threads, False, threads)


def choose_mode(
    call_s: float, memory_bytes: int | None, available_bytes: int | None, num_streams: int, powers: Collection[str]
) -> str:
    """The mode for async streams: processes for short calls that fit into memory, else what the engine has."""
    if "process_streams" in powers:
        return "processes"
    in_process = "native" if "native_streams" in powers else "threads"
    if call_s >= SHORT_CALL_S:
        return in_process
    if memory_bytes and available_bytes and memory_bytes * (num_streams - 1) > available_bytes * _MEMORY_SHARE:
        return in_process
    return "processes"
