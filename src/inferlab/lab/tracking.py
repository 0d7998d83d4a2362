"""Series out of the store: the same cell over time, corrected where machines differ, and where it changed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from inferlab.errors import BadInput
from inferlab.measure.intervals import LEAST_POINTS, change_points
from inferlab.measure.stats import engine_version, machine_kind, statistic
from inferlab.records import Cell, Run, engine_name
from inferlab.records.series import Across, ChangePoint, Series, SeriesMetric, SeriesPoint, Trend
from inferlab.settings import BRANCH
from inferlab.store.entries import BENCHMARK, CellEntry, Entry
from inferlab.store.store import Store

#: So many of the newest benchmarks are looked at.
MOST_ENTRIES = 2000
_PAGE = 500


@dataclass(frozen=True, slots=True)
class TrendRequest:
    """Which series are wanted."""

    #: A part of the model's name, or the beginning of its digest.
    model: str | None = None
    metric: SeriesMetric = "time"
    across: tuple[Across, ...] = ()
    #: Only entries that are marked so.
    labels: tuple[tuple[str, str], ...] = ()
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Measured:
    """A cell of an entry with its number, before it is known what it belongs to."""

    entry: Entry
    cell: CellEntry
    point: SeriesPoint


def find_series(
    store: Store, request: TrendRequest | None = None, wanted: Callable[[Cell], bool] = lambda cell: True
) -> Trend:
    """All series with a cell that is wanted, the one with the newest point first, and where each changed."""
    request = request or TrendRequest()
    everything = tuple(_measured(store, request))
    grouped: dict[tuple[str, ...], list[_Measured]] = defaultdict(list)
    for one in everything:
        if wanted(one.cell.cell):
            grouped[_key(one, request.across)].append(one)
    if "machine" in request.across:
        # What machines have in common may be of any model.
        everything = tuple(_measured(store, TrendRequest(metric=request.metric)))
    found = [_series(group, everything, request) for group in grouped.values()]
    found.sort(key=lambda series: series.points[-1].created_at, reverse=True)
    return Trend(request.metric, tuple(found), request.across)


def with_changes(series: Series) -> Series:
    """The series with the places where it changed."""
    changes = tuple(
        ChangePoint(
            change_point.index,
            change_point.ratio,
            change_point.p_value,
            series.points[change_point.index - 1].entry_id,
            series.points[change_point.index].entry_id,
        )
        for change_point in change_points([point.value for point in series.points])
    )
    return replace(series, changes=changes, enough=len(series.points) >= LEAST_POINTS)


def _measured(store: Store, request: TrendRequest) -> Iterable[_Measured]:
    """Every cell that was measured to its end with right outputs, oldest first."""
    entries: list[Entry] = []
    before: str | None = None
    while len(entries) < MOST_ENTRIES:
        page = store.history(
            _PAGE,
            before,
            request.model,
            project_id=request.project_id,
            kinds=(BENCHMARK,),
            labels=request.labels,
        )
        entries += page
        if len(page) < _PAGE:
            break
        before = page[-1].id
    for entry in reversed(entries):
        for cell in entry.cells:
            point = _point(entry, cell, request.metric)
            if point is not None:
                yield _Measured(entry, cell, point)


def _point(entry: Entry, one: CellEntry, metric: SeriesMetric) -> SeriesPoint | None:
    value, low, high = _memory(one) if metric == "memory" else _time(one)
    if one.status != "done" or one.wrong or not value or one.machine is None:
        return None
    return SeriesPoint(
        entry.id,
        entry.created_at,
        value,
        low,
        high,
        tuple(entry.labels.items()),
        one.cell.model_digest,
        one.machine,
        one.engine_version or "",
    )


_Interval = tuple[float | None, float | None, float | None]


def _memory(one: CellEntry) -> _Interval:
    return one.peak_memory_bytes, None, None


def _time(one: CellEntry) -> _Interval:
    """Milliseconds per item with their interval: of the median, or of what throughput makes of them."""
    cell = one.cell
    if statistic(cell.scenario) == "mean":
        value, low, high = (
            1e3 / items if items else None
            for items in (one.items_per_sec, one.items_per_sec_high, one.items_per_sec_low)
        )
        return value, low, high
    value, low, high = (
        None if ms is None else ms / cell.batch_size
        for ms in (one.median_ms, one.median_ms_low, one.median_ms_high)
    )
    return value, low, high


def _key(one: _Measured, across: Sequence[Across]) -> tuple[str, ...]:
    """What all points of a series have in common."""
    cell, point = one.cell.cell, one.point
    if "version" in across:
        cell = replace(cell, engine=engine_name(cell.engine))
    if "model" in across:
        cell = _without_model(cell)
    return (
        one.entry.title if "model" in across else "",
        cell.id,
        "" if "machine" in across else point.machine,
        "" if "version" in across else point.version,
    )


def _series(group: Sequence[_Measured], everything: Sequence[_Measured], request: TrendRequest) -> Series:
    points, reference = [one.point for one in group], ""
    machines, versions = (
        tuple(dict.fromkeys(getattr(point, name) for point in points)) for name in ("machine", "version")
    )
    if request.metric == "time":
        if len(machines) > 1:
            points, reference = _of_one_machine(points, group, everything)
        elif len(versions) > 1:
            points, reference = _of_one_mood(points, group, everything)
    last = group[-1]
    series = Series(
        last.entry.title, last.cell.cell, request.metric, machines, versions, tuple(points), reference=reference
    )
    return with_changes(series)


def _of_one_machine(
    points: Sequence[SeriesPoint], group: Sequence[_Measured], everything: Sequence[_Measured]
) -> tuple[list[SeriesPoint], str]:
    """The points as the first machine would have had them: scaled by what another cell took on each machine."""
    needed = {point.machine for point in points}
    own = {(one.entry.id, one.cell.cell_id) for one in group}
    others: dict[tuple[str, str], dict[str, list[_Measured]]] = defaultdict(lambda: defaultdict(list))
    for one in everything:
        if (one.entry.id, one.cell.cell_id) not in own:
            others[one.cell.cell_id, one.point.version][one.point.machine].append(one)
    shared = [on_machine for on_machine in others.values() if needed <= set(on_machine)]
    if not shared:
        cell = group[-1].cell.cell
        raise BadInput(
            f"{' and '.join(sorted(needed))} have no other cell in common that the series of "
            f"{group[-1].entry.title} on {cell.engine} could be corrected by. Measure the same one on each: "
            "inferlab benchmark demo:mobilenet_v2 -s sync -ncores 1"
        )
    reference = max(shared, key=lambda found: min(len(found[machine]) for machine in needed))
    times = {machine: _typical(reference[machine]) for machine in needed}
    first = points[0].machine
    corrected = [_scaled(point, times[first] / times[point.machine]) for point in points]
    return corrected, _described(next(iter(reference.values()))[0])


def _of_one_mood(
    points: Sequence[SeriesPoint], group: Sequence[_Measured], everything: Sequence[_Measured]
) -> tuple[list[SeriesPoint], str]:
    """The points without what the machine's mood did: scaled by another engine's cell of the same entries.

    The versions themselves are what is followed. Without such a cell in every entry the points stay as they are.
    """
    engines = {engine_name(one.cell.cell.engine) for one in group}
    ids = {point.entry_id for point in points}
    others: dict[tuple[str, str], dict[str, _Measured]] = defaultdict(dict)
    for one in everything:
        if one.entry.id in ids and engine_name(one.cell.cell.engine) not in engines:
            others[one.cell.cell_id, one.point.version][one.entry.id] = one
    shared = [beside for beside in others.values() if ids <= set(beside)]
    if not shared:
        return list(points), ""
    beside = shared[0]
    usual = _typical(list(beside.values()))
    corrected = [_scaled(point, usual / beside[point.entry_id].point.value) for point in points]
    return corrected, _described(next(iter(beside.values())))


def _typical(measured: Sequence[_Measured]) -> float:
    return statistics.median(one.point.value for one in measured)


def _scaled(point: SeriesPoint, factor: float) -> SeriesPoint:
    low, high = (None if end is None else end * factor for end in (point.low, point.high))
    return replace(point, value=point.value * factor, low=low, high=high)


def _described(one: _Measured) -> str:
    cell = one.cell.cell
    return f"{one.entry.title} on {cell.engine} {one.point.version}".rstrip() + f", {cell.scenario}"


def branch_entries(store: Store, branch: str) -> list[Entry]:
    """The benchmarks of a branch that were measured to their end with right outputs, the newest first."""
    page = store.history(_PAGE, status="done", kinds=(BENCHMARK,), labels=((BRANCH, branch),))
    return [entry for entry in page if not any(cell.wrong for cell in entry.cells)]


def cell_key(cell: Cell, run: Run) -> tuple[str, ...]:
    """What a measured cell has in common with the points of a series that reaches across models."""
    return _without_model(cell).id, machine_kind(run.machine), engine_version(run)


def segments_around(store: Store, entry: Entry) -> dict[tuple[str, ...], tuple[float, ...]]:
    """What each series of a benchmark's branch took between the changes around that entry, by `cell_key`.

    Of a series that the entry is not part of (another machine, say) it is what came after the last change.
    """
    branch = entry.labels.get(BRANCH, "")
    request = TrendRequest(entry.title, across=("model",), labels=((BRANCH, branch),) if branch else ())
    segments: dict[tuple[str, ...], tuple[float, ...]] = {}
    for series in find_series(store, request).series:
        points = tuple(point for point in series.points if dict(point.labels).get(BRANCH, "") == branch)
        if series.model != entry.title or not points:
            continue
        own = with_changes(replace(series, points=points))
        place = next((index for index, point in enumerate(points) if point.entry_id == entry.id), len(points) - 1)
        edges = [0, *(change.index for change in own.changes), len(points)]
        low, high = next((low, high) for low, high in pairwise(edges) if low <= place < high)
        key = _without_model(series.cell).id, series.machines[0], series.versions[0]
        segments[key] = tuple(point.value for point in points[low:high])
    return segments


def _without_model(cell: Cell) -> Cell:
    return replace(cell, model_digest="", input_digest="", guessed_inputs=())
