"""What INT8, fewer channels and zeros would each give within a loss budget, and the estimate that follows.

Pure functions of a profile. Copies were measured at a few shares of removed channels; what lies between is
interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inferlab.errors import BadInput
from inferlab.profiling.channel_shares import SharesGain, accuracy_drop, best_shares, copy_loss, gain_of_shares
from inferlab.profiling.zeros import WORTH, Points, between, estimate, is_faster, layer_times
from inferlab.records.optimization import CHANNEL, Pruning, Recipe
from inferlab.records.profile import (
    BUDGET,
    ChangedCopy,
    Gain,
    LossMetric,
    LossProfile,
    OtherEngine,
    PerformanceProfile,
    Profile,
)

#: Channels are removed in steps of this share.
STEP = 0.05


def check_budget(budget: float) -> None:
    """Refuse a loss budget that is none."""
    if not 0 <= budget < math.inf:
        raise BadInput(f"The loss budget must be 0 or more, not {budget:g}.")


def with_estimate(profile: Profile, budget: float = BUDGET) -> Profile:
    """The profile with the estimate for this budget in it; none where the engine computes wrongly as it is."""
    check_budget(budget)
    zeros = None if profile.loss is None else estimate(profile.performance, profile.loss, budget)
    profile = replace(profile, estimate=zeros, gains=())
    performance = profile.performance
    if performance is None:
        return profile
    if outputs_are_wrong(profile):
        performance = replace(performance, estimated_ms_per_batch=None, estimated_speedup=None)
        return replace(profile, performance=performance, estimate=None)
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


def outputs_are_wrong(profile: Profile) -> bool:
    """Whether the engine computes something else than the model says, so that nothing is gained from its speed."""
    return profile.performance is not None and profile.performance.output_check.status == "mismatch"


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


def int8_speedup(performance: PerformanceProfile | None) -> float | None:
    """How many times as fast a copy in static INT8 was; None where none was timed."""
    if performance is None or not performance.int8_ms_per_batch:
        return None
    return performance.ms_per_batch / performance.int8_ms_per_batch


def find_gains(profile: Profile, budget: float) -> tuple[Gain, ...]:
    """All that was tried on the profile's engine: what counts within the budget first, the fastest at the top."""
    performance = profile.performance
    if performance is None:
        return ()
    metric = loss_metric(profile)
    gains = [
        *_from_copies(performance, budget, metric),
        *_from_groups(profile, performance, budget),
        *_from_zeros(profile, performance),
    ]
    return tuple(sorted(gains, key=lambda gain: (not gain.counts, gain.ms_per_batch)))


def best_gain(profile: Profile) -> Gain | None:
    """The fastest that counts; None where nothing does."""
    return next((gain for gain in profile.gains if gain.counts), None)


def copy_to_try_elsewhere(
    performance: PerformanceProfile, budget: float, metric: LossMetric
) -> ChangedCopy | None:
    """The fastest copy within the budget, be it no faster than the model here; None where there is none."""
    losses = [(copy, copy_loss(copy, metric)) for copy in performance.copies]
    allowed = [copy for copy, loss in losses if loss is not None and loss <= budget]
    return min(allowed, key=lambda copy: copy.ms_per_batch, default=None)


def faster_elsewhere(profile: Profile) -> OtherEngine | None:
    """The engine on which something that the budget allows takes less than the estimate here; None for no such.

    Where the change gains nothing there, it is the model without any change.
    """
    performance = profile.performance
    if performance is None:
        return None
    here = performance.estimated_ms_per_batch or performance.ms_per_batch
    allowed = {
        (gain.int8, gain.channels)
        for gain in profile.gains
        if not gain.zeros and not gain.shares and gain.loss is not None and gain.loss <= gain.budget
    }
    budget = profile.estimate.budget if profile.estimate is not None else 0.0

    def is_allowed(other: OtherEngine) -> bool:
        if other.zeros:
            return other.loss is not None and other.loss <= budget
        return (other.int8, other.channels) in allowed

    candidates = [
        candidate for other in performance.other_engines if (candidate := _worth_there(other, is_allowed(other)))
    ]
    best = min(candidates, key=lambda other: other.ms_per_batch, default=None)
    return best if best is not None and best.ms_per_batch < (1 - WORTH) * here else None


def _worth_there(other: OtherEngine, allowed: bool) -> OtherEngine | None:
    """The change if it is allowed and gains on that engine, else the model itself, if that was timed."""
    before = other.unchanged_ms
    if allowed and (before is None or other.ms_per_batch < (1 - WORTH) * before):
        return other
    return None if before is None else OtherEngine(other.engine, False, 0.0, before, before)


def loss_metric(profile: Profile) -> LossMetric:
    """What a loss is: as the loss profile measured it, and without one as copies were judged."""
    loss, performance = profile.loss, profile.performance
    if loss is not None and loss.method != "approximated":
        return loss.metric
    distances = [copy.distance for copy in performance.copies if copy.distance] if performance is not None else []
    # Labels are the user's: where they are given, what is lost is counted in them.
    return "cross-entropy" if any(distance.loss_rise is not None for distance in distances) else "relative power"


def find_copy(performance: PerformanceProfile, int8: bool, channels: float) -> ChangedCopy | None:
    """The copy that was changed in this very way; None where none was timed."""
    return next((copy for copy in performance.copies if (copy.int8, copy.channels) == (int8, channels)), None)


def share_within(performance: PerformanceProfile, budget: float, metric: LossMetric, int8: bool = False) -> float:
    """The largest share of channels that may be removed within the budget; 0 where that is none."""
    largest = _most_removed(performance, int8=False)
    shares = [round(STEP * step, 2) for step in range(1, round(largest / STEP) + 1)]
    losses = [(share, _loss_at(performance, share, int8, _loss_of(metric))) for share in shares]
    return max((share for share, loss in losses if loss is not None and loss <= budget), default=0.0)


def time_without(performance: PerformanceProfile, share: float, int8: bool = False) -> float | None:
    """The time without this share of the channels, in INT8 or not; None where copies do not tell."""
    if not _copies_tell(performance, share, int8):
        return None
    return _time_at(performance, share, int8, lambda copy: copy.ms_per_batch, performance.ms_per_batch)


def loss_without(
    performance: PerformanceProfile, share: float, metric: LossMetric, int8: bool = False
) -> float | None:
    """The loss without this share of the channels, in INT8 or not; None where copies do not tell."""
    return _loss_at(performance, share, int8, _loss_of(metric)) if _copies_tell(performance, share, int8) else None


def accuracy_drop_without(performance: PerformanceProfile, share: float, int8: bool = False) -> float | None:
    """How much accuracy goes with this share of the channels, in INT8 or not; None where copies do not tell."""
    return _loss_at(performance, share, int8, _accuracy_drop) if _copies_tell(performance, share, int8) else None


def dense_accuracy(performance: PerformanceProfile) -> float | None:
    """The accuracy of the unchanged model on what copies were judged by; None without labels."""
    return next((copy.distance.original_accuracy for copy in performance.copies if copy.distance), None)


def _copies_tell(performance: PerformanceProfile, share: float, int8: bool) -> bool:
    known = not int8 or find_copy(performance, int8=True, channels=0.0) is not None
    return known and share <= _most_removed(performance, int8)


def _most_removed(performance: PerformanceProfile, int8: bool) -> float:
    """The largest share of channels that a copy lost, in INT8 or not: beyond it nothing was timed."""
    return max((copy.channels for copy in performance.copies if copy.int8 == int8), default=0.0)


def gain_recipe(profile: Profile, gain: Gain) -> Recipe | None:
    """What makes the model that a gain speaks of; None where it was not tried on a copy."""
    performance = profile.performance
    if gain.zeros and profile.estimate is not None:
        return Recipe(pruning=Pruning(scope="layers", layers=dict(profile.estimate.levels)))
    if gain.shares:
        return shares_recipe(gain.shares)
    if performance is None:
        return None
    quantized = find_copy(performance, int8=True, channels=0.0)
    pruned = next((copy for copy in performance.copies if copy.channels and not copy.int8), None)
    recipe = quantized.recipe if gain.int8 and quantized else None
    if not gain.channels or pruned is None or pruned.recipe.pruning is None:
        return recipe
    levels = dict.fromkeys(pruned.recipe.pruning.layers, gain.channels)
    pruning = replace(pruned.recipe.pruning, sparsity=gain.channels, layers=levels)
    return replace(recipe or pruned.recipe, pruning=pruning)


def shares_recipe(shares: Mapping[str, float]) -> Recipe:
    """What removes shares of channels by the weights that make them."""
    return Recipe(pruning=Pruning(scope="layers", pattern=CHANNEL, layers=shares))


def gain_layer_times(profile: Profile, gain: Gain | None) -> dict[int, float]:
    """The time of every layer, by its index, in the model that a gain speaks of."""
    performance = profile.performance
    if performance is None:
        return {}
    times = {layer.index: layer.ms for layer in performance.layers}
    if gain is None:
        return times
    if gain.zeros:
        levels = profile.estimate.levels if profile.estimate is not None else {}
        return times if profile.loss is None else layer_times(performance, profile.loss, levels)
    if gain.shares and profile.loss is not None:
        return {**times, **gain_of_shares(performance, profile.loss, gain.shares).layers_ms}
    return {
        layer.index: _time_at(performance, gain.channels, gain.int8, _layer_time(layer.id, layer.ms), layer.ms)
        for layer in performance.layers
    }


def _layer_time(name: str, otherwise: float) -> Callable[[ChangedCopy], float]:
    return lambda copy: copy.layers_ms.get(name, otherwise)


def _from_copies(performance: PerformanceProfile, budget: float, metric: LossMetric) -> Sequence[Gain]:
    """INT8, fewer channels, and both; where nothing is within the budget, the mildest copy that was timed.

    Both only where a copy with both was timed, and no larger a share than there: beyond it the gains of both
    overlap more, and what was computed came out 14 to 41 % too large.
    """
    quantized = find_copy(performance, int8=True, channels=0.0)
    smallest = min((copy.channels for copy in performance.copies if copy.channels), default=0.0)
    gains = []
    if quantized is not None:
        gains.append(_gain(performance, 0.0, True, budget, metric))
    if smallest:
        share = share_within(performance, budget, metric)
        gains.append(_gain(performance, share or smallest, False, budget, metric))
    share = min(share_within(performance, budget, metric, int8=True), _most_removed(performance, int8=True))
    if share:
        gains.append(_gain(performance, share, True, budget, metric))
    return gains


def _gain(performance: PerformanceProfile, share: float, int8: bool, budget: float, metric: LossMetric) -> Gain:
    before = performance.ms_per_batch
    ms = _time_at(performance, share, int8, lambda copy: copy.ms_per_batch, before)
    loss = _loss_at(performance, share, int8, _loss_of(metric))
    dense = dense_accuracy(performance)
    drop = None if dense is None else _loss_at(performance, share, int8, _accuracy_drop)
    return Gain(
        int8=int8,
        channels=share,
        zeros=0.0,
        ms_per_batch=ms,
        speedup=before / ms,
        loss=loss,
        budget=budget,
        counts=loss is not None and loss <= budget and is_faster(performance, ms),
        accuracy=None if dense is None or drop is None else max(0.0, dense - drop),
    )


def _from_groups(profile: Profile, performance: PerformanceProfile, budget: float) -> Sequence[Gain]:
    """What removing another share of each group's channels gives, where copies tell what time goes with them."""
    uniform = any(copy.channels and not copy.int8 for copy in performance.copies)
    loss = profile.loss if uniform else None
    best = None if loss is None else best_shares(performance, loss, budget)
    if loss is None or best is None or best.ms_per_batch is None:
        return []
    return [_gain_of_shares(performance, loss, best, budget)]


def _gain_of_shares(performance: PerformanceProfile, loss: LossProfile, best: SharesGain, budget: float) -> Gain:
    assert best.ms_per_batch is not None
    distance = best.copy.distance if best.copy is not None else None
    dense, drop = loss.dense_accuracy, accuracy_drop(loss, best.shares)
    promised = None if dense is None or drop is None else max(0.0, dense - drop)
    return Gain(
        int8=False,
        channels=best.channels,
        zeros=0.0,
        ms_per_batch=best.ms_per_batch,
        speedup=performance.ms_per_batch / best.ms_per_batch,
        loss=best.loss,
        budget=budget,
        counts=best.loss is not None and best.loss <= budget and is_faster(performance, best.ms_per_batch),
        accuracy=promised if distance is None else distance.accuracy,
        shares=best.shares,
    )


def _from_zeros(profile: Profile, performance: PerformanceProfile) -> Sequence[Gain]:
    """What pruning each layer to its own level gives, where times at levels were measured."""
    estimate = profile.estimate
    if estimate is None or estimate.gained != "time" or not estimate.levels or not estimate.estimated_ms_per_batch:
        return ()
    ms = estimate.estimated_ms_per_batch
    return [
        Gain(
            int8=False,
            channels=0.0,
            zeros=estimate.parameter_reduction,
            ms_per_batch=ms,
            speedup=performance.ms_per_batch / ms,
            loss=estimate.loss,
            budget=estimate.budget,
            counts=is_faster(performance, ms),
            accuracy=estimate.accuracy,
        )
    ]


def _time_at(
    performance: PerformanceProfile,
    share: float,
    int8: bool,
    time_of: Callable[[ChangedCopy], float],
    before: float,
) -> float:
    """A time without this share of the channels, in INT8 or not; `time_of` reads it off a copy.

    The work goes with the square of the channels that are left, and between two shares times are on a straight
    line over that square. Where INT8 and fewer channels were timed together at another share, both gains
    are multiplied and corrected by what that copy says.
    """
    same = find_copy(performance, int8, share)
    if same is not None:
        return time_of(same)
    times = {copy.channels: time_of(copy) for copy in performance.copies if not copy.int8}
    ms = between(sorted((-((1 - at) ** 2), ms) for at, ms in {0.0: before, **times}.items()), -((1 - share) ** 2))
    quantized = find_copy(performance, int8=True, channels=0.0)
    if not int8 or quantized is None or not before:
        return ms
    return ms * time_of(quantized) / before * _together(performance, time_of, before)


def _together(performance: PerformanceProfile, time_of: Callable[[ChangedCopy], float], before: float) -> float:
    """What a copy with both changes takes of the product of both gains; 1 where none was timed."""
    quantized = find_copy(performance, int8=True, channels=0.0)
    for copy in performance.copies:
        pruned = find_copy(performance, int8=False, channels=copy.channels)
        if copy.int8 and copy.channels and pruned and quantized:
            product = time_of(pruned) * time_of(quantized) / before
            return time_of(copy) / product if product else 1.0
    return 1.0


def _loss_at(
    performance: PerformanceProfile, share: float, int8: bool, loss_of: Callable[[ChangedCopy], float | None]
) -> float | None:
    """The loss without this share of the channels, in INT8 or not; `loss_of` reads it off a copy, None is unknown.

    Between two shares it is on a straight line over the share's square root: without retraining, the first
    channels cost most. More channels never harm less. Losses of INT8 and of fewer channels add up.
    """
    same = find_copy(performance, int8, share)
    if same is not None:
        return loss_of(same)
    points: list[tuple[float, float]] = [(0.0, 0.0)]
    for copy in sorted(performance.copies, key=lambda copy: copy.channels):
        loss = loss_of(copy)
        if copy.channels and not copy.int8:
            if loss is None:
                return None
            points.append((copy.channels**0.5, max(loss, points[-1][1])))
    pruned = _between_roots(points, share)
    if not int8:
        return pruned
    quantized = find_copy(performance, int8=True, channels=0.0)
    rounded = None if quantized is None else loss_of(quantized)
    return None if rounded is None else rounded + pruned


def _between_roots(points: Points, share: float) -> float:
    return between(points, share**0.5)


def _loss_of(metric: LossMetric) -> Callable[[ChangedCopy], float | None]:
    return lambda copy: copy_loss(copy, metric)


def _accuracy_drop(copy: ChangedCopy) -> float | None:
    distance = copy.distance
    if distance is None or distance.accuracy is None or distance.original_accuracy is None:
        return None
    return max(0.0, distance.original_accuracy - distance.accuracy)
