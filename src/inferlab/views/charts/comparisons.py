"""The chart of a comparison: the ratio of every pair, its interval, and the margin that does not matter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records.comparison import Comparison, GenerationComparison
from inferlab.records.series import ChangePoint, Series, SeriesPoint
from inferlab.units import plural, share, size
from inferlab.views.charts import frame
from inferlab.views.fields import in_brackets, interval_text, rounded, useful
from inferlab.views.history import label_text
from inferlab.views.trend import percent, segments

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_MARGIN_SHADE = "rgba(127,127,127,0.12)"
_INTERVAL_SHADE = "rgba(47,127,214,0.16)"


@dataclass(frozen=True, slots=True)
class Ratios:
    """A comparison, as far as its chart needs it."""

    labels: tuple[str, str]
    verdict: str
    ratio: float
    ends: tuple[float, float] | None
    level: float
    margin: float
    outputs_match: bool | None
    #: By pair; empty where saved results were compared.
    log_ratios: tuple[float, ...]
    times_ms: tuple[tuple[float, ...], tuple[float, ...]]


def of_comparison(comparison: Comparison | GenerationComparison) -> Ratios:
    """What a chart needs of a comparison; whether tokens are right, the reference says."""
    if isinstance(comparison, GenerationComparison):
        wrong = any(agreement.status == "mismatch" for agreement in comparison.agreements)
        outputs_match, log_ratios = (False if wrong else None), comparison.log_ratios
    else:
        outputs_match, log_ratios = comparison.outputs_match, tuple(pair.log_ratio for pair in comparison.pairs)
    return Ratios(
        labels=comparison.labels,
        verdict=comparison.verdict,
        ratio=comparison.ratio.value,
        ends=comparison.ratio.ends,
        level=comparison.ratio.level,
        margin=comparison.margin,
        outputs_match=outputs_match,
        log_ratios=log_ratios,
        times_ms=comparison.times_ms,
    )


def of_file(content: Mapping[str, Any]) -> Ratios:
    """The same of a comparison that was written as JSON."""
    try:
        ends = content["interval"]
        pairs = Ratios(
            labels=(str(content["a"]["label"]), str(content["b"]["label"])),
            verdict=str(content["verdict"]),
            ratio=float(content["ratio"]),
            ends=None if ends is None else (float(ends[0]), float(ends[1])),
            level=float(content["level"]),
            margin=float(content["margin"]),
            outputs_match=content["outputs_match"],
            log_ratios=tuple(map(float, content["log_ratios"])),
            times_ms=(tuple(map(float, content["a"]["times_ms"])), tuple(map(float, content["b"]["times_ms"]))),
        )
        _check(pairs)
        return pairs
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise BadInput("This comparison is damaged: its ratios cannot be read.") from None


def _check(pairs: Ratios) -> None:
    """Refuse what no comparison gives and what cannot be drawn; a ValueError says so."""
    times = [*pairs.times_ms[0], *pairs.times_ms[1]]
    values = [pairs.ratio, *(pairs.ends or ()), *times, *map(math.exp, pairs.log_ratios), 1 + pairs.margin]
    if not all(1e-18 < value < 1e18 for value in values) or not (pairs.log_ratios or all(pairs.times_ms)):
        raise ValueError("a time or a ratio is not positive")


def ratios(pairs: Ratios) -> Figure:
    """B's time over A's in every pair, with the interval of the ratio and the margin that does not matter."""
    paired = bool(pairs.log_ratios)
    if paired:
        x: list[Any] = list(range(1, len(pairs.log_ratios) + 1))
        y = [math.exp(log_ratio) for log_ratio in pairs.log_ratios]
    else:
        usual = statistics.geometric_mean(pairs.times_ms[0])
        x = ["A"] * len(pairs.times_ms[0]) + ["B"] * len(pairs.times_ms[1])
        y = [time / usual for times in pairs.times_ms for time in times]
    margin = 1 / (1 + pairs.margin), 1 + pairs.margin
    ends = pairs.ends if useful(pairs.ends) else None
    values = [*y, *margin, pairs.ratio, *(ends or ())]
    pad = 0.08 * (max(values) - min(values))
    area = [min(values) - pad, max(values) + pad]
    ratio = rounded(pairs.ratio, pairs.ends)
    title = f"B takes {ratio} of A's time: {pairs.verdict}"
    if pairs.outputs_match is False:
        title += ", but the outputs DIFFER"
    subtitle = [f"A: {pairs.labels[0]}", f"B: {pairs.labels[1]}", *_sureness(pairs)]
    names, colors = (f"ratio {ratio}", "1: no difference"), (frame.ACCENT, frame.INK)
    places = frame.spread([pairs.ratio, 1.0], area, frame.plot_height(frame.HEIGHT, subtitle))
    marker = {"color": frame.ACCENT, "size": 8, "opacity": 0.75}
    dots = frame.scatter("markers", x, y, [f"{ratio_of_pair:.4f}" for ratio_of_pair in y], marker=marker)
    return frame.made(
        [dots],
        title,
        subtitle,
        {
            "title": "pair of fresh processes" if paired else "processes of the saved results",
            **(frame.whole(0.5, len(y) + 0.5) if paired else {"type": "category"}),
        },
        {"range": area, "title": "B's time over A's" if paired else "time over A's"},
        margin={"r": 24 + frame.width(names)},
        annotations=frame.beside(names, places, colors),
        shapes=[
            frame.band(*margin, _MARGIN_SHADE),
            *([frame.band(*ends, _INTERVAL_SHADE)] if ends else []),
            frame.level(1.0, frame.INK),
            frame.level(pairs.ratio, frame.ACCENT, "solid"),
        ],
    )


def _sureness(pairs: Ratios) -> list[str]:
    interval = interval_text(pairs.ends, pairs.level)
    if useful(pairs.ends):
        interval = f"blue: {interval}"
    elif pairs.ends:
        interval += f" ({plural(max(len(pairs.log_ratios), 1), 'pair')}): close other programs, or measure longer"
    return [interval, f"grey: margin of {share(pairs.margin)}"]


#: Slower or larger, and faster or smaller: readable on light and on dark, and not told apart by colour alone.
WORSE, BETTER = "#d1572d", "#2f9e5f"
# So many dates fit below a chart.
_MOST_TICKS = 6
_MIB = 2**20
_AXES = {"time": "time (ms per item)", "memory": "peak memory (MiB)"}


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
