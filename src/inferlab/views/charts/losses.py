"""Charts of a loss profile: which layers take pruning badly, and where the parameters are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.profiling.zeros import losses_of, times_of, weight_shares
from inferlab.records.profile import LossLayer, LossProfile, Profile
from inferlab.units import plural, share, shortened
from inferlab.views.charts import frame
from inferlab.views.charts.profile_values import HOVER, VALUES, Bar, hover, layer_bars, named

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_METRICS = {
    "relative power": "loss (relative mean square change)",
    "cross-entropy": "loss (rise of the cross-entropy)",
}
_METHODS = {
    "approximated": "approximated from the weights",
    "one-shot": "one-shot, without data",
    "one-shot with data": "one-shot, with data",
}


def loss_sensitivities(profile: Profile, value: str = "values") -> Figure:
    """How badly each layer takes pruning, in the order of execution."""
    loss = _loss(profile, value)
    sensitivities = [layer.sensitivity for layer in loss.layers]
    unknown = sum(sensitivity is None for sensitivity in sensitivities)
    notes = [f"{plural(unknown, 'layer')} whose outputs were not numbers"] if unknown else []
    return _bars(
        loss,
        sensitivities,
        value,
        "Sensitivity to pruning by layer",
        "sensitivity (mean loss over all sparsities)",
        notes,
    )


def parameter_counts(profile: Profile, value: str = "values") -> Figure:
    """How many parameters each layer has, in the order of execution."""
    loss = _loss(profile, value)
    return _bars(
        loss, [float(layer.params) for layer in loss.layers], value, "Parameters by layer", "parameters", []
    )


def loss_curves(profile: Profile, most: int = 8) -> Figure:
    """What each level of pruning costs, for the layers that take it worst."""
    loss = _loss(profile, "values")
    ranked = sorted(
        (layer for layer in loss.layers if any(value is not None for value in layer.losses.values())),
        key=lambda layer: (layer.sensitivity is not None, -(layer.sensitivity or 0.0), layer.index),
    )[:most]
    if not ranked:
        raise BadInput("There are no loss curves: no level gave a number.")
    lines = [_curve(layer) for layer in ranked]
    values = [value for line in lines for value in line[1] if value is not None]
    low, high = min(0.0, *values), max(values)
    area = [low * 1.08, high * 1.08 or 1.0]
    subtitle = [_METHODS[loss.method], f"the {len(ranked)} most sensitive of {plural(len(loss.layers), 'layer')}"]
    ends = [next((value for value in reversed(y) if value is not None), 0.0) for _, y in lines]
    texts = [shortened(layer.weight or layer.id, 28) for layer in ranked]
    height = frame.height_for(len(ranked), subtitle)
    places = frame.spread(ends, area, frame.plot_height(height, subtitle))
    colors = [frame.ACCENT if rank == 0 else frame.INK for rank in range(len(ranked))]
    traces = [
        frame.scatter(
            "lines+markers",
            *line,
            [hover([*named(layer), *_losses(layer)])] * len(line[0]),
            line={"color": color, "width": 2.5 if layer is ranked[0] else 1.5},
            marker={"color": color, "size": 6},
            opacity=1 if layer is ranked[0] else 0.8,
        )
        for layer, line, color in zip(ranked, lines, colors, strict=True)
    ]
    return frame.made(
        traces[::-1],  # the worst last, so that it lies above the others
        "Loss by sparsity",
        subtitle,
        frame.sparsities("sparsity of its weights"),
        {"range": area, "title": _METRICS[loss.metric]},
        height=height,
        margin={"r": 32 + frame.width(texts)},
        hoverlabel=HOVER,
        annotations=frame.beside(texts, places, colors),
    )


def _loss(profile: Profile, value: str) -> LossProfile:
    if value not in VALUES:
        raise BadInput(f"A value is displayed as one of {', '.join(VALUES)}, not {value!r}.")
    if profile.loss is None or not profile.loss.layers:
        raise BadInput("This profile has no loss profile with layers to draw.")
    return profile.loss


def _curve(layer: LossLayer) -> tuple[list[float], list[float | None]]:
    levels = sorted((key for key in layer.losses if float(key) > 0), key=float)
    return [0.0, *map(float, levels)], [0.0, *(layer.losses[key] for key in levels)]


def _losses(layer: LossLayer) -> list[str]:
    """The loss at each level, in words."""
    texts = []
    for key in sorted(layer.losses, key=float):
        value = layer.losses[key]
        loss = "not a number" if value is None else f"{value:.3g}"
        right = f", accuracy {share(layer.accuracies[key])}" if key in layer.accuracies else ""
        texts.append(f"at {key}: {loss}{right}")
    return texts


def _bars(
    loss: LossProfile,
    numbers: Sequence[float | None],
    value: str,
    title: str,
    unit: str,
    notes: Sequence[str],
) -> Figure:
    total = sum(number or 0.0 for number in numbers)
    bars = [
        Bar(
            layer.id,
            number,
            None if number is None or not total else 100 * number / total,
            _text(number),
            (*named(layer), f"parameters: {layer.params:,}", *_losses(layer)),
            type=layer.type,
            index=place,
        )
        for place, (layer, number) in enumerate(zip(loss.layers, numbers, strict=True))
    ]
    return layer_bars(
        [(frame.ACCENT, bars)],
        value,
        title,
        [_METHODS[loss.method], plural(len(loss.layers), "layer"), *notes],
        frame.depths(len(bars), "layer with weights (order of execution)"),
        "% of the sum of all layers" if value == "percent" else unit,
        shares=False,
    )


def _text(value: float | None) -> str:
    if value is None:
        return "not a number"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


_LOSS = "#c08a3e"
_HEIGHT, _HEIGHT_OF_ONE = 400, 260
# Of the upper curve; the lower one ends a little below it.
_UPPER, _LOWER = (0.56, 1.0), (0.0, 0.44)


def layer_curves(profile: Profile, weight: str, level: float) -> Figure:
    """The time of the layer that has a weight, above what pruning it costs; a line marks the chosen level."""
    losses = [layer for layer in profile.loss.layers if layer.weight == weight] if profile.loss else []
    if not losses:
        raise BadInput(f"No layer of this profile has the weight {weight}.")
    times = _times(profile, weight)
    measured = bool(losses[0].losses)
    if not (measured or times):
        raise BadInput("Neither the times nor the losses of this layer were measured.")
    x = [0.0, *sorted({float(loss) for loss in losses[0].losses})] if measured else []
    loss_axis = "y2" if times else "y"
    traces = [] if not times else [_line([a for a, _ in times], [b for _, b in times], frame.ACCENT, "y", "ms")]
    costs = [sum(_at(loss, level) for loss in losses) for level in x]
    finite = [None if math.isinf(cost) else cost for cost in costs]
    traces.append(_line(x, finite, _LOSS, loss_axis, "loss"))
    lower = {"title": "loss", "range": _span([loss for loss in finite if loss is not None])}
    upper = {"title": "ms", "range": _span([ms for _, ms in times])} if times else lower
    more: dict[str, Any] = {}
    if times:
        upper["domain"] = list(_UPPER)
        more["yaxis2"] = frame.axis({**lower, "domain": list(_LOWER), "anchor": "x"}, showgrid=True)
    return frame.made(
        traces,
        weight,
        [
            *([] if times else ["times at sparsity levels were not measured"]),
            *([] if measured else ["losses were not measured"]),
        ],
        frame.sparsities("sparsity")
        | {"tickvals": [0, 0.25, 0.5, 0.75, 1], "tickformat": ".0%", "anchor": loss_axis},
        upper,
        height=_HEIGHT if times else _HEIGHT_OF_ONE,
        margin={"l": 64, "r": 24},
        shapes=[_mark(level)],
        **more,
    )


def _times(profile: Profile, weight: str) -> list[tuple[float, float]]:
    """The weight's part of the time of all its layers, over sparsity; nothing where none was timed."""
    layers = profile.performance.layers if profile.performance else ()
    parts = {layer.index: weight_shares(layer, profile).get(weight, 0.0) for layer in layers}
    its = [layer for layer in layers if parts[layer.index]]
    if not its or not all(layer.pruned for layer in its):
        return []
    curves = [dict(times_of(layer)) for layer in its]
    shared = sorted(level for level in curves[0] if all(level in curve for curve in curves))
    return [
        (level, sum(parts[layer.index] * curve[level] for layer, curve in zip(its, curves, strict=True)))
        for level in shared
    ]


def _at(layer: LossLayer, level: float) -> float:
    """The loss at one of the layer's levels; what is sparser already costs nothing."""
    return dict(losses_of(layer)).get(level, 0.0)


def _line(x: list[float], y: list[Any], color: str, axis: str, unit: str) -> dict[str, Any]:
    hover_text = f"%{{x:.1%}} zeros: %{{y:.3g}} {unit}<extra></extra>"
    line, marker = {"color": color, "width": 2}, {"color": color, "size": 5}
    return frame.scatter(
        "lines+markers", x, y, yaxis=axis, line=line, marker=marker, hoverinfo=None, hovertemplate=hover_text
    )


def _span(values: list[float]) -> list[float]:
    return [0.0, 1.1 * max(values, default=0.0) or 1.0]


def _mark(level: float) -> dict[str, Any]:
    line = {"color": frame.INK, "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": level, "x1": level, "y0": 0, "y1": 1, "yref": "paper", "line": line}
