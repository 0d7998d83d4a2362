"""From a Plan to its cells, each with the inputs and all else that is needed to measure it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import streams
from inferlab.measure.setup import Job
from inferlab.model import inputs, shapes
from inferlab.records import Cell, Event, Listener, Model, Pinning, Plan, Scenario, StreamMode

# What offline takes where neither the user nor the model says: large enough to fill an engine's kernels.
_OFFLINE_BATCH = 16


def refuse_nonsense(plan: Plan) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    words = (
        *((name, get_args(Scenario)) for name in plan.scenarios),
        (plan.thread_pinning, get_args(Pinning)),
        (plan.stream_mode, get_args(StreamMode)),
    )
    for word, known in words:
        if word not in known:
            raise BadInput(f"'{word}' is not possible here; it is one of {', '.join(known)}.")
    if not 0 < plan.time_s < math.inf:
        raise BadInput(f"The measuring time must be more than 0 seconds and end one day, not {plan.time_s:g}.")
    if not 0 <= plan.warmup_s < math.inf:
        raise BadInput(f"The warm-up time cannot be negative or endless ({plan.warmup_s:g}); 0 leaves it out.")
    for cores in plan.num_cores:
        if cores is not None and cores < 1:
            raise BadInput(f"The number of cores must be at least 1, not {cores}.")
        machine.choose_cpus(cores or 1, plan.thread_pinning)
    for batch_size in plan.batch_sizes:
        if batch_size is not None and batch_size < 1:
            raise BadInput(f"The batch size must be at least 1, not {batch_size}.")
    if plan.processes is not None and plan.processes < 1:
        raise BadInput(f"The number of processes must be at least 1, not {plan.processes}.")
    if plan.precision is not None:
        if not 0 < plan.precision < 1:
            raise BadInput(f"The precision must lie between 0 and 100 %, not {100 * plan.precision:g} %.")
        if plan.processes is not None:
            raise BadInput("--processes and --precision contradict each other: the precision sets their number.")
    for scenario, count, instances, rate in itertools.product(
        plan.scenarios, plan.num_streams, plan.instances, plan.rates
    ):
        streams.check_streams(scenario, count, instances, rate, plan.stream_mode)
    for engine in plan.engines:
        registry.launch(engine)


def jobs(plan: Plan, model: Model, live: bool = False) -> Iterator[Job]:
    """The plan's product, every cell with its inputs."""
    overrides = shapes.parse_shapes(plan.input_shapes, model.inputs) if plan.input_shapes else {}
    choices = itertools.product(
        plan.engines,
        plan.scenarios,
        plan.num_cores,
        plan.num_streams,
        plan.instances,
        plan.rates,
        plan.batch_sizes,
        plan.sequence_lengths,
    )
    for engine, scenario, cores, count, instances, rate, batch_size, length in choices:
        if plan.input_file:
            if overrides:
                raise BadInput("--input and --input_shapes contradict each other: the data has its own shapes.")
            first, second, rows = inputs.load_inputs(plan.input_file, model.inputs, batch_size)
            overrides_here = {name: tuple(value.shape) for name, value in first.items()}
            resolved = shapes.resolve(model.inputs, rows, length, overrides_here)
        else:
            resolved = _resolve(model, scenario, batch_size, length, overrides)
            first = inputs.make_inputs(model.inputs, resolved.shapes, plan.seed)
            second = inputs.make_inputs(model.inputs, resolved.shapes, plan.seed + 1)
        num_cores = cores or machine.usable_cores()
        cell = Cell(
            model_digest=model.digest,
            engine=engine,
            scenario=scenario,
            num_cores=num_cores,
            num_streams=count or streams.default_streams(scenario, max(1, num_cores // instances)),
            instances=instances,
            rate=rate,
            batch_size=resolved.batch_size,
            shapes=tuple(resolved.shapes.items()),
            input_digest=inputs.digest(first),
            engine_options=plan.engine_options,
            thread_pinning=plan.thread_pinning,
            stream_mode=plan.stream_mode,
            time_s=plan.time_s,
            warmup_s=plan.warmup_s,
            processes=plan.processes,
            precision=plan.precision,
            seed=plan.seed,
            verify=plan.verify,
        )
        yield Job(cell, model, (first, second), resolved.rewrite_batch, plan.patience_s, live)


def _resolve(
    model: Model,
    scenario: Scenario,
    batch_size: int | None,
    length: int | None,
    overrides: dict[str, tuple[int, ...]],
) -> shapes.Resolved:
    """The shapes of a cell; offline takes a large batch where nobody says and the model leaves it open."""
    resolved = shapes.resolve(model.inputs, batch_size, length, overrides)
    if scenario != "offline" or batch_size is not None or overrides:
        return resolved
    large = shapes.resolve(model.inputs, _OFFLINE_BATCH, length, overrides)
    return resolved if large.rewrite_batch else large


def tell_inputs(plan: Plan, job: Job, listener: Listener) -> None:
    """Say which inputs a job gets, and the number of streams where nobody chose it."""
    made = "reading" if plan.input_file else "generating"
    for name, value in job.inputs[0].items():
        data = {"made": made, "name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
        listener(Event("input", data))
    if job.cell.num_streams > 1 and plan.num_streams == (None,):
        listener(Event("streams-default", {"num_streams": job.cell.num_streams}))


def with_inputs_of(job: Job, other: Job) -> Job:
    """The job with another's inputs where its model takes the same ones, so that outputs can be compared."""
    if job.cell.shapes != other.cell.shapes or _limits(job.model) != _limits(other.model):
        return job
    return replace(job, inputs=other.inputs, cell=replace(job.cell, input_digest=other.cell.input_digest))


def _limits(model: Model) -> list[tuple[str, str, int | None]]:
    return [(spec.name, spec.dtype, spec.below) for spec in model.inputs]
