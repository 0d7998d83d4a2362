"""Charts small enough for a card, which has the title: iterations over time, and how time scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records import Outcome
from inferlab.units import shortened
from inferlab.views.charts import frame, sweeps, timeline
from inferlab.views.charts.points import Point, Series, series

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HEIGHT = 280
# Of all arms together: three for each pixel of a wide card.
_MOST_DOTS = 6_000
_LONGEST_NAME = 36
# The first arm's colour, that of its disturbed windows and what that is called; then any other's.
_FIRST = (frame.ACCENT, "rgba(47,127,214,0.14)", "blue")
_OTHER = (frame.INK, timeline.SHADE, "grey")
# What fits below the chart of a card at 1280 pixels, where selectors stand beside it.
_LINE_WIDTH = 64
_MEASURE = "ms_per_item"


@dataclass(frozen=True, slots=True)
class _Arm:
    """An arm of a chart over time, and how it looks."""

    name: str
    track: timeline.Track
    color: str
    shade: str
    shade_name: str


def iterations(arms: Sequence[tuple[str, Outcome]], most_dots: int = _MOST_DOTS) -> Figure:
    """The latency of every batch over time, the first arm in colour; disturbed windows are shaded and told.

    An arm without any iteration is left out.
    """
    measured = [(place, *arm) for place, arm in enumerate(arms) if timeline.measured(arm[1])]
    tracks = timeline.tracks([outcome for _, _, outcome in measured])
    drawn = [
        _Arm(shortened(name, _LONGEST_NAME), track, *(_OTHER if place else _FIRST))
        for (place, name, _), track in zip(measured, tracks, strict=True)
    ]
    kind, area = timeline.scale(tracks)
    texts = [f"median {track.median_ms:.4g} ms" for track in tracks]
    below = _below(drawn)
    places = frame.spread(
        [frame.place(kind, track.median_ms) for track in tracks],
        area,
        frame.compact_plot_height(HEIGHT, len(below)),
    )
    what = "request" if all(outcome.cell.scenario == "server" for _, _, outcome in measured) else "batch"
    traces = [
        timeline.dots(arm.track, arm.color, most_dots // len(drawn)) | {"name": frame.safe(arm.name)}
        for arm in drawn
    ]
    figure = frame.made(
        traces[::-1],  # the first lies above the others
        "",
        (),
        {"range": [0, max(track.end_s for track in tracks)], "title": "<br>".join(map(frame.safe, below))},
        {"type": kind, "range": area, "title": _titled(f"ms per {what}", kind)},
        margin={"r": 16 + frame.width(texts)},
        showlegend=len(arms) > 1,
        legend=frame.legend_above() | {"traceorder": "reversed"},
        annotations=frame.beside(texts, places, [arm.color for arm in drawn]),
        shapes=[
            *(shade for arm in drawn for shade in timeline.shades(arm.track, _shade(arm, drawn))),
            *timeline.walls(tracks),
            *(frame.level(arm.track.median_ms, arm.color) for arm in drawn),
        ],
    )
    return frame.compact(figure, HEIGHT)


def _shade(arm: _Arm, drawn: Sequence[_Arm]) -> str:
    return arm.shade if len(drawn) > 1 else timeline.SHADE


def _below(drawn: Sequence[_Arm]) -> list[str]:
    """The title of the time axis, which tells what lines and shades mean."""
    items = ["measuring time (s)"]
    if len(timeline.begins([arm.track for arm in drawn])) > 1:
        items.append("dotted: fresh processes")
    for arm in drawn:
        if arm.track.disturbed:
            whose = f"shaded {arm.shade_name}: {arm.name}" if len(drawn) > 1 else "shaded:"
            items.append(f"{whose} disturbed by {timeline.causes(arm.track)}")
    return frame.wrapped(items, _LINE_WIDTH)


def core_scaling(arms: Sequence[tuple[str, Sequence[Point]]], batch_size: int) -> Figure:
    """The time per item along core counts at one batch size, the first arm in colour, its best marked."""
    there = [(name, [point for point in points if point.batch_size == batch_size]) for name, points in arms]
    return _scaling(there, "num_cores")


def batch_scaling(arms: Sequence[tuple[str, Sequence[Point]]], num_cores: int) -> Figure:
    """The time per item along batch sizes at one core count, the first arm in colour, its best marked."""
    there = [(name, [point for point in points if point.num_cores == num_cores]) for name, points in arms]
    return _scaling(there, "batch_size")


def best_and_worst(points: Sequence[Point]) -> tuple[Point, Point] | None:
    """The points of the lowest and the highest time per item, of those that are done and not wrong."""
    right = [
        point for point in points if point.status == "done" and not point.wrong and point.ms_per_item is not None
    ]
    ranked = sorted(right, key=lambda point: point.ms_per_item or 0.0)
    return (ranked[0], ranked[-1]) if ranked else None


def _scaling(arms: Sequence[tuple[str, Sequence[Point]]], axis: str) -> Figure:
    chosen, *others = ([*_lines(name, points, axis)] for name, points in arms)
    lines = [*chosen, *(line for arm in others for line in arm)]
    plotted = [point for line in lines for point in line.points]
    if not plotted:
        raise BadInput("There is nothing to draw: no cell of these was measured.")
    kind, area = frame.span(
        [point.ms_per_item or 0.0 for point in plotted],
        [end for point in plotted for end in point.ends(_MEASURE) or ()],
    )
    along = sweeps.x_axis(sorted({getattr(point, axis) for point in plotted}))

    def place(point: Point) -> Any:
        return getattr(point, axis)

    # The legend is in this order; the chart is drawn the other way round, so that the first lies above.
    first = chosen[:1]
    traces = [sweeps.line(line, place, _MEASURE, True, 0) for line in first]
    traces += [sweeps.line(line, place, _MEASURE, False, style) for style, line in enumerate(lines[len(first) :])]
    traces += [ring for line in first for ring in _best(line, axis)]
    for rank, trace in enumerate(traces, 1):
        trace["legendrank"] = rank
    figure = frame.made(
        traces[::-1],
        "",
        (),
        {**along, "title": Point.axes[axis].axis},
        {"type": kind, "range": area, "title": _titled("ms per item", kind)},
        showlegend=len(arms) > 1 or len(traces) > 1 or any(point.wrong for point in plotted),
        legend=frame.legend_above(),
    )
    return frame.compact(figure, HEIGHT)


def _lines(name: str, points: Sequence[Point], axis: str) -> Iterator[Series[Point]]:
    """The lines of one arm: a single one unless something else varies in it."""
    short = shortened(name, _LONGEST_NAME)
    plotted = [point for point in points if point.ms_per_item is not None and getattr(point, axis) is not None]
    for curve in series(plotted, axis):
        yield replace(curve, label=", ".join(filter(None, (short, curve.label))) or curve.points[0].engine)


def _best(line: Series[Point], axis: str) -> Iterator[dict[str, Any]]:
    """A ring around the best point of a line of several."""
    extremes = best_and_worst(line.points)
    if extremes is None or extremes[0] is extremes[1]:
        return
    edge = {"width": 2, "color": frame.ACCENT}
    ring = {"symbol": "circle-open", "size": 16, "color": frame.ACCENT, "line": edge}
    yield frame.scatter(
        "markers", [getattr(extremes[0], axis)], [extremes[0].ms_per_item], name="best", marker=ring
    )


def _titled(text: str, kind: str) -> str:
    return f"{text} (logarithmic)" if kind == "log" else text
