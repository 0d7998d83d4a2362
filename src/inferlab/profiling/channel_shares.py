"""Which share of its channels each group loses within a loss budget, and what that gives: pure functions.

What a layer computes goes with the channels that it makes times those that it reads. How much of its time goes
with that, the copies tell that were timed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from inferlab.profiling.zeros import WORTH, Points, between
from inferlab.records.profile import (
    ChangedCopy,
    ChannelGroup,
    LossMetric,
    LossProfile,
    PerformanceProfile,
    level_key,
)

# A step that gains less than this share of the whole is not worth any loss.
_LEAST = 0.001
# Past the last copy its ratio holds, up to here.
_FAR = 1e6
#: A share of channels for each group of a loss profile, in its order.
Shares = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SharesGain:
    """Shares of channels by the weights that make them, and what they give."""

    shares: Mapping[str, float]
    #: Of all channels that can be removed.
    channels: float
    loss: float | None
    #: By the layer's index, and of the whole model; None where no layer was timed.
    layers_ms: Mapping[int, float]
    ms_per_batch: float | None
    #: A copy that was timed; None where all of this is predicted.
    copy: ChangedCopy | None = None


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer takes, in time or parameters, and the part of it that goes with its work."""

    index: int
    weight: str
    cost: float
    part: float = 1.0


class ChannelCosts:
    """What layers take with fewer channels: milliseconds, or parameters where none was timed."""

    def __init__(self, performance: PerformanceProfile | None, loss: LossProfile) -> None:
        self.groups = loss.groups
        self._makers: dict[str, list[tuple[int, float]]] = {}
        self._readers: dict[str, list[tuple[int, float]]] = {}
        for number, group in enumerate(loss.groups):
            for parts, weights in ((group.outputs, self._makers), (group.inputs, self._readers)):
                for weight, part in parts.items():
                    weights.setdefault(weight, []).append((number, part))
        self.layers: list[_Layer] = []
        if performance is not None and performance.layers:
            copies = [copy for copy in (*performance.copies, *performance.mixed_copies) if not copy.int8]
            timed = [(self.shares_of(copy), copy.layers_ms) for copy in copies]
            for layer in performance.layers:
                seen = [(shares, times[layer.id]) for shares, times in timed if layer.id in times]
                part = self._part(layer.weight, layer.ms, seen) if timed else 1.0
                self.layers.append(_Layer(layer.index, layer.weight, layer.ms, part))
        else:
            self.layers += [_Layer(layer.index, layer.weight, layer.params) for layer in loss.layers]
        self._by_group: list[list[_Layer]] = [
            [layer for layer in self.layers if layer.weight in {*group.outputs, *group.inputs}]
            for group in loss.groups
        ]

    def shares_of(self, copy: ChangedCopy) -> Shares:
        """What each group lost in a copy."""
        levels = copy.recipe.pruning.layers if copy.recipe.pruning is not None else {}
        return tuple(min(levels.get(weight, 0.0) for weight in group.weights) for group in self.groups)

    def whole_share(self, shares: Sequence[float]) -> float:
        """The share of all channels that can be removed."""
        total = sum(group.channels for group in self.groups)
        removed = sum(share * group.channels for share, group in zip(shares, self.groups, strict=True))
        return removed / total if total else 0.0

    def by_layer(self, shares: Sequence[float]) -> dict[int, float]:
        """What every layer takes, by its index."""
        return {
            layer.index: layer.cost * (1 - layer.part * (1 - self._work(layer.weight, shares)))
            for layer in self.layers
        }

    def step(self, shares: Sequence[float], group: int, share: float) -> float:
        """What is gained if one group loses another share."""
        changed = [*shares]
        changed[group] = share
        return sum(
            layer.cost * layer.part * (self._work(layer.weight, shares) - self._work(layer.weight, changed))
            for layer in self._by_group[group]
        )

    def _work(self, weight: str, shares: Sequence[float]) -> float:
        """The share of its work that a layer still has; one without a weight goes with all channels."""
        if weight not in self._makers and weight not in self._readers:
            return 1.0 if weight else 1 - self.whole_share(shares)
        made = 1 - sum(part * shares[group] for group, part in self._makers.get(weight, ()))
        read = 1 - sum(part * shares[group] for group, part in self._readers.get(weight, ()))
        return made * read

    def _part(self, weight: str, ms: float, seen: Sequence[tuple[Shares, float]]) -> float:
        """The part of a layer's time that goes with its work: a straight line through it, as copies have it."""
        saved = [(1 - self._work(weight, shares), 1 - after / ms) for shares, after in seen if ms > 0]
        squares = sum(work**2 for work, _ in saved)
        return min(1.0, max(0.0, sum(work * time for work, time in saved) / squares)) if squares else 0.0


def copy_loss(copy: ChangedCopy, metric: LossMetric) -> float | None:
    """What the whole change of a copy costs; without labels, how far its outputs move. Less than none is none."""
    distance = copy.distance
    if distance is None:
        return None
    loss = distance.loss_rise if metric == "cross-entropy" and distance.loss_rise is not None else None
    loss = distance.relative_power if loss is None else loss
    return None if loss is None else max(0.0, loss)


def best_shares(
    performance: PerformanceProfile | None,
    loss: LossProfile,
    budget: float,
    weights: Collection[str] | None = None,
    most: float = 1.0,
) -> SharesGain | None:
    """What gains most within the budget: a copy that was timed, or what promises more; None where nothing does.

    Without times it goes by parameters. Only channels of the given weights go, of no group more than `most`.
    """
    costs = ChannelCosts(performance, loss)
    highest = tuple(most if weights is None or set(group.weights) <= {*weights} else 0.0 for group in loss.groups)
    points = _sums_and_losses(performance, loss, costs)
    allowed = between([(lost, total) for total, lost in points], budget)
    chosen = _spent(costs, _curves(loss.groups, highest), allowed)
    made = [
        _gain_of(performance, loss, costs, costs.shares_of(copy))
        for copy in (performance.mixed_copies if performance is not None else ())
        if all(share <= limit for share, limit in zip(costs.shares_of(copy), highest, strict=True))
    ]
    within = [gain for gain in made if gain.loss is not None and gain.loss <= budget and gain.ms_per_batch]
    best = min(within, key=lambda gain: gain.ms_per_batch or 0.0, default=None)
    if not any(chosen):
        return best
    promised = _gain_of(performance, loss, costs, chosen)
    if best is None or (promised.ms_per_batch or 0.0) < (1 - WORTH) * (best.ms_per_batch or 0.0):
        return promised
    return best


def gain_of_shares(
    performance: PerformanceProfile | None, loss: LossProfile, shares: Mapping[str, float]
) -> SharesGain:
    """What shares of channels give, by the weights that make them; of those that meet the smallest counts."""
    costs = ChannelCosts(performance, loss)
    by_group = tuple(min(shares.get(weight, 0.0) for weight in group.weights) for group in loss.groups)
    return _gain_of(performance, loss, costs, by_group)


def channel_speedup(
    performance: PerformanceProfile, loss: LossProfile, shares: Mapping[str, float]
) -> float | None:
    """How many times as fast the model is without shares of channels, by the weights that make them.

    None where the profiles do not tell: copies that lost channels are timed for the estimate.
    """
    known = {weight for group in loss.groups for weight in group.weights} | loss.channels_kept.keys()
    if not (performance.mixed_copies or any(copy.channels and not copy.int8 for copy in performance.copies)):
        return None
    ms = gain_of_shares(performance, loss, shares).ms_per_batch if shares.keys() <= known else None
    return performance.ms_per_batch / ms if ms else None


def accuracy_drop(loss: LossProfile, shares: Mapping[str, float]) -> float | None:
    """How much accuracy goes with shares of channels: what the groups lose, added up; None without labels."""
    if loss.dense_accuracy is None:
        return None
    drops = []
    for group in loss.groups:
        share = min(shares.get(weight, 0.0) for weight in group.weights)
        if share and not group.accuracies:
            return None
        points = [(0.0, 0.0)]
        for key in sorted(group.accuracies, key=float):
            # Fewer channels never harm less: where they seem to, it is chance.
            points.append((float(key), max(points[-1][1], loss.dense_accuracy - group.accuracies[key])))
        drops.append(between(points, share))
    return sum(drops)


def _gain_of(
    performance: PerformanceProfile | None, loss: LossProfile, costs: ChannelCosts, shares: Shares
) -> SharesGain:
    """What shares give: as the copy with these very shares has it, else as predicted."""
    by_weight = {
        weight: share
        for group, share in zip(loss.groups, shares, strict=True)
        if share
        for weight in group.weights
    }
    whole = costs.whole_share(shares)
    copies = () if performance is None else (*performance.mixed_copies, *performance.copies)
    copy = next((copy for copy in copies if not copy.int8 and costs.shares_of(copy) == shares), None)
    layers_ms: dict[int, float] = {}
    ms = None
    if performance is not None and performance.layers:
        layers_ms = costs.by_layer(shares)
        ms = performance.ms_per_batch - sum(layer.cost - layers_ms[layer.index] for layer in costs.layers)
    if copy is not None and performance is not None:
        told = {layer.index: copy.layers_ms.get(layer.id, layer.ms) for layer in performance.layers}
        return SharesGain(by_weight, whole, copy_loss(copy, loss.metric), told, copy.ms_per_batch, copy)
    total = _sum(loss.groups, shares)
    lost = total if math.isinf(total) else between(_sums_and_losses(performance, loss, costs), total)
    return SharesGain(by_weight, whole, lost, layers_ms, ms)


def _sums_and_losses(performance: PerformanceProfile | None, loss: LossProfile, costs: ChannelCosts) -> Points:
    """What copies lost over what their groups lose one by one; as much, where no copy tells."""
    copies = () if performance is None else performance.mixed_copies
    known = [(_sum(loss.groups, costs.shares_of(copy)), copy_loss(copy, loss.metric)) for copy in copies]
    points = [(0.0, 0.0)]
    for total, lost in sorted((total, lost) for total, lost in known if lost is not None):
        if total > points[-1][0]:
            points.append((total, max(lost, points[-1][1])))
    total, lost = points[-1] if points[-1][1] > 0 else (1.0, 1.0)
    return [*points, (_FAR * total, _FAR * lost)]


def _sum(groups: Sequence[ChannelGroup], shares: Shares) -> float:
    """What the groups lose one by one, added up."""
    curves = _curves(groups, (1.0,) * len(groups))
    return sum(between([(0.0, 0.0), *curve], share) for curve, share in zip(curves, shares, strict=True) if share)


def _curves(groups: Sequence[ChannelGroup], highest: Shares) -> list[Points]:
    """The loss of each group over its shares up to the highest, infinite where outputs are no numbers.

    Fewer channels never harm less: where they seem to, it is chance.
    """
    curves: list[Points] = []
    for group, limit in zip(groups, highest, strict=True):
        points: list[tuple[float, float]] = []
        for share in sorted(map(float, group.losses)):
            loss = group.losses[level_key(share)]
            if share <= limit:
                points.append((share, max(math.inf if loss is None else loss, points[-1][1] if points else 0.0)))
        curves.append(points)
    return curves


def _spent(costs: ChannelCosts, curves: Sequence[Points], budget: float) -> Shares:
    """The shares that gain most for their losses: the best step of all, again and again.

    A step gains less the more channels of others have gone: one that was best before is looked at again.
    """
    shares = [0.0] * len(curves)
    losses = [0.0] * len(curves)
    least = _LEAST * sum(layer.cost for layer in costs.layers)
    left = budget

    def next_step(group: int) -> tuple[float, float, int, float, float] | None:
        steps = []
        for share, loss in curves[group]:
            more = loss - losses[group]
            gain = costs.step(shares, group, share) if share > shares[group] and more <= left else 0.0
            if gain > least:
                steps.append((-gain / more if more > 0 else -math.inf, -gain, group, share, loss))
        return min(steps, default=None)

    waiting = [step for group in range(len(curves)) if (step := next_step(group))]
    heapq.heapify(waiting)
    while waiting:
        group = heapq.heappop(waiting)[2]
        step = next_step(group)
        if step is None:
            continue
        if waiting and step > waiting[0]:
            heapq.heappush(waiting, step)
            continue
        *_, shares[group], loss = step
        left -= loss - losses[group]
        losses[group] = loss
        if step := next_step(group):
            heapq.heappush(waiting, step)
    return tuple(shares)
