"""Which sparsity each layer takes under a loss budget, and what that gives: pure functions of two profiles."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from inferlab.errors import BadInput
from inferlab.profiling.records import (
    Layer,
    LossLayer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    TypeGain,
    level_key,
)

#: The loss that an estimate may cost where nobody says: the changed outputs keep 90 % of their power.
BUDGET = 0.1
# A layer that is faster by less than this share, or by less than its times differ, is not faster.
_WORTH = 0.05
_SPREADS = 2.0
# Nor is a whole model by less than this: of many levels one always looks a little faster by chance.
_WORTH_OF_ALL = 0.02


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


def check_budget(budget: float) -> None:
    """Refuse a loss budget that is none."""
    if not 0 <= budget < math.inf:
        raise BadInput(f"The loss budget must be 0 or more, not {budget:g}.")


def gains_from_zeros(performance: PerformanceProfile) -> bool:
    """Whether the whole model is faster at some level of pruning, beyond the noise."""
    low = performance.ms_per_batch if performance.ms_interval is None else performance.ms_interval[0]
    enough = min(low, (1 - _WORTH_OF_ALL) * performance.ms_per_batch)
    return min(performance.pruned.values(), default=math.inf) < enough


def estimate(
    performance: PerformanceProfile | None, loss: LossProfile, budget: float = BUDGET
) -> PruningEstimate | None:
    """The sparsity of every layer that gains most within the budget; None where nothing can be pruned.

    Where times at the levels were not measured it goes by the parameters that become zero.
    """
    timed = performance if performance is not None and performance.pruned else None
    groups = _groups(timed, loss)
    if not groups:
        return None
    ladders = [list(_steps(index, one, timed is not None)) for index, one in enumerate(groups)]
    chosen = _greedy(ladders, budget) if timed is None or gains_from_zeros(timed) else {}
    levels = {weight.weight: level for index, level in chosen.items() for weight in groups[index].weights}
    by_type = () if timed is None else _by_type(timed, loss, levels)
    before = None if timed is None else timed.ms_per_batch
    after = None if before is None else before - sum(one.ms - one.estimated_ms for one in by_type)
    return PruningEstimate(
        budget=budget,
        loss=sum(_loss(groups[index], level) or 0.0 for index, level in chosen.items()),
        gained="parameters" if timed is None else "time",
        levels=levels,
        ms_per_batch=before,
        estimated_ms_per_batch=after,
        estimated_speedup=before / after if before and after else None,
        by_type=by_type,
        parameter_reduction=_reduction(loss, levels),
        recovery=_recovery(loss, levels),
    )


def with_estimate(profile: Profile, budget: float = BUDGET) -> Profile:
    """The profile with the estimate for this budget in it."""
    check_budget(budget)
    if profile.loss is None:
        return profile
    found = estimate(profile.performance, profile.loss, budget)
    performance = profile.performance
    if performance is not None:
        performance = replace(
            performance,
            estimated_ms_per_batch=found.estimated_ms_per_batch if found else None,
            estimated_speedup=found.estimated_speedup if found else None,
        )
    return replace(profile, performance=performance, estimate=found)


def estimated_ms(profile: Profile) -> dict[int, float]:
    """The time of every layer as estimated, by its index; those that stay as they are too."""
    performance, found = profile.performance, profile.estimate
    if performance is None:
        return {}
    if profile.loss is None or found is None or found.gained != "time":
        return {layer.index: layer.ms for layer in performance.layers}
    return _layer_times(performance, profile.loss, found.levels)


def smoothed(layer: Layer) -> dict[str, float]:
    """The layer's times at its levels, made to fall with the share of zeros (pool adjacent violators).

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


def _groups(performance: PerformanceProfile | None, loss: LossProfile) -> list[_Group]:
    """What may be pruned: no first convolution, and no grouped one.

    The first has few weights, and what it loses no later layer can make good; a depthwise convolution has a few
    weights a channel, which no engine computes faster for being zero.
    """
    first = next((one.id for one in loss.layers[:1] if one.type.endswith("Conv")), "")
    allowed = {one.id: one for one in loss.layers if one.groups == 1 and one.id != first}
    if performance is None:
        by_weight: dict[str, list[LossLayer]] = {}
        for one in allowed.values():
            by_weight.setdefault(one.weight, []).append(one)
        return [_Group(tuple(ones), ()) for ones in by_weight.values()]
    found: dict[int, tuple[dict[str, LossLayer], list[Layer]]] = {}
    holders: dict[str, int] = {}
    for place, layer in enumerate(performance.layers):
        weights = {allowed[node].weight: allowed[node] for node in layer.nodes if node in allowed}
        if not weights or layer.fallback:
            continue
        layers = [layer]
        for holder in sorted({holders[weight] for weight in weights if weight in holders}):
            other = found.pop(holder)
            weights, layers = {**other[0], **weights}, [*other[1], *layers]
        found[place] = weights, layers
        holders |= dict.fromkeys(weights, place)
    return [_Group(tuple(weights.values()), tuple(layers)) for weights, layers in found.values()]


def _steps(index: int, group: _Group, timed: bool) -> Iterator[_Step]:
    """The steps of a group that are worth taking, each worth less for its loss than the one before."""
    corners: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
    loss = 0.0
    gains = _time_gains(group) if timed else {}
    for level in _levels(group):
        found = _loss(group, level)
        if found is None:
            continue
        # More zeros never harm less: where they seem to, it is chance.
        loss = max(loss, found)
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


def _levels(group: _Group) -> list[float]:
    """The levels at which every weight of a group becomes sparser than it is."""
    dense = max(one.zero_fraction for one in group.weights)
    known = {level for one in group.weights for level in one.losses}
    return sorted(float(level) for level in known if float(level) > dense)


def _loss(group: _Group, level: float) -> float | None:
    found = [one.losses.get(level_key(level)) for one in group.weights]
    return None if None in found else sum(max(0.0, one) for one in found if one is not None)


def _time_gains(group: _Group) -> dict[str, float]:
    """What a group gains at each level that all of its layers were timed at, where that is beyond the noise."""
    times = [smoothed(layer) for layer in group.layers]
    before = sum(layer.ms for layer in group.layers)
    spread = sum((layer.spread_ms or 0.0) ** 2 for layer in group.layers) ** 0.5
    least = max(_WORTH * before, _SPREADS * spread)
    gains = {
        level: before - sum(one[level] for one in times)
        for level in times[0]
        if all(level in one for one in times)
    }
    return {level: gain for level, gain in gains.items() if gain > least}


def _zeros(group: _Group, level: float) -> float:
    return sum((level - one.zero_fraction) * one.params for one in group.weights)


def _greedy(ladders: Sequence[Sequence[_Step]], budget: float) -> dict[int, float]:
    """Take the step that gains most for its loss, again and again; a group whose step is too dear stays there."""
    waiting = [_turn(ladder, 0) for ladder in ladders if ladder]
    heapq.heapify(waiting)
    chosen: dict[int, float] = {}
    left = budget
    while waiting:
        *_, group, at = heapq.heappop(waiting)
        step = ladders[group][at]
        if step.loss <= left:
            chosen[group] = step.level
            left -= step.loss
            if at + 1 < len(ladders[group]):
                heapq.heappush(waiting, _turn(ladders[group], at + 1))
    return chosen


def _turn(ladder: Sequence[_Step], at: int) -> tuple[float, float, int, int]:
    """When a step's turn is: what is worth most first, then what gains most, then the first group."""
    step = ladder[at]
    return -step.worth, -step.gain, step.group, at


def _layer_times(
    performance: PerformanceProfile, loss: LossProfile, levels: Mapping[str, float]
) -> dict[int, float]:
    """The time of every layer, by its index, with these weights pruned; a fallback gains nothing."""
    weight_of = {layer.id: layer.weight for layer in loss.layers}
    times = {}
    for layer in performance.layers:
        its = [levels[weight_of[node]] for node in layer.nodes if weight_of.get(node) in levels]
        pruned = bool(its) and not layer.fallback
        times[layer.index] = smoothed(layer).get(level_key(min(its)), layer.ms) if pruned else layer.ms
    return times


def _by_type(
    performance: PerformanceProfile, loss: LossProfile, levels: Mapping[str, float]
) -> tuple[TypeGain, ...]:
    times = _layer_times(performance, loss, levels)
    types: dict[str, list[float]] = {}
    for layer in performance.layers:
        total = types.setdefault(layer.type, [0.0, 0.0])
        total[0] += layer.ms
        total[1] += times[layer.index]
    slowest_first = sorted(types.items(), key=lambda one: -one[1][0])
    return tuple(TypeGain(name, before, after) for name, (before, after) in slowest_first)


def _reduction(loss: LossProfile, levels: Mapping[str, float]) -> float:
    """The share of all parameters that become zero, those that are zero already not counted."""
    params = {one.weight: (one.params, one.zero_fraction) for one in loss.layers}
    zeros = sum((level - params[weight][1]) * params[weight][0] for weight, level in levels.items())
    return zeros / loss.params if loss.params else 0.0


def _recovery(loss: LossProfile, levels: Mapping[str, float]) -> float | None:
    """What is left: of the accuracy with labels, else of the outputs' power; each layer's part adds up."""
    chosen = [one for one in loss.layers if one.weight in levels]
    if loss.dense_accuracy:
        left = [one.accuracies.get(level_key(levels[one.weight])) for one in chosen]
        drops = [loss.dense_accuracy - one for one in left if one is not None]
        return max(0.0, 1 - sum(max(0.0, drop) for drop in drops) / loss.dense_accuracy)
    if loss.metric != "relative power":
        return None
    losses = [one.losses[level_key(levels[one.weight])] or 0.0 for one in chosen]
    return max(0.0, 1 - sum(losses))
