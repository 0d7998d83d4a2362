"""What profiles let expect of a recipe, in time, loss and accuracy: the same for commands, pages and HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from inferlab.profiling.channel_shares import accuracy_drop, channel_speedup, gain_of_shares
from inferlab.profiling.gains import (
    accuracy_drop_without,
    dense_accuracy,
    int8_speedup,
    loss_without,
    time_without,
)
from inferlab.profiling.zeros import predict
from inferlab.records.optimization import CHANNEL, Recipe
from inferlab.records.profile import LossMetric, LossProfile, PerformanceProfile, PruningEstimate, RecipeEstimate


@dataclass(frozen=True, slots=True)
class _Effect:
    """What one change gives and costs; None is unknown."""

    speedup: float | None
    loss: float | None
    #: How much of this accuracy of the unchanged model goes.
    accuracy_drop: float | None = None
    dense_accuracy: float | None = None


# What is known of losses without a loss profile: what copies lost.
_NO_LOSSES = LossProfile("", "approximated", "relative power", 0, None, None, 0, 0, None, ())


def estimate_recipe(
    recipe: Recipe, performance: PerformanceProfile | None, loss: LossProfile | None
) -> RecipeEstimate:
    """What a recipe that names every weight with its level would give, as far as the profiles know.

    Channels of which all layers lose the same share, INT8 and both together are as the copies have it. Of zeros
    and INT8 the gains are multiplied, and the losses added up. Of zeros in a pattern it tells what zeros anywhere
    would give, which cost less.
    """
    loss = loss or _NO_LOSSES
    pruning, quantization = recipe.pruning, recipe.quantization
    levels = {weight: level for weight, level in pruning.layers.items() if level > 0} if pruning else {}
    channels = pruning is not None and pruning.pattern == CHANNEL
    scheme = None if quantization is None else quantization.scheme
    zeros = predict(performance, loss, levels)
    alike = _share_of_all(levels, loss) if channels and levels else None
    effect = None
    if alike is not None and performance is not None and scheme in (None, "static"):
        effect = _as_copies_tell(performance, alike, scheme is not None, loss.metric)
    if effect is None:
        parts = []
        if levels and channels:
            removed = _without_channels(levels, performance, loss)
            # No copy tells how far the gains of both overlap.
            parts.append(removed if scheme is None else replace(removed, speedup=None))
        elif levels:
            parts.append(_with_zeros(zeros, loss))
        if scheme is not None:
            parts.append(_quantized(scheme, performance, loss.metric))
        effect = reduce(_both, parts) if parts else _Effect(1.0, 0.0, 0.0, loss.dense_accuracy)
    before = None if performance is None else performance.ms_per_batch
    speedup = None if before is None else effect.speedup
    dense, drop = effect.dense_accuracy, effect.accuracy_drop
    accuracy = None if dense is None or drop is None else max(0.0, dense - drop)
    recovery = None if not dense or accuracy is None else accuracy / dense
    if dense is None and loss.metric == "relative power" and effect.loss is not None:
        recovery = max(0.0, 1 - effect.loss)
    return RecipeEstimate(
        levels=zeros.levels,
        estimated_ms_per_batch=before / speedup if before and speedup else None,
        estimated_speedup=speedup,
        loss=effect.loss,
        parameter_reduction=zeros.parameter_reduction,
        recovery=recovery,
        accuracy=accuracy,
    )


def _share_of_all(levels: Mapping[str, float], loss: LossProfile) -> float | None:
    """The share that all channels which can be removed lose alike; None where shares differ."""
    shares = set(levels.values())
    everywhere = levels.keys() >= {name for group in loss.groups for name in group.weights}
    return shares.pop() if len(shares) == 1 and everywhere else None


def _as_copies_tell(
    performance: PerformanceProfile, share: float, int8: bool, metric: LossMetric
) -> _Effect | None:
    """All layers without the same share of channels, in INT8 or not; None where no copies tell."""
    ms = time_without(performance, share, int8)
    if ms is None:
        return None
    loss = loss_without(performance, share, metric, int8)
    drop = accuracy_drop_without(performance, share, int8)
    return _Effect(performance.ms_per_batch / ms, loss, drop, dense_accuracy(performance))


def _without_channels(
    levels: Mapping[str, float], performance: PerformanceProfile | None, loss: LossProfile
) -> _Effect:
    """Each group without its own share of channels; without losses of groups, what zeros would cost at least."""
    speedup = None if performance is None else channel_speedup(performance, loss, levels)
    if not loss.groups:
        return replace(_with_zeros(predict(None, loss, levels), loss), speedup=speedup)
    gain = gain_of_shares(performance, loss, levels)
    distance = gain.copy.distance if gain.copy is not None else None
    if distance is not None and distance.accuracy is not None and distance.original_accuracy is not None:
        drop = max(0.0, distance.original_accuracy - distance.accuracy)
        return _Effect(speedup, gain.loss, drop, distance.original_accuracy)
    return _Effect(speedup, gain.loss, accuracy_drop(loss, levels), loss.dense_accuracy)


def _with_zeros(zeros: PruningEstimate, loss: LossProfile) -> _Effect:
    dense = loss.dense_accuracy
    drop = None if dense is None or zeros.accuracy is None else dense - zeros.accuracy
    return _Effect(zeros.estimated_speedup, zeros.loss, drop, dense)


def _quantized(scheme: str, performance: PerformanceProfile | None, metric: LossMetric) -> _Effect:
    """What a change of precision gives: profiles time static INT8 alone."""
    if scheme != "static" or performance is None:
        return _Effect(None, None)
    loss = loss_without(performance, 0.0, metric, int8=True)
    drop = accuracy_drop_without(performance, 0.0, int8=True)
    return _Effect(int8_speedup(performance), loss, drop, dense_accuracy(performance))


def _both(first: _Effect, second: _Effect) -> _Effect:
    return _Effect(
        None if first.speedup is None or second.speedup is None else first.speedup * second.speedup,
        None if first.loss is None or second.loss is None else first.loss + second.loss,
        (
            None
            if first.accuracy_drop is None or second.accuracy_drop is None
            else first.accuracy_drop + second.accuracy_drop
        ),
        first.dense_accuracy or second.dense_accuracy,
    )
