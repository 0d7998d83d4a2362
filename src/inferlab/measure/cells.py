"""From a Plan to its cells: each with the inputs that it gets, and how its streams are laid out."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.check import Arrays
from inferlab.model import inputs, shapes
from inferlab.options import validate_values
from inferlab.options.plan import PLAN
from inferlab.records import Cell, Event, Listener, Model, Plan, Scenario, Shape, StreamMode
from inferlab.worker import DEFAULT_S

if TYPE_CHECKING:  # a benchmark does not generate
    from inferlab.records.generation import GenerationPlan

C = TypeVar("C")

# What offline takes where neither the user nor the model says: large enough to fill an engine's kernels.
_OFFLINE_BATCH = 16
# Above this a call is so long that Python's lock no longer shows; below it, streams need their own processes.
SHORT_CALL_S = 0.002
# Copies of the model in several processes may take this share of the memory that is available.
_MEMORY_SHARE = 0.7


@dataclass(frozen=True, slots=True)
class Job:
    """A Cell with all that is needed to measure it."""

    cell: Cell
    model: Model
    #: Two sets of inputs: the first is timed, both are checked.
    inputs: tuple[Arrays, Arrays]
    rewrite_batch: tuple[int, int] | None
    patience_s: float
    #: Tell the listener about once a second how far it got.
    live: bool = False


def validate_plan(plan: Plan) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    validate_values(PLAN, plan)
    validate_cores(plan, here=plan.cluster is None)  # the machines of a cluster have cores of their own
    if plan.precision is not None and plan.processes is not None:
        raise BadInput("--processes and --precision contradict each other: the precision sets their number.")
    if plan.cluster is None and (plan.on or plan.nodes > 1 or plan.wait_s or plan.prices):
        raise BadInput("Machine types, their number and their prices belong to a cluster. Name it with --cluster.")
    if all(_lists(plan).values()):  # a search leaves some open
        _choices(plan)
    for engine in plan.engines:
        with contextlib.suppress(*(() if plan.cluster is None else registry.NOT_HERE)):
            registry.launch(engine)


def validate_cores(plan: Plan | GenerationPlan, here: bool = True) -> None:
    """Refuse numbers of cores that contradict the list of CPUs, or that this machine does not have."""
    listed = len(plan.cpu_list)
    for cores in plan.num_cores or (None,):
        if listed and cores not in (None, listed):
            raise BadInput(
                f"--cpu-list names {listed}, -ncores asks for {cores}: leave one out, or let them agree."
            )
        if here:
            machine.choose_cpus(cores or listed or 1, plan.thread_pinning, plan.cpu_list)


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
        raise BadInput("The scenario server needs the rate of requests: --rate 50 for 50 requests per second.")
    if scenario != "server" and rate is not None:
        raise BadInput(f"A rate of requests belongs to the scenario server, not to {scenario}. Use -s server.")
    PLAN["rate"].validate(rate)
    if scenario == "sync" and num_streams not in (None, 1):
        raise BadInput(
            f"The scenario sync has one stream, not {num_streams}. Use -s async or -s elastic for more."
        )
    if scenario == "elastic" and mode == "processes":
        raise BadInput("Elastic streams share one engine, so they cannot run in processes. Use -s async.")


def _lists(plan: Plan) -> dict[str, tuple[Any, ...]]:
    return {
        "engines": plan.engines,
        "scenarios": plan.scenarios,
        "core counts": plan.num_cores,
        "stream counts": plan.num_streams,
        "instances": plan.instances,
        "rates": plan.rates,
        "batch sizes": plan.batch_sizes,
        "sequence lengths": plan.sequence_lengths,
    }


class _Choice(NamedTuple):
    """One combination out of a plan's lists, in their order; None leaves it to the model or the machine."""

    engine: str
    scenario: Scenario
    num_cores: int | None
    num_streams: int | None
    instances: int
    rate: float | None
    batch_size: int | None
    sequence_length: int | None


def _choices(plan: Plan) -> list[_Choice]:
    """The plan's product, each combination once; refuses those that contradict themselves."""
    for name, values in _lists(plan).items():
        if not values:
            raise BadInput(f"The plan has an empty list of {name}. Give at least one.")
    product = [_Choice(*values) for values in itertools.product(*_lists(plan).values())]
    if len(plan.scenarios) > 1:
        # A rate is meant for server, and a number of streams not for sync.
        concerned = (
            choice._replace(
                rate=choice.rate if choice.scenario == "server" else None,
                num_streams=None if choice.scenario == "sync" else choice.num_streams,
            )
            for choice in product
        )
        product = list(dict.fromkeys(concerned))
    for choice in product:
        check_streams(choice.scenario, choice.num_streams, choice.instances, choice.rate, plan.stream_mode)
    return product


def usable_cores(plan: Plan) -> int:
    """How many cores a plan has by default on this machine."""
    return len(plan.cpu_list) or machine.usable_cores()


def cells_of(plan: Plan, model: Model, most_cores: int | None = None) -> list[Cell]:
    """Every cell of a plan once, without its inputs: those of a long sweep would fill the memory.

    `most_cores` are those of the machine that shall measure, where it is not this one.
    """
    digests: dict[tuple[tuple[str, Shape], ...], str] = {}
    cells: dict[str, Cell] = {}
    for choice in _choices(plan):
        resolved = _resolve(plan, model, choice)
        shapes_here = tuple(resolved.shapes.items())
        if shapes_here not in digests:
            digests[shapes_here] = inputs.digest(_inputs(plan, model, resolved.shapes, resolved.batch_size)[0])
        num_cores = choice.num_cores or len(plan.cpu_list) or most_cores or usable_cores(plan)
        default = default_streams(choice.scenario, max(1, num_cores // choice.instances))
        cell = Cell(
            model_digest=model.digest,
            engine=choice.engine,
            scenario=choice.scenario,
            num_cores=num_cores,
            num_streams=choice.num_streams or default,
            instances=choice.instances,
            rate=choice.rate,
            batch_size=resolved.batch_size,
            shapes=shapes_here,
            input_digest=digests[shapes_here],
            engine_options=plan.engine_options,
            thread_pinning=plan.thread_pinning,
            stream_mode=plan.stream_mode,
            time_s=plan.time_s,
            warmup_s=plan.warmup_s,
            processes=plan.processes,
            precision=plan.precision,
            seed=plan.seed,
            verify=plan.verify,
            sequence_length=choice.sequence_length,
            guessed_inputs=resolved.guessed,
            cpu_list=plan.cpu_list,
        )
        cells.setdefault(cell.id, cell)
    return list(cells.values())


def make_job(plan: Plan, model: Model, cell: Cell, live: bool = False) -> Job:
    """One of the plan's cells with its inputs."""
    sets = _inputs(plan, model, dict(cell.shapes), cell.batch_size)
    fixed = shapes.fixed_batch(
        [shapes.with_rank(spec, len(dict(cell.shapes)[spec.name])) for spec in model.inputs]
    )
    rewrite_batch = None if fixed in (None, cell.batch_size) else (fixed, cell.batch_size)
    return Job(cell, model, sets, rewrite_batch, plan.patience_s or DEFAULT_S, live)


def jobs(plan: Plan, model: Model) -> Iterator[Job]:
    """Every cell of a plan with its inputs."""
    for cell in cells_of(plan, model):
        yield make_job(plan, model, cell)


def only_job(plan: Plan, model: Model) -> Job:
    """The cell of a plan that has only one, with its inputs."""
    cell, *more = cells_of(plan, model)
    if more:
        raise BadInput(
            f"One cell at a time can be measured so, but this plan of {plan.model} has {1 + len(more)}. "
            "Give one value for each option."
        )
    return make_job(plan, model, cell)


def _inputs(plan: Plan, model: Model, of_shapes: Mapping[str, Shape], batch_size: int) -> tuple[Arrays, Arrays]:
    """Both sets of inputs: the user's data, or random ones that are the same each time."""
    if plan.input_file:
        first, second, _ = inputs.load_inputs(plan.input_file, model.inputs, batch_size)
        return first, second
    first, second = (inputs.make_inputs(model.inputs, of_shapes, plan.seed + number) for number in (0, 1))
    return first, second


def _resolve(plan: Plan, model: Model, choice: _Choice) -> shapes.ResolvedShapes:
    """The shapes of a cell; offline takes a large batch where nobody says and the model leaves it open."""
    overrides = shapes.parse_shapes(plan.input_shapes, model.inputs) if plan.input_shapes else {}
    batch_size, length = choice.batch_size, choice.sequence_length
    if plan.input_file:
        if overrides:
            raise BadInput("--input and --input_shapes contradict each other: the data has its own shapes.")
        data, _, batch_size = inputs.load_inputs(plan.input_file, model.inputs, batch_size)
        overrides = {name: tuple(value.shape) for name, value in data.items()}
    resolved = shapes.resolve(model.inputs, batch_size, length, overrides)
    if choice.scenario != "offline" or batch_size is not None or overrides:
        return resolved
    large = shapes.resolve(model.inputs, _OFFLINE_BATCH, length, overrides)
    return resolved if large.rewrite_batch else large


def in_random_order(cells: Iterable[C], seed: int | str) -> list[C]:
    """So that a machine that slows down with time does not slow down one end of the table."""
    shuffled = list(cells)
    random.Random(seed).shuffle(shuffled)  # noqa: S311  for fairness, no secret
    return shuffled


def tell_inputs(plan: Plan, job: Job, listener: Listener) -> None:
    """Say which inputs a job gets, and the number of streams where nobody chose it."""
    action = "reading" if plan.input_file else "generating"
    for name, value in job.inputs[0].items():
        data = {"made": action, "name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
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


def cpus_of(cell: Cell) -> tuple[int, ...]:
    """The CPUs that a cell is bound to; none where it is not."""
    return machine.choose_cpus(cell.num_cores, cell.thread_pinning, cell.cpu_list)
