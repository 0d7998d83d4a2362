"""What INT8, fewer channels and zeros would each give within a loss budget: pure functions of a profile.

Copies were measured at a few shares of removed channels; what lies between is interpolated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inferlab.profiling.channel_shares import SharesGain, accuracy_drop, best_shares, gain_of_shares
from inferlab.profiling.predict import WORTH, Points, between, copy_loss, is_faster, layer_times
from inferlab.records.optimization import CHANNEL, Pruning, Recipe
from inferlab.records.profile import (
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
    """The engine on which something that the budget allows takes less than the estimate here; None for no such."""
    performance = profile.performance
    if performance is None:
        return None
    here = performance.estimated_ms_per_batch or performance.ms_per_batch
    allowed = {
        (gain.int8, gain.channels)
        for gain in profile.gains
        if not gain.zeros and not gain.shares and gain.loss is not None and gain.loss <= gain.budget
    }
    return next(
        (
            other
            for other in performance.other_engines
            if (other.int8, other.channels) in allowed and other.ms_per_batch < (1 - WORTH) * here
        ),
        None,
    )


def loss_metric(profile: Profile) -> LossMetric:
    """What a loss is: as the loss profile has it, and without one how far the outputs move."""
    return profile.loss.metric if profile.loss is not None else "relative power"


def find_copy(performance: PerformanceProfile, int8: bool, channels: float) -> ChangedCopy | None:
    """The copy that was changed in this very way; None where none was timed."""
    return next((copy for copy in performance.copies if (copy.int8, copy.channels) == (int8, channels)), None)


def share_within(performance: PerformanceProfile, budget: float, metric: LossMetric, int8: bool = False) -> float:
    """The largest share of channels that may be removed within the budget; 0 where that is none."""
    largest = max((copy.channels for copy in performance.copies if not copy.int8), default=0.0)
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
    largest = max((copy.channels for copy in performance.copies if not copy.int8), default=0.0)
    return share <= largest and (not int8 or find_copy(performance, int8=True, channels=0.0) is not None)


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

    Both only where a copy with both was timed: the product of two gains alone came out a third too large.
    """
    quantized = find_copy(performance, int8=True, channels=0.0)
    smallest = min((copy.channels for copy in performance.copies if copy.channels), default=0.0)
    gains = []
    if quantized is not None:
        gains.append(_gain(performance, 0.0, True, budget, metric))
    if smallest:
        share = share_within(performance, budget, metric)
        gains.append(_gain(performance, share or smallest, False, budget, metric))
    share = share_within(performance, budget, metric, int8=True)
    if share and any(copy.int8 and copy.channels for copy in performance.copies):
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
