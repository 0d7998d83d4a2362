"""The front door: what the command line, the pages and other people's code call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed, EngineHung, EngineRefused
from inferlab.executors import Executor, Local
from inferlab.measure import streams
from inferlab.measure.cell import Job
from inferlab.model import inputs, shapes, source
from inferlab.records import Benchmark, Cell, Event, Failure, Listener, Model, Outcome, Plan, ignore


class Lab:
    """Runs plans on an executor."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or Local()

    def benchmark(self, plan: Plan, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Measure every cell of a plan; a cell's failure is its outcome and does not touch the others.

        With `live` the listener hears about once a second how far the measuring got. Ctrl-C ends the
        plan: what was measured is kept, what was not is pending.
        """
        _refuse_nonsense(plan)
        for engine in plan.engines:
            registry.launch(engine)
        model = read_model(plan.model, listener)
        jobs = list(_jobs(plan, model, live))
        outcomes: list[Outcome] = []
        for job in jobs:
            _tell_inputs(plan, job, listener)
            outcome = self._measure(job, listener)
            outcomes.append(outcome)
            if outcome.status == "cancelled":
                break
        outcomes += [Outcome(job.cell, "pending") for job in jobs[len(outcomes) :]]
        return Benchmark(plan, model, tuple(outcomes))

    def _measure(self, job: Job, listener: Listener) -> Outcome:
        try:
            run = self._executor.measure(job, listener)
        except KeyboardInterrupt:
            return Outcome(job.cell, "cancelled")
        except BadInput as error:
            return Outcome(job.cell, "failed", failure=Failure("refused", _explained(job, error)))
        except EngineHung as error:
            return Outcome(job.cell, "failed", failure=Failure("hung", str(error)))
        except EngineFailed as error:
            return Outcome(job.cell, "failed", failure=Failure("died", str(error)))
        return Outcome(job.cell, "cancelled" if run.interrupted else "done", (run,))


def read_model(name: str, listener: Listener = ignore) -> Model:
    """Find a model by its source and read what it is."""
    located = source.locate(name, listener)
    if located.kind == "transformers":
        raise BadInput(f"{name} is a Hugging Face folder. Export it first: inferlab export {name} -o model.onnx")
    if located.kind == "onnx":
        from inferlab.model.graph import read_onnx

        return read_onnx(located.path, name)
    from inferlab.model.inspect import inspect_foreign

    return inspect_foreign(located.path, located.kind, name)


def _refuse_nonsense(plan: Plan) -> None:
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
    for scenario, count in itertools.product(plan.scenarios, plan.num_streams):
        streams.check_streams(scenario, count, plan.stream_mode)


def _jobs(plan: Plan, model: Model, live: bool) -> Iterator[Job]:
    """The plan's product, every cell with its inputs."""
    overrides = shapes.parse_shapes(plan.input_shapes, model.inputs) if plan.input_shapes else {}
    choices = itertools.product(
        plan.engines, plan.scenarios, plan.num_cores, plan.num_streams, plan.batch_sizes, plan.sequence_lengths
    )
    for engine, scenario, cores, count, batch_size, length in choices:
        if plan.input_file:
            if overrides:
                raise BadInput("--input and --input_shapes contradict each other: the data has its own shapes.")
            first, second, rows = inputs.load_inputs(plan.input_file, model.inputs, batch_size)
            overrides_here = {name: tuple(value.shape) for name, value in first.items()}
            resolved = shapes.resolve(model.inputs, rows, length, overrides_here)
        else:
            resolved = shapes.resolve(model.inputs, batch_size, length, overrides)
            first = inputs.make_inputs(model.inputs, resolved.shapes, plan.seed)
            second = inputs.make_inputs(model.inputs, resolved.shapes, plan.seed + 1)
        num_cores = cores or machine.usable_cores()
        cell = Cell(
            model_digest=model.digest,
            engine=engine,
            scenario=scenario,
            num_cores=num_cores,
            num_streams=count or streams.default_streams(scenario, num_cores),
            batch_size=resolved.batch_size,
            shapes=tuple(resolved.shapes.items()),
            input_digest=inputs.digest(first),
            engine_options=plan.engine_options,
            thread_pinning=plan.thread_pinning,
            stream_mode=plan.stream_mode,
            time_s=plan.time_s,
            warmup_s=plan.warmup_s,
            seed=plan.seed,
            verify=plan.verify,
        )
        yield Job(cell, model, (first, second), resolved.rewrite_batch, plan.patience_s, live)


def _explained(job: Job, error: BadInput) -> str:
    """A refusal, with what we did to the model that may have caused it."""
    message = str(error)
    if job.rewrite_batch is not None:
        own, wanted = job.rewrite_batch
        return f"{message} (The model fixes its batch size to {own}; a copy rewritten for {wanted} was tried.)"
    open_dims = any(not isinstance(dim, int) for spec in job.model.inputs for dim in (spec.dims or ())[1:])
    if open_dims and isinstance(error, EngineRefused):
        shapes_tried = ", ".join(f"{name}={list(shape)}" for name, shape in job.cell.shapes)
        return f"{message} (Tried with {shapes_tried}; other shapes are given with -shapes or --sequence_length.)"
    return message


def _tell_inputs(plan: Plan, job: Job, listener: Listener) -> None:
    made = "reading" if plan.input_file else "generating"
    for name, value in job.inputs[0].items():
        data = {"made": made, "name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
        listener(Event("input", data))
    if job.cell.scenario != "sync" and plan.num_streams == (None,):
        listener(Event("streams-default", {"num_streams": job.cell.num_streams}))
