"""What the pages and the HTTP API can ask for, and the requests that these make: what a job in the queue has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inferlab.codec import plain, restored
from inferlab.errors import BadInput, InferlabError
from inferlab.lab.comparison import arm_labels, split
from inferlab.measure.cells import validate_plan
from inferlab.measure.generation.cells import generation_cells, validate_generation
from inferlab.model.shapes import fixed_batch, parse_shapes, resolve
from inferlab.options.generation import GENERATION, ONLY_GENERATION
from inferlab.options.plan import COMPARISON
from inferlab.records import Model, Plan
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import ComparedMetric, GenerationComparison
from inferlab.records.generation import GenerationPlan, GenerationSweep, GenerativeModel
from inferlab.records.optimization import VersionOptions
from inferlab.records.profile import NAME, ProfileOptions
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.store.entries import JobKind, QueuedJob
from inferlab.store.formats import Record
from inferlab.views import command
from inferlab.workspace.engines import title
from inferlab.workspace.sources import MODEL_ENDINGS

# More cells than this are a day's work that a page should not begin by a slip of the finger.
_MOST_CELLS = 200
_LONGEST_NAME = 80
_TOTAL = "Total seconds, including loading."
# Not the usual one, so that it shows where it has an effect.
_ANY_LENGTH = 17


#: What a page begins with: one request at a time.
ONE_BY_ONE = Plan("", scenarios=("sync",))


def request_field(help: str, default: Any = None) -> Any:
    """A field of a request that is no option of its plan; the HTTP API describes it so."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """Measure a plan; with `compare_engine`, interleaved with another engine, another version, or both.

    As a page or the HTTP API asks for it, the plan's model is the project's; its input shapes are the project's
    where it has none, and guessed where they are an empty text.
    """

    plan: Plan
    against: str | None = request_field(
        "Compare with the benchmark of this id; its cores and batch sizes are measured."
    )
    version: str | None = request_field("The id of a version; null is the model as it is.")
    compare_engine: str | None = request_field("Measure interleaved with this engine, and compare.")
    compare_version: str | None = request_field(
        "The version on the other side; the engine may be the same where the versions differ."
    )
    fresh: bool = request_field(f"Of a comparison: {COMPARISON['fresh'].help}", False)
    #: What its entry is marked with.
    entry_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Compare two plans interleaved, at each of their core counts and batch sizes."""

    a: Plan
    b: Plan
    labels: tuple[str, str]
    #: For each comparison.
    time_s: float
    margin: float = 0.01
    #: Processes are started from nothing rather than forked.
    fresh: bool = False
    entry_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """Profile a model; what is switched off is approximated from the architecture."""

    plan: Plan
    wanted: ProfileOptions
    version: str | None = request_field("The id of a version; null is the model as it is.")


#: What the form of a profile begins with.
USUAL_PROFILE = ProfileRequest(ONE_BY_ONE, ProfileOptions(roofline=True))


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Measure how fast a model generates tokens, at all combinations of prompts, depths, batch sizes and cores."""

    plan: GenerationPlan


@dataclass(frozen=True, slots=True)
class GenerationComparisonRequest:
    """Compare how fast two engines generate the same tokens, interleaved; both plans have one cell."""

    a: GenerationPlan
    b: GenerationPlan
    metric: ComparedMetric = field(default="tpot", metadata={"help": ONLY_GENERATION["metric"].help})
    time_s: float = request_field(_TOTAL, 60.0)
    margin: float = request_field(COMPARISON["margin"].help, 0.01)
    fresh: bool = request_field(COMPARISON["fresh"].help, False)


@dataclass(frozen=True, slots=True)
class GenerationCapacityRequest:
    """Search the highest rate of requests of which enough meet the plan's objective; the plan has one cell."""

    plan: GenerationPlan
    attainment: float = request_field(ONLY_GENERATION["attainment"].help, 0.9)


@dataclass(frozen=True, slots=True)
class GenerationRecommendationRequest:
    """Search the engine, cores and batch size that generate most tokens per second within the plan's limits."""

    plan: GenerationPlan
    time_s: float = request_field(_TOTAL, 120.0)


@dataclass(frozen=True, slots=True)
class OptimizationRequest:
    """Make a version of a model and measure it."""

    plan: Plan
    asked: VersionOptions


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """Install an engine into its own environment."""

    engine: str


#: What can be asked of a model that generates tokens.
TokenRequest = (
    GenerationRequest | GenerationComparisonRequest | GenerationCapacityRequest | GenerationRecommendationRequest
)
JobRequest = (
    BenchmarkRequest | ComparisonRequest | TokenRequest | ProfileRequest | OptimizationRequest | InstallRequest
)

_KINDS: dict[JobKind, type[JobRequest]] = {
    "benchmark": BenchmarkRequest,
    "comparison": ComparisonRequest,
    "generation": GenerationRequest,
    "generation-comparison": GenerationComparisonRequest,
    "generation-capacity": GenerationCapacityRequest,
    "generation-recommendation": GenerationRecommendationRequest,
    "profile": ProfileRequest,
    "optimization": OptimizationRequest,
    "install": InstallRequest,
}


def plans_of(request: JobRequest) -> Sequence[Plan | GenerationPlan]:
    """The plans that a job has."""
    if isinstance(request, ComparisonRequest | GenerationComparisonRequest):
        return request.a, request.b
    return () if isinstance(request, InstallRequest) else (request.plan,)


def request_of(job: QueuedJob) -> JobRequest:
    """What a job asks for."""
    return from_content(job.kind, job.content)


def kind_of(request: JobRequest) -> JobKind:
    """What a job with this is called."""
    return next(kind for kind, record in _KINDS.items() if isinstance(request, record))


def to_content(request: JobRequest) -> dict[str, Any]:
    """As JSON values."""
    content: dict[str, Any] = plain(request)
    return content


def from_content(kind: JobKind, content: Mapping[str, Any]) -> JobRequest:
    """What `to_content` was given."""
    try:
        return restored(_KINDS[kind], dict(content))
    except (ValueError, KeyError) as error:
        raise InferlabError(f"The request of this job cannot be read: {error}. Start it again.") from error


def command_of(request: JobRequest) -> str:
    """The command line that does the same."""
    if isinstance(request, BenchmarkRequest):
        return command.benchmark(request.plan)
    if isinstance(request, ComparisonRequest):
        pairs = split(request.a, request.b)
        return "\n".join(command.comparison(a, b, request.time_s, request.margin, request.fresh) for a, b in pairs)
    if isinstance(request, GenerationRequest):
        return command.generation(request.plan)
    if isinstance(request, GenerationComparisonRequest):
        return command.generation_comparison(
            request.a, request.b, request.metric, request.time_s, request.margin, request.fresh
        )
    if isinstance(request, GenerationCapacityRequest):
        return command.generation_capacity(request.plan, request.attainment)
    if isinstance(request, GenerationRecommendationRequest):
        return command.generation_recommendation(request.plan, request.time_s)
    if isinstance(request, OptimizationRequest):
        return command.optimization(request.plan, request.asked)
    assert isinstance(request, ProfileRequest)
    return command.profile(request.plan, request.wanted)


def of_result(record: Record) -> JobRequest | None:
    """What a result of a model that generates was asked for with; None where it does not say."""
    if isinstance(record, GenerationSweep):
        return GenerationRequest(record.plan)
    if isinstance(record, GenerationComparison) and record.plans is not None:
        a, b = record.plans
        return GenerationComparisonRequest(a, b, record.metric, record.time_s, record.margin, record.fresh)
    if isinstance(record, GenerationCapacity) and record.plan is not None:
        return GenerationCapacityRequest(record.plan, record.wanted_attainment)
    if isinstance(record, GenerationRecommendation) and record.plan is not None:
        return GenerationRecommendationRequest(record.plan, record.time_s)
    return None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its model, and what that is called where versions are told apart."""

    model: Model
    version: str = ""


def benchmark_request(request: BenchmarkRequest, side: Side, rival: Side | None = None) -> JobRequest:
    """The job that is asked for; refuses what cannot be measured.

    `side` is what is measured, `rival` what it is compared with, by default the same.
    """
    model, other_engine = side.model, request.compare_engine
    if not request.plan.num_cores or not request.plan.batch_sizes:
        raise BadInput("Choose at least one core count and one batch size.")
    if request.compare_version and not other_engine:
        raise BadInput("Name the engine to compare with, too: compare_engine; it may be the same.")
    if other_engine and request.against:
        raise BadInput("Compare with an engine or with a benchmark that was measured before, not with both.")
    plan = planned(request.plan, model)
    _refuse_many(len(plan.num_cores) * len(plan.batch_sizes))
    if other_engine is None:
        return BenchmarkRequest(plan, request.against, entry_labels=request.entry_labels)
    against = rival or side
    if plan.engines == (other_engine,) and against.model.digest == model.digest:
        engine = title(other_engine)
        what = engine if against == side else f"the same model on {engine}"
        raise BadInput(f"Both sides of the comparison are {what}. Choose another engine or version for one.")
    other = replace(plan, model=against.model.source, engines=(other_engine,))
    validate_plan(other)
    split(plan, other)
    # Speed-ups on the card are of the engine that was chosen first over the one that it is compared with.
    names = _labels((other, against), (plan, side))
    labels = request.entry_labels
    return ComparisonRequest(other, plan, names, plan.time_s, fresh=request.fresh, entry_labels=labels)


def planned(plan: Plan, model: Model) -> Plan:
    """The plan for a model, each of its values once; refuses one that cannot be measured."""
    cores, batch_sizes = (tuple(dict.fromkeys(values)) for values in (plan.num_cores, plan.batch_sizes))
    shapes = checked_shapes(plan.input_shapes, model, batch_sizes, plan.sequence_lengths[0])
    full_plan = replace(plan, model=model.source, num_cores=cores, batch_sizes=batch_sizes, input_shapes=shapes)
    validate_plan(full_plan)
    return full_plan


def _labels(a: tuple[Plan, Side], b: tuple[Plan, Side]) -> tuple[str, str]:
    """What tells the arms apart; versions by their names, for their files are called by nobody."""
    if a[1].model.digest == b[1].model.digest:
        return arm_labels(a[0], b[0])
    if a[0].engines == b[0].engines:
        return a[1].version, b[1].version
    named = [f"{title(plan.engines[0])}, {side.version}" for plan, side in (a, b)]
    return named[0], named[1]


def profile_request(request: ProfileRequest, model: Model) -> ProfileRequest:
    """The job that is asked for, without what belongs to a part that is switched off; refuses what cannot be."""
    from inferlab.profiling.build import validate_profile  # late: it imports onnx

    options = request.wanted
    timed, int8 = options.performance, options.int8 and options.performance
    options = replace(
        options,
        performance_name=checked_name(options.performance_name, "performance profile") if timed else NAME,
        loss_name=checked_name(options.loss_name, "loss profile") if options.loss else NAME,
        # Without any level an engine that can impose them would measure all, which is what we want of it.
        levels=(options.levels or None) if timed else None,
        int8=int8,
        roofline=options.roofline and timed,
        data_file=options.data_file if options.loss or int8 or (timed and options.estimate) else None,
        approximate=True,
    )
    validate_profile(options)
    return ProfileRequest(planned(replace(request.plan, time_s=options.time_s), model), options)


def token_request(request: TokenRequest, model: GenerativeModel) -> TokenRequest:
    """The job that is asked for; refuses what the model, an engine or the memory has no room for."""
    if isinstance(request, GenerationRequest):
        return GenerationRequest(_generating(request.plan, model))
    if isinstance(request, GenerationComparisonRequest):
        if not request.a.engines or len(request.b.engines) != 1:
            raise BadInput("Name two engines to compare, A's and B's.")
        a, b = (_only_cell(plan, model) for plan in (request.a, request.b))
        if a == b:
            engine = title(a.engines[0])
            raise BadInput(f"Both sides of the comparison are {engine}. Choose another engine for one.")
        COMPARISON["margin"].validate(request.margin)
        GENERATION["time"].validate(request.time_s)
        return replace(request, a=a, b=b)
    if isinstance(request, GenerationCapacityRequest):
        if not request.plan.slo:
            raise BadInput(
                "The highest rate is that which meets an objective: give one, such as ttft<500ms,tpot<50ms."
            )
        GENERATION["attainment"].validate(request.attainment)
        # At some rate its requests arrive by themselves; which, the search says.
        _only_cell(replace(request.plan, scenario="server", rates=(1.0,)), model)
    else:
        GENERATION["time"].validate(request.time_s)
        # An objective is about each sequence here, not about requests that arrive.
        _generating(replace(request.plan, slo=()), model)
    return replace(request, plan=replace(request.plan, model=model.source))


def _generating(plan: GenerationPlan, model: GenerativeModel) -> GenerationPlan:
    """The plan for a model, each of its values once; refuses one that cannot be measured."""
    lists = ("engines", "prompt_tokens", "new_tokens", "depths", "batch_sizes", "num_cores", "rates")
    values: dict[str, Any] = {name: tuple(dict.fromkeys(getattr(plan, name))) for name in lists}
    for name, chosen in values.items():
        if not chosen:
            raise BadInput(f"Choose at least one of {name.replace('_', ' ')}.")
    _refuse_many(math.prod(map(len, values.values())))
    full_plan = replace(plan, model=model.source, **values)
    validate_generation(full_plan)
    generation_cells(full_plan, model)
    return full_plan


def _only_cell(plan: GenerationPlan, model: GenerativeModel) -> GenerationPlan:
    """The plan for a model; refused where it has several cells."""
    full_plan = _generating(plan, model)
    cells = len(generation_cells(full_plan, model))
    if cells != 1:
        raise BadInput(f"This takes one combination, and these are {cells}. Give one value of each.")
    return full_plan


def _refuse_many(cells: int) -> None:
    if cells > _MOST_CELLS:
        raise BadInput(f"These are {cells} combinations; a page starts at most {_MOST_CELLS}. Choose fewer.")


def suggested_name(model: Model) -> str:
    """What a project of a model may be called: the last part of what the user named it by."""
    return last_part(model.source)


def last_part(source: str) -> str:
    """The last part of a model's source, without the ending of a file."""
    last = re.split(r"[/\\:]", source.partition("?")[0].rstrip("/"))[-1]
    stem = last.rpartition(".")[0] if last.lower().endswith(MODEL_ENDINGS) else last
    return (stem or last or "model")[:_LONGEST_NAME]


def own_batch_size(model: Model) -> int:
    """The batch size that a model has where nobody asks for another."""
    return fixed_batch(model.inputs) or 1


def has_sequence(model: Model) -> bool:
    """Whether the length of a sequence can be chosen."""
    try:
        return resolve(model.inputs, None, _ANY_LENGTH, {}).shapes != resolve(model.inputs, None, None, {}).shapes
    except BadInput:
        # Nothing is left open for it; or shapes must be given.
        return False


def usual_shapes(model: Model) -> str:
    """The shapes that are tried first where nobody gives any; empty where the model says too little."""
    try:
        shapes = resolve(model.inputs, None, None, {}).shapes
    except BadInput:
        return ""
    return ",".join(f"{name}={list(shape)}".replace(" ", "") for name, shape in shapes.items())


def checked_shapes(
    text: str | None, model: Model, batch_sizes: Sequence[int | None] = (None,), sequence_length: int | None = None
) -> str | None:
    """Input shapes that fit a model at these batch sizes, as a plan has them; None for guessed ones."""
    if not (text or "").strip():
        return None
    shapes = " ".join(str(text).split())
    overrides = parse_shapes(shapes, model.inputs)
    for batch_size in batch_sizes:
        resolve(model.inputs, batch_size, sequence_length, overrides)
    return shapes


def checked_name(name: str, of_what: str) -> str:
    """A name without space around it; refused where it is empty or endless."""
    text = " ".join(name.split())
    if not text:
        raise BadInput(f"The {of_what} needs a name.")
    if len(text) > _LONGEST_NAME:
        raise BadInput(
            f"The name of the {of_what} has {len(text)} characters; at most {_LONGEST_NAME} are allowed."
        )
    return text
