"""From whatever holds a result (an object, a file, an id) to its chart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from inferlab.codec import parse_json, read_text
from inferlab.errors import BadInput
from inferlab.records import Benchmark, Comparison, ComparisonSweep, Outcome
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import GenerationComparison
from inferlab.records.generation import FORMAT as GENERATION
from inferlab.records.generation import GenerationOutcome, GenerationSweep
from inferlab.records.optimization import Front
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.results import (
    BenchmarkResult,
    ComparisonResult,
    GenerationCapacityResult,
    GenerationComparisonResult,
    GenerationRecommendationResult,
    GenerationResult,
    RecordResult,
)
from inferlab.store.entries import Document
from inferlab.store.formats import kind_of, record_of
from inferlab.units import plural
from inferlab.views import benchmark_file, comparison
from inferlab.views.charts import fronts, sweeps
from inferlab.views.charts.comparisons import Ratios, of_comparison, of_file, ratios
from inferlab.views.charts.points import (
    GenerationPoint,
    Point,
    from_row,
    points_of,
    points_of_capacity,
    points_of_file,
)
from inferlab.views.results import is_file

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from inferlab.store.store import Store

T = TypeVar("T")
_FAMILY = comparison.COMPARISON.partition("/")[0]
_GENERATIONS = GENERATION.partition("/")[0]
_RATIO = "A comparison has one chart, the ratio of every pair"


def plot(
    *results: BenchmarkResult
    | ComparisonResult
    | GenerationResult
    | GenerationComparisonResult
    | GenerationCapacityResult
    | GenerationRecommendationResult
    | Benchmark
    | Comparison
    | Front
    | GenerationSweep
    | str
    | os.PathLike[str],
    x: str | None = None,
    y: str | None = None,
    store: Store | str | os.PathLike[str] | None = None,
) -> Figure:
    """One Plotly figure of all these results: objects, files that inferlab wrote, or ids in the store."""
    if not results:
        raise BadInput(
            "Nothing was named to plot. Give a result, a file that inferlab wrote, or an id in the store."
        )
    held = [_held(result, store) for result in results]
    compared = [one.ratios for one in held if one.ratios is not None]
    searched = [one.front for one in held if one.front is not None]
    generated = [one for one in held if one.generated is not None]
    if generated:
        if len(generated) < len(held):
            raise BadInput("Generations have charts of their own. Plot them without other results.")
        cells = [point for one in generated for point in one.generated or ()]
        return sweeps.generation_chart(cells, [outcome for one in generated for outcome in one.tokens], x, y)
    if not compared and not searched:
        points = [point for one in held for point in one.points]
        return sweeps.chart(points, [outcome for one in held for outcome in one.outcomes], x, y)
    if len(held) > 1:
        raise BadInput(f"A {'search' if searched else 'comparison'} has a chart of its own. Plot it alone.")
    if x is not None or y is not None:
        what = "A search has one chart, speed against loss" if searched else _RATIO
        raise BadInput(f"{what}: x and y cannot be chosen.")
    return fronts.front(searched[0]) if searched else ratios(compared[0])


@dataclass(frozen=True, slots=True)
class _Held:
    """What one result has to draw."""

    points: Sequence[Point] = ()
    outcomes: Sequence[Outcome] = ()
    ratios: Ratios | None = None
    front: Front | None = None
    #: The cells of a generation, and as far as they are at hand, those with their tokens.
    generated: Sequence[GenerationPoint] | None = None
    tokens: Sequence[GenerationOutcome] = ()


def _held(thing: Any, store: Any) -> _Held:
    record = thing.record if isinstance(thing, RecordResult) else thing
    if not isinstance(record, str | os.PathLike):
        held = _of_record(record, getattr(record, "id", ""))
        if held is None:
            kind = type(record).__name__
            raise BadInput(f"A {kind} cannot be plotted. Give a result, a file that inferlab wrote, or an id.")
        return held
    name = str(os.fspath(record))
    return _file(name) if is_file(name) else _entry(name, store)


def _of_record(record: Any, origin: str, number: str = "") -> _Held | None:
    """What a record has to draw, of several cells the one with this number; None: it has no chart."""
    if isinstance(record, GenerationRecommendation):
        record = record.sweep
    if isinstance(record, Benchmark):
        chosen = replace(record, outcomes=tuple(_numbered(origin, record.outcomes, number)))
        return _Held([from_row(row, origin) for row in benchmark_file.rows(chosen)], chosen.outcomes)
    if isinstance(record, GenerationSweep):
        outcomes = _numbered(origin, record.outcomes, number)
        return _Held(generated=_numbered(origin, points_of(record), number), tokens=outcomes)
    if isinstance(record, GenerationCapacity):
        return _Held(generated=points_of_capacity(record))
    if isinstance(record, Comparison | GenerationComparison):
        return _Held(ratios=of_comparison(record))
    return _Held(front=record) if isinstance(record, Front) else None


def _file(name: str) -> _Held:
    path, _, number = name.partition("#")
    content = _own_content(Path(path)) if path.lower().endswith(".json") else None
    if content is not None and str(content["format"]).startswith(_GENERATIONS):
        return _Held(generated=_numbered(path, points_of_file(content, path), number))
    if content is not None:
        several = content.get("results", [content])
        try:
            cells = [(one.get("a") or {}).get("cell") or {} for one in several]
            places = [(int(cell.get("num_cores", 0)), cell.get("batch_size", "?")) for cell in cells]
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise BadInput(f"{path} is damaged: its comparisons cannot be read.") from None
        return _Held(ratios=of_file(_one_of(path, several, places, number)))
    return _Held([from_row(row, path) for row in _numbered(path, benchmark_file.read(Path(path)), number)])


def _own_content(path: Path) -> dict[str, Any] | None:
    """What a file holds if it is a comparison or a generation."""
    try:
        content = parse_json(read_text(path))
    except (OSError, ValueError):
        return None  # Whoever reads it as a benchmark will say what is wrong with it.
    formats = (f"{_FAMILY}/", f"{_FAMILY}s/", f"{_GENERATIONS}/")
    ours = isinstance(content, dict) and str(content.get("format", "")).startswith(formats)
    return content if ours else None


def _entry(name: str, store: Any) -> _Held:
    from inferlab.store import open_store
    from inferlab.store.store import Store

    entry_id, _, number = name.partition("#")
    if isinstance(store, Store):
        found = store.get(entry_id)
    else:
        with open_store(store, make=False) as opened:
            found = opened.get(entry_id)
    record: Any = record_of(found) if isinstance(found, Document) else found.benchmark
    if isinstance(record, ComparisonSweep):
        places = [comparison.cells[0] if comparison.cells else None for comparison in record.results]
        numbers = [(cell.num_cores, cell.batch_size) if cell else (0, "?") for cell in places]
        record, number = _one_of(entry_id, record.results, numbers, number), ""
    held = _of_record(record, found.id, number)
    if held is None:
        raise BadInput(
            f"{found.id} is a {kind_of(record)}; benchmarks, generations, comparisons and searches have charts."
        )
    return held


def _one_of(name: str, several: Sequence[T], places: Sequence[tuple[Any, Any]], number: str) -> T:
    """The only comparison, or of several the one whose number follows a #."""
    if len(several) == 1 or number:
        chosen: T = _numbered(name, several, number)[0]
        return chosen
    named = "; ".join(
        f"{name}#{place}: {plural(cores, 'core')}, batch {batch}" for place, (cores, batch) in enumerate(places, 1)
    )
    raise BadInput(f"{name} has {len(several)} comparisons, and each has a chart of its own. Name one: {named}.")


def _numbered(name: str, cells: Sequence[Any], number: str) -> Sequence[Any]:
    """The one cell whose number follows a #, or all."""
    if not number:
        return cells
    if not number.isdigit() or not 1 <= int(number) <= len(cells):
        raise BadInput(f"{name}#{number}: there is no result {number} among {len(cells)}.")
    return [cells[int(number) - 1]]
