"""What the HTTP API gives back: models derived from records, with a description of every field.

What is not a number is null.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from inferlab import codec, records
from inferlab.errors import InferlabError
from inferlab.measure.intervals import LEVEL
from inferlab.records.generation import GenerationPlan, GenerativeModel
from inferlab.store.entries import CellEntry, Entry, Project, ProjectLine, QueuedJob
from inferlab.views.text import finding
from inferlab.web.api.descriptions import DESCRIPTIONS
from inferlab.workspace import requests
from inferlab.workspace.entries import name_of
from inferlab.workspace.requests import (
    InstallRequest,
    JobRequest,
    OptimizationRequest,
    has_sequence,
    own_batch_size,
    plans_of,
)
from inferlab.workspace.sources import Sources
from inferlab.workspace.workspace import Workspace

# Records of these are described in the documents of their formats.
_DOCUMENTED = ("inferlab.records.profile", "inferlab.records.optimization")


class Answer(BaseModel):
    """What is given back: the fields of a record under their names, and what `more` derives."""

    model_config = ConfigDict(frozen=True)
    #: What says the whole record in a sentence, where it is given back with one.
    sentence: ClassVar[Callable[[Any], str] | None] = None

    @classmethod
    def of(cls, record: Any, context: Any = None) -> Self:
        """A record as it is given back; `context` is what more is needed to say it."""
        derived = cls.more(record, context) | ({"text": cls.sentence(record)} if cls.sentence else {})
        copied = {
            name: _answered(_attribute(record, name), context) for name in cls.model_fields if name not in derived
        }
        return cls.model_validate({**copied, **derived})

    @classmethod
    def more(cls, record: Any, context: Any) -> dict[str, Any]:
        """The fields that the record does not have, or has otherwise."""
        return {}


_Model = TypeVar("_Model", bound=Answer)
_ANSWERS: dict[type, type[Answer]] = {}


def of_record(
    record: type | None = None,
    *,
    without: Sequence[str] = (),
    only: Sequence[str] = (),
    flat: Sequence[str] = (),
    text: Callable[[Any], str] | None = None,
) -> Callable[[type[_Model]], type[_Model]]:
    """Give an answer all fields of a record that it does not declare itself, and every field its description.

    What is named in `flat` is itself a record, whose fields are given in its place. With `only` it is a part of
    the record, as lists have it. `text` says it in a sentence.
    """

    def derive(answer: type[_Model]) -> type[_Model]:
        taken = _fields(record, without, flat) if record else {}
        left_out = set(answer.model_fields) | (set(taken) - set(only) if only else set())
        taken = {name: kind for name, kind in taken.items() if name not in left_out} | (
            {"text": str} if text else {}
        )
        for name, field in answer.model_fields.items():
            # What is inherited is described already.
            field.description = field.description or _description(answer.__name__, name)
        derived = create_model(  # type: ignore[call-overload]
            answer.__name__,
            __base__=answer,
            __doc__=answer.__doc__,
            __module__=answer.__module__,
            **{
                name: (kind, Field(description=_description(answer.__name__, name)))
                for name, kind in taken.items()
            },
        )
        derived.sentence = text
        if record and not only:
            _ANSWERS.setdefault(record, derived)
        model: type[_Model] = derived
        return model

    return derive


def _description(answer: str, field: str) -> str | None:
    return DESCRIPTIONS.get(f"{answer}.{field}", DESCRIPTIONS.get(field))


def _fields(record: type, without: Sequence[str], flat: Sequence[str]) -> dict[str, Any]:
    """The names of a record's fields, with the types that they have in an answer."""
    hints = get_type_hints(record)
    own = {field.name: hints[field.name] for field in fields(record) if field.name not in (*without, *flat)}
    inner = [(name, kind) for part in flat for name, kind in _fields(hints[part], without, ()).items()]
    return {**dict(inner), **{name: _kind(hint) for name, hint in own.items()}}


def _kind(hint: Any) -> Any:
    """The type of a record's field as an answer has it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return hint if hint.__module__ in _DOCUMENTED else _answer_to(hint)
    if origin in (Union, types.UnionType):
        return reduce(or_, map(_kind, arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return list[_kind(arguments[0])]  # type: ignore[misc]
    if origin is tuple:
        return types.GenericAlias(tuple, tuple(map(_kind, arguments)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[arguments[0], _kind(arguments[1])]  # type: ignore[misc,valid-type]
    if origin is Literal:
        # A newer version may know more words than we do.
        return Annotated[str, WithJsonSchema({"type": "string", "enum": list(arguments)})]
    return hint


def _answer_to(record: type) -> type[Answer]:
    if record not in _ANSWERS:
        of_record(record)(type(record.__name__, (Answer,), {"__doc__": record.__doc__, "__module__": __name__}))
    return _ANSWERS[record]


def _attribute(record: Any, name: str) -> Any:
    """A field of a record, or of a record that is one of its fields."""
    if hasattr(record, name):
        return getattr(record, name)
    return next(
        getattr(inner, name)
        for inner in (getattr(record, field.name) for field in fields(record))
        if is_dataclass(inner) and hasattr(inner, name)
    )


def _answered(value: Any, context: Any) -> Any:
    """A value with records as they are given back."""
    if type(value) in _ANSWERS:
        return _ANSWERS[type(value)].of(value, context)
    return [_answered(item, context) for item in value] if isinstance(value, tuple | list) else value


@of_record()
class Problem(Answer):
    """Why a request was not done."""

    detail: str


@of_record(records.Estimate)
class Estimate(Answer):
    """A number with its interval."""


@of_record(records.Finding, text=finding)
class FindingFacts(Answer):
    """Something to know of a result."""

    @classmethod
    def more(cls, record: records.Finding, context: Any) -> dict[str, Any]:
        """Its numbers as JSON has them."""
        return {"data": {name: codec.plain(value) for name, value in record.data.items()}}


@of_record(records.Model, without=("path",))
class ModelFacts(Answer):
    """What a model is."""

    file_name: str
    own_batch_size: int
    takes_sequence_length: bool

    @classmethod
    def more(cls, record: records.Model, context: Sources) -> dict[str, Any]:
        """Where its file lies is not given away."""
        return {
            "source": context.shown(record.source),
            "file_name": Path(record.path).name,
            "own_batch_size": own_batch_size(record),
            "takes_sequence_length": has_sequence(record),
        }


@of_record()
class GenerativeFacts(Answer):
    """What a model that generates tokens is."""

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    context: int | None
    vocabulary: int
    kv_bytes_per_token: float

    @classmethod
    def more(cls, record: GenerativeModel, context: Any) -> dict[str, Any]:
        """What its cache should take."""
        return {"kv_bytes_per_token": record.kv_bytes_per_token()}


# Where its file lies is not given away.
_ANSWERS[GenerativeModel] = GenerativeFacts


class CellAnswer(Answer):
    """What is fixed of a cell, with lists of pairs as objects."""

    input_shapes: dict[str, list[int]]
    engine_options: dict[str, str]

    @classmethod
    def more(cls, record: Any, context: Any) -> dict[str, Any]:
        """Of the record's cell."""
        cell: records.Cell = record.cell
        return {"input_shapes": dict(cell.shapes), "engine_options": dict(cell.engine_options)}


_CACHED = tuple(f"{name}{end}" for name in ("items_per_sec", "median_ms") for end in ("", "_low", "_high"))


@of_record(CellEntry, without=("shapes", *_CACHED), flat=("cell",))
class CellLine(CellAnswer):
    """One combination of a benchmark, as lists show it."""

    items_per_second: Estimate | None
    ms_per_batch: Estimate | None

    @classmethod
    def more(cls, record: CellEntry, context: Any) -> dict[str, Any]:
        """Numbers come from the cache."""
        return super().more(record, context) | {
            "items_per_second": _cached(record.items_per_sec, record.items_per_sec_low, record.items_per_sec_high),
            "ms_per_batch": _cached(record.median_ms, record.median_ms_low, record.median_ms_high),
        }


def _cached(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    return None if value is None else Estimate.of(records.Estimate(value, low, high, LEVEL, "student"))


@of_record()
class Ratio(Answer):
    """One result of a comparison, as lists show it."""

    ratio: float | None
    interval: list[float] | None
    verdict: str
    paired: bool
    outputs_match: bool | None


@of_record(Entry, without=("model_digest", "brief", "cells", "labels"))
class EntryFacts(Answer):
    """What an entry is called, and where it comes from."""

    name: str
    status: str
    against: str | None
    entry_labels: dict[str, str]

    @classmethod
    def more(cls, record: Entry, context: Sources) -> dict[str, Any]:
        """What it is called, without folders of the server."""
        title, against = context.without_folder(record.title), record.brief.get("against")
        labels = dict(record.labels)
        return {"name": name_of(record), "title": title, "against": against, "entry_labels": labels}


@of_record(Entry, without=("model_digest", "brief", "labels"))
class EntryLine(EntryFacts):
    """A line of the history: a benchmark, a comparison, a capacity, a recommendation, a profile or a version."""

    labels: list[str]
    ratios: list[Ratio]

    @classmethod
    def more(cls, record: Entry, context: Sources) -> dict[str, Any]:
        """What lists show beside its name."""
        brief = record.brief
        compared = {"labels": brief.get("labels") or (), "ratios": brief.get("results") or ()}
        return super().more(record, context) | compared


@of_record()
class OpenedAnswer(Answer):
    """A whole entry, with what lists say of it."""

    entry: EntryFacts

    @classmethod
    def more(cls, record: Any, context: Workspace) -> dict[str, Any]:
        """What it is called, and where it comes from."""
        return {"entry": EntryFacts.of(context.store.entry(record.id), context.sources)}


@of_record(Project)
class ProjectFacts(Answer):
    """A project: a model with a name."""


@of_record(ProjectLine, flat=("project",))
class ProjectSummary(Answer):
    """A project in a list, with what was measured of it."""


@of_record()
class AskedFor(Answer):
    """What a job measures or installs."""

    engines: list[str]
    num_cores: list[int | None]
    batch_sizes: list[int | None]
    scenarios: list[str]
    time_s: float | None

    @classmethod
    def more(cls, record: JobRequest, context: Any) -> dict[str, Any]:
        """All of it: what is asked is one of several records."""
        plans = plans_of(record)
        if isinstance(record, OptimizationRequest):
            engines = list(record.asked.engines)
        elif isinstance(record, InstallRequest):
            engines = [record.engine]
        else:
            engines = [engine for plan in plans for engine in plan.engines]
        lists = {name: getattr(plans[0], name) if plans else () for name in ("num_cores", "batch_sizes")}
        lists["scenarios"] = _scenarios(plans[0]) if plans else ()
        time_s = getattr(record, "time_s", plans[0].time_s if plans else None)
        return {"engines": engines, "time_s": time_s, **lists}


def _scenarios(plan: records.Plan | GenerationPlan) -> Sequence[str]:
    return (plan.scenario,) if isinstance(plan, GenerationPlan) else plan.scenarios


@of_record(QueuedJob, without=("cancel", "content", "log"))
class JobFacts(Answer):
    """Something in the queue, being measured or measured."""

    id: str
    position: int | None
    cancelling: bool
    asked: AskedFor | None

    @classmethod
    def more(cls, record: QueuedJob, context: int | None) -> dict[str, Any]:
        """Its place in the queue, and what it measures."""
        try:
            request = AskedFor.of(requests.request_of(record))
        except InferlabError:
            request = None
        ending = record.cancel and record.status == "running"
        return {"position": context if record.alive else None, "cancelling": ending, "asked": request}


@of_record(QueuedJob, without=("cancel", "content"))
class JobDetails(JobFacts):
    """A job with its log."""
