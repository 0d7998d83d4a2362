"""Charts of a profile: where the time goes by type and by layer, and what pruning does to the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.profiling.diff import LayerDiff, Row
from inferlab.profiling.gains import best_gain
from inferlab.profiling.zeros import gains_from_zeros
from inferlab.records.profile import Ceilings, Layer, PerformanceProfile, Profile
from inferlab.units import count, decimal, plural, shortened
from inferlab.views.charts import frame
from inferlab.views.charts.profile_values import (
    FLOPS,
    HOLLOW,
    HOVER,
    Bar,
    about,
    bar_height,
    by_layer,
    by_type,
    chosen,
    grouped,
    has_errors,
    hover,
    hovering,
    layer_bars,
    summaries,
    value_axis,
)
from inferlab.views.fields import in_brackets
from inferlab.views.layer_diff import kernels
from inferlab.views.results import short_name
from inferlab.views.text import what_is_done

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHADE = "rgba(127,127,127,0.16)"
_BAR = 28
_UNITS = {"flops": "FLOPs", "params": "parameters", "bytes": "bytes"}


def layer_summaries(profile: Profile, summary: str = "baseline", value: str = "values") -> Figure:
    """Time by layer type, the longest first, or FLOPs where no time was measured.

    `summary` is baseline, a level of pruning such as 0.9, int8, channels-0.25, estimated, speedup, flops, params
    or bytes; `value` is values, log or percent.
    """
    summary = chosen(profile, summary, value)
    bars = sorted(by_type(profile, summary), key=lambda bar: -(bar_height(bar, value) or 0.0))
    heights = [bar_height(bar, value) for bar in bars]
    texts = [_text(bar, value) for bar in bars]
    names = [shortened(bar.name, 32) for bar in bars]
    trace = {
        "type": "bar",
        "orientation": "h",
        "x": heights,
        "y": list(range(len(bars))),
        "width": 0.66,
        "marker": {
            "color": [HOLLOW if bar.fallback else frame.ACCENT for bar in bars],
            "opacity": 0.85,
            "line": {"color": frame.INK, "width": [int(bar.fallback) for bar in bars]},
        },
        "text": [frame.safe(text) for text in texts],
        "textposition": "outside",
        "textfont": {"color": frame.INK},
        "cliponaxis": False,
        **hovering(bars),
    }
    subtitle = [*of(profile, summary), *_notes(profile, bars, summary)]
    return frame.made(
        [trace],
        f"{summaries(profile)[summary]} by layer type",
        subtitle,
        {**value_axis(heights, _unit(summary, value), value), "showgrid": True, "gridcolor": frame.FAINT},
        frame.rows(names),
        height=frame.top_margin(subtitle) + 84 + _BAR * max(len(bars), 3),
        # Wide enough for the texts of every choice: bars that keep their place are easier to compare.
        margin={"r": 96, "l": 24 + frame.width(names)},
        hoverlabel=HOVER,
    )


def layer_results(profile: Profile, summary: str = "baseline", value: str = "values") -> Figure:
    """A bar for every layer in the order of execution; who points at one reads all about it."""
    summary = chosen(profile, summary, value)
    bars = by_layer(profile, summary)
    main = _main_type(profile, bars)
    styles = (
        (frame.ACCENT, [bar for bar in bars if bar.type == main and not bar.fallback]),
        (frame.INK, [bar for bar in bars if bar.type != main and not bar.fallback]),
        (HOLLOW, [bar for bar in bars if bar.fallback]),
    )
    notes = [f"blue: {shortened(main, 32)}", "grey: other types"] if len({bar.type for bar in bars}) > 1 else []
    notes += ["bars: standard deviation between processes"] if has_errors(bars, value) else []
    return layer_bars(
        styles,
        value,
        f"{summaries(profile)[summary]} by layer",
        [*of(profile, summary), *notes, *_notes(profile, bars, summary)],
        frame.depths(max((bar.index for bar in bars), default=0) + 1, "layer depth (order of execution)"),
        _unit(summary, value),
    )


def _main_type(profile: Profile, bars: Sequence[Bar]) -> str:
    """The type that takes the most as the model is, so that colours stay when another summary is chosen."""
    before = {} if profile.performance is None else {layer.index: layer.ms for layer in profile.performance.layers}
    weights = grouped(
        [bar.type for bar in bars],
        lambda index: before.get(bars[index].index, 0.0) if before else bars[index].value or 0.0,
    )
    return next(iter(weights), "")


def pruning(profile: Profile) -> Figure:
    """The whole model's time at every sparsity level, with the baseline and its interval."""
    performance = profile.performance
    if performance is None or not performance.pruned:
        raise BadInput("No sparsity level was measured in this profile. Give some with --levels.")
    levels = sorted((key for key in performance.pruned if float(key) > 0), key=float)
    x, y = [0.0, *map(float, levels)], [performance.ms_per_batch, *(performance.pruned[key] for key in levels)]
    marks = [("as it is", performance.ms_per_batch, frame.INK)]
    if performance.int8_ms_per_batch is not None:
        marks.append(("INT8", performance.int8_ms_per_batch, frame.INK))
    if profile.estimate and profile.estimate.estimated_ms_per_batch is not None:
        marks.append(("estimated", profile.estimate.estimated_ms_per_batch, frame.ACCENT))
    ends = performance.ms_interval
    top = max([*y, *(value for _, value, _ in marks), *(ends or ())]) * 1.08
    subtitle = [*of(profile, "baseline"), _how(performance), *(["grey: the baseline's interval"] if ends else [])]
    texts = [f"{name}: {decimal(value, 3)} ms" for name, value, _ in marks]
    places = frame.spread([value for _, value, _ in marks], [0, top], frame.plot_height(frame.HEIGHT, subtitle))
    hover_texts = [
        f"{level:g} zeros: {decimal(ms, 3)} ms, {y[0] / ms:.2f} × as fast" if ms else f"{level:g} zeros"
        for level, ms in zip(x, y, strict=True)
    ]
    style, marker = {"color": frame.ACCENT, "width": 2.5}, {"color": frame.ACCENT, "size": 8}
    line = frame.scatter("lines+markers", x, y, hover_texts, line=style, marker=marker)
    return frame.made(
        [line],
        _gain(performance, levels),
        subtitle,
        frame.sparsities("sparsity of the weights"),
        {"range": [0, top], "title": "time (ms per batch)"},
        margin={"r": 24 + frame.width(texts)},
        hoverlabel=HOVER,
        annotations=frame.beside(texts, places, [color for _, _, color in marks]),
        shapes=[
            *([frame.band(*ends, _SHADE)] if ends else []),
            *(frame.level(value, color, "dot") for _, value, color in marks),
        ],
    )


def _gain(performance: PerformanceProfile, levels: Sequence[str]) -> str:
    """What pruning does, in words."""
    if not gains_from_zeros(performance):
        return f"Zeros in the weights gain nothing on {performance.engine}"
    best = min(levels, key=lambda key: performance.pruned[key])
    speedup = performance.ms_per_batch / performance.pruned[best]
    return f"At best {speedup:.2f} × as fast, with {best} of the weights zero"


def _how(performance: PerformanceProfile) -> str:
    return "imposed by the engine" if performance.pruning == "imposed" else "weights zeroed in a copy"


def of(profile: Profile, summary: str) -> list[str]:
    """What was profiled, in a few words."""
    model = shortened(short_name(profile.model.source), 48)
    if summary in FLOPS or profile.performance is None:
        batch = profile.flops.batch_size if profile.flops else 1
        return [model, f"batch {batch}", "from the architecture alone"]
    performance = profile.performance
    return [
        model,
        performance.engine_and_version,
        f"batch {performance.batch_size}",
        plural(performance.num_cores, "core"),
    ]


def _notes(profile: Profile, bars: Sequence[Bar], summary: str) -> list[str]:
    notes = []
    if any(bar.fallback for bar in bars):
        notes.append("hollow: ran in the engine's fallback")
    if summary in ("estimated", "speedup") and (best := best_gain(profile)):
        notes.append(what_is_done(best))
    if summary in ("estimated", "speedup") and profile.estimate:
        notes.append(f"loss budget {profile.estimate.budget:g}")
    missing = sum(bar.value is None for bar in bars)
    return [*notes, f"{missing} without a value"] if missing else notes


def _text(bar: Bar, value: str) -> str:
    if value == "percent":
        return "" if bar.percent is None else f"{bar.percent:.3g} %"
    return bar.told


def _unit(summary: str, value: str) -> str:
    if value == "percent":
        return "% of its time as it is" if summary == "speedup" else "% of the whole"
    return _UNITS.get(summary, "ms saved per batch" if summary == "speedup" else "ms per batch")


_DIFF_BAR = 22
_LONGEST = 36


def layer_diff(diff: LayerDiff, most: int = 30) -> Figure:
    """A's and B's time per item for the layers that differ most, the largest difference at the top."""
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
    lines = frame.scatter(
        "lines",
        # None ends a line.
        [x for row in rows for x in (row.a_ms, row.b_ms, None)],
        [y for place in places for y in (place, place, None)],
        line={"color": frame.INK, "width": 2},
        opacity=0.5,
    )
    return frame.made(
        [
            lines,
            _dots([row.a_ms for row in rows], places, rows, frame.INK, "circle-open"),
            _dots([row.b_ms for row in rows], places, rows, frame.ACCENT, "circle"),
        ],
        f"B takes {decimal(diff.ratio.value)} of A's time: {diff.verdict}",
        subtitle,
        {"range": [-0.02 * top, top * 1.04], "title": "ms per item", "showgrid": True, "gridcolor": frame.FAINT},
        frame.rows(names),
        height=frame.top_margin(subtitle) + 84 + _DIFF_BAR * max(len(rows), 3),
        margin={"r": 24 + frame.width(texts), "l": 24 + frame.width(names)},
        hoverlabel=HOVER,
        annotations=frame.beside(texts, places, [frame.ACCENT if _sure(row) else frame.INK for row in rows]),
    )


def _sure(row: Row) -> bool:
    return row.verdict in ("faster", "slower")


def _verdict(row: Row) -> str:
    if not row.a or not row.b:
        return "only in A" if row.a else "only in B"
    return f"{row.verdict}, {row.ratio.value:.2f}" if row.ratio else row.verdict


def _dots(x: Sequence[float], y: Sequence[int], rows: Sequence[Row], color: str, symbol: str) -> dict[str, Any]:
    marker = {"color": color, "size": 9, "symbol": symbol, "line": {"width": 2, "color": color}}
    return frame.scatter("markers", x, y, [hover(_about(row)) for row in rows], marker=marker)


def _about(row: Row) -> list[str]:
    ratio = row.ratio
    ends = "" if ratio is None else in_brackets(ratio.ends, "{:.3f}".format)
    return [
        f"{row.type} {shortened(row.id, 64)}",
        f"A: {decimal(row.a_ms, 3)} ms per item{_kernels(row.a)}",
        f"B: {decimal(row.b_ms, 3)} ms per item{_kernels(row.b)}",
        "" if ratio is None else f"B takes {ratio.value:.3f} of A's time{ends}: {row.verdict}",
    ]


def _kernels(layers: Sequence[Layer]) -> str:
    named = kernels(layers)
    return shortened(f" in {plural(len(layers), 'layer')}: {named}", 64) if named else ""


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
