"""Everything that is made ready once for a cell, before its processes start: file, reference, layout."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import check, streams
from inferlab.measure.crew import Crew
from inferlab.measure.reference import Reference, reference_for
from inferlab.measure.stats import typical_call_s
from inferlab.model.onnx_file import rewrite
from inferlab.records import Cell, Event, Listener, Model
from inferlab.worker import Launch, Worker

_PROBE_S = 0.05


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
class Setup:
    """A job that is ready to be measured in as many fresh processes as wanted."""

    job: Job
    launch: Launch
    #: The file that the engine gets.
    path: Path
    layout: streams.Layout
    reference: Reference


@contextmanager
def set_up(job: Job, listener: Listener) -> Iterator[Setup]:
    """Make a job ready; what was written for it is gone afterwards."""
    launch = registry.launch(job.cell.engine)
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder, tempfile.TemporaryDirectory() as compiled:
        # Compiled once, not in every process of the cell; never shared with the processes of another model.
        environment = {**launch.environment, "TORCHINDUCTOR_CACHE_DIR": compiled}
        launch = replace(launch, environment=environment, writes=(*launch.writes, compiled))
        able = powers(launch, job)
        reference = _reference(job, listener)
        path = _engine_file(job, launch, Path(folder))
        listener(Event("pinning", {"mode": job.cell.thread_pinning}))
        yield Setup(job, launch, path, _layout(job, launch, path, able, listener), reference)


def load(crew: Crew, job: Job, path: Path) -> dict[str, Any]:
    """Load the job's model in a crew."""
    cell = job.cell
    return crew.load(
        {
            "model": str(path),
            "kind": job.model.kind,
            "scheduler": streams.SCHEDULERS[cell.scenario],
            "pinning": cell.thread_pinning,
            "batch_size": cell.batch_size,
            "shapes": {name: list(shape) for name, shape in cell.shapes},
            "options": dict(cell.engine_options),
            "outputs": [one.name for one in job.model.outputs],
        },
    )


def powers(launch: Launch, job: Job) -> Collection[str]:
    """What the engine can do; refuses a kind of model that it does not run."""
    with Worker(launch, patience_s=job.patience_s) as worker:
        described = worker.ask("describe").data
    if job.model.kind not in described["kinds"]:
        raise BadInput(
            f"Engine '{launch.name}' does not run models of kind {job.model.kind}; it runs "
            f"{', '.join(described['kinds'])}. See: inferlab engines"
        )
    able: list[str] = described["capabilities"]
    return able


def _reference(job: Job, listener: Listener) -> Reference:
    if not job.cell.verify:
        return Reference("", reason="--no-verify was given")
    options = dict(job.cell.engine_options)
    return reference_for(job.model, job.inputs, job.rewrite_batch, job.patience_s, listener, options)


def _engine_file(job: Job, launch: Launch, folder: Path) -> Path:
    """The file that the engine gets: the model itself, or a copy where it must be changed or is written to."""
    path = Path(job.model.path)
    if job.model.kind != "onnx" or not (job.rewrite_batch or launch.writes_model):
        return path
    return rewrite(
        job.model, folder, batch=job.rewrite_batch, newest_ir=launch.newest_ir, copy_data=launch.writes_model
    )


def _layout(job: Job, launch: Launch, path: Path, able: Collection[str], listener: Listener) -> streams.Layout:
    """Where the streams run; what 'auto' means for short calls is found out by a few of them."""
    cell = job.cell
    cpus = machine.choose_cpus(cell.num_cores, cell.thread_pinning)

    def in_mode(mode: str) -> streams.Layout:
        return streams.lay_out(mode, cell.scenario, cpus, cell.num_cores, cell.num_streams, able, cell.instances)

    if cell.stream_mode != "auto" or cell.scenario in ("sync", "elastic") or cell.num_streams == 1:
        return in_mode(cell.stream_mode)
    listener(Event("probing", {"engine": cell.engine}))
    with Crew(launch, in_mode("processes").first_stream, job.patience_s) as crew:
        load(crew, job, path)
        crew.give_inputs(job.inputs[0])
        crew.infer(0, 0)
        probe = crew.slice(_PROBE_S)
    if probe.interrupted:
        raise KeyboardInterrupt
    mode = streams.choose_mode(
        typical_call_s([probe.window]) or 0.0,
        probe.peak_memory_bytes,
        machine.available_memory_bytes(),
        cell.num_streams * cell.instances,
        able,
    )
    return in_mode(mode)
