"""Charts of many cells: how time or throughput grows along an axis, and which cell is best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.units import count, plural
from inferlab.views import fields
from inferlab.views.charts import frame
from inferlab.views.charts.points import Point, Series, chosen_axis, common, labels, series
from inferlab.views.fields import in_brackets, rounded

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: What lies along the x axis of a chart, and what along its y axis.
AXES = fields.by_key((fields.BATCH_SIZE, fields.SEQUENCE_LENGTH, fields.NUM_CORES))
MEASURES = fields.by_key(
    (fields.MEDIAN, fields.THROUGHPUT, fields.P99, fields.cost(lambda point: None), fields.MS_PER_ITEM)
)
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon")
_MOST_TICKS = 12
# From this factor on, doubling values crowd at the left of a linear axis.
_DOUBLINGS = 8.0
_BAR = 30


def scaling(points: Sequence[Point], x: str | None = None, y: str = "median_ms") -> Figure:
    """Time or throughput along an axis, a line for each model × engine × whatever else varies."""
    axis = x or chosen_axis(points)
    if axis is None:
        raise BadInput(
            "Batch size, sequence length and cores are the same in all cells: there is nothing to scale."
        )
    there = [point for point in points if getattr(point, axis) is not None]
    if not there:
        raise BadInput(f"These results do not say their {AXES[axis].title}, so it cannot be an axis.")
    plotted = _measured(there, y)
    drawn = series(plotted, axis)
    best = _best_series(drawn, y)
    subtitle = [*common(plotted, axis), *_notes(points, plotted, y)]
    height = frame.height_for(len(drawn), subtitle)
    kind, area = frame.span(
        [point.value(y) or 0.0 for point in plotted], [end for point in plotted for end in point.ends(y) or ()]
    )
    along = x_axis(sorted({getattr(point, axis) for point in plotted}))
    annotations, leaders = [], []
    if len(drawn) > 1:
        ends = [frame.place(kind, curve.points[-1].value(y) or 0.0) for curve in drawn]
        places = frame.spread(ends, area, frame.plot_height(height, subtitle))
        edge = along["range"][1]
        for curve, end, where in zip(drawn, ends, places, strict=True):
            color = frame.ACCENT if curve is best else frame.INK
            annotations.append(frame.label(_named(curve), 1, where, color, xref="paper", xshift=8))
            last = frame.place(along["type"], getattr(curve.points[-1], axis))
            leaders.append(leader(along["type"], kind, (last, end), (edge, where)))
    others = [curve for curve in drawn if curve is not best]
    traces = [line(other, axis, y, False, style) for style, other in enumerate(others)]
    if best is not None:  # last, so that it lies above the others
        traces.append(line(best, axis, y, True, 0))
    return frame.made(
        traces,
        f"{MEASURES[y].title} by {AXES[axis].title}",
        subtitle,
        {**along, "title": AXES[axis].axis},
        {"type": kind, "range": area, "title": frame.axis_title(MEASURES[y].axis, kind)},
        height=height,
        margin={"r": 24 + frame.width([_named(curve) for curve in drawn] if len(drawn) > 1 else [])},
        annotations=annotations,
        shapes=leaders,
    )


def bars(points: Sequence[Point], y: str = "items_per_sec") -> Figure:
    """The cells of a sweep, the best at the top, with their intervals; a cell that failed says so."""
    plotted = _measured(points, y)
    named = sorted(zip(labels(points), points, strict=True), key=lambda pair: _rank(pair[1], y))
    best = _best_place([point for _, point in named], y)
    top = max(value for point in plotted for value in _extent(point, y))
    texts = [_bar_text(point, y) for _, point in named]
    annotations = [
        frame.label(text, max(_extent(point, y), default=0.0), index, _bar_color(index == best), xshift=8)
        for index, ((_, point), text) in enumerate(zip(named, texts, strict=True))
    ]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [point.value(y) for _, point in named],
        "y": list(range(len(named))),
        "marker": {
            "color": [
                "rgba(0,0,0,0)" if point.wrong else _bar_color(i == best) for i, (_, point) in enumerate(named)
            ],
            "opacity": [0.85 if index == best else 0.55 for index in range(len(named))],
            "line": {"color": frame.INK, "width": [1 if point.wrong else 0 for _, point in named]},
        },
        "width": 0.62,
        "hoverinfo": "text",
        "hovertext": [_hover(name, point, y) for name, point in named],
        **_errors([point for _, point in named], y, "error_x", frame.INK),
    }
    subtitle = [*common(points), *_notes(points, plotted, y)]
    return frame.made(
        [trace],
        f"{MEASURES[y].title} of {plural(len(points), 'cell')}",
        subtitle,
        {
            "range": [0, top * 1.02],
            "title": MEASURES[y].axis,
            "showgrid": True,
            "gridcolor": frame.FAINT,
        },
        frame.rows([name for name, _ in named]),
        height=frame.top_margin(subtitle) + 84 + _BAR * len(named),
        # Texts stand right of the bars, the longest bar's beyond the axis.
        margin={"r": 24 + frame.width(texts)},
        annotations=annotations,
    )


def _rank(point: Point, y: str) -> tuple[int, float]:
    """The best first, then those whose outputs are wrong, then those without a result."""
    value = point.value(y)
    if value is None:
        return 2, 0.0
    return int(point.wrong), -value if y == "items_per_sec" else value


def _best_place(points: Sequence[Point], y: str) -> int | None:
    """Which bar stands out: the best cell, by the one number that decides that; of another measure the first."""
    if y not in ("items_per_sec", "median_ms"):
        return 0 if points and _rank(points[0], y)[0] == 0 else None
    times = {
        place: time
        for place, point in enumerate(points)
        if point.status == "done" and not point.wrong and (time := point.ms_per_item) is not None
    }
    return min(times, key=lambda place: times[place], default=None)


def _measured(points: Sequence[Point], y: str) -> list[Point]:
    measured = [point for point in points if point.value(y) is not None]
    if not measured and y == "cost_per_million" and any(point.value("items_per_sec") for point in points):
        raise BadInput("No machine type of these results has a price. Measure with --price TYPE=PRICE.")
    if not measured:
        raise BadInput("There is nothing to draw: no cell of these results was measured.")
    return measured


def _extent(point: Point, y: str) -> list[float]:
    """What an axis must hold of a point."""
    value = point.value(y)
    return [] if value is None else [value, *(point.ends(y) or ())]


def _best_series(drawn: Sequence[Series], y: str) -> Series | None:
    """The line with the highest throughput or the lowest cost, of those whose outputs are right."""
    right = [curve for curve in drawn if not any(point.wrong for point in curve.points)]
    if y == "cost_per_million":
        return min(right, key=lambda curve: min(point.value(y) or 0.0 for point in curve.points), default=None)
    return max(right, key=lambda curve: max(point.items_per_sec or 0.0 for point in curve.points), default=None)


def x_axis(values: Sequence[float]) -> dict[str, Any]:
    """An axis with its ticks at the values that were measured."""
    low, high = values[0], values[-1]
    kind = "log" if len(values) > 2 and high / low >= _DOUBLINGS else "linear"
    ends = [frame.place(kind, low), frame.place(kind, high)]
    pad = 0.04 * (ends[1] - ends[0]) or 0.5
    axis: dict[str, Any] = {"type": kind, "range": [ends[0] - pad, ends[1] + pad]}
    if len(values) <= _MOST_TICKS:
        axis |= {"tickvals": list(values), "ticktext": [f"{value:g}" for value in values]}
    return axis


def leader(x_kind: str, y_kind: str, start: tuple[float, float], end: tuple[float, float]) -> dict[str, Any]:
    """A faint line from the end of a line to its label."""

    def data(kind: str, value: float) -> float:
        # Unlike annotations, shapes count in data also on logarithmic axes.
        return 10.0**value if kind == "log" else value

    return {
        "type": "line",
        "layer": "below",
        "x0": data(x_kind, start[0]),
        "y0": data(y_kind, start[1]),
        "x1": data(x_kind, end[0]),
        "y1": data(y_kind, end[1]),
        "line": {"color": frame.FAINT, "width": 1},
    }


def line(curve: Series, axis: str, y: str, best: bool, style: int) -> dict[str, Any]:
    """The points of one line with their intervals; that of the `best` stands out, the others differ in style."""
    color = frame.ACCENT if best else frame.INK
    symbols = ["x" if point.wrong else _SYMBOLS[style % len(_SYMBOLS)] for point in curve.points]
    return frame.scatter(
        "lines+markers",
        [getattr(point, axis) for point in curve.points],
        [point.value(y) for point in curve.points],
        [_hover(curve.label, point, y) for point in curve.points],
        name=frame.safe(_named(curve)),
        line={"color": color, "width": 2.5 if best else 1.5, "dash": _DASHES[style % len(_DASHES)]},
        marker={"color": color, "size": 8 if best else 7, "symbol": symbols},
        **_errors(curve.points, y, "error_y", color),
    )


def _errors(points: Sequence[Point], y: str, name: str, color: str) -> dict[str, Any]:
    """Error bars from the intervals, where there is one."""
    ends = [point.ends(y) for point in points]
    if not any(ends):
        return {}
    return {name: frame.error_bars([point.value(y) or 0.0 for point in points], ends, color)}


def _named(curve: Series) -> str:
    return f"{curve.label} (outputs WRONG)" if any(point.wrong for point in curve.points) else curve.label


def _bar_text(point: Point, y: str) -> str:
    value = point.value(y)
    if value is None:
        return point.status
    return f"{count(value)}{', outputs WRONG' if point.wrong else ''}"


def _bar_color(best: bool) -> str:
    return frame.ACCENT if best else frame.INK


def _hover(name: str, point: Point, y: str) -> str:
    """All about a point, for those who point at it."""
    lines = [name or point.engine, f"{point.model} on {point.engine} {point.version}".rstrip()]
    measures = [*([y] if y == "ms_per_item" else []), "median_ms", "items_per_sec"]
    for measure in measures:
        unit = MEASURES[measure].unit
        value, ends = point.value(measure), point.ends(measure)
        if value is not None:
            lines.append(f"{rounded(value, ends, count)} {unit}{in_brackets(ends, count)}")
    if point.wrong:
        lines.append("the outputs are WRONG")
    if point.failure:
        lines.append(point.failure[:100])
    return "<br>".join(map(frame.safe, lines))


def _notes(points: Sequence[Point], plotted: Sequence[Point], y: str) -> list[str]:
    """What the reader must know of the numbers."""
    notes = []
    if any(point.ends(y) for point in plotted):
        notes.append("bars: 95 % interval")
    missing = len(points) - len(plotted)
    if missing:
        notes.append(f"{plural(missing, 'cell')} without a result")
    return notes
