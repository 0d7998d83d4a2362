"""What charts of generations are drawn of: one point for each cell, out of a record or a file, and their lines."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from inferlab.errors import BadInput
from inferlab.records.generation import GenerationSweep
from inferlab.records.generation_results import GenerationCapacity
from inferlab.units import plural, shortened
from inferlab.views.charts.points import short_names
from inferlab.views.fields import useful
from inferlab.views.generation import CURVE_FIELDS, content

#: What can lie along the x axis, the first of equals preferred.
AXES = ("depth", "prompt_tokens", "batch_size", "num_cores", "rate")
#: What can lie along the y axis.
MEASURES = tuple(field.key for field in CURVE_FIELDS)
_WORDS: Mapping[str, Any] = {
    "num_cores": partial(plural, noun="core"),
    "batch_size": lambda value: f"batch {value}",
    "prompt_tokens": lambda value: f"prompt {value}",
    "new_tokens": lambda value: f"{value} new",
    "depth": lambda value: f"depth {value}",
    "rate": lambda value: f"{value:g} requests/s",
}
# All that can tell two points apart, in the order in which a label says it.
_SPLITS = (
    *("model", "engine", "version", "engine_options", "scenario", "num_cores"),
    *("batch_size", "rate", "prompt_tokens", "new_tokens", "depth"),
)
_LONGEST_WORD = 28


@dataclass(frozen=True, slots=True)
class GenerationPoint:
    """One cell of a generation, as far as charts need it."""

    model: str
    engine: str
    version: str
    num_cores: int
    batch_size: int
    prompt_tokens: int
    new_tokens: int
    depth: int
    #: Requests per second, where they arrive at a rate.
    rate: float | None
    scenario: str
    engine_options: str
    status: str
    failure: str
    #: The tokens are not the reference's.
    wrong: bool
    #: Each measure with both ends of its interval; None where it is not known.
    numbers: Mapping[str, tuple[float, tuple[float, float] | None] | None]
    #: The file or entry that it comes from.
    origin: str = ""

    def value(self, measure: str) -> float | None:
        """The number that is drawn."""
        number = self.numbers.get(measure)
        return None if number is None else number[0]

    def ends(self, measure: str) -> tuple[float, float] | None:
        """Its interval, where it says something."""
        number = self.numbers.get(measure)
        return number[1] if number is not None and useful(number[1]) else None


def points_of(sweep: GenerationSweep) -> list[GenerationPoint]:
    """The points of a record."""
    return points_of_file(content(sweep), sweep.id)


def points_of_capacity(capacity: GenerationCapacity) -> list[GenerationPoint]:
    """The curve of a capacity: the median and the 90th percentile of the time to the first token at each rate."""
    cell = capacity.cell
    return [
        GenerationPoint(
            model=capacity.model.source,
            engine=f"{cell.engine}, p{percent:g}",
            version="",
            num_cores=cell.num_cores,
            batch_size=cell.batch_size,
            prompt_tokens=cell.prompt_tokens,
            new_tokens=cell.new_tokens,
            depth=cell.depth,
            rate=point.rate,
            scenario="server",
            engine_options=", ".join(f"{name}={value}" for name, value in cell.engine_options),
            status="done",
            failure="",
            wrong=capacity.agreement.status == "mismatch",
            numbers={"ttft_ms": (value, None)},
            origin=capacity.id,
        )
        for percent in (50.0, 90.0)
        for point in capacity.curve
        if (value := point.ttft_percentiles_ms.get(percent)) is not None
    ]


def points_of_file(values: Mapping[str, Any], origin: str = "") -> list[GenerationPoint]:
    """The points of what a JSON file of a generation holds."""
    try:
        model = str(values["model"]["source"])
        return [_point(result, model, origin) for result in values["results"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"{origin or 'This file'} is damaged: its results cannot be read ({error}).") from None


def _point(result: Mapping[str, Any], model: str, origin: str) -> GenerationPoint:
    cell, agreement, failure = (result.get(name) or {} for name in ("cell", "agreement", "failure"))
    options = cell.get("engine_options") or ()
    return GenerationPoint(
        model=model,
        engine=str(result["engine"]),
        version=str(result.get("version") or ""),
        **{name: int(result[name]) for name in AXES if name != "rate"},
        new_tokens=int(result["new_tokens"]),
        rate=None if (rate := result.get("rate", cell.get("rate"))) is None else _number(rate),
        scenario=str(result.get("scenario") or ""),
        engine_options=", ".join(f"{name}={value}" for name, value in options),
        status=str(result["status"]),
        failure=failure.message if hasattr(failure, "message") else str(failure.get("message", "")),
        wrong=agreement.get("status") == "mismatch",
        numbers={name: _measured(result, name) for name in MEASURES},
        origin=origin,
    )


def _measured(result: Mapping[str, Any], name: str) -> tuple[float, tuple[float, float] | None] | None:
    value, ends = result.get(name), result.get(f"{name}_interval")
    if value is None:
        return None
    if ends is None:
        return _number(value), None
    low, high = map(_number, ends)
    return _number(value), (low, high)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)


@dataclass(frozen=True, slots=True)
class Line:
    """The points of one line, from left to right, and what tells it from the others."""

    label: str
    points: tuple[GenerationPoint, ...]

    @property
    def wrong(self) -> bool:
        """Whether a point of it is."""
        return any(point.wrong for point in self.points)

    @property
    def name(self) -> str:
        """Its label, with what must not be missed."""
        return f"{self.label} (tokens WRONG)" if self.wrong else self.label


def lines(points: Sequence[GenerationPoint], axis: str) -> list[Line]:
    """A line for each engine and whatever else varies along this axis."""
    splits = _telling(points, axis)
    names = short_names([point.model for point in points])
    groups: dict[tuple[Hashable, ...], list[GenerationPoint]] = {}
    for point in points:
        groups.setdefault(tuple(getattr(point, name) for name in splits), []).append(point)
    return [
        Line(_label(group[0], splits or ["engine"], names), tuple(sorted(group, key=_along(axis))))
        for group in groups.values()
    ]


def _along(axis: str) -> Any:
    return lambda point: getattr(point, axis) or 0


def labels(points: Sequence[GenerationPoint]) -> list[str]:
    """What tells each point from the others; its engine where nothing does."""
    splits = _telling(points) or ["engine"]
    names = short_names([point.model for point in points])
    return [_label(point, splits, names) for point in points]


def common(points: Sequence[GenerationPoint], axis: str | None = None) -> list[str]:
    """What is the same in all points, in words."""
    names = short_names([point.model for point in points])
    same = [name for name in _SPLITS if name != axis and len(_values(points, name)) == 1]
    words = {name: next(filter(None, (_worded(name, point, names) for point in points)), "") for name in same}
    version = words.pop("version", "")
    if version and "engine" in words:
        words["engine"] += f" {version}"
    return [text for text in words.values() if text]


def varying(points: Sequence[GenerationPoint]) -> dict[str, list[Any]]:
    """The axes along which there are several values, each with them in order."""
    values_of = {axis: sorted({getattr(point, axis) for point in points} - {None}) for axis in AXES}
    return {axis: values for axis, values in values_of.items() if len(values) > 1}


def renamed(points: Iterable[GenerationPoint], title: Any) -> list[GenerationPoint]:
    """The same points with engines as people call them."""
    return [replace(point, engine=title(point.engine)) for point in points]


def _telling(points: Sequence[GenerationPoint], axis: str | None = None) -> list[str]:
    """The fields that tell lines along an axis apart."""
    names = [name for name in _SPLITS if name != axis and len(_values(points, name)) > 1]
    if "version" in names and not _several_versions(points):
        names.remove("version")
    return names


def _values(points: Sequence[GenerationPoint], name: str) -> set[Hashable]:
    values = {getattr(point, name) for point in points}
    # Not known of a cell that failed.
    return values - {""} if name == "version" else values


def _several_versions(points: Sequence[GenerationPoint]) -> bool:
    """Whether one engine has more than one; else they follow from the engines."""
    pairs = {(point.engine, point.version) for point in points if point.version}
    return len(pairs) > len({engine for engine, _ in pairs})


def _label(point: GenerationPoint, splits: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(text for name in splits if (text := _worded(name, point, names)))


def _worded(name: str, point: GenerationPoint, names: Mapping[str, str]) -> str:
    value = getattr(point, name)
    if value is None or value == "":
        return ""
    if name == "model":
        return names[value]
    return shortened(_WORDS.get(name, str)(value), _LONGEST_WORD)
