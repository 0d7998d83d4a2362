"""What the pages and the HTTP API can ask for, and the requests that these make: what a job in the queue has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferlab.codec import plain, restored
from inferlab.errors import BadInput, InferlabError
from inferlab.lab.comparison import arm_labels, split
from inferlab.measure.cells import validate_plan
from inferlab.model.shapes import fixed_batch, parse_shapes, resolve
from inferlab.optimizing.options import VersionOptions
from inferlab.profiling.options import NAME, ProfileOptions, validate_profile
from inferlab.records import Model, Plan, Scenario
from inferlab.records.profile import LEVELS
from inferlab.store.entries import JobKind
from inferlab.workspace.engines import title
from inferlab.workspace.sources import MODEL_ENDINGS

# More cells than this are a day's work that a page should not begin by a slip of the finger.
_MOST_CELLS = 200
_LONGEST_NAME = 80
# Not the usual one, so that it shows where it has an effect.
_ANY_LENGTH = 17


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """Measure a plan; `against` is a benchmark that it shall be shown beside."""

    plan: Plan
    against: str | None = None


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Compare two plans interleaved, at each of their core counts and batch sizes."""

    a: Plan
    b: Plan
    labels: tuple[str, str]
    #: For each comparison.
    time_s: float
    margin: float = 0.01


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """Profile a model."""

    plan: Plan
    wanted: ProfileOptions


@dataclass(frozen=True, slots=True)
class OptimizationRequest:
    """Make a version of a model and measure it."""

    plan: Plan
    asked: VersionOptions


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """Install an engine into its own environment."""

    engine: str


JobRequest = BenchmarkRequest | ComparisonRequest | ProfileRequest | OptimizationRequest | InstallRequest

_KINDS: dict[JobKind, type[JobRequest]] = {
    "benchmark": BenchmarkRequest,
    "comparison": ComparisonRequest,
    "profile": ProfileRequest,
    "optimization": OptimizationRequest,
    "install": InstallRequest,
}


def kind_of(request: JobRequest) -> JobKind:
    """What a job with this is called."""
    return next(kind for kind, record in _KINDS.items() if isinstance(request, record))


def to_content(request: JobRequest) -> dict[str, Any]:
    """As JSON values."""
    found: dict[str, Any] = plain(request)
    return found


def from_content(kind: JobKind, content: Mapping[str, Any]) -> JobRequest:
    """What `to_content` was given."""
    try:
        return restored(_KINDS[kind], dict(content))
    except (ValueError, KeyError) as error:
        raise InferlabError(f"What this job asks for cannot be read: {error}. Ask for it again.") from error


@dataclass(frozen=True, slots=True)
class BenchmarkForm:
    """A benchmark, or with `compare_engine` an interleaved comparison: of two engines, two versions, or both."""

    engine: str = "onnxruntime"
    #: None stands for all cores, and for the model's own batch size.
    num_cores: tuple[int | None, ...] = (None,)
    batch_sizes: tuple[int | None, ...] = (None,)
    scenario: Scenario = "sync"
    num_streams: int | None = None
    #: Requests a second; the scenario server needs it.
    rate: float | None = None
    sequence_length: int | None = None
    #: As `--input_shapes` takes them; None stands for the project's, an empty text for guessed ones.
    input_shapes: str | None = None
    #: For each cell, or for each comparison.
    time_s: float = 10.0
    #: The engine to compare with, interleaved; it may be the same one on another version.
    compare_engine: str | None = None
    #: Or the id of a benchmark that was measured before, whose cores and batch sizes are then measured.
    against: str | None = None
    #: The ids of versions of the project's model, of both sides; None for the model as it is.
    version: str | None = None
    compare_version: str | None = None


@dataclass(frozen=True, slots=True)
class ProfileForm:
    """Profiles of a model; what is switched off is approximated from the architecture."""

    performance: bool = True
    loss: bool = True
    performance_name: str = NAME
    loss_name: str = NAME
    engine: str = "onnxruntime"
    batch_size: int | None = None
    num_cores: int | None = None
    sequence_length: int | None = None
    #: Measure times with zeroed weights on engines that cannot impose sparsity.
    levels: bool = False
    int8: bool = False
    roofline: bool = True
    #: A file with inputs, and labels if there are any.
    data: str | None = None
    time_s: float = 10.0
    #: The id of a version of the project's model; None for the model as it is.
    version: str | None = None
    #: As `--input_shapes` takes them; None stands for the project's, an empty text for guessed ones.
    input_shapes: str | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: its model, and what that is called where versions are told apart."""

    model: Model
    version: str = ""


def benchmark_request(form: BenchmarkForm, side: Side, rival: Side | None = None) -> JobRequest:
    """The job that a form asks for; refuses what cannot be measured.

    `side` is what is measured, `rival` what it is compared with, by default the same.
    """
    model = side.model
    if not form.num_cores or not form.batch_sizes:
        raise BadInput("Choose at least one core count and one batch size.")
    if form.compare_version and not form.compare_engine:
        raise BadInput("Name the engine to compare with, too: compare_engine; it may be the same.")
    if form.compare_engine and form.against:
        raise BadInput("Compare with an engine or with a benchmark that was measured before, not with both.")
    plan = Plan(
        model=model.source,
        engines=(form.engine,),
        scenarios=(form.scenario,),
        num_cores=tuple(dict.fromkeys(form.num_cores)),
        num_streams=(form.num_streams,),
        rates=(form.rate,),
        batch_sizes=tuple(dict.fromkeys(form.batch_sizes)),
        sequence_lengths=(form.sequence_length,),
        input_shapes=checked_shapes(form.input_shapes, model, form.batch_sizes, form.sequence_length),
        time_s=form.time_s,
    )
    cells = len(plan.num_cores) * len(plan.batch_sizes)
    if cells > _MOST_CELLS:
        raise BadInput(f"These are {cells} combinations; a page begins {_MOST_CELLS} at most. Choose fewer.")
    validate_plan(plan)
    if form.compare_engine is None:
        return BenchmarkRequest(plan, form.against)
    if form.scenario == "server":
        raise BadInput("Engines are compared at full load, not at a rate of requests. Choose another scenario.")
    against = rival or side
    if form.compare_engine == form.engine and against.model.digest == model.digest:
        what = title(form.engine) if against == side else f"the same model on {title(form.engine)}"
        raise BadInput(f"Both sides of the comparison are {what}. Choose another engine or version for one.")
    other = replace(plan, model=against.model.source, engines=(form.compare_engine,))
    validate_plan(other)
    split(plan, other)
    # Speed-ups on the card are of the engine that was chosen first over the one that it is compared with.
    return ComparisonRequest(other, plan, _labels((other, against), (plan, side)), form.time_s)


def _labels(a: tuple[Plan, Side], b: tuple[Plan, Side]) -> tuple[str, str]:
    """What tells the arms apart; versions by their names, for their files are called by nobody."""
    if a[1].model.digest == b[1].model.digest:
        return arm_labels(a[0], b[0])
    if a[0].engines == b[0].engines:
        return a[1].version, b[1].version
    named = [f"{title(plan.engines[0])}, {side.version}" for plan, side in (a, b)]
    return named[0], named[1]


def profile_request(form: ProfileForm, model: Model) -> ProfileRequest:
    """The job that a form asks for; refuses what cannot be profiled."""
    plan = Plan(
        model=model.source,
        engines=(form.engine,),
        scenarios=("sync",),
        num_cores=(form.num_cores,),
        batch_sizes=(form.batch_size,),
        sequence_lengths=(form.sequence_length,),
        input_shapes=checked_shapes(form.input_shapes, model, (form.batch_size,), form.sequence_length),
        time_s=form.time_s,
    )
    # Without any level an engine that can impose them would measure all, which is what we want of it.
    wanted = ProfileOptions(
        performance=form.performance,
        loss=form.loss,
        performance_name=checked_name(form.performance_name, "performance profile") if form.performance else NAME,
        loss_name=checked_name(form.loss_name, "loss profile") if form.loss else NAME,
        levels=LEVELS if form.levels and form.performance else None,
        int8=form.int8 and form.performance,
        roofline=form.roofline and form.performance,
        data_file=form.data if form.loss or (form.int8 and form.performance) else None,
        time_s=form.time_s,
    )
    validate_profile(wanted)
    validate_plan(plan)
    return ProfileRequest(plan, wanted)


def form_of(request: ProfileRequest) -> ProfileForm:
    """The form that asked for a job."""
    plan, wanted = request.plan, request.wanted
    return ProfileForm(
        performance=wanted.performance,
        loss=wanted.loss,
        performance_name=wanted.performance_name,
        loss_name=wanted.loss_name,
        engine=plan.engines[0],
        batch_size=plan.batch_sizes[0],
        num_cores=plan.num_cores[0],
        sequence_length=plan.sequence_lengths[0],
        input_shapes=plan.input_shapes,
        levels=bool(wanted.levels),
        int8=wanted.int8,
        roofline=wanted.roofline,
        data=wanted.data_file,
        time_s=wanted.time_s,
    )


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
        found = resolve(model.inputs, None, None, {}).shapes
    except BadInput:
        return ""
    return ",".join(f"{name}={list(shape)}".replace(" ", "") for name, shape in found.items())


def checked_shapes(
    text: str | None, model: Model, batch_sizes: Sequence[int | None] = (None,), sequence_length: int | None = None
) -> str | None:
    """Input shapes that fit a model at these batch sizes, as a plan has them; None for guessed ones."""
    if not (text or "").strip():
        return None
    shapes = " ".join(str(text).split())
    given = parse_shapes(shapes, model.inputs)
    for batch_size in batch_sizes:
        resolve(model.inputs, batch_size, sequence_length, given)
    return shapes


def checked_name(name: str, of_what: str) -> str:
    """A name without space around it; refused where it is empty or endless."""
    text = " ".join(name.split())
    if not text:
        raise BadInput(f"The {of_what} needs a name.")
    if len(text) > _LONGEST_NAME:
        raise BadInput(f"The name of the {of_what} has {len(text)} characters; {_LONGEST_NAME} is the most.")
    return text
