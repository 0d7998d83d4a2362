"""Charts of generations: times along depth, prompt or cores, latency against throughput, token after token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inferlab.errors import BadInput
from inferlab.records.generation import GenerationOutcome
from inferlab.units import count, decimal, plural
from inferlab.views import fields
from inferlab.views.charts import frame
from inferlab.views.charts.generation_points import (
    AXES,
    MEASURES,
    GenerationPoint,
    Line,
    common,
    labels,
    lines,
    varying,
)
from inferlab.views.charts.sweeps import leader
from inferlab.views.fields import in_brackets, rounded
from inferlab.views.generation import CELL_FIELDS, CURVE_FIELDS
from inferlab.views.text import generation_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: The x axis of a curve of latency over throughput, of cells side by side, and of the tokens of a sequence.
CURVE, CELL, TOKEN = "decode_tokens_per_s", "cell", "token"
# The throughput of requests that arrive by themselves, which have no common time of decoding.
_SERVED = "output_tokens_per_s"
#: All that can lie along the x axis.
X = (*AXES, CURVE, CELL, TOKEN)
_AXES = fields.by_key(CELL_FIELDS)
_MEASURES = fields.by_key(CURVE_FIELDS)
# More is better.
_RATES = ("prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s")
# What is drawn of an axis where nobody says more: prompts are about the first token, all else about the others.
_USUAL_Y = {"prompt_tokens": "ttft_ms", "rate": "ttft_ms"}
_TPOT = "tpot_ms"
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon")
_MOST_TICKS = 12
# From this factor on, doubling values crowd at the left of a linear axis.
_DOUBLINGS = 8.0
_BAR = 30
_MOST_LINES = 8
# Of the tokens at one position; between these lie four of five.
_LOW, _HIGH = 10.0, 90.0


def generation_chart(
    points: Sequence[GenerationPoint],
    outcomes: Sequence[GenerationOutcome] = (),
    x: str | None = None,
    y: str | None = None,
) -> Figure:
    """The chart that suits these cells, or the one that is named by its axes.

    `outcomes` are the cells with their tokens, where these are at hand: one alone is drawn token after token.
    """
    _check(x, y)
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
    return scaling(points, x, y or _USUAL_Y.get(x, _TPOT))


def usual_x(points: Sequence[GenerationPoint], with_tokens: bool = False) -> str:
    """What lies along the x axis where nobody says it."""
    if len(points) == 1 and with_tokens:
        return TOKEN
    axis = next(iter(varying(points)), CELL)
    return CURVE if axis == "batch_size" else axis


def _check(x: str | None, y: str | None) -> None:
    for name, value, names in (("x", x, X), ("y", y, MEASURES)):
        if value is not None and value not in names:
            raise BadInput(f"Of a generation {name} is one of {', '.join(names)}, not {value!r}.")


def scaling(points: Sequence[GenerationPoint], axis: str, y: str) -> Figure:
    """A measure along depth, prompt length, batch size, cores or rate; a line for each engine and what varies."""
    there = [point for point in points if getattr(point, axis) is not None]
    if not there:
        raise BadInput(f"These results have no {_AXES[axis].title}, so it cannot be an axis.")
    plotted = _measured(there, y)
    drawn = lines(plotted, axis)
    best = _best(drawn, y)
    subtitle = [*common(plotted, axis), *_notes(points, plotted, (y,))]
    along = _x_axis(sorted({getattr(point, axis) for point in plotted}))
    return _lined(
        drawn,
        best,
        f"{_MEASURES[y].title} by {_AXES[axis].title}",
        subtitle,
        {**along, "title": _AXES[axis].axis},
        (lambda point: getattr(point, axis), lambda point: point.value(y)),
        y,
        {"error_y": y},
        _MEASURES[y].axis,
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
    along = "rate" if "rate" in varying(plotted) else "batch_size"
    drawn = lines(plotted, along)
    kind, area = frame.span(
        [point.value(throughput) or 0.0 for point in plotted],
        [end for point in plotted for end in point.ends(throughput) or ()],
    )
    noun = "points: requests per second" if along == "rate" else "points: batch sizes"
    return _lined(
        drawn,
        _best(drawn, throughput),
        f"{_MEASURES[y].title} over {_MEASURES[throughput].title[0].lower()}{_MEASURES[throughput].title[1:]}",
        [
            *common(plotted, along),
            *([noun] if along in varying(plotted) else []),
            *_notes(points, plotted, (throughput, y)),
        ],
        {"type": kind, "range": area, "title": frame.axis_title(_MEASURES[throughput].axis, kind)},
        (lambda point: point.value(throughput), lambda point: point.value(y)),
        y,
        {"error_x": throughput, "error_y": y},
        _MEASURES[y].axis,
        texts=along if along in varying(plotted) else "",
    )


def _lined(
    drawn: Sequence[Line],
    best: Line | None,
    title: str,
    subtitle: Sequence[str],
    x: dict[str, Any],
    places: tuple[Any, Any],
    y: str,
    errors: Mapping[str, str],
    y_title: str,
    texts: str = "",
) -> Figure:
    """A chart of lines with their names right of it; the best is in colour and lies above the others."""
    plotted = [point for line in drawn for point in line.points]
    kind, area = frame.span(
        [point.value(y) or 0.0 for point in plotted], [end for point in plotted for end in point.ends(y) or ()]
    )
    height = frame.height_for(len(drawn), subtitle)
    order = [line for line in drawn if line is not best]
    traces = []
    for style, line in enumerate([*order, *([best] if best else [])]):
        color = frame.ACCENT if line is best else frame.INK
        trace = frame.scatter(
            "lines+markers+text" if texts else "lines+markers",
            [places[0](point) for point in line.points],
            [places[1](point) for point in line.points],
            [_hover(line, point) for point in line.points],
            name=frame.safe(line.name),
            line={
                "color": color,
                "width": 2.5 if line is best else 1.5,
                "dash": "solid" if line is best else _DASHES[style % len(_DASHES)],
            },
            marker={
                "color": color,
                "size": 8 if line is best else 7,
                "symbol": ["x" if point.wrong else _SYMBOLS[style % len(_SYMBOLS)] for point in line.points],
            },
        )
        if texts:
            trace |= {
                "text": [f"{getattr(point, texts):g}" for point in line.points],
                "textposition": "top left",
                "textfont": {"color": color, "size": 12},
            }
        for name, measure in errors.items():
            ends = [point.ends(measure) for point in line.points]
            if any(ends):
                trace[name] = frame.error_bars([point.value(measure) or 0.0 for point in line.points], ends, color)
        traces.append(trace)
    annotations, leaders, room = [], [], 0
    if len(drawn) > 1:
        last = [frame.place(kind, line.points[-1].value(y) or 0.0) for line in drawn]
        beside = frame.spread(last, area, frame.plot_height(height, subtitle))
        colors = [frame.ACCENT if line is best else frame.INK for line in drawn]
        annotations = frame.beside([line.name for line in drawn], beside, colors)
        for line, end, where in zip(drawn, last, beside, strict=True):
            start = frame.place(x["type"], places[0](line.points[-1]))
            leaders.append(leader(x["type"], kind, (start, end), (x["range"][1], where)))
        room = frame.width([line.name for line in drawn])
    return frame.made(
        traces,
        title,
        subtitle,
        x,
        {"type": kind, "range": area, "title": frame.axis_title(y_title, kind)},
        height=height,
        margin={"r": 32 + room},
        annotations=annotations,
        shapes=leaders,
    )


def side_by_side(points: Sequence[GenerationPoint], y: str = CURVE) -> Figure:
    """All cells, the best at the top, with their intervals; a cell that failed says so."""
    plotted = _measured(points, y)
    named = sorted(zip(labels(points), points, strict=True), key=lambda pair: _rank(pair[1], y))
    best = 0 if _rank(named[0][1], y)[0] == 0 else None
    top = max(end for point in plotted for end in (point.value(y) or 0.0, *(point.ends(y) or ())))
    texts = [_bar_text(point, y) for _, point in named]
    colors = [frame.ACCENT if index == best else frame.INK for index in range(len(named))]
    ends = [point.ends(y) for _, point in named]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": [point.value(y) for _, point in named],
        "y": list(range(len(named))),
        "marker": {
            "color": [
                "rgba(0,0,0,0)" if point.wrong else color for (_, point), color in zip(named, colors, strict=True)
            ],
            "opacity": [0.85 if index == best else 0.55 for index in range(len(named))],
            "line": {"color": frame.INK, "width": [1 if point.wrong else 0 for _, point in named]},
        },
        "width": 0.62,
        "hoverinfo": "text",
        "hovertext": [_hover(Line(name, (point,)), point) for name, point in named],
    }
    if any(ends):
        trace["error_x"] = frame.error_bars([point.value(y) or 0.0 for _, point in named], ends, frame.INK)
    subtitle = [*common(points), *_notes(points, plotted, (y,))]
    return frame.made(
        [trace],
        f"{_MEASURES[y].title} of {plural(len(points), 'cell')}",
        subtitle,
        {"range": [0, top * 1.02], "title": _MEASURES[y].axis, "showgrid": True, "gridcolor": frame.FAINT},
        frame.rows([name for name, _ in named]),
        height=frame.top_margin(subtitle) + 84 + _BAR * len(named),
        margin={"r": 24 + frame.width(texts)},
        annotations=[
            frame.label(text, max((point.value(y) or 0.0, *(point.ends(y) or ()))), index, color, xshift=8)
            for index, ((_, point), text, color) in enumerate(zip(named, texts, colors, strict=True))
        ],
    )


def token_times(named: Sequence[tuple[str, GenerationOutcome]], subtitle: Sequence[str] = ()) -> Figure:
    """The time between two tokens along the sequence: at each position the median, and where four of five lie."""
    drawn = [(name, gaps) for name, outcome in named[:_MOST_LINES] if (gaps := _gaps_ms(outcome)) is not None]
    if not drawn:
        raise BadInput("There is nothing to draw: no cell with tokens of its own is here. A store keeps them.")
    highest = max(float(np.nanmax(band[2])) for _, (_, band) in drawn)
    lowest = min(float(np.nanmin(band[0])) for _, (_, band) in drawn)
    traces: list[dict[str, Any]] = []
    for index, (name, (start, (low, middle, high))) in enumerate(drawn):
        color = frame.INK if index else frame.ACCENT
        place = [start + step for step in range(len(middle))]
        band = [*high.tolist(), *low.tolist()[::-1]]
        if len(drawn) == 1:
            traces.append(
                frame.scatter(
                    "lines",
                    [*place, *place[::-1]],
                    band,
                    fill="toself",
                    fillcolor="rgba(47,127,214,0.16)",
                    line={"width": 0, "color": color},
                )
            )
        hover = [
            f"token {where}: {decimal(ms, 3)} ms ({decimal(a, 3)} to {decimal(b, 3)})"
            for where, ms, a, b in zip(place, middle, low, high, strict=True)
        ]
        style = {"color": color, "width": 2.0 if index == 0 else 1.5, "dash": _DASHES[index % len(_DASHES)]}
        traces.append(frame.scatter("lines", place, middle.tolist(), hover, name=frame.safe(name), line=style))
    first, last = min(start for _, (start, _) in drawn), max(start + len(band[1]) for _, (start, band) in drawn)
    notes = ["shaded: four of five sequences"] if len(drawn) == 1 else []
    return frame.made(
        traces,
        "Inter-token latency along the sequence",
        [*subtitle, *notes],
        {"range": [first - 0.5, last - 0.5], "title": "position in the sequence (tokens)"},
        {
            "type": "linear",
            "range": [0, highest * 1.08] if lowest >= 0 else None,
            "title": "inter-token latency (ms)",
        },
        showlegend=len(drawn) > 1,
        legend=frame.legend_above(),
    )


def _gaps_ms(outcome: GenerationOutcome) -> tuple[int, tuple[Any, Any, Any]] | None:
    """The position of the second token, and of each from there on the low, the middle and the high gap."""
    sequences = [sequence for run in outcome.runs for each in run.repetitions for sequence in each.sequences]
    longest = max((len(sequence.token_ns) for sequence in sequences), default=0)
    if longest < 2:
        return None
    gaps = np.full((len(sequences), longest - 1), math.nan)
    for row, sequence in enumerate(sequences):
        gaps[row, : len(sequence.token_ns) - 1] = np.diff(np.asarray(sequence.token_ns, np.float64)) / 1e6
    low, middle, high = np.nanpercentile(gaps, (_LOW, 50.0, _HIGH), axis=0)
    return outcome.cell.depth + outcome.cell.prompt_tokens + 1, (low, middle, high)


def _measured(points: Sequence[GenerationPoint], y: str) -> list[GenerationPoint]:
    measured = [point for point in points if point.value(y) is not None]
    if not measured:
        raise BadInput("There is nothing to draw: no cell of these results was measured.")
    return measured


def _best(drawn: Sequence[Line], y: str) -> Line | None:
    """The line with the best point, of those whose tokens are right."""
    right = [line for line in drawn if not line.wrong]
    if y in _RATES:
        return max(right, key=lambda line: max(point.value(y) or 0.0 for point in line.points), default=None)
    return min(right, key=lambda line: min(point.value(y) or 0.0 for point in line.points), default=None)


def _rank(point: GenerationPoint, y: str) -> tuple[int, float]:
    """The best first, then those whose tokens are wrong, then those without a result."""
    value = point.value(y)
    if value is None:
        return 2, 0.0
    return int(point.wrong), -value if y in _RATES else value


def _bar_text(point: GenerationPoint, y: str) -> str:
    value = point.value(y)
    if value is None:
        return point.status
    return f"{rounded(value, point.ends(y), count)}{', tokens WRONG' if point.wrong else ''}"


def _hover(line: Line, point: GenerationPoint) -> str:
    """All about a point, for those who point at it."""
    texts = [line.label, f"{point.model} on {point.engine} {point.version}".rstrip()]
    texts.append(
        f"prompt {point.prompt_tokens}, {point.new_tokens} new, depth {point.depth}, batch {point.batch_size}, "
        f"{plural(point.num_cores, 'core')}"
    )
    for measure in ("ttft_ms", _TPOT, CURVE):
        value, ends = point.value(measure), point.ends(measure)
        if value is not None:
            field = _MEASURES[measure]
            texts.append(f"{field.title}: {rounded(value, ends, count)} {field.unit}{in_brackets(ends, count)}")
    if point.wrong:
        texts.append("the tokens are WRONG")
    if point.failure:
        texts.append(point.failure[:100])
    return "<br>".join(map(frame.safe, texts))


def _notes(
    points: Sequence[GenerationPoint], plotted: Sequence[GenerationPoint], measures: Sequence[str]
) -> list[str]:
    notes = ["bars: 95 % interval"] if any(point.ends(name) for point in plotted for name in measures) else []
    missing = len(points) - len(plotted)
    return [*notes, f"{plural(missing, 'cell')} without a result"] if missing else notes


def _x_axis(values: Sequence[float]) -> dict[str, Any]:
    """An axis with its ticks at the values that were measured; a depth may be 0."""
    low, high = values[0], values[-1]
    kind = "log" if len(values) > 2 and low > 0 and high / low >= _DOUBLINGS else "linear"
    ends = [frame.place(kind, low), frame.place(kind, high)]
    pad = 0.04 * (ends[1] - ends[0]) or 0.5
    axis: dict[str, Any] = {"type": kind, "range": [ends[0] - pad, ends[1] + pad]}
    if len(values) <= _MOST_TICKS:
        axis |= {"tickvals": list(values), "ticktext": [f"{value:g}" for value in values]}
    return axis
