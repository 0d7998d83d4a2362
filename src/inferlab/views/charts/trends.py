"""A series as a chart: every entry with its interval, the level of each segment, and where it changed."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from inferlab.records.series import ChangePoint, Series, SeriesPoint
from inferlab.units import plural, size
from inferlab.views.charts import frame
from inferlab.views.fields import in_brackets, useful
from inferlab.views.history import label_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: Slower or larger, and faster or smaller: readable on light and on dark, and not told apart by colour alone.
WORSE, BETTER = "#d1572d", "#2f9e5f"
# So many dates fit below a chart.
_MOST_TICKS = 6
_MIB = 2**20
_AXES = {"time": "time (ms per item)", "memory": "peak memory (MiB)"}


def segments(series: Series) -> list[tuple[int, int]]:
    """From where to where nothing changed: indexes of points, the second one past the end."""
    return list(pairwise([0, *(change.index for change in series.changes), len(series.points)]))


def percent(change: ChangePoint) -> str:
    """By how much it changed: +3.1 %."""
    return f"{100 * (change.ratio.value - 1):+.3g} %"


def trend(series: Series, title: str, subtitle: tuple[str, ...] = ()) -> Figure:
    """The points in the order of time, at equal distances."""
    memory = series.metric == "memory"
    scale = 1 / _MIB if memory else 1.0
    values = [point.value * scale for point in series.points]
    ends = [_ends(point, scale) for point in series.points]
    places = list(range(len(values)))
    dots = frame.scatter(
        "markers",
        places,
        values,
        [_hover(point, memory) for point in series.points],
        marker={"color": frame.ACCENT, "size": 7},
        error_y=frame.error_bars(values, ends, frame.ACCENT),
    )
    levels = [_level(series, low, high, scale) for low, high in segments(series)]
    around = [*values, *(end for both in ends if both for end in both)]
    low, high = min(around), max(around)
    room = (high - low or abs(high) or 1.0) * 0.12
    changed = [plural(len(series.changes), "change")] if series.changes else ["no change found"]
    marks = [_mark(change) for change in series.changes]
    return frame.made(
        [*levels, dots],
        title,
        [*subtitle, plural(len(values), "entry", "entries"), *changed, "bars: 95 % intervals"],
        {"range": [-0.6, len(values) - 0.4], **_dates(series.points), "title": "entries, oldest first"},
        {"range": [low - room, high + 1.6 * room], "title": _AXES[series.metric]},
        shapes=[mark["line"] for mark in marks],
        annotations=[mark["name"] for mark in marks],
    )


def _ends(point: SeriesPoint, scale: float) -> tuple[float, float] | None:
    ends = point.ends
    return None if ends is None or not useful(ends) else (ends[0] * scale, ends[1] * scale)


def _hover(point: SeriesPoint, memory: bool) -> str:
    value = size(point.value) if memory else f"{point.value:.4g} ms{in_brackets(point.ends)}"
    labels = label_text(dict(point.labels))
    lines = [
        f"{point.entry_id}, {point.created_at.astimezone():%Y-%m-%d %H:%M}",
        value,
        labels,
        point.version,
        point.machine,
    ]
    return "<br>".join(frame.safe(line) for line in lines if line)


def _level(series: Series, low: int, high: int, scale: float) -> dict[str, Any]:
    middle = statistics.median(point.value for point in series.points[low:high]) * scale
    line = {"color": frame.INK, "width": 2}
    return frame.scatter("lines", [low - 0.4, high - 0.6], [middle, middle], line=line)


def _mark(change: ChangePoint) -> dict[str, Any]:
    color = WORSE if change.ratio.value > 1 else BETTER
    place = change.index - 0.5
    line = {"color": color, "width": 1.5, "dash": "dash"}
    return {
        "line": {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "line": line},
        "name": frame.label(percent(change), place, 1, color, yref="paper", yanchor="top", xshift=4),
    }


def _dates(points: tuple[SeriesPoint, ...]) -> dict[str, Any]:
    """Below some of the points, when they were measured; commits where all have one."""
    step = max(1, -(-len(points) // _MOST_TICKS))
    indices = list(range(0, len(points), step))
    days = {f"{point.created_at.astimezone():%Y-%m-%d}" for point in points}
    form = "%Y-%m-%d" if len(days) > 1 else "%H:%M"
    commits = [dict(point.labels).get("commit", "")[:7] for point in points]
    several = len(set(commits)) > 1 and all(commits)
    times = [f"{points[index].created_at.astimezone():{form}}" for index in indices]
    below = [f"<br>{frame.safe(commits[index])}" if several else "" for index in indices]
    return {"tickvals": indices, "ticktext": [time + more for time, more in zip(times, below, strict=True)]}
