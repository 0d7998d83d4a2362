"""Whether and since when a model is worse: series over time, the release that a bisection found, gates."""

from __future__ import annotations

import itertools
import math
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inferlab.codec import plain
from inferlab.errors import BadInput
from inferlab.measure import intervals
from inferlab.measure.intervals import LEAST_POINTS
from inferlab.records import Cell, Estimate
from inferlab.records.comparison import Comparison, ComparisonSweep
from inferlab.records.series import Bisection, BisectionStep, ChangePoint, Series, SeriesPoint, Trend
from inferlab.units import decimal, one_line, plural, share, shortened, size
from inferlab.views import results, tables
from inferlab.views.comparison import said
from inferlab.views.fields import Field, between, between_at, fits, interval_text, level_percent, ratio_of, rounded
from inferlab.views.history import age, label_text
from inferlab.views.reports import page
from inferlab.views.results import View
from inferlab.views.tables import Block, Code, Note, Pair, Table, spaced
from inferlab.views.text import cell_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: Version 1: the first.
FORMAT = "inferlab-trend/1"
# Of more series only a table is shown.
_DETAILED = 3
_HEIGHT, _WIDTH = 7, 60


@dataclass(frozen=True, slots=True)
class Segment:
    """Points between two changes."""

    points: Sequence[SeriesPoint]
    level: Estimate
    #: What began it; None of the first.
    change: ChangePoint | None
    memory: bool


def wanted_cell(pairs: Sequence[str], cell: Cell) -> bool:
    """Whether a cell has all of OPTION=VALUE."""
    return all(fits(cell, pair, "cell") for pair in pairs)


def view_of(found: Trend) -> View:
    """How it is shown and written."""
    return View(
        _title(found), lambda: blocks(found), lambda: records(found), lambda: content(found), lambda: report(found)
    )


def _title(found: Trend) -> str:
    models = list(dict.fromkeys(series.model for series in found.series))
    return f"{one_line(models[0]) if len(models) == 1 else plural(len(models), 'model')} over time"


def name(series: Series) -> str:
    """A series in a line."""
    told = [cell_label(series.cell)]
    if len(series.versions) == 1 and series.versions[0] and "==" not in series.cell.engine:
        told.append(f"version {series.versions[0]}")
    return ", ".join(told)


def origin(series: Series) -> str:
    """The machines that measured it."""
    return " and ".join(series.machines)


def blocks(found: Trend, chart: bool = False) -> list[Block]:
    """A table of all series where there are several, then each of the few that are shown whole."""
    if not found.series:
        raise BadInput("No benchmark of this is in the store. See: inferlab history")
    whole = [series for series in found.series if series.enough] or list(found.series[:1])
    parts: list[Sequence[Block]] = [[overview(found.series)]] if len(found.series) > 1 else []
    parts += [series_blocks(series, chart) for series in whole[:_DETAILED]]
    if len(whole) > _DETAILED:
        parts.append([f"The first {_DETAILED} are shown; choose others by a model's name or --cell OPTION=VALUE."])
    return spaced(*parts)


def overview(found: Sequence[Series]) -> Table:
    """One line a series."""
    now = datetime.now(UTC)
    digests = {(series.model, series.cell.model_digest) for series in found}
    several = len(digests) > len({series.model for series in found})
    known = [
        Field("model", "Model", lambda series: one_line(series.model), left=True, longest=32),
        *([Field("digest", "Digest", lambda series: series.cell.model_digest[:8], left=True)] if several else []),
        Field("cell", "Cell", name, left=True, longest=60),
        Field("machine", "Machine", origin, left=True, longest=32),
        Field("entries", "Entries", lambda series: len(series.points)),
        Field("newest", "Newest", lambda series: age(series.points[-1].created_at, now)),
        Field("last", "Last", lambda series: _value(series, series.points[-1].value, None)),
        Field("changes", "Changes", _changes_told, left=True),
    ]
    machines = {series.machines for series in found}
    return Table([field for field in known if field.key != "machine" or len(machines) > 1], found)


def _changes_told(series: Series) -> str:
    if not series.enough:
        return "too few entries"
    return ", ".join(percent(change) for change in series.changes) or "none"


def series_blocks(series: Series, chart: bool = False) -> list[Block]:
    """Its segments, with a chart of characters where one is wanted, and what to know about it."""
    first, last = series.points[0], series.points[-1]
    shown: list[Block] = [
        Pair(one_line(series.model), name(series), strong=True),
        Pair(
            "Entries",
            f"{len(series.points)}, {first.created_at.astimezone():%Y-%m-%d %H:%M} to "
            f"{last.created_at.astimezone():%Y-%m-%d %H:%M}, on {origin(series)}",
        ),
    ]
    if chart and len(series.points) > 1:
        shown += [Code("\n".join(plain_chart(series)))]
    shown += [segment_table(series)]
    return [*shown, *notes(series)]


def notes(series: Series) -> list[Note]:
    """What to know about a series."""
    found = []
    if not series.enough:
        found.append(
            Note(
                f"a change is told from {LEAST_POINTS} entries of the same cell, machine and version on; "
                f"{plural(len(series.points), 'entry is', 'entries are')} there."
            )
        )
    if series.reference:
        found.append(Note(f"corrected by what {series.reference}, took beside it."))
    elif len(series.versions) > 1:
        found.append(Note("not corrected: no cell of another engine was measured in each of these entries."))
    return found


def segments(series: Series) -> list[tuple[int, int]]:
    """From where to where nothing changed: indexes of points, the second one past the end."""
    return list(itertools.pairwise([0, *(change.index for change in series.changes), len(series.points)]))


def percent(change: ChangePoint) -> str:
    """By how much it changed: +3.1 %."""
    return f"{100 * (change.ratio.value - 1):+.3g} %"


def segment_list(series: Series) -> list[Segment]:
    """The segments between changes, oldest first."""
    memory = series.metric == "memory"
    changes = [None, *series.changes]
    return [
        Segment(series.points[low:high], _level(series.points[low:high]), change, memory)
        for (low, high), change in zip(segments(series), changes, strict=True)
    ]


def _level(points: Sequence[SeriesPoint]) -> Estimate:
    values = [point.value for point in points]
    middle = statistics.median(values)
    if len(values) < 2:
        return Estimate(middle, points[0].low, points[0].high, intervals.LEVEL, "student")
    around = intervals.student(values)
    return Estimate(middle, around.low, around.high, around.level, "student")


def segment_table(series: Series) -> Table:
    """One line for each stretch without a change."""
    what = "Median peak memory" if series.metric == "memory" else "Median ms per item"
    shown = [
        Field("since", "Since", lambda one: f"{one.points[0].created_at.astimezone():%Y-%m-%d %H:%M}", left=True),
        Field("entries", "Entries", lambda one: len(one.points)),
        Field("median", what, lambda one: _value(series, one.level.value, one.level.ends)),
        Field("interval", "95 % interval", _interval),
        Field("change", "Change", lambda one: percent(one.change) if one.change else ""),
        Field("change_interval", "Interval", lambda one: _change_interval(one.change) if one.change else ""),
        Field("confidence", "Confidence", lambda one: confidence(one.change) if one.change else ""),
        Field("before", "Last before", lambda one: one.change.before_id if one.change else "", left=True),
        Field("after", "First after", lambda one: one.points[0].entry_id, left=True),
        Field("labels", "Labels", lambda one: label_text(dict(one.points[0].labels)), left=True, longest=40),
    ]
    found = segment_list(series)
    unsaid = [] if series.changes else ["change", "change_interval", "confidence", "before"]
    unsaid += [] if any(one.points[0].labels for one in found) else ["labels"]
    return Table([field for field in shown if field.key not in unsaid], found)


def _value(series: Series, value: float, ends: Sequence[float] | None) -> str:
    return size(value) if series.metric == "memory" else rounded(value, ends, decimal)


def _interval(one: Segment) -> str:
    ends = one.level.ends
    if ends is None or len(one.points) < 2:
        return "-"
    return f"{size(ends[0])} to {size(ends[1])}" if one.memory else between(ends)


def _change_interval(change: ChangePoint) -> str:
    ends = change.ratio.ends
    return "-" if ends is None else " to ".join(f"{100 * (end - 1):+.3g} %" for end in ends)


def confidence(change: ChangePoint) -> str:
    """How sure a change is."""
    return f"{level_percent(min(max(1 - change.p_value, 0.5), 1 - 1e-9))} %"


def plain_chart(series: Series, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """The points as characters, oldest on the left; changes are marked below."""
    columns = _columns(len(series.points), width)
    values = [statistics.median(series.points[index].value for index in group) for group in columns]
    low, high = min(values), max(values)
    span = high - low or abs(high) * 0.01 or 1.0
    rows = [[" "] * len(values) for _ in range(height)]
    for column, value in enumerate(values):
        rows[height - 1 - round((value - low) / span * (height - 1))][column] = "●"
    ends = {0: _value(series, high, None), height - 1: _value(series, low, None)}
    margin = max(map(len, ends.values()))
    lines = [f"{ends.get(index, ''):>{margin}} ┤{''.join(row)}".rstrip() for index, row in enumerate(rows)]
    if series.changes:
        marks = [" "] * len(values)
        for change in series.changes:
            column = next(index for index, group in enumerate(columns) if change.index in group)
            marks[column] = "▲" if change.ratio.value > 1 else "▼"
        lines.append(f"{'':>{margin}}  {''.join(marks)}".rstrip())
    return lines


def _columns(count: int, width: int) -> list[range]:
    """Which points share a column."""
    columns = min(count, width)
    edges = [math.floor(index * count / columns) for index in range(columns + 1)]
    return [range(low, high) for low, high in itertools.pairwise(edges)]


def figure(series: Series) -> Figure:
    """The chart of a series."""
    below = [name(series), origin(series)]
    below += [f"corrected by {series.reference}"] if series.reference else []
    from inferlab.views.charts.comparisons import trend  # late: most of what is said of a series is text

    return trend(series, f"{shortened(one_line(series.model), 60)} over time", tuple(below))


def records(found: Trend) -> list[dict[str, object]]:
    """Every point as a flat record."""
    rows: list[dict[str, object]] = []
    for number, series in enumerate(found.series, 1):
        changes = {change.index: change for change in series.changes}
        for index, point in enumerate(series.points):
            change = changes.get(index)
            rows.append(
                {
                    "series": number,
                    "model": series.model,
                    "cell": name(series),
                    "metric": series.metric,
                    "entry": point.entry_id,
                    "created_at": point.created_at.isoformat(),
                    "value": point.value,
                    "value_low": point.low,
                    "value_high": point.high,
                    "machine": point.machine,
                    "version": point.version,
                    "labels": label_text(dict(point.labels)),
                    "change": change and change.ratio.value - 1,
                    "p_value": change and change.p_value,
                }
            )
    return rows


def content(found: Trend) -> dict[str, object]:
    """All of it as JSON values."""
    return {
        "format": FORMAT,
        "metric": found.metric,
        "across": list(found.across),
        "series": [
            {
                **plain(replace(series, points=())),
                "points": [
                    {**plain(point), "created_at": point.created_at.isoformat(), "labels": dict(point.labels)}
                    for point in series.points
                ],
            }
            for series in found.series
        ],
    }


def report(found: Trend) -> str:
    """A page that opens offline: a chart and a table of each series."""
    drawn = page.Charts()
    sections: dict[str, list[page.Element | None]] = {}
    if len(found.series) > 1:
        sections["Series"] = [page.sortable("series", overview(found.series))]
    for number, series in enumerate(found.series, 1):
        chart = drawn.add(f"trend-{number}", {"": figure(series)})
        told = [note.text for note in notes(series)]
        heading = f"{number}. {name(series)}" if len(found.series) > 1 else "Series"
        sections[heading] = [chart, page.sortable(f"segments-{number}", segment_table(series)), page.box(told)]
    facts = [origin(found.series[0])] if len({series.machines for series in found.series}) == 1 else []
    return page.page(_title(found), [page.heading(_title(found), facts)], sections, drawn)


_HEADS = ("Cell", "Baseline (ms per item)", "Candidate (ms per item)", "Time", "Interval", "Verdict")


_SIGNS = {"slower": "❌", "faster": "✅", "same": "✅", "inconclusive": "❔"}


def gate_summary(sweep: ComparisonSweep, model: str) -> str:
    """A table of verdicts, with all that was found behind a fold."""
    rows = [list(_HEADS)]
    for result in sweep.results:
        a, b = (decimal(statistics.median(times)) for times in result.times_ms)
        ends = result.ratio.ends
        interval = between_at(ends, result.ratio.level) if ends else "none"
        ratio = rounded(result.ratio.value, ends)
        rows.append([_cell(result), a, b, f"× {ratio}", interval, f"{_SIGNS[result.verdict]} {result.verdict}"])
    margin = (
        f"within {share(sweep.results[0].margin)} both are the same" if sweep.results else "nothing was measured"
    )
    failures = [
        f"- {_place(failure.num_cores, failure.batch_size)}: {failure.message}" for failure in sweep.failures
    ]
    table = tables.markdown_rows(rows, left=(0, len(_HEADS) - 1))
    detail = results.render(sweep, ".md").replace("## ", "### ", 1)
    lines = [
        f"## inferlab: {one_line(model)}",
        "",
        *table,
        "",
        f"Below × 1 the candidate takes less time; {margin}.",
        *failures,
        "",
        "<details><summary>How it was measured, and what disturbed it</summary>",
        "",
        detail,
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def junit(sweep: ComparisonSweep, model: str, fails: Collection[str]) -> str:
    """One test a comparison: failed where its verdict is among `fails`; what was not measured is an error."""
    suite = ET.Element("testsuite", name=f"inferlab: {model}")
    failed = 0
    for result in sweep.results:
        case = ET.SubElement(suite, "testcase", name=_cell(result), classname=model, time=f"{result.seconds:.1f}")
        told = f"B is {result.verdict} ({said(result)}). A: {result.labels[0]}. B: {result.labels[1]}."
        if result.verdict in fails:
            failed += 1
            ET.SubElement(case, "failure", message=told)
        else:
            ET.SubElement(case, "system-out").text = told
    for failure in sweep.failures:
        place = _place(failure.num_cores, failure.batch_size)
        case = ET.SubElement(suite, "testcase", name=place, classname=model)
        ET.SubElement(case, "error", message=failure.message)
    suite.attrib |= {
        "tests": str(len(suite)),
        "failures": str(failed),
        "errors": str(len(sweep.failures)),
        "time": f"{sum(result.seconds for result in sweep.results):.1f}",
    }
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _cell(one: Comparison) -> str:
    if one.cells is None:
        return one.place or "the only cell"
    before, cell = one.cells
    engine = cell.engine if before.engine == cell.engine else f"{before.engine} → {cell.engine}"
    return f"{engine}, {cell.scenario}, {_place(cell.num_cores, cell.batch_size)}"


def _place(num_cores: int | None, batch_size: int | None) -> str:
    return f"cores {num_cores or 'all'}, batch {batch_size or 'as in the model'}"


#: Version 1: the first.
BISECTION = "inferlab-bisection/1"


_METRICS = {"latency": "time", "memory": "peak memory", "load": "load time", "outputs": "outputs"}


def bisection_view(bisection: Bisection) -> View:
    """How it is shown and written."""
    return View(
        _bisection_title(bisection),
        lambda: bisection_blocks(bisection),
        lambda: _bisection_table(bisection),
        lambda: bisection_content(bisection),
    )


def bisection_content(bisection: Bisection) -> dict[str, object]:
    """All of it as JSON values."""
    return {"format": BISECTION, **plain(bisection)}


def _bisection_title(bisection: Bisection) -> str:
    return f"{bisection.model} on {bisection.engine}: {_METRICS[bisection.metric]}"


def bisection_blocks(bisection: Bisection) -> list[Block]:
    """The release in which it changed, then every comparison."""
    engine, first = bisection.engine, bisection.first_bad
    compared = [step for step in bisection.steps if step.verdict != "skipped"]
    shown: list[Block] = [
        Pair("First bad release", f"{engine}=={first} ({_change_of_release(bisection)})", strong=True),
        Pair("Last good release", f"{engine}=={bisection.last_good}"),
        Pair(
            "Compared",
            f"{plural(len(compared), 'release')} with {engine}=={bisection.versions[0]}, of "
            f"{len(bisection.versions) - 1} after it; margin {share(bisection.margin)}",
        ),
    ]
    if doubtful := [step.version for step in bisection.steps[1:] if not step.sure]:
        shown.append(
            Note(
                f"it is not sure which side {' and '.join(doubtful)} belongs to, so that the change may lie in a "
                "release nearby. Give more time with -t."
            )
        )
    if bisection.untried:
        names = ", ".join(bisection.untried)
        shown.append(Note(f"these could not be compared, and any of them may be the first: {names}."))
    return [*shown, _bisection_table(bisection)]


def _change_of_release(bisection: Bisection) -> str:
    step = next(step for step in bisection.steps if step.version == bisection.first_bad)
    if step.ratio is None:
        return step.detail
    return f"it takes {ratio_of(step.ratio, f'the {_METRICS[bisection.metric]} of {bisection.versions[0]}')}"


def _bisection_table(bisection: Bisection) -> Table:
    shown = [
        Field("version", "Release", lambda step: step.version, left=True),
        Field("verdict", "It is", lambda step: step.verdict, left=True),
        Field("ratio", "Over the good one", lambda step: step.ratio.value if step.ratio else None, decimal),
        Field("interval", "Interval", _step_interval),
        Field("detail", "Remark", _remark, left=True, longest=80),
    ]
    return Table(shown, bisection.steps)


def _step_interval(step: BisectionStep) -> str:
    return interval_text(step.ratio.ends, step.ratio.level) if step.ratio else ""


def _remark(step: BisectionStep) -> str:
    return step.detail or ("compared before" if step.saved else "")
