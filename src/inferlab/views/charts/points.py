"""What charts are drawn of: one point a cell, taken from the rows of a result, and how points make lines."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure import headline
from inferlab.units import shortened
from inferlab.views.fields import CELL, by_key

#: What a scaling chart can have along its x axis, the first of equals preferred.
AXES = ("batch_size", "sequence_length", "num_cores")
#: What a chart can have along its y axis.
MEASURES = ("median_ms", "items_per_sec", "p99_ms", "cost_per_million")

#: All that can tell two points apart, in the order in which a label says it.
_SPLITS = (
    *("model", "digest", "machine_type", "machine_number", "engine", "version", "scenario", "rate"),
    *("instances", "num_cores", "num_streams", "batch_size", "sequence_length"),
    *("thread_pinning", "engine_options", "cpu", "origin"),
)
#: What follows from other things unless the points show otherwise, and then needs no line of its own.
_FOLLOWS = {
    "digest": ("model",),
    "version": ("engine",),
    "num_streams": ("scenario", "num_cores", "instances"),
    "cpu": ("machine_type",),
}
#: What is not known of a cell that failed.
_MAY_BE_UNKNOWN = ("version", "cpu")
_CELL = by_key(CELL)
_LONGEST_NAME = 40
#: Engines may be paths, and options many.
_LONGEST_WORD = 28


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of a result, as far as charts need it; the ends of an interval are None where there is none."""

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

    def ends(self, measure: str) -> tuple[float, float] | None:
        """Its interval."""
        low, high = getattr(self, f"{measure}_low", None), getattr(self, f"{measure}_high", None)
        return None if low is None or high is None else (low, high)

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
        return headline.ms_per_item(self.scenario, self.batch_size, self.value(time), self.value(rate))

    @property
    def wrong(self) -> bool:
        """Whether it computed something else than it should."""
        return self.output_check == "mismatch"


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


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one line, from left to right, and what tells it from the others."""

    label: str
    points: tuple[Point, ...]


def series(points: Sequence[Point], axis: str) -> tuple[Series, ...]:
    """A line for each model × engine × whatever else varies along this axis."""
    splits = telling(points, axis)
    names = short_names([point.model for point in points])
    lines: dict[tuple[Hashable, ...], list[Point]] = {}
    for point in points:
        lines.setdefault(tuple(getattr(point, name) for name in splits), []).append(point)
    return tuple(
        Series(_label(of[0], splits, names), tuple(sorted(of, key=lambda point: getattr(point, axis))))
        for of in lines.values()
    )


def labels(points: Sequence[Point]) -> list[str]:
    """What tells each point from the others; its engine where nothing does."""
    names = short_names([point.model for point in points])
    splits = telling(points) or ["engine"]
    texts: list[str] = []
    for point in points:
        label = _label(point, splits, names)
        again = sum(other == label or other.startswith(f"{label} #") for other in texts)
        texts.append(f"{label} #{again + 1}" if again else label)
    return texts


def common(points: Sequence[Point], axis: str | None = None) -> list[str]:
    """What is the same in all points, in words."""
    names = short_names([point.model for point in points])
    shared_names = [name for name in _SPLITS if name not in ("digest", "origin", "thread_pinning", axis)]
    same = [name for name in shared_names if len(_values(points, name)) == 1]
    # Any point that knows it will do.
    words = {
        name: next(filter(None, (_worded(name, point, names, quiet=True) for point in points)), "")
        for name in same
    }
    version = words.pop("version", "")
    if version and "engine" in words:
        words["engine"] += f" {version}"
    return [text for text in words.values() if text]


def telling(points: Sequence[Point], axis: str | None = None) -> list[str]:
    """The fields that tell lines along an axis apart."""
    names = [name for name in _SPLITS if name != axis and len(_values(points, name)) > 1]
    for name, causes in _FOLLOWS.items():
        if name in names and not _clash(points, causes, name):
            names.remove(name)
    # Where results come from matters only if nothing else tells them apart.
    rest = [name for name in names if name != "origin"]
    keys = [tuple(getattr(point, name) for name in (*rest, *([axis] if axis else []))) for point in points]
    return rest if len(set(keys)) == len(keys) else names


def _values(points: Sequence[Point], name: str) -> set[Hashable]:
    values = {getattr(point, name) for point in points}
    return values - {""} if name in _MAY_BE_UNKNOWN else values


def _clash(points: Sequence[Point], causes: Sequence[str], name: str) -> bool:
    """Whether the same causes go with different values."""
    named = [point for point in points if name not in _MAY_BE_UNKNOWN or getattr(point, name)]
    pairs = {(tuple(getattr(point, cause) for cause in causes), getattr(point, name)) for point in named}
    return len(pairs) > len({key for key, _ in pairs})


def _label(point: Point, splits: Sequence[str], names: Mapping[str, str]) -> str:
    return ", ".join(text for name in splits if (text := _worded(name, point, names)))


def _worded(name: str, point: Point, names: Mapping[str, str], quiet: bool = False) -> str:
    """One field in words; `quiet` leaves out what goes without saying."""
    value = getattr(point, name)
    if value is None or value == "" or (quiet and name in ("instances", "num_streams") and value == 1):
        return ""
    if name == "model":
        return names[value]
    if name == "origin":
        return PurePath(value).name
    words = _CELL[name].words if name in _CELL else str
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
