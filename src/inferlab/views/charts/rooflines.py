"""The roofline of a profile: how fast each layer computes, below what this machine can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records.profile import Ceilings, Layer, Profile
from inferlab.units import count, plural, shortened
from inferlab.views.charts import frame
from inferlab.views.charts.profile_values import HOVER, about, grouped, hover

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: The types that take the most time, the most first; the symbol tells them apart without colours too.
_STYLES = (
    (frame.ACCENT, "circle"),
    ("#c08a3e", "square"),
    ("#4f9d69", "diamond"),
    ("#a069b0", "triangle-up"),
    ("#bf6060", "pentagon"),
    ("#3f9aa3", "star"),
)
_REST = (frame.INK, "circle-open")
_SIZES = (6.0, 26.0)
_PAD = 0.12
# More of them cover each other, and take a browser most of a second.
_MOST_POINTS = 1000
# Names of lines that are closer than this share of the axis would cover each other.
_CLOSE = 0.06


def roofline(profile: Profile) -> Figure:
    """Achieved GFLOP/s over FLOPs per byte, a point for each layer with work, below the measured ceilings."""
    performance = profile.performance
    placed = [layer for layer in performance.layers if _point(layer)] if performance else []
    layers = sorted(placed, key=lambda layer: -layer.ms)[:_MOST_POINTS] if len(placed) > _MOST_POINTS else placed
    places = [place for layer in layers if (place := _point(layer))]
    if performance is None or not places:
        raise BadInput("There is no roofline: no layer of this profile has both a time and counted work.")
    x, y = [place[0] for place in places], [place[1] for place in places]
    ceilings = performance.ceilings
    area = [math.log10(min(x)) - _PAD, math.log10(max(x)) + _PAD]
    low, high = min(y), max(y)
    if ceilings:
        # The knees belong to the picture, also where all layers lie left of them.
        peak = max(ceilings.fp32_gflops, ceilings.int8_gops or 0.0)
        area[1] = max(area[1], math.log10(peak / ceilings.bandwidth_gb_per_s) + 0.6)
        high = max(high, peak)
    types = grouped([layer.type for layer in layers], lambda index: layers[index].ms)
    styles = dict.fromkeys(types, _REST) | dict(zip(types, _STYLES, strict=False))
    traces = [*(_roofs(ceilings, area) if ceilings else [])]
    traces += [
        _points(kind, style, [layer for layer in layers if layer.type == kind]) for kind, style in styles.items()
    ]
    left, short = len(performance.layers) - len(placed), len(placed) - len(layers)
    subtitle = [
        f"{performance.engine}, batch {performance.batch_size}, {plural(performance.num_cores, 'core')}",
        "size: share of the time",
        *([] if ceilings else ["ceilings were not measured: --roofline does it"]),
        *([f"{plural(left, 'layer')} without counted work left out"] if left else []),
        *([f"{plural(short, 'layer')} that take less time left out"] if short else []),
    ]
    speeds = [math.log10(low) - _PAD, math.log10(high) + _PAD]
    crowded = _CLOSE * (speeds[1] - speeds[0])
    return frame.made(
        traces,
        "How far each layer is from what this machine can do",
        subtitle,
        {"type": "log", "range": area, "title": "intensity (FLOPs per byte, logarithmic)", "showgrid": True},
        {"type": "log", "range": speeds, "title": "GFLOP/s (logarithmic)"},
        height=520,
        hoverlabel=HOVER,
        showlegend=True,
        legend={"x": 1.01, "y": 1, "yanchor": "top", "itemsizing": "constant", "bgcolor": "rgba(0,0,0,0)"},
        annotations=_names(ceilings, area, crowded) if ceilings else [],
    )


def _point(layer: Layer) -> tuple[float, float] | None:
    """Intensity and speed, where both are known."""
    if not layer.flops or not layer.bytes or not layer.gflops_per_second:
        return None
    return layer.flops / layer.bytes, layer.gflops_per_second


def _points(kind: str, style: tuple[str, str], layers: Sequence[Layer]) -> dict[str, Any]:
    color, symbol = style
    places = [place for layer in layers if (place := _point(layer))]
    return frame.scatter(
        "markers",
        [place[0] for place in places],
        [place[1] for place in places],
        [hover(about(layer)) for layer in layers],
        name=frame.safe(shortened(kind, 24)),
        marker={
            "color": color,
            "symbol": symbol,
            "opacity": 0.7,
            # By area, as an eye compares.
            "size": [min(_SIZES[1], _SIZES[0] + 60 * math.sqrt(max(layer.share, 0.0)) / 2) for layer in layers],
            "line": {"width": 0},
        },
    )


def _roofs(ceilings: Ceilings, area: Sequence[float]) -> list[dict[str, Any]]:
    """Memory's slope up to each ceiling, then the ceiling."""
    traces = []
    for peak, dash in ((ceilings.int8_gops, "dot"), (ceilings.fp32_gflops, "solid")):
        if peak is None:
            continue
        start, end, knee = 10 ** area[0], 10 ** area[1], peak / ceilings.bandwidth_gb_per_s
        corners = [start, *([knee] if start < knee < end else []), end]
        speeds = [min(peak, corner * ceilings.bandwidth_gb_per_s) for corner in corners]
        line = {"color": frame.INK, "width": 1.5, "dash": dash}
        traces.append(frame.scatter("lines", corners, speeds, line=line, showlegend=False))
    return traces


def _names(ceilings: Ceilings, area: Sequence[float], crowded: float) -> list[dict[str, Any]]:
    """What each line is; of two ceilings that are closer than `crowded`, the lower one is named below its line."""
    named = [(f"FP32 {count(ceilings.fp32_gflops)} GFLOP/s", ceilings.fp32_gflops)]
    if ceilings.int8_gops is not None:
        named.append((f"INT8 {count(ceilings.int8_gops)} GOP/s", ceilings.int8_gops))
    places = [math.log10(min(peak, 10 ** area[1] * ceilings.bandwidth_gb_per_s)) for _, peak in named]
    close = len(places) > 1 and abs(places[0] - places[1]) < crowded
    labels = [
        frame.label(text, area[1], place)
        | {"xanchor": "right", "yanchor": "top" if close and place == min(places) else "bottom"}
        for (text, _), place in zip(named, places, strict=True)
    ]
    # Beside the middle of the slope, on the side where no layer can be.
    knee = min(area[1], math.log10(ceilings.fp32_gflops / ceilings.bandwidth_gb_per_s))
    along = (area[0] + knee) / 2
    if along <= area[0]:
        return labels
    memory = frame.label(
        f"memory {count(ceilings.bandwidth_gb_per_s)} GB/s", along, along + math.log10(ceilings.bandwidth_gb_per_s)
    )
    return [*labels, memory | {"xanchor": "right", "yanchor": "bottom", "xshift": -6}]
