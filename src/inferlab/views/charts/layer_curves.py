"""The two curves of one layer over its share of zeros: its time and its loss, with the share that was chosen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.profiling.predict import losses_of, times_of, weight_shares
from inferlab.records.profile import LossLayer, Profile
from inferlab.views.charts import frame

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_LOSS = "#c08a3e"
_HEIGHT, _HEIGHT_OF_ONE = 400, 260
# Of the upper curve; the lower one ends a little below it.
_UPPER, _LOWER = (0.56, 1.0), (0.0, 0.44)


def layer_curves(profile: Profile, weight: str, level: float) -> Figure:
    """The time of the layer that has a weight, above what pruning it costs; a line marks the chosen level."""
    losses = [one for one in profile.loss.layers if one.weight == weight] if profile.loss else []
    if not losses:
        raise BadInput(f"No layer of this profile has the weight {weight}.")
    times = _times(profile, weight)
    measured = bool(losses[0].losses)
    if not (measured or times):
        raise BadInput("Neither the times nor the losses of this layer were measured.")
    x = [0.0, *sorted({float(one) for one in losses[0].losses})] if measured else []
    loss_axis = "y2" if times else "y"
    traces = [] if not times else [_line([a for a, _ in times], [b for _, b in times], frame.ACCENT, "y", "ms")]
    costs = [sum(_at(one, level) for one in losses) for level in x]
    known = [None if math.isinf(one) else one for one in costs]
    traces.append(_line(x, known, _LOSS, loss_axis, "loss"))
    lower = {"title": "loss", "range": _span([one for one in known if one is not None])}
    upper = {"title": "ms", "range": _span([ms for _, ms in times])} if times else lower
    more: dict[str, Any] = {}
    if times:
        upper["domain"] = list(_UPPER)
        more["yaxis2"] = frame.axis({**lower, "domain": list(_LOWER), "anchor": "x"}, showgrid=True)
    return frame.made(
        traces,
        weight,
        [
            *([] if times else ["times at levels of pruning were not measured"]),
            *([] if measured else ["losses were not measured"]),
        ],
        {
            "range": [-0.03, 1.03],
            "title": "share of zeros",
            "tickvals": [0, 0.25, 0.5, 0.75, 1],
            "tickformat": ".0%",
            "anchor": loss_axis,
        },
        upper,
        height=_HEIGHT if times else _HEIGHT_OF_ONE,
        margin={"l": 64, "r": 24},
        shapes=[_mark(level)],
        **more,
    )


def _times(profile: Profile, weight: str) -> list[tuple[float, float]]:
    """The weight's part of the time of all its layers, over the share of zeros; nothing where none was timed."""
    layers = profile.performance.layers if profile.performance else ()
    parts = {one.index: weight_shares(one, profile).get(weight, 0.0) for one in layers}
    its = [one for one in layers if parts[one.index]]
    if not its or not all(one.pruned for one in its):
        return []
    curves = [dict(times_of(one)) for one in its]
    shared = sorted(level for level in curves[0] if all(level in one for one in curves))
    return [
        (level, sum(parts[one.index] * curve[level] for one, curve in zip(its, curves, strict=True)))
        for level in shared
    ]


def _at(layer: LossLayer, level: float) -> float:
    """The loss at one of the layer's levels; what is sparser already costs nothing."""
    return dict(losses_of(layer)).get(level, 0.0)


def _line(x: list[float], y: list[Any], color: str, axis: str, unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": x,
        "y": y,
        "yaxis": axis,
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "size": 5},
        "hovertemplate": f"%{{x:.1%}} zeros: %{{y:.3g}} {unit}<extra></extra>",
    }


def _span(values: list[float]) -> list[float]:
    return [0.0, 1.1 * max(values, default=0.0) or 1.0]


def _mark(level: float) -> dict[str, Any]:
    line = {"color": frame.INK, "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": level, "x1": level, "y0": 0, "y1": 1, "yref": "paper", "line": line}
