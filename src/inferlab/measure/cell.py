"""Measure one cell: prepare the model file, start the children, check, warm up, measure, check again."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import check, findings, streams
from inferlab.measure.crew import Crew, Slice
from inferlab.measure.lock import measuring_alone
from inferlab.measure.reference import Reference, reference_for
from inferlab.measure.stats import latencies_ns
from inferlab.model.graph import rewrite
from inferlab.records import Cell, Event, Listener, Metric, Model, OutputCheck, Run
from inferlab.version import __version__
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


def measure(job: Job, listener: Listener) -> Run:
    """Measure a job in fresh processes, alone on this machine; raises what the engine did wrong."""
    cell = job.cell
    launch = registry.launch(cell.engine)
    with (
        measuring_alone(f"benchmark of {job.model.source} on {cell.engine}", listener),
        tempfile.TemporaryDirectory(prefix="inferlab-") as folder,
    ):
        powers = _powers(launch, job)
        reference = _reference(job, listener)
        path = _engine_file(job, launch, Path(folder))
        listener(Event("pinning", {"mode": cell.thread_pinning}))
        layout = _layout(job, launch, path, powers, listener)
        clock = _Clock(listener)
        with Crew(launch, layout, job.patience_s, clock.tick if job.live else None) as crew:
            return _measure(job, crew, layout, path, reference, listener, clock)


def _measure(
    job: Job,
    crew: Crew,
    layout: streams.Layout,
    path: Path,
    reference: Reference,
    listener: Listener,
    clock: _Clock,
) -> Run:
    cell = job.cell
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    listener(Event("loading", {"engine": cell.engine}))
    loaded = _load(job, crew, path)
    _tell_settings(job, layout, path, loaded, listener)
    for inputs in job.inputs:
        crew.give_inputs(inputs)
    standard = check.standard_for(job.model.precision, str(loaded["settings"].get("precision", "")))
    first_inference_s, before = _outputs(job, crew, reference, standard.metric)
    warmup = None
    if cell.warmup_s > 0:
        clock.start(Event("warming", {"seconds": cell.warmup_s}), cell.warmup_s)
        warmup = crew.slice(cell.warmup_s)
    if warmup is not None and warmup.interrupted:
        raise KeyboardInterrupt
    clock.start(Event("measuring", {"scenario": cell.scenario, "seconds": cell.time_s}), cell.time_s)
    measured = crew.slice(cell.time_s, _typical_call_s(warmup))
    listener(Event("checking"))
    _, after = _outputs(job, crew, reference, standard.metric)
    outcome = (
        OutputCheck("unchecked", reference=reference.label, detail=reference.reason)
        if reference.reason
        else check.judge(before + after, standard, reference.label)
    )
    here = machine.describe()
    return Run(
        cell_id=cell.id,
        started_at=started_at,
        streams=measured.streams,
        warmup=warmup.streams if warmup else (),
        stream_mode=layout.mode,
        load_s=loaded["load_s"],
        first_inference_s=first_inference_s,
        peak_memory_bytes=measured.peak_memory_bytes,
        baseline_memory_bytes=loaded["baseline_memory_bytes"],
        harness_ns=crew.harness_ns,
        check=outcome,
        counters=measured.counters,
        versions={"inferlab": __version__, "python": sys.version.split()[0], **loaded["versions"]},
        settings=loaded["settings"],
        model_path=str(path),
        machine=here,
        findings=findings.find(cell, here, measured, outcome, crew.pinned, job.rewrite_batch is not None),
        fraction_of_supported_ops=measured.fraction_of_supported_ops,
        interrupted=measured.interrupted,
    )


def _powers(launch: Launch, job: Job) -> Collection[str]:
    """What the engine can do; refuses a kind of model that it does not run."""
    with Worker(launch, patience_s=job.patience_s) as worker:
        described = worker.ask("describe").data
    if job.model.kind not in described["kinds"]:
        raise BadInput(
            f"Engine '{launch.name}' does not run models of kind {job.model.kind}; it runs "
            f"{', '.join(described['kinds'])}. See: inferlab engines"
        )
    powers: list[str] = described["capabilities"]
    return powers


def _reference(job: Job, listener: Listener) -> Reference:
    if not job.cell.verify:
        return Reference("", reason="--no-verify was given")
    return reference_for(job.model, job.inputs, job.rewrite_batch, job.patience_s, listener)


def _engine_file(job: Job, launch: Launch, folder: Path) -> Path:
    """The file that the engine gets: the model itself, or a copy where it must be changed or is written to."""
    path = Path(job.model.path)
    if job.model.kind != "onnx" or not (job.rewrite_batch or launch.writes_model):
        return path
    return rewrite(
        job.model, folder, batch=job.rewrite_batch, newest_ir=launch.newest_ir, copy_data=launch.writes_model
    )


def _layout(job: Job, launch: Launch, path: Path, powers: Collection[str], listener: Listener) -> streams.Layout:
    """Where the streams run; what 'auto' means for short calls is found out by a few of them."""
    cell = job.cell
    cpus = machine.choose_cpus(cell.num_cores, cell.thread_pinning)

    def in_mode(mode: str) -> streams.Layout:
        return streams.lay_out(mode, cell.scenario, cpus, cell.num_cores, cell.num_streams, powers)

    if cell.stream_mode != "auto" or cell.scenario != "async" or cell.num_streams == 1:
        return in_mode(cell.stream_mode)
    listener(Event("probing", {"engine": cell.engine}))
    divided = in_mode("processes")
    alone = streams.Layout("single", divided.groups[:1], divided.threads, shared=False)
    with Crew(launch, alone, job.patience_s) as crew:
        _load(job, crew, path)
        crew.give_inputs(job.inputs[0])
        crew.infer(0, 0)
        probe = crew.slice(_PROBE_S)
    if probe.interrupted:
        raise KeyboardInterrupt
    mode = streams.choose_mode(
        _typical_call_s(probe) or 0.0,
        probe.peak_memory_bytes,
        machine.available_memory_bytes(),
        cell.num_streams,
        powers,
    )
    return in_mode(mode)


def _load(job: Job, crew: Crew, path: Path) -> dict[str, Any]:
    cell = job.cell
    return crew.load(
        cell.num_cores,
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


def _tell_settings(
    job: Job, layout: streams.Layout, path: Path, loaded: dict[str, Any], listener: Listener
) -> None:
    cell, sets = job.cell, machine.describe().instruction_sets
    listener(
        Event(
            "engine",
            {
                "engine": cell.engine,
                "version": next(iter(loaded["versions"].values()), ""),
                "onnx_file_path": str(path),
                "batch_size": cell.batch_size,
                "num_cores": cell.num_cores,
                "num_streams": cell.num_streams,
                "stream_mode": layout.mode,
                "scheduler": streams.SCHEDULERS[cell.scenario],
                "cpu_avx_type": machine.vector_width(sets),
                "cpu_vnni": machine.has_vnni(sets),
                **loaded["settings"],
            },
        )
    )


def _outputs(
    job: Job, crew: Crew, reference: Reference, metric: Metric
) -> tuple[float, list[check.Difference | None]]:
    """Run every stream on both sets of inputs; the seconds of the very first, and how each compares."""
    first_s, found = 0.0, []
    for number in range(len(job.inputs)):
        for stream in range(crew.streams):
            reply = crew.infer(stream, number)
            first_s = first_s or reply.data["seconds"]
            if reference.outputs:
                found.append(check.difference(reply.arrays(), reference.outputs[number], metric))
    return first_s, found


def _typical_call_s(measured: Slice | None) -> float | None:
    """The median call of a slice, from its longest stream."""
    if measured is None:
        return None
    longest = max(measured.streams, key=len)
    latencies = sorted(latencies_ns(longest).tolist())
    return float(latencies[len(latencies) // 2]) / 1e9 if latencies else None


class _Clock:
    """Tells of a stage, and again with how much of it has passed whenever the waiting parent wakes up."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._event, self._started, self._seconds = Event(""), 0.0, 0.0

    def start(self, event: Event, seconds: float) -> None:
        self._listener(event)
        self._event, self._started, self._seconds = event, time.monotonic(), seconds

    def tick(self) -> None:
        if self._seconds:
            fraction = min(1.0, (time.monotonic() - self._started) / self._seconds)
            self._listener(dataclasses.replace(self._event, fraction=fraction))
