"""Plotly figures out of results, once for files, notebooks and pages; Plotly is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferlab.errors import BadInput
from inferlab.records import Outcome
from inferlab.views.charts.comparisons import Ratios, of_comparison, of_file, ratios
from inferlab.views.charts.frame import ENDINGS, check_ending, page, png, save
from inferlab.views.charts.points import (
    AXES,
    MEASURES,
    GenerationPoint,
    Point,
    chosen_axis,
    common,
    from_row,
    points_of,
    points_of_capacity,
    points_of_file,
)
from inferlab.views.charts.sweeps import bars, generation_chart, scaling
from inferlab.views.charts.timeline import iterations

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "AXES",
    "ENDINGS",
    "MEASURES",
    "GenerationPoint",
    "Point",
    "Ratios",
    "X",
    "bars",
    "chart",
    "check_ending",
    "from_row",
    "generation_chart",
    "iterations",
    "of_comparison",
    "of_file",
    "page",
    "png",
    "points_of",
    "points_of_capacity",
    "points_of_file",
    "ratios",
    "save",
    "scaling",
]

#: All that can lie along the x axis: what scales, the cells side by side, or the time of one cell.
X = (*AXES, "cell", "time")


def chart(
    points: Sequence[Point], outcomes: Sequence[Outcome] = (), x: str | None = None, y: str | None = None
) -> Figure:
    """The chart that suits these cells, or the one that is named by its axes.

    `outcomes` are the cells with their samples, where these are at hand: one alone is drawn over time.
    """
    _check(x, y)
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


def _check(x: str | None, y: str | None) -> None:
    for name, value, names in (("x", x, X), ("y", y, MEASURES)):
        if value is not None and value not in names:
            raise BadInput(f"{name} is one of {', '.join(names)}, not {value!r}.")
