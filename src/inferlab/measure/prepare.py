"""Everything that is made ready once for a cell before its processes start: file, reference, where streams run."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import check
from inferlab.measure.children import Children
from inferlab.measure.reference import Reference, reference_for
from inferlab.model.onnx_file import rewrite
from inferlab.records import Cell, Event, Listener, Model, Scenario, StreamMode
from inferlab.worker import Launch

# Above this a call is so long that Python's lock no longer shows; below it, streams need their own processes.
SHORT_CALL_S = 0.002
_PROBE_S = 0.05
# Copies of the model in several processes may take this share of the memory that is available.
_MEMORY_SHARE = 0.7


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
    able: Collection[str],
    instances: int = 1,
) -> Layout:
    """The layout of a cell in a given mode; refuses a mode that is not among what the engine is able to do."""
    portions, cores_each = divide(cpus, num_cores, instances)
    parts = [_lay_out_one(mode, scenario, portion, cores_each, num_streams, able) for portion in portions]
    return replace(parts[0], children=tuple(child for part in parts for child in part.children))


def _lay_out_one(
    mode: str,
    scenario: Scenario,
    cpus: tuple[int, ...],
    num_cores: int,
    num_streams: int,
    able: Collection[str],
) -> Layout:
    if num_streams == 1:
        return Layout("single", ((cpus,),), num_cores, False, num_cores)
    together = ((cpus,) * num_streams,)
    if scenario == "elastic":
        shared = mode == "native" or (mode == "auto" and "shared_streams" in able)
        if shared and "shared_streams" not in able:
            raise BadInput(
                "This engine has no streams of its own that share all cores. Use --stream-mode threads."
            )
        return Layout("native" if shared else "threads", together, num_cores, shared, num_cores)
    groups, threads = divide(cpus, num_cores, num_streams)
    if mode == "native":
        if "native_streams" not in able:
            raise BadInput(
                "This engine has no streams of its own with divided cores. Use --stream-mode threads or processes."
            )
        return Layout("native", together, threads, True, num_cores)
    children = tuple((group,) for group in groups) if mode == "processes" else (groups,)
    return Layout(mode, children, threads, False, threads)


def choose_mode(
    call_s: float,
    memory_bytes: int | None,
    available_bytes: int | None,
    num_streams: int,
    able: Collection[str],
) -> str:
    """The mode for async streams: processes for short calls that fit into memory, else what the engine has."""
    if "process_streams" in able:
        return "processes"
    in_process = "native" if "native_streams" in able else "threads"
    if call_s >= SHORT_CALL_S:
        return in_process
    if memory_bytes and available_bytes and memory_bytes * (num_streams - 1) > available_bytes * _MEMORY_SHARE:
        return in_process
    return "processes"


@dataclass(frozen=True, slots=True)
class Job:
    """A Cell with all that is needed to measure it."""

    cell: Cell
    model: Model
    #: Two sets of inputs: the first is timed, both are checked.
    inputs: tuple[check.Arrays, check.Arrays]
    rewrite_batch: tuple[int, int] | None
    patience_s: float
    #: Tell the listener about once a second how far it got.
    live: bool = False


@dataclass(frozen=True, slots=True)
class PreparedCell:
    """A job that is ready to be measured in as many fresh processes as wanted."""

    job: Job
    launch: Launch
    #: The file that the engine gets.
    path: Path
    layout: Layout
    reference: Reference


@contextmanager
def prepare_cell(job: Job, listener: Listener) -> Iterator[PreparedCell]:
    """Make a job ready; what was written for it is gone afterwards."""
    cell = job.cell
    launch = registry.launch(cell.engine)
    able = capabilities_for(job)
    cpus = machine.choose_cpus(cell.num_cores, cell.thread_pinning)

    def in_mode(mode: str) -> Layout:
        return lay_out(mode, cell.scenario, cpus, cell.num_cores, cell.num_streams, able, cell.instances)

    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder, tempfile.TemporaryDirectory() as compiled:
        # Compiled once, not in every process of the cell; never shared with the processes of another model.
        environment = {**launch.environment, "TORCHINDUCTOR_CACHE_DIR": compiled}
        launch = replace(launch, environment=environment, writes=(*launch.writes, compiled))
        if cell.verify:
            reference = reference_for(
                job.model, job.inputs, job.rewrite_batch, job.patience_s, listener, dict(cell.engine_options)
            )
        else:
            reference = Reference("", reason="--no-verify was given")
        path = _engine_file(job, launch, Path(folder))
        listener(Event("pinning", {"mode": cell.thread_pinning}))
        # What 'auto' means for streams of short calls is found out by a few of them.
        mode: str = cell.stream_mode
        if mode == "auto" and cell.num_streams > 1 and cell.scenario not in ("sync", "elastic"):
            listener(Event("probing", {"engine": cell.engine}))
            alone = in_mode("processes").first_stream
            mode = _probed_mode(PreparedCell(job, launch, path, alone, reference), able)
        yield PreparedCell(job, launch, path, in_mode(mode), reference)


def capabilities_for(job: Job) -> frozenset[str]:
    """What the job's engine can do; refuses a kind of model that it does not run."""
    abilities = registry.abilities(registry.launch(job.cell.engine), job.patience_s)
    if job.model.kind not in abilities.kinds:
        raise BadInput(
            f"Engine '{job.cell.engine}' does not run models of kind {job.model.kind}; it runs "
            f"{', '.join(sorted(abilities.kinds))}. See: inferlab engines"
        )
    return abilities.capabilities


def _engine_file(job: Job, launch: Launch, folder: Path) -> Path:
    """The file that the engine gets: the model itself, or a copy where it must be changed or is written to."""
    path = Path(job.model.path)
    if job.model.kind != "onnx" or not (job.rewrite_batch or launch.writes_model):
        return path
    return rewrite(
        job.model, folder, batch=job.rewrite_batch, newest_ir=launch.newest_ir, copy_data=launch.writes_model
    )


def _probed_mode(alone: PreparedCell, able: Collection[str]) -> str:
    """The mode for async streams, told by a few calls of the first of them alone."""
    with Children(alone) as probe:
        probe.check_outputs()
        probe.measure(_PROBE_S)
        if probe.interrupted:
            raise KeyboardInterrupt
    cell = alone.job.cell
    memory_bytes, available_bytes = probe.peak_memory_bytes(), machine.available_memory_bytes()
    return choose_mode(probe.call_s or 0.0, memory_bytes, available_bytes, cell.num_streams * cell.instances, able)
