"""What pruning weights to given shares of zeros would give, read off two profiles: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from inferlab.records.profile import (
    ChangedCopy,
    Layer,
    LossLayer,
    LossMetric,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    TypeGain,
)

#: A model is not faster by less than this: of many levels one always looks a little faster by chance.
WORTH = 0.02
_MOST_NOISE = 0.1
Points = Sequence[tuple[float, float]]


def gains_from_zeros(performance: PerformanceProfile) -> bool:
    """Whether the whole model is faster at some level of pruning, beyond the noise."""
    return is_faster(performance, min(performance.pruned.values(), default=math.inf))


def is_faster(performance: PerformanceProfile, ms_per_batch: float) -> bool:
    """Whether a changed model with this time is faster than the profile's, beyond the noise.

    The time was measured interleaved with the model, or in the same process: of what the model's own time differs
    between processes, a part counts.
    """
    before = performance.ms_per_batch
    low = (
        before if performance.ms_interval is None else max(performance.ms_interval[0], (1 - _MOST_NOISE) * before)
    )
    return ms_per_batch < min(low, (1 - WORTH) * before)


def int8_speedup(performance: PerformanceProfile | None) -> float | None:
    """How many times as fast a copy in static INT8 was; None where none was timed."""
    if performance is None or not performance.int8_ms_per_batch:
        return None
    return performance.ms_per_batch / performance.int8_ms_per_batch


def copy_loss(copy: ChangedCopy, metric: LossMetric) -> float | None:
    """What the whole change of a copy costs; without labels, how far its outputs move. Less than none is none."""
    distance = copy.distance
    if distance is None:
        return None
    loss = distance.loss_rise if metric == "cross-entropy" and distance.loss_rise is not None else None
    loss = distance.relative_power if loss is None else loss
    return None if loss is None else max(0.0, loss)


def predict(
    performance: PerformanceProfile | None, loss: LossProfile, levels: Mapping[str, float]
) -> PruningEstimate:
    """What comes of these shares of zeros, by the weight's name; between measured levels lines are straight.

    Without times at levels nothing is said of time; where the engine gains nothing from zeros, that it gains
    nothing. Weights at 0, or that are sparser already, stay as they are.
    """
    known = {layer.weight: layer.zero_fraction for layer in loss.layers}
    sparser = {weight: level for weight, level in levels.items() if level > known.get(weight, 1.0)}
    timed = performance if performance is not None and performance.pruned else None
    faster = levels if timed is not None and gains_from_zeros(timed) else {}
    spent = sum(loss_at(layer, sparser[layer.weight]) for layer in loss.layers if layer.weight in sparser)
    return estimate_of(timed, loss, sparser, spent, spent, faster)


def estimate_of(
    timed: PerformanceProfile | None,
    loss: LossProfile,
    levels: Mapping[str, float],
    budget: float,
    spent: float,
    faster: Mapping[str, float] | None = None,
) -> PruningEstimate:
    """The estimate for these levels; `faster` are those that count for the time, by default all."""
    gains = () if timed is None else by_type(timed, loss, levels if faster is None else faster)
    before = None if timed is None else timed.ms_per_batch
    after = None if before is None else before - sum(gain.ms - gain.estimated_ms for gain in gains)
    recovery = _recovery(loss, levels)
    return PruningEstimate(
        budget=budget,
        loss=spent,
        gained="parameters" if timed is None else "time",
        levels=levels,
        ms_per_batch=before,
        estimated_ms_per_batch=after,
        estimated_speedup=before / after if before and after else None,
        by_type=gains,
        parameter_reduction=_reduction(loss, levels),
        recovery=recovery,
        accuracy=None if recovery is None or not loss.dense_accuracy else recovery * loss.dense_accuracy,
    )


def smoothed(layer: Layer) -> dict[str, float]:
    """The layer's times at its levels, made to fall with sparsity (pool adjacent violators).

    A level is measured once: without this, an estimate would pick the levels that were lucky.
    """
    levels = sorted(layer.pruned, key=float)
    pools = [(layer.ms, float(max(1, len(layer.times_ms))), 0)]
    for level in levels:
        ms, weight, count = layer.pruned[level], 1.0, 1
        while pools and ms > pools[-1][0]:
            before, heavier, more = pools.pop()
            ms = (ms * weight + before * heavier) / (weight + heavier)
            weight, count = weight + heavier, count + more
        pools.append((ms, weight, count))
    fitted = [ms for ms, _, count in pools for _ in range(count)]
    return dict(zip(levels, fitted, strict=True))


def times_of(layer: Layer) -> Points:
    """The layer's time over its sparsity, from 0 on."""
    return [(0.0, layer.ms), *((float(level), ms) for level, ms in smoothed(layer).items())]


def losses_of(layer: LossLayer) -> Points:
    """The layer's loss over its sparsity, from what it has on; infinite where outputs are no numbers."""
    levels = sorted(layer.losses, key=float)
    losses = [(float(level), layer.losses[level]) for level in levels if float(level) > layer.zero_fraction]
    # More zeros never harm less: where they seem to, it is chance.
    points, most = [(layer.zero_fraction, 0.0)], 0.0
    for level, loss in losses:
        most = max(most, math.inf if loss is None else loss)
        points.append((level, most))
    return points


def loss_at(layer: LossLayer, level: float) -> float:
    """What pruning the layer alone to this sparsity costs."""
    return between(losses_of(layer), level)


def layer_times(
    performance: PerformanceProfile, loss: LossProfile, levels: Mapping[str, float]
) -> dict[int, float]:
    """The time of every layer, by its index, with these weights pruned; a fallback gains nothing."""
    weight_of = {layer.id: layer.weight for layer in loss.layers}
    times = {}
    for layer in performance.layers:
        its = [levels[weight_of[node]] for node in layer.nodes if weight_of.get(node) in levels]
        # What runs as one is as fast as its least pruned weight lets it be.
        level = 0.0 if layer.fallback else min(its, default=0.0)
        times[layer.index] = between(times_of(layer), level) if level > 0 else layer.ms
    return times


def weight_shares(layer: Layer, profile: Profile) -> dict[str, float]:
    """The part of a layer's time that each of its prunable weights has; all parts add up to 1.

    An engine that runs several nodes as one (DeepSparse's pyramids) times them together: the time is divided by
    the FLOPs of the weights' nodes, evenly where these are not counted.
    """
    losses = profile.loss.layers if profile.loss else ()
    weight_of = {loss.id: loss.weight for loss in losses if loss.id in layer.nodes}
    flops = {layer.id: layer.flops or 0 for layer in profile.flops.layers} if profile.flops else {}
    counted: dict[str, int] = {}
    for node, weight in weight_of.items():
        counted[weight] = counted.get(weight, 0) + flops.get(node, 0)
    total = sum(counted.values())
    return {weight: its / total if total else 1 / len(counted) for weight, its in counted.items()}


def by_type(
    performance: PerformanceProfile, loss: LossProfile, levels: Mapping[str, float]
) -> tuple[TypeGain, ...]:
    """All layers of each type as they are and with these weights pruned, the slowest type first."""
    times = layer_times(performance, loss, levels)
    types: dict[str, list[float]] = {}
    for layer in performance.layers:
        total = types.setdefault(layer.type, [0.0, 0.0])
        total[0] += layer.ms
        total[1] += times[layer.index]
    slowest_first = sorted(types.items(), key=lambda item: -item[1][0])
    return tuple(TypeGain(name, before, after) for name, (before, after) in slowest_first)


def between(points: Points, level: float) -> float:
    """The value at a level, on the straight line between its neighbours; beyond the ends, that of the end."""
    before = points[0]
    for after in points:
        if after[0] >= level:
            if after[0] == level or after is before or math.isinf(after[1]):
                return after[1]
            share = (level - before[0]) / (after[0] - before[0])
            return before[1] + share * (after[1] - before[1])
        before = after
    return before[1]


def _reduction(loss: LossProfile, levels: Mapping[str, float]) -> float:
    """The share of all parameters that become zero, those that are zero already not counted."""
    params = {layer.weight: (layer.params, layer.zero_fraction) for layer in loss.layers}
    zeros = sum((level - params[weight][1]) * params[weight][0] for weight, level in levels.items())
    return zeros / loss.params if loss.params else 0.0


def _recovery(loss: LossProfile, levels: Mapping[str, float]) -> float | None:
    """What is left: of the accuracy with labels, else of the outputs' power; each layer's part adds up."""
    chosen = [layer for layer in loss.layers if layer.weight in levels]
    if loss.dense_accuracy:
        drops = [_drop(layer, levels[layer.weight], loss.dense_accuracy) for layer in chosen]
        return max(0.0, 1 - sum(drops) / loss.dense_accuracy)
    if loss.metric != "relative power":
        return None
    return max(0.0, 1 - sum(loss_at(layer, levels[layer.weight]) for layer in chosen))


def _drop(layer: LossLayer, level: float, dense: float) -> float:
    """How much accuracy goes with pruning one layer to this sparsity."""
    known = sorted(layer.accuracies, key=float)
    drops = [(layer.zero_fraction, 0.0), *((float(level), dense - layer.accuracies[level]) for level in known)]
    return max(0.0, between([drop for drop in drops if drop[0] >= layer.zero_fraction], level))
