"""One cell: made ready once, then measured alone on this machine.

Fresh processes share its time, for there the variance lies.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.engines import registry
from inferlab.errors import BadInput, EngineDied, EngineFailed, EngineHung, EngineRefused, InferlabError
from inferlab.machine import available_memory_bytes, describe, node_name
from inferlab.measure.cells import Job, Layout, choose_mode, cpus_of, lay_out
from inferlab.measure.check import Reference, reference_for
from inferlab.measure.children import Children
from inferlab.measure.conversion import Conversion, Converted, converted, files_of, remembered
from inferlab.measure.queueing import poisson_arrivals
from inferlab.measure.stats import WINDOW_S, precise, share_s, time_is_up
from inferlab.model.onnx_file import rewrite
from inferlab.records import Cell, Event, Failure, Listener, Run, ignore
from inferlab.units import one_line, shortened
from inferlab.worker import Launch, Worker

if TYPE_CHECKING:
    from inferlab.records.generation import GenerationRun

_thread = threading.local()
_LONGEST_LABEL = 200
# A server gets this much longer than its requests take to arrive; what still waits then is given up.
_OVERTIME = 1.25
_PROBE_S = 0.05
# How long each of several files of an engine's own format is warmed up and measured, twice.
_CHOICE_S = 0.25
# How long an engine may take to say whether it has an option.
_OPTIONS_S = 60.0


def measure(job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
    """Measure a job alone on this machine, one Run for each process; raises what the engine did wrong.

    Those measured `before` count, where a benchmark that was cut off goes on.
    """
    cell = job.cell
    runs = list(before)
    ready_s = runs[0].ready_s if runs else 0.0

    def enough() -> bool:
        return bool(runs) and (time_is_up(cell, len(runs), ready_s) or precise(cell, runs))

    if enough():
        return
    label = f"benchmark of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), _explaining(job), prepare_cell(job, listener) as prepared:
        progress = _Progress(cell, listener, len(runs))
        while not enough():
            listener(Event("loading", {"engine": cell.engine, "process": len(runs) + 1}))
            with Children(prepared, progress.tick if job.live else None) as children:
                if not runs:
                    listener(Event("engine", children.settings()))
                ready_s = ready_s or children.ready_s
                runs.append(_measure(children, share_s(cell, ready_s), progress))
            yield runs[-1]
            if runs[-1].interrupted:
                return


def _measure(children: Children, seconds: float, progress: _Progress) -> Run:
    cell = children.prepared.job.cell
    children.check_outputs()
    if cell.warmup_s > 0:
        progress.stage(Event("warming", {"seconds": cell.warmup_s}), 0.0)
        children.warm_up(cell.warmup_s)
    event = Event("measuring", {"scenario": cell.scenario, "seconds": cell.time_s})
    count = 1 if cell.rate is not None else max(1, round(seconds / WINDOW_S))
    try:
        for _ in range(count):
            progress.stage(event, seconds / count)
            if cell.rate is None:
                window = children.measure(seconds / count)
            else:
                # Every process gets arrivals of its own, the same ones each time the cell is measured.
                seed = cell.seed * 1000 + progress.processes
                window = children.serve(poisson_arrivals(cell.rate, seconds, seed), _OVERTIME * seconds)
            if window.full or children.interrupted:
                break
    except KeyboardInterrupt:
        # It came between two windows: those before it are kept, but the conversation may be broken off.
        if not children.has_windows:
            raise
        return children.run(interrupted=True)
    progress.stage(Event("checking"), 0.0)
    children.check_outputs()
    progress.processes += 1
    return children.run()


class _Progress:
    """Tells of a stage, and again with how much of the cell's time has passed whenever the parent wakes up."""

    def __init__(self, cell: Cell, listener: Listener, processes: int) -> None:
        self.listener = listener
        self.processes = processes
        self._total_s = cell.time_s
        self._event, self._began, self._done_s, self._stage_s = Event(""), 0.0, 0.0, 0.0

    def stage(self, event: Event, seconds: float) -> None:
        if self.processes == 0:
            self.listener(event)
        self._done_s += self._stage_s
        self._event, self._began, self._stage_s = event, time.monotonic(), seconds

    def tick(self) -> None:
        if self._event.code:
            stage_s = min(self._stage_s, time.monotonic() - self._began)
            fraction = min(1.0, (self._done_s + stage_s) / self._total_s)
            self.listener(replace(self._event, fraction=fraction))


def failure_of(error: BadInput | EngineFailed) -> Failure:
    """What an error is for the cell, or the search, that it ended."""
    if isinstance(error, BadInput):
        return Failure("refused", str(error))
    return Failure("hung" if isinstance(error, EngineHung) else "died", str(error))


def check_alike(
    before: Sequence[Run | GenerationRun], run: Run | GenerationRun, across_machines: bool = False
) -> None:
    """Refuse to go on with a cell that was begun under other conditions: unlike runs do not average.

    `across_machines` allows another machine that is alike; a finding says then that there were several.
    """
    names = ("versions", "settings") if across_machines else ("machine", "versions", "settings")
    for name in names:
        if before and getattr(before[0], name) != getattr(run, name):
            raise BadInput(
                f"This cell was begun with another {_CONDITIONS[name]}, and runs of both cannot be pooled. "
                "Measure it again: inferlab rerun"
            )


_CONDITIONS = {"machine": "machine", "versions": "version of the engine or of inferlab", "settings": "setting"}


@contextmanager
def _explaining(job: Job) -> Iterator[None]:
    """Refusals inside it say what we did to the model that may have caused them."""
    try:
        yield
    except BadInput as error:
        raise BadInput(_explained(job, error)) from error


def _explained(job: Job, error: BadInput) -> str:
    message = str(error)
    if job.rewrite_batch is not None:
        own, rewritten = job.rewrite_batch
        return f"{message} (The model fixes its batch size to {own}; a copy rewritten for {rewritten} was tried.)"
    open_dims = any(not isinstance(dim, int) for spec in job.model.inputs for dim in (spec.dims or ())[1:])
    if open_dims and isinstance(error, EngineRefused):
        shapes_tried = ", ".join(f"{name}={list(shape)}" for name, shape in job.cell.shapes)
        return f"{message} (Tried with {shapes_tried}; other shapes are given with -shapes or --sequence_length.)"
    return message


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
            options = ", ".join(f"{name}={value}" for name, value in launch.safe_options.items())
            listener(Event("limited-isa", {"engine": cell.engine, "options": options}))
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
    here = describe()
    return Conversion(
        launch=launch,
        source=source,
        options=dict(job.cell.engine_options),
        identity=[job.model.digest, job.rewrite_batch, registry.stamp(launch)],
        conditions=[here.cpu, here.instruction_sets, threads, job.cell.shapes],
        patience_s=job.patience_s,
    )


def check_options(cells: Sequence[Cell]) -> None:
    """Refuse a plan before anything is done where the engine of none of its cells has the options that are given.

    Asked of engines that convert models, which refuse late; where one cell can be measured, each tells its own.
    """
    refusals = []
    for name, options in dict.fromkeys((cell.engine, cell.engine_options) for cell in cells):
        try:
            launch = registry.launch(name)
        except InferlabError:
            return  # whoever measures it will say it
        if not options or not launch.converts:
            return
        try:
            with Worker(launch, patience_s=_OPTIONS_S) as worker:
                worker.ask("check_options", options=dict(options))
        except BadInput as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise refusals[0]


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
    memory_bytes, available_bytes = probe.peak_memory_bytes(), available_memory_bytes()
    return choose_mode(probe.call_s or 0.0, memory_bytes, available_bytes, cell.num_streams * cell.instances, able)


@contextmanager
def measuring_alone(label: str, listener: Listener = ignore) -> Iterator[None]:
    """Hold the user's measuring lock on this machine; wait for its holder where there is one, and say so.

    A measurement that is part of another one of the same thread holds it already.
    """
    if getattr(_thread, "measures", False):
        yield
        return
    try:
        handle = _open(lock_file())
    except OSError as error:
        listener(Event("unlocked", {"file": str(lock_file()), "reason": error.strerror}))
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            listener(Event("waiting", {"holder": _holder(handle)}))
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}: {label}\n".encode()[:_LONGEST_LABEL], 0)
        _thread.measures = True
        yield
    finally:
        _thread.measures = False
        os.close(handle)


def lock_file() -> Path:
    """The lock's path, named by node: in the user's runtime folder, or else in a folder of the user's own."""
    node = re.sub(r"[^\w.-]", "_", node_name())
    return _folder() / f"inferlab-{node}.lock"


def _folder() -> Path:
    """A folder that no other user can write to; what others measure is noticed by the load that it makes."""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if place.startswith("/") and Path(place).is_dir() and _is_ours(Path(place).stat()):
            return Path(place)
    return Path(tempfile.gettempdir()) / f"inferlab-{os.geteuid()}"


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


def _open(path: Path) -> int:
    folder = path.parent
    if not folder.exists():
        folder.mkdir(mode=0o700)
    # In a folder that all users share, another one may have made a folder or a link of this name before.
    if not stat.S_ISDIR(folder.lstat().st_mode) or not _is_ours(folder.lstat()):
        raise PermissionError(errno.EPERM, f"{folder} belongs to another user")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(handle, 0o600)
    return handle


def _holder(handle: int) -> str:
    """What the file says, which need not be true: whoever runs as this user can write to it."""
    return one_line(shortened(os.pread(handle, _LONGEST_LABEL, 0).decode("utf-8", "replace").strip(), 100))
