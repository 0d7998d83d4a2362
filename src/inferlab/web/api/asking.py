"""What requests of the HTTP API may have: declared options, what a request has beside them, and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar, get_origin, get_type_hints

from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field, create_model

from inferlab.options import Flag, Number, Option, Whole, Word, of_command
from inferlab.options.generation import GENERATION, make_generation_plan
from inferlab.options.optimization import PROFILE, make_profile
from inferlab.options.plan import LABELS, PLAN, make_plan
from inferlab.records.generation import GenerationPlan
from inferlab.records.profile import LEVELS
from inferlab.workspace.requests import (
    ONE_BY_ONE,
    BenchmarkRequest,
    GenerationCapacityRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
    GenerationRequest,
    ProfileRequest,
)
from inferlab.workspace.versions import VersionRequest

R = TypeVar("R")
# Larger numbers are slips of the finger, and not all databases take them.
_MOST = 2**31 - 1
_JSON_TYPES: dict[Any, Any] = {tuple: list[str], Mapping: dict[str, float]}
_SHAPES = (
    "The shapes of the inputs, `[1,3,224,224]` for each in order or `name=[1,384],other=[1,384]`; empty for "
    "guessed ones."
)


class Asking(BaseModel):
    """A request: with a field that is not known, or of another type, it is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ModelAsking(Asking):
    """A model to look at."""

    source: str = Field(
        description="`upload:ID`, a path below an allowed folder, an https:// address, `hf:org/name`, `zoo:STUB` "
        "or `demo:NAME`.",
        examples=["demo:mobilenet_v2"],
    )


class ProjectAsking(ModelAsking):
    """A new project."""

    name: str = Field(description="Its name, up to 80 characters.", examples=["MobileNet"])
    description: str = Field("", description="Anything, up to 2,000 characters.")
    input_shapes: str = Field("", description=_SHAPES, examples=["[1,3,48,320]"])


class ProjectChange(Asking):
    """What of a project shall change; what is left out stays."""

    name: str | None = Field(None, description="Its new name.")
    description: str | None = Field(None, description="Its new description.")
    input_shapes: str | None = Field(None, description="Its new input shapes; empty for guessed ones.")


class EntryChange(Asking):
    """What of an entry shall change."""

    name: str = Field(description="Its new name, up to 80 characters.")


class Agreement(Asking):
    """The user's agreement to a licence."""

    agree: Literal[True] = Field(description="True: the licence that GET /engines shows was agreed to.")


def _request_model(
    title: str,
    record: Any,
    options: Iterable[Option] = (),
    lists: Iterable[str] = (),
    without: Iterable[str] = (),
    plan: Any = ONE_BY_ONE,
    **other: Any,
) -> type[Asking]:
    """The body of a request: these options, and all that the record says of itself."""
    of_plan = GENERATION if isinstance(plan, GenerationPlan) else PLAN
    fields: dict[str, Any] = {}
    for option in options:
        several = option.keyword in lists
        # Fields of other records may have the names of a plan's.
        default = getattr(plan, option.field) if option.keyword in of_plan else option.default
        description = option.help + (f" Null: {option.unset}." if option.unset else "")
        if several:
            fields[option.field] = list[_type(option)], Field(list(default), description=description)  # type: ignore[misc]
        elif option.kind.whole:
            fields[option.json_name] = str | None, Field(None, description=description)
        else:
            value = default[0] if option.swept else list(default) if isinstance(default, tuple) else default
            fields[option.json_name] = _type(option), Field(value, description=description)
    hints = get_type_hints(record)
    for field in dataclasses.fields(record):
        if "help" in field.metadata and field.name not in without:
            # Lists and objects of JSON; their defaults, too.
            kind = _JSON_TYPES.get(get_origin(hints[field.name]), hints[field.name])
            value = {} if field.default is dataclasses.MISSING else field.default
            value = list(value) if isinstance(value, tuple) else value
            fields[field.name] = kind, Field(value, description=field.metadata["help"])
    request_model: type[Asking] = create_model(
        title, __base__=Asking, __doc__=record.__doc__, **{**fields, **other}
    )
    return request_model


def _type(option: Option) -> Any:
    """What JSON has of one value."""
    kind = option.kind
    annotation: Any = str
    if isinstance(kind, Word) and kind.choices:
        annotation = Literal[kind.choices]
    elif isinstance(kind, Whole):
        annotation = Annotated[int, Field(ge=int(kind.least or 0), le=_MOST)]
    elif isinstance(kind, Flag | Number):
        annotation = bool if isinstance(kind, Flag) else float
    if option.many and not option.swept:
        return list[annotation]
    return annotation | None if option.default in (None, (None,)) else annotation


def _values(body: Asking, options: Iterable[Option]) -> dict[str, Any]:
    """The values of options by keyword, as records have them."""
    content = body.model_dump()
    values = {}
    for option in options:
        if option.json_name not in content and option.field not in content:
            continue
        value = content.get(option.json_name, content.get(option.field))
        # An empty text means guessed shapes, and no shapes those of the project; empty lists are refused later.
        if option.keyword == "input_shapes":
            values[option.keyword] = value
        else:
            values[option.keyword] = () if value == [] else option.check(value)
    return values


def _body(model: type[Asking], read: Callable[[Any], R]) -> Any:
    """Reads the body of a request, described by a model, as a record."""

    def body(request: Any) -> R:
        return read(request)

    body.__annotations__ = {"request": model}
    return Depends(body)


_BENCHMARK = [option for option in of_command(PLAN, "benchmark").values() if option.remote]
_LISTS = ("num_cores", "batch_size")
_PROFILE = [option for option in of_command(PROFILE, "profile").values() if option.remote]
_VERSION = [
    option for option in of_command(PLAN, "optimize").values() if option.remote and option.keyword != "engine"
]


def _own(body: Asking, record: Any) -> dict[str, Any]:
    """What a request says beside its plan."""
    return body.model_dump(
        include={field.name for field in dataclasses.fields(record) if "help" in field.metadata}
    )


def _benchmark(body: Any) -> BenchmarkRequest:
    labels = LABELS["label"].check(body.labels)
    plan = make_plan("", _values(body, _BENCHMARK))
    return BenchmarkRequest(plan=plan, **_own(body, BenchmarkRequest), entry_labels=labels)


def _profile(body: Any) -> ProfileRequest:
    values = {
        **_values(body, [option for option in _PROFILE if option.keyword != "levels"]),
        "scenario": ("sync",),
    }
    options = make_profile({**values, "levels": LEVELS if body.levels else None})
    return ProfileRequest(make_plan("", values), options, body.version)


def _version(body: Asking) -> VersionRequest:
    """A version that is to be made, or only estimated."""
    own = _own(body, VersionRequest)
    plan = make_plan("", {**_values(body, _VERSION), "scenario": ("sync",)})
    return VersionRequest(**{**own, "engines": tuple(own.get("engines", ()))}, plan=plan)


def _generation(title: str, record: Any, without: Iterable[str] = (), plan: GenerationPlan | None = None) -> Any:
    """Reads the body of a request for a model that generates, whose plan has no such options."""
    options = [
        option
        for option in of_command(GENERATION, "generate").values()
        if option.remote and option.field in GenerationPlan.__dataclass_fields__ and option.keyword not in without
    ]
    lists = [option.keyword for option in options if option.swept]

    def read(body: Asking) -> Any:
        plan, own = make_generation_plan("", _values(body, options)), _own(body, record)
        if record is GenerationComparisonRequest:
            a, b = (replace(plan, engines=engines) for engines in (plan.engines[:1], plan.engines[1:]))
            return GenerationComparisonRequest(a, b, **own)
        return record(plan, **own)

    return _body(_request_model(title, record, options, lists, plan=plan or GenerationPlan("")), read)


_LEVELS = "Measure copies with zeroed weights on engines that impose none."
_ROOFLINE = "Measure the ceilings of the machine, and what limits each layer."
_NAME = {"name": (str, Field(description="Its name, up to 80 characters.", examples=["Pruned 80 %"]))}

_TOLD = LABELS["label"].help.replace(" May be repeated.", "")
_MARKED: dict[str, Any] = {"labels": (dict[str, str], Field({}, description=_TOLD, examples=[{"branch": "main"}]))}
BenchmarkBody = Annotated[
    BenchmarkRequest,
    _body(_request_model("BenchmarkAsking", BenchmarkRequest, _BENCHMARK, _LISTS, **_MARKED), _benchmark),
]
GenerationBody = Annotated[GenerationRequest, _generation("GenerationAsking", GenerationRequest)]
# No rates: these generate one batch after the other, or search the rate.
GenerationComparisonBody = Annotated[
    GenerationComparisonRequest,
    _generation(
        "GenerationComparisonAsking",
        GenerationComparisonRequest,
        ("scenario", "rate", "slo", "time", "processes"),
    ),
]
GenerationCapacityBody = Annotated[
    GenerationCapacityRequest,
    _generation(
        "GenerationCapacityAsking",
        GenerationCapacityRequest,
        ("scenario", "rate"),
        GenerationPlan("", time_s=60.0),
    ),
]
GenerationRecommendationBody = Annotated[
    GenerationRecommendationRequest,
    _generation(
        "GenerationRecommendationAsking",
        GenerationRecommendationRequest,
        ("scenario", "rate", "time", "processes"),
    ),
]
ProfileBody = Annotated[
    ProfileRequest,
    _body(
        _request_model(
            "ProfileAsking",
            ProfileRequest,
            _PROFILE,
            levels=(bool, Field(False, description=_LEVELS)),
            roofline=(bool, Field(True, description=_ROOFLINE)),
        ),
        _profile,
    ),
]
VersionBody = Annotated[
    VersionRequest, _body(_request_model("VersionAsking", VersionRequest, _VERSION, **_NAME), _version)
]
EstimateBody = Annotated[
    VersionRequest,
    _body(_request_model("LevelsAsking", VersionRequest, without=("name", "engines", "data")), _version),
]
