"""Thousands of bars as one outline: a browser that draws each of them takes most of a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inferlab.views.charts import frame

#: Of more bars than this each is narrower than what a screen can show, and their outline is drawn.
MOST_BARS = 1000


def outline(x: Sequence[float], y: Sequence[float | None], color: str, bottom: float = 0.0) -> dict[str, Any]:
    """The outline of bars at every whole number of x; those without a value end at the bottom."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": [bottom if one is None else one for one in y],
        "line": {"shape": "hvh", "width": 1, "color": color},
        "fill": "tozeroy",
        "fillcolor": color,
        "opacity": 0.85,
        "hoverinfo": "skip",
    }


def places(x: Sequence[float], y: Sequence[float | None], hovering: Mapping[str, Any]) -> dict[str, Any]:
    """What those read who point at a bar of an outline; it goes with the layout's hovermode x."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"width": 0, "color": "rgba(0,0,0,0)"},
        **hovering,
    }


def bottom_of(axis: Mapping[str, Any]) -> float:
    """Where bars stand: on a logarithmic axis there is no 0."""
    return float(10.0 ** (axis["range"][0] - 1)) if axis["type"] == "log" else 0.0


def seen(color: str) -> str:
    """Bars that ran elsewhere are hollow, of which an outline would show nothing."""
    return color if color.startswith("#") else frame.FAINT
