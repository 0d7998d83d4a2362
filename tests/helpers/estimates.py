"""Profiles of a few layers to estimate from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferlab.records.profile import Layer, LossLayer, LossProfile, PerformanceProfile
from tests.helpers.profiles import a_profile

WHOLE = a_profile()


def layer(index: int, ms: float, pruned: Mapping[str, float], **more: object) -> Layer:
    name = f"out{index}"
    made = replace(
        WHOLE.performance.layers[0],  # type: ignore[union-attr]
        index=index,
        id=name,
        type="Gemm",
        weight=f"w{index}",
        nodes=(name,),
        fallback=False,
        ms=ms,
        spread_ms=0.0,
        pruned=pruned,
    )
    return replace(made, **more)


def weight(index: int, losses: Mapping[str, float | None], **more: object) -> LossLayer:
    made = LossLayer(index, f"out{index}", "Gemm", f"w{index}", 100, 1, 0.0, 0.1, losses)
    return replace(made, **more)  # type: ignore[arg-type]


def measured(layers: Sequence[Layer], **more: object) -> PerformanceProfile:
    total = sum(one.ms for one in layers)
    levels = {level for one in layers for level in one.pruned}
    pruned = {level: sum(one.pruned.get(level, one.ms) for one in layers) for level in levels}
    assert WHOLE.performance is not None
    made = replace(
        WHOLE.performance, layers=tuple(layers), ms_per_batch=total, ms_interval=(total, total), pruned=pruned
    )
    return replace(made, **more)  # type: ignore[arg-type]


def lost(weights: Sequence[LossLayer], **more: object) -> LossProfile:
    params = sum(one.params for one in weights)
    # The first and the last layer, which no estimate prunes.
    first, last = (weight(index, {}, params=0) for index in (-1, 99))
    layers = (first, *weights, last)
    made = LossProfile("baseline", "one-shot", "relative power", 8, None, None, params, params, 0.1, layers)
    return replace(made, **more)  # type: ignore[arg-type]
