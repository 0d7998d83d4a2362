"""The chart of two profiles side by side: the layers whose times differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.profiling.diff import LayerDiff, Row
from inferlab.records.profile import Layer
from inferlab.units import decimal, plural, shortened
from inferlab.views.charts import frame
from inferlab.views.charts.profile_values import HOVER, hover
from inferlab.views.intervals import in_brackets

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_BAR = 22
_LONGEST = 36


def layer_diff(diff: LayerDiff, most: int = 30) -> Figure:
    """A's and B's time an item for the layers that differ most, the largest difference at the top."""
    rows = diff.rows[:most]
    if not rows:
        raise BadInput("There is nothing to draw: neither profile has a layer.")
    places = list(range(len(rows)))
    names = [shortened(f"{row.type} {row.id}", _LONGEST) for row in rows]
    texts = [_verdict(row) for row in rows]
    top = max(max(row.a_ms, row.b_ms) for row in rows) or 1.0
    more = len(diff.rows) - len(rows)
    subtitle = [
        f"A (hollow): {diff.labels[0]}",
        f"B (blue): {diff.labels[1]}",
        *([f"{plural(more, 'layer')} that differ less left out"] if more else []),
    ]
    lines = {
        "type": "scatter",
        "mode": "lines",
        # None ends a line.
        "x": [x for row in rows for x in (row.a_ms, row.b_ms, None)],
        "y": [y for place in places for y in (place, place, None)],
        "line": {"color": frame.INK, "width": 2},
        "opacity": 0.5,
        "hoverinfo": "skip",
    }
    return frame.made(
        [
            lines,
            _dots([row.a_ms for row in rows], places, rows, frame.INK, "circle-open"),
            _dots([row.b_ms for row in rows], places, rows, frame.ACCENT, "circle"),
        ],
        f"B takes {decimal(diff.ratio.value)} of A's time: {diff.verdict}",
        subtitle,
        {"range": [-0.02 * top, top * 1.04], "title": "ms an item", "showgrid": True, "gridcolor": frame.FAINT},
        {
            "tickvals": places,
            "ticktext": [frame.safe(name) for name in names],
            "range": [len(rows) - 0.5, -0.5],
            "showgrid": False,
            "ticks": "",
        },
        height=frame.top_margin(subtitle) + 84 + _BAR * max(len(rows), 3),
        margin={"r": 24 + frame.width(texts), "l": 24 + frame.width(names)},
        hoverlabel=HOVER,
        annotations=[
            frame.label(text, 1, place, frame.ACCENT if _sure(row) else frame.INK, xref="paper", xshift=8)
            for text, place, row in zip(texts, places, rows, strict=True)
        ],
    )


def _sure(row: Row) -> bool:
    return row.verdict in ("faster", "slower")


def _verdict(row: Row) -> str:
    if not row.a or not row.b:
        return "only in A" if row.a else "only in B"
    return f"{row.verdict}, {row.ratio.value:.2f}" if row.ratio else row.verdict


def _dots(x: Sequence[float], y: Sequence[int], rows: Sequence[Row], color: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "marker": {"color": color, "size": 9, "symbol": symbol, "line": {"width": 2, "color": color}},
        "hoverinfo": "text",
        "hovertext": [hover(_about(row)) for row in rows],
    }


def _about(row: Row) -> list[str]:
    ratio = row.ratio
    ends = "" if ratio is None else in_brackets(ratio.ends, "{:.3f}".format)
    return [
        f"{row.type} {shortened(row.id, 64)}",
        f"A: {decimal(row.a_ms, 3)} ms an item{_kernels(row.a)}",
        f"B: {decimal(row.b_ms, 3)} ms an item{_kernels(row.b)}",
        "" if ratio is None else f"B takes {ratio.value:.3f} of A's time{ends}: {row.verdict}",
    ]


def _kernels(layers: Sequence[Layer]) -> str:
    named = list(dict.fromkeys(one.kernel for one in layers if one.kernel))
    return shortened(f" in {plural(len(layers), 'layer')}: {', '.join(named)}", 64) if named else ""
