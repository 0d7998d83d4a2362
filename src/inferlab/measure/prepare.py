"""Everything that is made ready once for a cell: the engine's file, the reference outputs, where streams run."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from inferlab import machine
from inferlab.child import protocol
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineDied, InferlabError
from inferlab.files import whole_file
from inferlab.measure import check
from inferlab.measure.children import Children
from inferlab.measure.conversion import Conversion, Converted, converted, files_of, remembered
from inferlab.model.inputs import digest
from inferlab.model.onnx_file import rewrite
from inferlab.model.shapes import batch_axis
from inferlab.records import Cell, Event, Listener, Model, Scenario
from inferlab.settings import cache_folder
from inferlab.worker import ONNXRUNTIME, TORCH, Launch, Worker

# Above this a call is so long that Python's lock no longer shows; below it, streams need their own processes.
SHORT_CALL_S = 0.002
_PROBE_S = 0.05
# How long each of several files of an engine's own format is warmed up and measured, twice.
_CHOICE_S = 0.25
# Copies of the model in several processes may take this share of the memory that is available.
_MEMORY_SHARE = 0.7
# The cache keeps the newest references, up to this size in all.
_CACHE_BYTES = 500_000_000

_TORCH = ("torch", TORCH, {"mode": "eager"})
_MAKERS: dict[str, tuple[str, Launch, dict[str, str]]] = {
    # Without optimisation: the reference is what the model says, not what a fusion makes of it.
    "onnx": (
        "onnxruntime",
        ONNXRUNTIME,
        {"graph_optimization": "disabled", "io_binding": "0"},
    ),
    "torch-export": _TORCH,
    "torchscript": _TORCH,
    "transformers": _TORCH,
}
# Engine options that say what is computed, not how: the reference computes the same.
_MEANING = {"transformers": ("head",)}


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
    #: Options of the engine that were left to us, as they were decided.
    decided: Mapping[str, str] = field(default_factory=dict)


def cpus_of(cell: Cell) -> tuple[int, ...]:
    """The CPUs that a cell is bound to; none where it is not."""
    return machine.choose_cpus(cell.num_cores, cell.thread_pinning, cell.cpu_list)


@contextmanager
def prepare_cell(job: Job, listener: Listener) -> Iterator[PreparedCell]:
    """Make a job ready; what was written for it is gone afterwards."""
    cell = job.cell
    launch = registry.launch(cell.engine)
    able = capabilities_for(job)
    cpus = cpus_of(cell)

    def in_mode(mode: str) -> Layout:
        return lay_out(mode, cell.scenario, cpus, cell.num_cores, cell.num_streams, able, cell.instances)

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inferlab-"))
        compiled = stack.enter_context(tempfile.TemporaryDirectory())
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
        alone = PreparedCell(job, launch, path, in_mode("processes").first_stream, reference)
        if launch.converts:
            file = stack.enter_context(_converted(alone, listener))
            alone = replace(alone, path=file.path, decided=file.options)
        quantised = bool(job.model.quantization) or job.model.precision == "INT8"
        if launch.safe_options.keys() - dict(cell.engine_options) and quantised and not _survives(alone):
            told = ", ".join(f"{name}={value}" for name, value in launch.safe_options.items())
            listener(Event("limited-isa", {"engine": cell.engine, "options": told}))
            decided = {name: f"auto:{value}" for name, value in launch.safe_options.items()}
            alone = replace(alone, decided=decided)
        # What 'auto' means for streams of short calls is found out by a few of them.
        mode: str = cell.stream_mode
        if mode == "auto" and cell.num_streams > 1 and cell.scenario not in ("sync", "elastic"):
            listener(Event("probing", {"engine": cell.engine}))
            mode = _probed_mode(alone, able)
        yield replace(alone, layout=in_mode(mode))


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


def _converted(alone: PreparedCell, listener: Listener) -> AbstractContextManager[Converted]:
    """The model in the engine's own format; of several files the one with which a stream alone is fastest."""
    job, launch = alone.job, alone.launch

    def call_s(file: Converted) -> float:
        with Children(replace(alone, path=file.path, decided=file.options)) as fresh:
            fresh.check_outputs()
            if fresh.output_check().status == "mismatch":
                return math.inf
            fresh.warm_up(_CHOICE_S)
            fresh.measure(_CHOICE_S)
            if fresh.interrupted:
                raise KeyboardInterrupt
        return fresh.call_s or math.inf

    return converted(_conversion(job, launch, alone.path, alone.layout.threads), call_s, listener)


def _conversion(job: Job, launch: Launch, source: Path, threads: int) -> Conversion:
    here = machine.describe()
    return Conversion(
        launch=launch,
        source=source,
        options=dict(job.cell.engine_options),
        identity=[job.model.digest, job.rewrite_batch, registry.stamp(launch)],
        conditions=[here.cpu, here.instruction_sets, threads, job.cell.shapes],
        patience_s=job.patience_s,
    )


def convert_ahead(job: Job, listener: Listener) -> None:
    """Make the files of an engine that has a format of its own, where the cache does not have them yet."""
    launch = registry.launch(job.cell.engine)
    if launch.converts:
        with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
            source = _engine_file(job, launch, Path(folder))
            with files_of(_conversion(job, launch, source, threads=1), listener):
                pass


def remembered_options(job: Job, threads: int) -> Mapping[str, str]:
    """Options of the engine that were left to us, as they were decided when the job was measured here before."""
    launch = registry.launch(job.cell.engine)
    if not launch.converts:
        return {}
    return remembered(_conversion(job, launch, Path(job.model.path), threads)) or {}


def _survives(alone: PreparedCell) -> bool:
    """Whether the engine's process is not ended by SIGILL in a few calls of the first stream."""
    try:
        with Children(alone) as probe:
            probe.measure(_PROBE_S)
            if probe.interrupted:
                raise KeyboardInterrupt
    except EngineDied as death:
        return death.signal != "SIGILL"
    except InferlabError:
        pass  # whoever measures it will say it
    return True


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


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs for each set of inputs, or the reason why there are none."""

    label: str
    outputs: tuple[check.Arrays, ...] = ()
    reason: str = ""


def reference_for(
    model: Model,
    sets: Sequence[check.Arrays],
    rewrite_batch: tuple[int, int] | None,
    patience_s: float,
    listener: Listener,
    engine_options: Mapping[str, str],
) -> Reference:
    """The reference outputs of a model; never raises for the model's or the engine's faults."""
    if model.kind not in _MAKERS:
        return Reference("", reason=f"there is no reference for a model of kind {model.kind}")
    if model.random:
        return Reference("", reason="the model has random operators")
    package, launch, options = _MAKERS[model.kind]
    meant = {name: engine_options[name] for name in _MEANING.get(model.kind, ()) if name in engine_options}
    label = f"{package} {metadata.version(package)}" + (
        ", eager" if package == "torch" else ", graph not optimised"
    )
    key = [label, model.digest, str(rewrite_batch), *(digest(one) for one in sets), *map(str, meant.items())]
    path = cache_folder() / "references" / (hashlib.sha256("\n".join(key).encode()).hexdigest()[:32] + ".npz")
    cached = read_cached(path, len(sets))
    if cached is not None:
        return Reference(label, cached)
    listener(Event("reference", {"label": label}))
    try:
        outputs = tuple(_make_reference(model, launch, {**options, **meant}, sets, rewrite_batch, patience_s))
    except InferlabError as error:
        return Reference(label, reason=f"no reference could be made: {error}")
    cache_outputs(path, outputs)
    return Reference(label, outputs)


def _make_reference(
    model: Model,
    launch: Launch,
    options: dict[str, str],
    sets: Sequence[check.Arrays],
    rewrite_batch: tuple[int, int] | None,
    patience_s: float,
) -> list[check.Arrays]:
    """Run every set; a batch that the model does not take is fed in portions of the model's own batch."""
    own, wanted = rewrite_batch or (1, 1)
    portions = [_portions(one, model, own, wanted) if rewrite_batch else [dict(one)] for one in sets]
    with Worker(launch, patience_s=patience_s) as worker:
        worker.ask(
            "load",
            model=model.path,
            kind=model.kind,
            groups=[[]],
            layout="each",
            threads=machine.usable_cores(),
            cores=machine.usable_cores(),
            scheduler="single_stream",
            pinning="none",
            batch_size=own,
            shapes={name: list(value.shape) for name, value in portions[0][0].items()},
            options=options,
            outputs=[one.name for one in model.outputs],
        )
        number = 0
        results: list[check.Arrays] = []
        for parts in portions:
            answers = []
            for part in parts:
                heads, blocks = protocol.pack_arrays(part)
                worker.ask("inputs", blocks, arrays=heads)
                answers.append(worker.ask("infer", stream=0, set=number).arrays())
                number += 1
            results.append(answers[0] if not rewrite_batch else _joined(answers, own, wanted))
    return results


def _portions(inputs: check.Arrays, model: Model, own: int, wanted: int) -> list[dict[str, Any]]:
    """Cut the batched inputs into the model's own batches, the last one filled up with its last row."""
    batched = {spec.name for spec in model.inputs if batch_axis(spec, model.inputs) == 0}
    portions = []
    for start in range(0, wanted, own):
        rows = np.minimum(np.arange(start, start + own), wanted - 1)
        portions.append(
            {
                name: np.ascontiguousarray(value[rows]) if name in batched else value
                for name, value in inputs.items()
            }
        )
    return portions


def _joined(answers: Sequence[check.Arrays], own: int, wanted: int) -> check.Arrays:
    """Put the portions' outputs together; those without a batch dimension cannot be compared."""
    return {
        name: np.concatenate([answer[name] for answer in answers])[:wanted]
        for name, first in answers[0].items()
        if first.ndim and first.shape[0] == own
    }


def read_cached(path: Path, count: int) -> tuple[check.Arrays, ...] | None:
    """The sets of outputs in a file of the cache; None where there is none."""
    sets: tuple[dict[str, Any], ...] = tuple({} for _ in range(count))
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                number, _, name = key.partition("/")
                sets[int(number)][name] = file[key]
    except FileNotFoundError:
        return None
    except Exception:  # a damaged cache is only a cache: it is made again
        path.unlink(missing_ok=True)
        return None
    return sets


def cache_outputs(path: Path, outputs: Sequence[check.Arrays]) -> None:
    """Keep the outputs; a full disk or a read-only folder costs only the cache."""
    arrays = {f"{number}/{name}": value for number, one in enumerate(outputs) for name, value in one.items()}
    if sum(value.nbytes for value in arrays.values()) > _CACHE_BYTES // 4:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        _prune(path.parent)
    except OSError:
        return


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*.npz"), key=lambda one: one.stat().st_mtime, reverse=True)
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > _CACHE_BYTES:
            file.unlink(missing_ok=True)
