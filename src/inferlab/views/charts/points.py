"""What charts are drawn of: one point a cell, out of a record or a file, and how points make lines."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from inferlab.errors import BadInput
from inferlab.measure import stats
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.generation import GenerationSweep
from inferlab.units import count, plural, shortened
from inferlab.views.fields import (
    BATCH_SIZE,
    CELL,
    DEPTH,
    MEDIAN,
    MS_PER_ITEM,
    NEW_TOKENS,
    NUM_CORES,
    P99,
    PROMPT_TOKENS,
    RATE,
    SEQUENCE_LENGTH,
    THROUGHPUT,
    Field,
    by_key,
    cost,
    in_brackets,
    rounded,
    useful,
)
from inferlab.views.generation import CURVE_FIELDS, content

#: What a scaling chart can have along its x axis, the first of equals preferred.
AXES = ("batch_size", "sequence_length", "num_cores")
#: What a chart can have along its y axis.
MEASURES = ("median_ms", "items_per_sec", "p99_ms", "cost_per_million")
#: The same of models that generate tokens.
GENERATION_AXES = ("depth", "prompt_tokens", "batch_size", "num_cores", "rate")
GENERATION_MEASURES = tuple(field.key for field in CURVE_FIELDS)

#: What is not known of a cell that failed.
_MAY_BE_UNKNOWN = ("version", "cpu")
#: What goes without saying of all points together.
_UNSAID = ("digest", "origin", "thread_pinning")
_WORDS = by_key((*CELL, PROMPT_TOKENS, NEW_TOKENS, DEPTH))
_LONGEST_NAME = 40
#: Engines may be paths, and options many.
_LONGEST_WORD = 28

Ends = tuple[float, float]


class CellPoint:
    """One cell, as far as charts need it."""

    __slots__ = ()
    #: All that can tell two points apart, in the order in which a label says it.
    splits: ClassVar[tuple[str, ...]]
    #: What follows from other things unless the points show otherwise, and then needs no line of its own.
    follows: ClassVar[Mapping[str, tuple[str, ...]]]
    axes: ClassVar[Mapping[str, Field]]
    measures: ClassVar[Mapping[str, Field]]
    #: The measures of which more is better.
    rates: ClassVar[tuple[str, ...]]
    #: What is compared with a reference.
    checked: ClassVar[str]
    model: str
    engine: str
    version: str
    status: str
    failure: str

    if TYPE_CHECKING:  # a field of dataclasses would take it for a default

        @property
        def wrong(self) -> bool:
            """Whether it computed something else than it should."""

    def value(self, measure: str) -> float | None:
        """The number that is drawn."""
        raise NotImplementedError

    def ends(self, measure: str) -> Ends | None:
        """Its interval."""
        raise NotImplementedError

    def about(self, measure: str) -> list[str]:
        """What is said of it and its numbers, beside what tells it from the others."""
        raise NotImplementedError

    def number_text(self, measure: str) -> str:
        """A measure with its unit and interval; empty where it is not known."""
        value, ends = self.value(measure), self.ends(measure)
        if value is None:
            return ""
        return f"{rounded(value, ends, count)} {self.measures[measure].unit}{in_brackets(ends, count)}"


P = TypeVar("P", bound=CellPoint)


@dataclass(frozen=True, slots=True)
class Point(CellPoint):
    """One cell of a result; the ends of an interval are None where there is none."""

    splits: ClassVar = (
        *("model", "digest", "machine_type", "machine_number", "engine", "version", "scenario", "rate"),
        *("instances", "num_cores", "num_streams", "batch_size", "sequence_length"),
        *("thread_pinning", "engine_options", "cpu", "origin"),
    )
    follows: ClassVar = {
        "digest": ("model",),
        "version": ("engine",),
        "num_streams": ("scenario", "num_cores", "instances"),
        "cpu": ("machine_type",),
    }
    axes: ClassVar = by_key((BATCH_SIZE, SEQUENCE_LENGTH, NUM_CORES))
    measures: ClassVar = by_key((MEDIAN, THROUGHPUT, P99, cost(lambda point: None), MS_PER_ITEM))
    rates: ClassVar = ("items_per_sec",)
    checked: ClassVar = "outputs"

    model: str
    engine: str
    scenario: str
    num_cores: int | None
    num_streams: int | None
    batch_size: int | None
    sequence_length: int | None
    median_ms: float | None
    median_ms_low: float | None
    median_ms_high: float | None
    items_per_sec: float | None
    items_per_sec_low: float | None
    items_per_sec_high: float | None
    version: str = ""
    instances: int | None = 1
    rate: float | None = None
    processes: int | None = None
    status: str = "done"
    failure: str = ""
    #: "match", "mismatch" or "unchecked".
    output_check: str = ""
    thread_pinning: str = ""
    engine_options: str = ""
    cpu: str = ""
    digest: str = ""
    #: Where it was measured on a cluster, and what it costs there.
    machine_type: str = ""
    machine_number: int | None = None
    p99_ms: float | None = None
    cost_per_million: float | None = None
    cost_per_million_low: float | None = None
    cost_per_million_high: float | None = None
    #: The file or entry that it comes from.
    origin: str = ""

    def value(self, measure: str) -> float | None:
        """The number that is drawn."""
        number: float | None = getattr(self, measure)
        return number

    def ends(self, measure: str) -> Ends | None:
        """Its interval."""
        low, high = getattr(self, f"{measure}_low", None), getattr(self, f"{measure}_high", None)
        return None if low is None or high is None else (low, high)

    def about(self, measure: str) -> list[str]:
        """Its numbers."""
        measures = [*([measure] if measure == "ms_per_item" else []), "median_ms", "items_per_sec"]
        return [text for name in measures if (text := self.number_text(name))]

    @property
    def ms_per_item(self) -> float | None:
        """The time per item: of the median batch, or at full throughput where the scenario is about that."""
        return self._per_item("median_ms", "items_per_sec")

    @property
    def ms_per_item_low(self) -> float | None:
        """The low end of its interval."""
        return self._per_item("median_ms_low", "items_per_sec_high")

    @property
    def ms_per_item_high(self) -> float | None:
        """The high end of its interval."""
        return self._per_item("median_ms_high", "items_per_sec_low")

    def _per_item(self, time: str, rate: str) -> float | None:
        return stats.ms_per_item(self.scenario, self.batch_size, self.value(time), self.value(rate))

    @property
    def wrong(self) -> bool:
        """Whether its outputs are."""
        return self.output_check == "mismatch"


@dataclass(frozen=True, slots=True)
class GenerationPoint(CellPoint):
    """One cell of a generation."""

    splits: ClassVar = (
        *("model", "engine", "version", "engine_options", "scenario", "num_cores"),
        *("batch_size", "rate", "prompt_tokens", "new_tokens", "depth"),
    )
    follows: ClassVar = {"version": ("engine",)}
    axes: ClassVar = by_key((DEPTH, PROMPT_TOKENS, BATCH_SIZE, NUM_CORES, RATE))
    measures: ClassVar = by_key(CURVE_FIELDS)
    rates: ClassVar = ("prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s")
    checked: ClassVar = "tokens"

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
    numbers: Mapping[str, tuple[float, Ends | None] | None]
    #: The file or entry that it comes from.
    origin: str = ""

    def value(self, measure: str) -> float | None:
        """The number that is drawn."""
        number = self.numbers.get(measure)
        return None if number is None else number[0]

    def ends(self, measure: str) -> Ends | None:
        """Its interval, where it says something."""
        number = self.numbers.get(measure)
        return number[1] if number is not None and useful(number[1]) else None

    def about(self, measure: str) -> list[str]:
        """Its numbers."""
        texts = [
            f"prompt {self.prompt_tokens}, {self.new_tokens} new, depth {self.depth}, batch {self.batch_size}, "
            f"{plural(self.num_cores, 'core')}"
        ]
        names = ("ttft_ms", "tpot_ms", "decode_tokens_per_s")
        return texts + [
            f"{self.measures[name].title}: {text}" for name in names if (text := self.number_text(name))
        ]


def from_row(row: Mapping[str, Any], origin: str = "") -> Point:
    """The point of a row; a table that was read from a file has text for numbers."""
    values: dict[str, Any] = {"origin": origin}
    for field in fields(Point):
        if field.name != "origin" and field.name in row:
            values[field.name] = _read(field.name, str(field.type), row[field.name])
    missing = [name for name in ("model", "engine", "median_ms", "items_per_sec") if name not in values]
    if missing:
        raise BadInput(f"{origin or 'This table'} is not a result of inferlab: it has no column {missing[0]}.")
    blank = {field.name: None for field in fields(Point) if "None" in str(field.type)}
    return Point(**{"scenario": "", **blank, **values})


def _read(name: str, kind: str, value: Any) -> Any:
    if kind == "str":
        return "" if value is None else str(value)
    if value is None or value == "":
        return None
    try:
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return int(number) if kind.startswith("int") else number
    except (TypeError, ValueError):
        raise BadInput(f"The column {name} of this result holds {value!r}, which is not a number.") from None


def chosen_axis(points: Sequence[Point]) -> str | None:
    """The axis with the most values; None where none of them varies."""
    counts = {
        axis: len({value for point in points if (value := getattr(point, axis)) is not None}) for axis in AXES
    }
    best = max(AXES, key=lambda axis: counts[axis])
    return best if counts[best] > 1 else None


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
        **{name: int(result[name]) for name in GENERATION_AXES if name != "rate"},
        new_tokens=int(result["new_tokens"]),
        rate=None if (rate := result.get("rate", cell.get("rate"))) is None else _number(rate),
        scenario=str(result.get("scenario") or ""),
        engine_options=", ".join(f"{name}={value}" for name, value in options),
        status=str(result["status"]),
        failure=str(failure.get("message", "")),
        wrong=agreement.get("status") == "mismatch",
        numbers={name: _measured(result, name) for name in GENERATION_MEASURES},
        origin=origin,
    )


def _measured(result: Mapping[str, Any], name: str) -> tuple[float, Ends | None] | None:
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


def varying(points: Sequence[GenerationPoint]) -> dict[str, list[Any]]:
    """The axes along which there are several values, each with them in order."""
    values_of = {axis: sorted({getattr(point, axis) for point in points} - {None}) for axis in GENERATION_AXES}
    return {axis: values for axis, values in values_of.items() if len(values) > 1}


def renamed(points: Iterable[GenerationPoint], title: Any) -> list[GenerationPoint]:
    """The same points with engines as people call them."""
    return [replace(point, engine=title(point.engine)) for point in points]


@dataclass(frozen=True, slots=True)
class Series(Generic[P]):
    """The points of one line, from left to right, and what tells it from the others."""

    label: str
    points: tuple[P, ...]

    @property
    def wrong(self) -> bool:
        """Whether a point of it is."""
        return any(point.wrong for point in self.points)

    @property
    def name(self) -> str:
        """Its label, with what must not be missed."""
        return f"{self.label} ({self.points[0].checked} WRONG)" if self.wrong else self.label


def series(points: Sequence[P], axis: str, otherwise: Sequence[str] = ()) -> list[Series[P]]:
    """A line for each model, engine and whatever else varies along this axis; of a single one, `otherwise`."""
    splits = telling(points, axis)
    names = short_names([point.model for point in points])
    lines: dict[tuple[Hashable, ...], list[P]] = {}
    for point in points:
        lines.setdefault(tuple(getattr(point, name) for name in splits), []).append(point)
    return [
        Series(
            _label(of[0], splits or otherwise, names),
            tuple(sorted(of, key=lambda point: getattr(point, axis) or 0)),
        )
        for of in lines.values()
    ]


def labels(points: Sequence[P]) -> list[str]:
    """What tells each point from the others; its engine where nothing does."""
    names = short_names([point.model for point in points])
    splits = telling(points) or ["engine"]
    texts: list[str] = []
    for point in points:
        label = _label(point, splits, names)
        again = sum(other == label or other.startswith(f"{label} #") for other in texts)
        texts.append(f"{label} #{again + 1}" if again else label)
    return texts


def common(points: Sequence[P], axis: str | None = None) -> list[str]:
    """What is the same in all points, in words."""
    names = short_names([point.model for point in points])
    splits = points[0].splits if points else ()
    same = [name for name in splits if name not in (*_UNSAID, axis) and len(_values(points, name)) == 1]
    # Any point that knows it will do.
    words = {
        name: next(filter(None, (_worded(name, point, names, quiet=True) for point in points)), "")
        for name in same
    }
    version = words.pop("version", "")
    if version and "engine" in words:
        words["engine"] += f" {version}"
    return [text for text in words.values() if text]


def telling(points: Sequence[P], axis: str | None = None) -> list[str]:
    """The fields that tell lines along an axis apart."""
    if not points:
        return []
    names = [name for name in points[0].splits if name != axis and len(_values(points, name)) > 1]
    for name, causes in points[0].follows.items():
        if name in names and not _clash(points, causes, name):
            names.remove(name)
    # Where results come from matters only if nothing else tells them apart.
    rest = [name for name in names if name != "origin"]
    keys = [tuple(getattr(point, name) for name in (*rest, *([axis] if axis else []))) for point in points]
    return rest if len(set(keys)) == len(keys) else names


def _values(points: Sequence[P], name: str) -> set[Hashable]:
    values = {getattr(point, name) for point in points}
    return values - {""} if name in _MAY_BE_UNKNOWN else values


def _clash(points: Sequence[P], causes: Sequence[str], name: str) -> bool:
    """Whether the same causes go with different values."""
    named = [point for point in points if name not in _MAY_BE_UNKNOWN or getattr(point, name)]
    pairs = {(tuple(getattr(point, cause) for cause in causes), getattr(point, name)) for point in named}
    return len(pairs) > len({key for key, _ in pairs})


def _label(point: CellPoint, splits: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(text for name in splits if (text := _worded(name, point, names)))


def _worded(name: str, point: CellPoint, names: Mapping[str, str], quiet: bool = False) -> str:
    """One field in words; `quiet` leaves out what goes without saying."""
    value = getattr(point, name)
    if value is None or value == "" or (quiet and name in ("instances", "num_streams") and value == 1):
        return ""
    if name == "model":
        return names[value]
    if name == "origin":
        return PurePath(value).name
    words = _WORDS[name].words if name in _WORDS else str
    return shortened(f"digest {value:.8}" if name == "digest" else words(value), _LONGEST_WORD)


def short_names(names: Collection[str]) -> dict[str, str]:
    """The last parts of each name, as many as tell it from all others."""
    paths = {name: "/" + name.replace("\\", "/").rstrip("/") for name in names}
    shortest = {}
    for name, whole in paths.items():
        parts = whole.split("/")
        endings = ("/".join(parts[-count:]) for count in range(1, len(parts)))
        alone = (
            ending for ending in endings if sum(other.endswith(f"/{ending}") for other in paths.values()) == 1
        )
        shortest[name] = next(alone, name)
    cut = {name: shortened(short, _LONGEST_NAME) for name, short in shortest.items()}
    return {name: cut[name] if list(cut.values()).count(cut[name]) == 1 else shortest[name] for name in paths}
