"""Charts of many cells: how times or rates change along an axis, and which cell is best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records import Outcome
from inferlab.records.generation import GenerationOutcome
from inferlab.units import count, plural
from inferlab.views.charts import frame
from inferlab.views.charts.points import (
    AXES,
    GENERATION_AXES,
    GENERATION_MEASURES,
    MEASURES,
    CellPoint,
    GenerationPoint,
    P,
    Point,
    Series,
    chosen_axis,
    common,
    labels,
    series,
    varying,
)
from inferlab.views.charts.timeline import iterations, token_times
from inferlab.views.fields import rounded
from inferlab.views.text import generation_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: All that can lie along the x axis: what scales, the cells side by side, or the time of one cell.
X = (*AXES, "cell", "time")
#: The x axis of a curve of latency over throughput, of cells side by side, and of the tokens of a sequence.
CURVE, CELL, TOKEN = "decode_tokens_per_s", "cell", "token"
# The throughput of requests that arrive by themselves, which have no common time of decoding.
_SERVED = "output_tokens_per_s"
#: All that can lie along the x axis of a generation.
GENERATION_X = (*GENERATION_AXES, CURVE, CELL, TOKEN)
# What is drawn of an axis where nobody says more: prompts are about the first token, all else about the others.
_USUAL_Y = {"prompt_tokens": "ttft_ms", "rate": "ttft_ms"}
_TPOT = "tpot_ms"
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
    if all(getattr(point, axis) is None for point in points):
        title = Point.axes[axis].title
        raise BadInput(f"These results do not say their {title}, so it cannot be an axis.")
    return _along(points, axis, y, _best_series)


def generation_scaling(points: Sequence[GenerationPoint], axis: str, y: str) -> Figure:
    """A measure along depth, prompt length, batch size, cores or rate; a line for each engine and what varies."""
    if all(getattr(point, axis) is None for point in points):
        raise BadInput(f"These results have no {GenerationPoint.axes[axis].title}, so it cannot be an axis.")
    return _along(points, axis, y, _best_line, ("engine",))


def _along(
    points: Sequence[P],
    axis: str,
    y: str,
    best_of: Callable[[Sequence[Series[P]], str], Series[P] | None],
    otherwise: Sequence[str] = (),
) -> Figure:
    plotted = _measured([point for point in points if getattr(point, axis) is not None], y)
    drawn = series(plotted, axis, otherwise)
    kind = type(plotted[0])
    return _lined(
        drawn,
        best_of(drawn, y),
        f"{kind.measures[y].title} by {kind.axes[axis].title}",
        [*common(plotted, axis), *_notes(points, plotted, (y,))],
        {**x_axis(sorted({getattr(point, axis) for point in plotted})), "title": kind.axes[axis].axis},
        lambda point: getattr(point, axis),
        y,
    )


def latency_throughput(points: Sequence[GenerationPoint], y: str = _TPOT) -> Figure:
    """The time per token over the tokens of a second: what a larger batch gains, and what it costs each sequence.

    Where requests arrive at a rate, the line goes along the rates.
    """
    measured = _measured(points, y)
    throughput = CURVE if any(point.value(CURVE) is not None for point in measured) else _SERVED
    plotted = [point for point in measured if point.value(throughput) is not None]
    if not plotted:
        raise BadInput("There is nothing to draw: fewer than two tokens were generated.")
    several = varying(plotted)
    along = "rate" if "rate" in several else "batch_size"
    drawn = series(plotted, along, ("engine",))
    kind, area = _span(plotted, throughput)
    noun = "points: requests per second" if along == "rate" else "points: batch sizes"
    field = GenerationPoint.measures[throughput]
    return _lined(
        drawn,
        _best_line(drawn, throughput),
        f"{GenerationPoint.measures[y].title} over {field.title[0].lower()}{field.title[1:]}",
        [
            *common(plotted, along),
            *([noun] if along in several else []),
            *_notes(points, plotted, (throughput, y)),
        ],
        {"type": kind, "range": area, "title": frame.axis_title(field.axis, kind)},
        lambda point: point.value(throughput),
        y,
        {"error_x": throughput},
        texts=along if along in several else "",
    )


def _lined(
    drawn: Sequence[Series[P]],
    best: Series[P] | None,
    title: str,
    subtitle: Sequence[str],
    x: dict[str, Any],
    place: Callable[[P], Any],
    y: str,
    errors: Mapping[str, str] | None = None,
    texts: str = "",
) -> Figure:
    """A chart of lines with their names right of it; the best is in colour and lies above the others."""
    kind, area = _span([point for curve in drawn for point in curve.points], y)
    height = frame.height_for(len(drawn), subtitle)
    others = [curve for curve in drawn if curve is not best]
    traces = [line(curve, place, y, False, style, errors, texts) for style, curve in enumerate(others)]
    point = drawn[0].points[0]
    plain = isinstance(point, Point)
    if best is not None:
        traces.append(line(best, place, y, True, 0 if plain else len(others), errors, texts))
    annotations, leaders, room = [], [], 0
    if len(drawn) > 1:
        ends = [frame.place(kind, curve.points[-1].value(y) or 0.0) for curve in drawn]
        beside = frame.spread(ends, area, frame.plot_height(height, subtitle))
        colors = [frame.ACCENT if curve is best else frame.INK for curve in drawn]
        annotations = frame.beside([curve.name for curve in drawn], beside, colors)
        for curve, end, where in zip(drawn, ends, beside, strict=True):
            last = frame.place(x["type"], place(curve.points[-1]))
            leaders.append(_leader(x["type"], kind, (last, end), (x["range"][1], where)))
        room = frame.width([curve.name for curve in drawn])
    return frame.made(
        traces,
        title,
        subtitle,
        x,
        {"type": kind, "range": area, "title": frame.axis_title(point.measures[y].axis, kind)},
        height=height,
        margin={"r": (24 if plain else 32) + room},
        annotations=annotations,
        shapes=leaders,
    )


def _span(points: Sequence[CellPoint], measure: str) -> tuple[str, list[float]]:
    return frame.span(
        [point.value(measure) or 0.0 for point in points],
        [end for point in points for end in point.ends(measure) or ()],
    )


def bars(points: Sequence[Point], y: str = "items_per_sec") -> Figure:
    """The cells of a sweep, the best at the top, with their intervals; a cell that failed says so."""
    return _side_by_side(points, y, _best_place, lambda point: count(point.value(y) or 0.0))


def side_by_side(points: Sequence[GenerationPoint], y: str = CURVE) -> Figure:
    """The same of cells that generate tokens."""

    def first(ordered: Sequence[GenerationPoint], y: str) -> int | None:
        return 0 if _rank(ordered[0], y)[0] == 0 else None

    return _side_by_side(points, y, first, lambda point: rounded(point.value(y) or 0.0, point.ends(y), count))


def _side_by_side(
    points: Sequence[P],
    y: str,
    best_of: Callable[[Sequence[P], str], int | None],
    form: Callable[[P], str],
) -> Figure:
    plotted = _measured(points, y)
    named = sorted(zip(labels(points), points, strict=True), key=lambda pair: _rank(pair[1], y))
    ordered = [point for _, point in named]
    best = best_of(ordered, y)
    colors = [frame.ACCENT if index == best else frame.INK for index in range(len(named))]
    texts = [
        point.status
        if point.value(y) is None
        else f"{form(point)}{f', {point.checked} WRONG' if point.wrong else ''}"
        for point in ordered
    ]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [point.value(y) for point in ordered],
        "y": list(range(len(named))),
        "marker": {
            "color": [
                "rgba(0,0,0,0)" if point.wrong else color for point, color in zip(ordered, colors, strict=True)
            ],
            "opacity": [0.85 if index == best else 0.55 for index in range(len(named))],
            "line": {"color": frame.INK, "width": [1 if point.wrong else 0 for point in ordered]},
        },
        "width": 0.62,
        "hoverinfo": "text",
        "hovertext": [_hover(name, point, y) for name, point in named],
        **_errors(ordered, y, "error_x", frame.INK),
    }
    subtitle = [*common(points), *_notes(points, plotted, (y,))]
    title = plotted[0].measures[y]
    return frame.made(
        [trace],
        f"{title.title} of {plural(len(points), 'cell')}",
        subtitle,
        {
            "range": [0, max(end for point in plotted for end in _extent(point, y)) * 1.02],
            "title": title.axis,
            "showgrid": True,
            "gridcolor": frame.FAINT,
        },
        frame.rows([name for name, _ in named]),
        height=frame.top_margin(subtitle) + 84 + _BAR * len(named),
        # Texts stand right of the bars, the longest bar's beyond the axis.
        margin={"r": 24 + frame.width(texts)},
        annotations=[
            frame.label(text, max(_extent(point, y), default=0.0), index, color, xshift=8)
            for index, (point, text, color) in enumerate(zip(ordered, texts, colors, strict=True))
        ],
    )


def _rank(point: CellPoint, y: str) -> tuple[int, float]:
    """The best first, then those that are wrong, then those without a result."""
    value = point.value(y)
    if value is None:
        return 2, 0.0
    return int(point.wrong), -value if y in point.rates else value


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


def _measured(points: Sequence[P], y: str) -> list[P]:
    measured = [point for point in points if point.value(y) is not None]
    if not measured and y == "cost_per_million" and any(point.value("items_per_sec") for point in points):
        raise BadInput("No machine type of these results has a price. Measure with --price TYPE=PRICE.")
    if not measured:
        raise BadInput("There is nothing to draw: no cell of these results was measured.")
    return measured


def _extent(point: CellPoint, y: str) -> list[float]:
    """What an axis must hold of a point."""
    value = point.value(y)
    return [] if value is None else [value, *(point.ends(y) or ())]


def _best_series(drawn: Sequence[Series[Point]], y: str) -> Series[Point] | None:
    """The line with the highest throughput or the lowest cost, of those whose outputs are right."""
    return _best_line(drawn, y if y == "cost_per_million" else "items_per_sec")


def _best_line(drawn: Sequence[Series[P]], y: str) -> Series[P] | None:
    """The line with the best point, of those that are right."""

    def best(curve: Series[P]) -> float:
        sign = -1 if y in curve.points[0].rates else 1
        return min(sign * (point.value(y) or 0.0) for point in curve.points)

    return min((curve for curve in drawn if not curve.wrong), key=best, default=None)


def x_axis(values: Sequence[float]) -> dict[str, Any]:
    """An axis with its ticks at the values that were measured; a depth may be 0."""
    low, high = values[0], values[-1]
    kind = "log" if len(values) > 2 and low > 0 and high / low >= _DOUBLINGS else "linear"
    ends = [frame.place(kind, low), frame.place(kind, high)]
    pad = 0.04 * (ends[1] - ends[0]) or 0.5
    axis: dict[str, Any] = {"type": kind, "range": [ends[0] - pad, ends[1] + pad]}
    if len(values) <= _MOST_TICKS:
        axis |= {"tickvals": list(values), "ticktext": [f"{value:g}" for value in values]}
    return axis


def _leader(x_kind: str, y_kind: str, start: tuple[float, float], end: tuple[float, float]) -> dict[str, Any]:
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


def line(
    curve: Series[P],
    place: Callable[[P], Any],
    y: str,
    best: bool,
    style: int,
    errors: Mapping[str, str] | None = None,
    texts: str = "",
) -> dict[str, Any]:
    """The points of one line with their intervals; that of the `best` stands out, the others differ in style."""
    color = frame.ACCENT if best else frame.INK
    symbols = ["x" if point.wrong else _SYMBOLS[style % len(_SYMBOLS)] for point in curve.points]
    trace = frame.scatter(
        "lines+markers+text" if texts else "lines+markers",
        [place(point) for point in curve.points],
        [point.value(y) for point in curve.points],
        [_hover(curve.label, point, y) for point in curve.points],
        name=frame.safe(curve.name),
        line={
            "color": color,
            "width": 2.5 if best else 1.5,
            "dash": "solid" if best else frame.DASHES[style % len(frame.DASHES)],
        },
        marker={"color": color, "size": 8 if best else 7, "symbol": symbols},
    )
    if texts:
        trace |= {
            "text": [f"{getattr(point, texts):g}" for point in curve.points],
            "textposition": "top left",
            "textfont": {"color": color, "size": 12},
        }
    for name, measure in {**(errors or {}), "error_y": y}.items():
        trace |= _errors(curve.points, measure, name, color)
    return trace


def _errors(points: Sequence[CellPoint], y: str, name: str, color: str) -> dict[str, Any]:
    """Error bars from the intervals, where there is one."""
    ends = [point.ends(y) for point in points]
    if not any(ends):
        return {}
    return {name: frame.error_bars([point.value(y) or 0.0 for point in points], ends, color)}


def _hover(name: str, point: CellPoint, y: str) -> str:
    """All about a point, for those who point at it."""
    lines = [name or point.engine, f"{point.model} on {point.engine} {point.version}".rstrip(), *point.about(y)]
    if point.wrong:
        lines.append(f"the {point.checked} are WRONG")
    if point.failure:
        lines.append(point.failure[:100])
    return "<br>".join(map(frame.safe, lines))


def _notes(points: Sequence[CellPoint], plotted: Sequence[CellPoint], measures: Sequence[str]) -> list[str]:
    """What the reader must know of the numbers."""
    notes = ["bars: 95 % interval"] if any(point.ends(name) for point in plotted for name in measures) else []
    missing = len(points) - len(plotted)
    return [*notes, f"{plural(missing, 'cell')} without a result"] if missing else notes


def chart(
    points: Sequence[Point], outcomes: Sequence[Outcome] = (), x: str | None = None, y: str | None = None
) -> Figure:
    """The chart that suits these cells, or the one that is named by its axes.

    `outcomes` are the cells with their samples, where these are at hand: one alone is drawn over time.
    """
    _check(("x", x, X), ("y", y, MEASURES))
    if x == "time" or (x is None and y is None and len(points) == 1 and any(outcome.runs for outcome in outcomes)):
        if y == "items_per_sec":
            raise BadInput("Over time only latency is drawn: y is median_ms there, or not given.")
        if len(points) != 1 or not outcomes:
            raise BadInput(
                f"Over time one cell is drawn, with samples; here are {len(points)} cells and "
                f"{len(outcomes)} of them with samples. A store keeps samples: inferlab plot ID"
            )
        return iterations(outcomes[0], common(points))
    axis = x if x in AXES else chosen_axis(points) if x is None else None
    return bars(points, y or "items_per_sec") if axis is None else scaling(points, axis, y or "median_ms")


def generation_chart(
    points: Sequence[GenerationPoint],
    outcomes: Sequence[GenerationOutcome] = (),
    x: str | None = None,
    y: str | None = None,
) -> Figure:
    """The chart that suits these cells, or the one that is named by its axes.

    `outcomes` are the cells with their tokens, where these are at hand: one alone is drawn token after token.
    """
    _check(("x", x, GENERATION_X), ("y", y, GENERATION_MEASURES), of="Of a generation ")
    if x is None:
        x = usual_x(points, any(outcome.runs for outcome in outcomes))
    if x == TOKEN:
        if y is not None:
            raise BadInput("Token after token only the time between two is drawn: leave y out.")
        return token_times([(generation_label(outcome.cell), outcome) for outcome in outcomes], common(points))
    if x == CURVE:
        return latency_throughput(points, y or _TPOT)
    if x == CELL:
        served = all(point.value(CURVE) is None for point in points)
        return side_by_side(points, y or (_SERVED if served else CURVE))
    return generation_scaling(points, x, y or _USUAL_Y.get(x, _TPOT))


def usual_x(points: Sequence[GenerationPoint], with_tokens: bool = False) -> str:
    """What lies along the x axis where nobody says it."""
    if len(points) == 1 and with_tokens:
        return TOKEN
    axis = next(iter(varying(points)), CELL)
    return CURVE if axis == "batch_size" else axis


def _check(*choices: tuple[str, str | None, Sequence[str]], of: str = "") -> None:
    for name, value, names in choices:
        if value is not None and value not in names:
            raise BadInput(f"{of}{name} is one of {', '.join(names)}, not {value!r}.")
