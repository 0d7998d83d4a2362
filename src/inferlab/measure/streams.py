"""Which stream runs where: cores divided or shared, in threads, in processes, or by the engine itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from inferlab.errors import BadInput
from inferlab.records import Scenario, StreamMode

# Above this a call is so long that Python's lock no longer shows; below it, streams need their own processes.
SHORT_CALL_S = 0.002
# Copies of the model in several processes may take this share of the memory that is available.
_MEMORY_SHARE = 0.7

SCHEDULERS = {"sync": "single_stream", "async": "multi_stream", "elastic": "elastic"}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the streams of a cell are laid out over processes, loaded models and CPUs."""

    mode: str
    #: For each stream, the CPUs that it is bound to; empty where nothing is pinned.
    groups: tuple[tuple[int, ...], ...]
    #: Threads of one inference.
    threads: int
    #: One loaded model serves all streams.
    shared: bool

    @property
    def children(self) -> list[tuple[tuple[int, ...], ...]]:
        """The groups that each child process has."""
        return [(group,) for group in self.groups] if self.mode == "processes" else [self.groups]


def default_streams(scenario: Scenario, num_cores: int) -> int:
    """One stream for sync; otherwise one for each core."""
    return 1 if scenario == "sync" else num_cores


def check_streams(scenario: Scenario, num_streams: int | None, mode: StreamMode) -> None:
    """Refuse what contradicts itself."""
    if num_streams is not None and num_streams < 1:
        raise BadInput(f"The number of streams must be at least 1, not {num_streams}.")
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
    mode: str, scenario: Scenario, cpus: tuple[int, ...], num_cores: int, num_streams: int, powers: Collection[str]
) -> Layout:
    """The layout of a cell in a given mode; refuses a mode that the engine does not have."""
    if num_streams == 1:
        return Layout("single", (cpus,), num_cores, shared=False)
    if scenario == "elastic":
        shared = mode == "native" or (mode == "auto" and "shared_streams" in powers)
        if shared and "shared_streams" not in powers:
            raise BadInput(
                "This engine has no streams of its own that share all cores. Use --stream-mode threads."
            )
        return Layout("native" if shared else "threads", (cpus,) * num_streams, num_cores, shared)
    groups, threads = divide(cpus, num_cores, num_streams)
    if mode == "native":
        if "native_streams" not in powers:
            raise BadInput(
                "This engine has no streams of its own with divided cores. Use --stream-mode threads or processes."
            )
        return Layout("native", (cpus,) * num_streams, threads, shared=True)
    return Layout(mode, groups, threads, shared=False)


def choose_mode(
    call_s: float, memory_bytes: int | None, available_bytes: int | None, num_streams: int, powers: Collection[str]
) -> str:
    """The mode for async streams: processes for short calls that fit into memory, else what the engine has."""
    in_process = "native" if "native_streams" in powers else "threads"
    if call_s >= SHORT_CALL_S:
        return in_process
    if memory_bytes and available_bytes and memory_bytes * (num_streams - 1) > available_bytes * _MEMORY_SHARE:
        return in_process
    return "processes"
