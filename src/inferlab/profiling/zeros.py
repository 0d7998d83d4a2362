"""What weights made zero would give: at given levels, or at those that gain most within a loss budget.

Pure functions of two profiles.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferlab.model.flops.costs import NodeCost
from inferlab.records.profile import (
    BUDGET,
    Layer,
    LossLayer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    TypeGain,
    level_key,
)

#: A model is not faster by less than this: of many levels one always looks a little faster by chance.
WORTH = 0.02
_MOST_NOISE = 0.1
# A layer that is faster by less than this share, or by less than its times differ, is not faster.
_WORTH_OF_LAYER = 0.05
_SPREADS = 2.0
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


@dataclass(frozen=True, slots=True)
class _Step:
    """Raising one group of layers from one level to a higher one."""

    group: int
    level: float
    #: Time (or parameters) gained and loss added over the level before.
    gain: float
    loss: float

    @property
    def worth(self) -> float:
        """What is gained for the loss; a step without any loss comes first."""
        return self.gain / self.loss if self.loss > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class _Group:
    """Layers that are pruned together, because they share weights or the engine runs them as one."""

    weights: tuple[LossLayer, ...]
    layers: tuple[Layer, ...]


def estimate(
    performance: PerformanceProfile | None,
    loss: LossProfile,
    budget: float = BUDGET,
    weights: Collection[str] | None = None,
    most: float = 1.0,
) -> PruningEstimate | None:
    """The sparsity of every layer that gains most within the budget; None where nothing can be pruned.

    Where times at the levels were not measured it goes by the parameters that become zero. Only the given weights
    are pruned, by default the usual ones; no level is above `most`.
    """
    timed = performance if performance is not None and performance.pruned else None
    groups = _groups(timed, loss, weights)
    if not groups:
        return None
    steps_by_group = [
        list(_steps(index, group, timed is not None, budget, most)) for index, group in enumerate(groups)
    ]
    chosen = _greedy(steps_by_group, budget) if timed is None or gains_from_zeros(timed) else {}
    levels = {weight.weight: level for index, level in chosen.items() for weight in groups[index].weights}
    spent = sum(_loss(groups[index], level) or 0.0 for index, level in chosen.items())
    return estimate_of(timed, loss, levels, budget, spent)


def usual_weights(layers: Sequence[LossLayer] | Sequence[NodeCost]) -> list[str]:
    """The weights that are pruned unless a user says otherwise: not the first and last, nor grouped ones.

    The ends have few weights, and what they lose no other layer can make good; a depthwise convolution has a few
    weights a channel, which no engine computes faster for being zero. Where there is nothing else, the ends count.
    """
    ends = {layer.weight for layer in (*layers[:1], *layers[-1:])}
    dense = list(dict.fromkeys(layer.weight for layer in layers if layer.groups == 1))
    return [weight for weight in dense if weight not in ends] or dense


def _groups(
    performance: PerformanceProfile | None, loss: LossProfile, weights: Collection[str] | None
) -> list[_Group]:
    """What may be pruned: the given weights, or the usual ones."""
    chosen = frozenset(usual_weights(loss.layers) if weights is None else weights)
    allowed = {layer.id: layer for layer in loss.layers if layer.weight in chosen}
    if performance is None:
        by_weight: dict[str, list[LossLayer]] = {}
        for prunable in allowed.values():
            by_weight.setdefault(prunable.weight, []).append(prunable)
        return [_Group(tuple(same), ()) for same in by_weight.values()]
    groups: dict[int, tuple[dict[str, LossLayer], list[Layer]]] = {}
    holders: dict[str, int] = {}
    for place, layer in enumerate(performance.layers):
        weights = {allowed[node].weight: allowed[node] for node in layer.nodes if node in allowed}
        if not weights or layer.fallback:
            continue
        layers = [layer]
        for holder in sorted({holders[weight] for weight in weights if weight in holders}):
            other = groups.pop(holder)
            weights, layers = {**other[0], **weights}, [*other[1], *layers]
        groups[place] = weights, layers
        holders |= dict.fromkeys(weights, place)
    return [_Group(tuple(weights.values()), tuple(layers)) for weights, layers in groups.values()]


def _steps(index: int, group: _Group, timed: bool, budget: float, most: float) -> Iterator[_Step]:
    """The steps of a group that are worth taking, each worth less for its loss than the one before.

    Levels that cost more than the whole budget are none: on the hull they would hide cheaper ones.
    """
    corners: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
    loss = 0.0
    gains = _time_gains(group) if timed else {}
    for level in _levels(group, most):
        level_loss = _loss(group, level)
        if level_loss is None:
            continue
        # More zeros never harm less: where they seem to, it is chance.
        loss = max(loss, level_loss)
        if loss > budget:
            break
        gain = gains.get(level_key(level)) if timed else _zeros(group, level)
        if gain is None or gain <= corners[-1][2]:
            continue
        # The upper hull of gain over loss: a step that is worth more than the one before it replaces it.
        while len(corners) > 1 and (gain - corners[-2][2]) * (corners[-1][1] - corners[-2][1]) >= (
            corners[-1][2] - corners[-2][2]
        ) * (loss - corners[-2][1]):
            corners.pop()
        corners.append((level, loss, gain))
    for before, after in itertools.pairwise(corners):
        yield _Step(index, after[0], after[2] - before[2], after[1] - before[1])


def _levels(group: _Group, most: float) -> list[float]:
    """The levels up to `most` at which every weight of a group becomes sparser than it is."""
    dense = max(weight.zero_fraction for weight in group.weights)
    known = {level for weight in group.weights for level in weight.losses}
    return sorted(float(level) for level in known if dense < float(level) <= most)


def _loss(group: _Group, level: float) -> float | None:
    losses = [weight.losses.get(level_key(level)) for weight in group.weights]
    return None if None in losses else sum(max(0.0, loss) for loss in losses if loss is not None)


def _time_gains(group: _Group) -> dict[str, float]:
    """What a group gains at each level that all of its layers were timed at, where that is beyond the noise."""
    times = [smoothed(layer) for layer in group.layers]
    before = sum(layer.ms for layer in group.layers)
    spread = sum((layer.spread_ms or 0.0) ** 2 for layer in group.layers) ** 0.5
    least = max(_WORTH_OF_LAYER * before, _SPREADS * spread)
    gains = {
        level: before - sum(layer_times[level] for layer_times in times)
        for level in times[0]
        if all(level in layer_times for layer_times in times)
    }
    return {level: gain for level, gain in gains.items() if gain > least}


def _zeros(group: _Group, level: float) -> float:
    return sum((level - weight.zero_fraction) * weight.params for weight in group.weights)


def _greedy(steps_by_group: Sequence[Sequence[_Step]], budget: float) -> dict[int, float]:
    """Take the step that gains most for its loss, again and again; a group whose step is too dear stays there."""
    waiting = [_turn(steps, 0) for steps in steps_by_group if steps]
    heapq.heapify(waiting)
    chosen: dict[int, float] = {}
    left = budget
    while waiting:
        *_, group, at = heapq.heappop(waiting)
        step = steps_by_group[group][at]
        if step.loss <= left:
            chosen[group] = step.level
            left -= step.loss
            if at + 1 < len(steps_by_group[group]):
                heapq.heappush(waiting, _turn(steps_by_group[group], at + 1))
    return chosen


def _turn(steps: Sequence[_Step], at: int) -> tuple[float, float, int, int]:
    """When a step's turn is: what is worth most first, then what gains most, then the first group."""
    step = steps[at]
    return -step.worth, -step.gain, step.group, at
