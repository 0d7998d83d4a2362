"""Which sparsity each layer takes under a loss budget, and what that gives: pure functions of two profiles."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from inferlab.errors import BadInput
from inferlab.model.flops.costs import NodeCost
from inferlab.profiling.gains import best_gain, find_gains, gain_layer_times, gain_recipe
from inferlab.profiling.predict import estimate_of, gains_from_zeros, smoothed
from inferlab.records.optimization import Recipe
from inferlab.records.profile import (
    BUDGET,
    Gain,
    Layer,
    LossLayer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    level_key,
)

# A layer that is faster by less than this share, or by less than its times differ, is not faster.
_WORTH = 0.05
_SPREADS = 2.0


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


def with_estimate(profile: Profile, budget: float = BUDGET) -> Profile:
    """The profile with the estimate for this budget in it."""
    check_budget(budget)
    zeros = None if profile.loss is None else estimate(profile.performance, profile.loss, budget)
    profile = replace(profile, estimate=zeros, gains=())
    performance = profile.performance
    if performance is None:
        return profile
    gains = find_gains(profile, budget)
    ms, speedup = (zeros.estimated_ms_per_batch, zeros.estimated_speedup) if zeros else (None, None)
    if gains and gains[0].counts:
        ms, speedup = gains[0].ms_per_batch, gains[0].speedup
    elif gains:
        ms, speedup = performance.ms_per_batch, 1.0
    performance = replace(performance, estimated_ms_per_batch=ms, estimated_speedup=speedup)
    return replace(profile, performance=performance, gains=gains)


def estimated_recipe(profile: Profile, budget: float | None = None) -> Recipe:
    """What makes the model that the profile estimates, for another budget where one is given.

    Refused where nothing that was tried gains.
    """
    if profile.performance is None:
        raise BadInput("This profile has no times, so it estimates nothing. Make one with: inferlab profile MODEL")
    if budget is not None or not profile.gains:
        profile = with_estimate(profile, BUDGET if budget is None else budget)
    best = best_gain(profile)
    recipe = None if best is None else recipe_of_gain(profile, best)
    if recipe is None:
        budgets = [tried.budget for tried in (*profile.gains, profile.estimate) if tried is not None]
        within = f" of {budgets[0]:g}" if budgets else ""
        raise BadInput(
            f"Nothing that the profile tried gains within the loss budget{within}, so there is nothing to make. "
            "Allow more loss with another budget, or say yourself what is to be done."
        )
    return recipe


def check_calibration(recipe: Recipe, data_file: str | None) -> None:
    """Refuse an estimated recipe whose ranges were found on the user's data where no data are given."""
    if recipe.quantization is not None and not recipe.shapes and data_file is None:
        raise BadInput(
            "The profile's copy in INT8 found its ranges on your data: name that file, so that what is made is "
            "what was estimated."
        )


def recipe_of_gain(profile: Profile, gain: Gain) -> Recipe | None:
    """What makes the very model that a gain speaks of, whatever else is asked; None where no copy was tried.

    Where ranges were found on generated inputs, these are part of it, so that no others take their place.
    """
    recipe = gain_recipe(profile, gain)
    if recipe is None or recipe.quantization is None or not recipe.shapes:
        return recipe
    return replace(recipe, digest=profile.model.digest, inferlab=profile.inferlab)


def estimated_ms(profile: Profile) -> dict[int, float]:
    """The time of every layer as estimated, by its index; those that stay as they are too."""
    return gain_layer_times(profile, best_gain(profile) or _zeros_alone(profile))


def _zeros_alone(profile: Profile) -> Gain | None:
    """What older profiles estimated: zeros, where times at levels were measured."""
    zeros = profile.estimate
    if profile.gains or zeros is None or zeros.gained != "time" or zeros.estimated_ms_per_batch is None:
        return None
    ms, speedup = zeros.estimated_ms_per_batch, zeros.estimated_speedup or 1.0
    return Gain(False, 0.0, zeros.parameter_reduction, ms, speedup, zeros.loss, zeros.budget, counts=True)


def has_estimate(profile: Profile) -> bool:
    """Whether an estimate says how long the model would take: something was tried that could make it faster."""
    timed = profile.estimate is not None and profile.estimate.gained == "time"
    return bool(profile.gains) or timed


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
    least = max(_WORTH * before, _SPREADS * spread)
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
