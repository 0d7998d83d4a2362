"""What pruning each layer alone costs: estimated from the weights, or tried on inputs."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab import machine
from inferlab.child import protocol
from inferlab.child.pruning import count_nan, energy_shares
from inferlab.child.scoring import UNRELATED, relative_power
from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.inputs import Data
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.onnx_graph import list_weights, stored_values
from inferlab.profiling.pruning_trials import (
    Change,
    Progress,
    Sums,
    TrialResults,
    run_trials,
    smallest_of,
    without,
)
from inferlab.records import Event, Finding, Listener, Model, ignore
from inferlab.records.profile import CHANNEL_SHARES, LEVELS, ChannelGroup, LossLayer, LossProfile, level_key
from inferlab.transform.channels import removable_channels
from inferlab.transform.cleanup import clean_up
from inferlab.transform.patterns import as_floats
from inferlab.worker import ONNXRUNTIME, run_task, timeout_s

_PATIENCE_S = 1800.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a change of a whole model cost; None where an output was not a number."""

    loss: float | None
    #: With labels only: of the changed model, and of the dense one.
    accuracy: float | None = None
    dense_accuracy: float | None = None
    #: The power of the change over the power of the outputs, with labels too.
    relative_power: float | None = None
    #: Outputs that were numbers are none any more, or have other shapes.
    broken: bool = False


@dataclass(frozen=True, slots=True)
class _Energy:
    """The shares of a weight's energy that the levels remove, or how many of its values are not numbers."""

    shares: tuple[float, ...] = ()
    nan_count: int = 0


@confined(reads=["model"])
def _energies(model: Model, names: Sequence[str]) -> dict[str, _Energy]:
    """The energy of these weights, as far as they are stored densely."""
    path = Path(model.path)
    wanted = set(names)
    energies: dict[str, _Energy] = {}
    for weight in list_weights(parse_onnx(path)):
        if weight.name in wanted and weight.elements == math.prod(weight.stored.dims):
            values = stored_values(weight.stored, path.parent)
            wrong = count_nan(values)
            shares = () if wrong else tuple(map(float, energy_shares(as_floats(values), LEVELS)))
            energies[weight.name] = _Energy(shares, int(wrong))
    return energies


def approximate(model: Model, costs: Costs, name: str = "baseline") -> LossProfile:
    """Predict from the weights alone: a layer's loss is the share of its weight's energy that pruning removes."""
    _refuse_other_kinds(model)
    started = time.monotonic()
    chosen = layers_to_prune(costs)
    energies = _energies(model, [node.weight for node in chosen])
    losses: dict[str, list[float | None]] = {}
    left_out: dict[str, str] = {}
    findings = []
    for node in chosen:
        energy = energies.get(node.weight)
        if energy is None:
            left_out[node.id] = "its weight is not stored densely"
        elif energy.nan_count:
            findings.append(Finding("nan-weights", {"weight": node.weight, "count": energy.nan_count}))
            losses[node.weight] = [None] * len(LEVELS)
        else:
            losses[node.weight] = list(energy.shares)
    layers = _layers(chosen, losses, {})
    return LossProfile(
        name=name,
        method="approximated",
        metric="relative power",
        items=0,
        dense_loss=None,
        dense_accuracy=None,
        params=model.parameters or 0,
        prunable_params=sum(map(weight_elements, chosen)),
        average_sensitivity=_average(layers),
        layers=layers,
        left_out=left_out,
        findings=tuple(findings),
        seconds=time.monotonic() - started,
    )


def measure(
    model: Model,
    costs: Costs,
    data: Data,
    listener: Listener = ignore,
    num_cores: int | None = None,
    seconds: float | None = None,
    name: str = "baseline",
) -> LossProfile:
    """Prune each layer alone to every level, and compare the outputs with the dense model's or with the labels.

    `seconds` bounds it: layers whose turn has not come by then are left out.
    """
    _refuse_other_kinds(model)
    if model.random:
        raise BadInput(
            f"{model.source} has random operators, so what pruning changes cannot be told from randomness."
        )
    started = time.monotonic()
    chosen = layers_to_prune(costs)
    if not chosen:
        raise BadInput(f"{model.source} has no layer with weights that could be pruned.")
    by_weight = {node.weight: node for node in chosen}

    def tell(weight: str, fraction: float) -> None:
        listener(Event("loss", {"layer": by_weight[weight].id, "weight": weight}, fraction))

    listener(Event("loss", {"layers": len(chosen), "items": data.items}))
    changes = {weight: smallest_of(weight) for weight in by_weight}
    tried = _tried(model, changes, data, LEVELS, num_cores, seconds, tell)
    score = tried.score
    losses, accuracies = _curves(tried, LEVELS)
    layers = _layers(chosen, losses, accuracies, UNRELATED if score is None else _guessing(tried))
    return LossProfile(
        name=name,
        method="one-shot" if data.generated else "one-shot with data",
        metric="relative power" if data.labels is None else "cross-entropy",
        items=tried.items,
        dense_loss=None if score is None else score["entropy"] / score["count"],
        dense_accuracy=None if score is None else score["right"] / score["count"],
        params=model.parameters or 0,
        prunable_params=sum(map(weight_elements, chosen)),
        average_sensitivity=_average(layers),
        layers=layers,
        left_out={by_weight[weight].id: reason for weight, reason in tried.left_out.items()},
        findings=_findings(tried, layers, data),
        seconds=time.monotonic() - started,
    )


def measure_channels(
    model: Model,
    weights: Sequence[str],
    data: Data,
    listener: Listener = ignore,
    num_cores: int | None = None,
    seconds: float | None = None,
) -> tuple[tuple[ChannelGroup, ...], dict[str, str]]:
    """What removing shares of channels costs where these weights may lose some, and why others keep theirs.

    The model is cleaned up first, as it is before channels are removed. `seconds` bounds the trials.
    """
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        cleaned = clean_up(model, Path(folder)).model
        removable, kept = removable_channels(cleaned, weights)
        by_name = {channels.weights[0]: channels for channels in removable}
        if not by_name:
            return (), kept
        listener(Event("channel-loss", {"groups": len(removable), "items": data.items}))
        changes = {name: without(channels) for name, channels in by_name.items()}

        def tell(name: str, fraction: float) -> None:
            listener(Event("channel-loss", {"weight": name}, fraction))

        tried = _tried(cleaned, changes, data, CHANNEL_SHARES, num_cores, seconds, tell)
    losses, accuracies = _curves(tried, CHANNEL_SHARES)
    groups = tuple(
        ChannelGroup(
            weights=channels.weights,
            channels=len(channels.order),
            outputs=channels.outputs,
            inputs=channels.inputs(),
            losses=dict(zip(map(level_key, CHANNEL_SHARES), losses[name], strict=False)),
            accuracies=accuracies.get(name, {}),
        )
        for name, channels in by_name.items()
        if name in losses
    )
    return groups, {**kept, **tried.left_out}


def evaluate(changed: Model, dense: Model, data: Data, num_cores: int | None = None) -> Evaluation:
    """The loss that all changes of a model together had, in the same measure as a profile on the same data."""
    arguments, blocks = protocol.pack_sets(data.sets, data.labels)
    threads = num_cores or machine.usable_cores()
    arguments.update(dense=dense.path, changed=changed.path, threads=threads)
    cpus = machine.choose_cpus(threads, "core")
    answer = run_task(ONNXRUNTIME, "onnx_files.evaluate", arguments, blocks, timeout_s(_PATIENCE_S), cpus)
    power = relative_power(answer["changes"], answer["powers"])
    broken = answer["changes"] is None
    if data.labels is None:
        return Evaluation(power, relative_power=power, broken=broken)
    before, after = answer["score"], answer["changed_score"]
    return Evaluation(_rise(after, before), _accuracy(after), _accuracy(before), power, broken)


def layers_to_prune(costs: Costs) -> list[NodeCost]:
    """The nodes whose weights can be pruned, each weight once."""
    by_weight: dict[str, NodeCost] = {}
    for node in costs.nodes:
        if node.prunable and node.weight:
            by_weight.setdefault(node.weight, node)
    return list(by_weight.values())


def weight_elements(node: NodeCost) -> int:
    """How many parameters the node's weight has."""
    return math.prod(node.weight_shape)


def curve_area(levels: Sequence[float], losses: Iterable[float | None]) -> float | None:
    """The mean of a loss over all sparsities from none to the highest level, by the trapezoid rule."""
    values, places = [0.0], [0.0, *levels]
    for loss in losses:
        if loss is None:
            return None
        values.append(loss)
    steps = zip(places, places[1:], values, values[1:], strict=False)
    return sum((right - left) * (low + high) / 2 for left, right, low, high in steps) / levels[-1]


def sensitivity(losses: Sequence[float | None], most: float = math.inf) -> float | None:
    """The area under a layer's losses, each counted up to `most`; levels that were not tried count as that."""
    counted = [None if loss is None else min(loss, most) for loss in losses]
    return curve_area(LEVELS, [*counted, *[most] * (len(LEVELS) - len(counted))])


def _tried(
    model: Model,
    changes: Mapping[str, Change],
    data: Data,
    levels: Sequence[float],
    num_cores: int | None,
    seconds: float | None,
    tell: Progress,
) -> TrialResults:
    """Each change alone at the levels that are worth it.

    With labels accuracy still differs where the cross-entropy is past hope, so every level is tried.
    """
    limit = UNRELATED if data.labels is None else None
    return run_trials(model, changes, data, levels, num_cores or machine.usable_cores(), seconds, tell, limit)


def _curves(
    tried: TrialResults, levels: Sequence[float]
) -> tuple[dict[str, list[float | None]], dict[str, dict[str, float]]]:
    """The losses of every change by level, and with labels the accuracies."""
    losses = {change: [_loss(sums, tried) for sums in by_level] for change, by_level in tried.sums.items()}
    accuracies = {
        change: {
            level_key(level): sums["right"] / sums["count"]
            for level, sums in zip(levels, by_level, strict=False)
            if sums is not None
        }
        for change, by_level in tried.sums.items()
        if tried.classes
    }
    return losses, accuracies


def _layers(
    chosen: Sequence[NodeCost],
    losses: Mapping[str, Sequence[float | None]],
    accuracies: Mapping[str, Mapping[str, float]],
    most: float = math.inf,
) -> tuple[LossLayer, ...]:
    """The layers that have losses; for the sensitivity a loss counts up to `most`."""
    return tuple(
        LossLayer(
            index=node.index,
            id=node.id,
            type=node.type,
            weight=node.weight,
            params=weight_elements(node),
            groups=node.groups,
            zero_fraction=node.zero_fraction or 0.0,
            sensitivity=sensitivity(losses[node.weight], most),
            # Above a loss that leaves nothing, levels were not tried.
            losses=dict(zip(map(level_key, LEVELS), losses[node.weight], strict=False)),
            accuracies=accuracies.get(node.weight, {}),
        )
        for node in chosen
        if node.weight in losses
    )


def _average(layers: Sequence[LossLayer]) -> float | None:
    """The mean sensitivity of the layers, weighted by their parameters."""
    known = [(layer.sensitivity, layer.params) for layer in layers if layer.sensitivity is not None]
    total = sum(params for _, params in known)
    return sum(value * params for value, params in known) / total if total else None


def _loss(sums: Sums, tried: TrialResults) -> float | None:
    return relative_power(sums, tried.powers) if tried.score is None else _rise(sums, tried.score)


def _guessing(tried: TrialResults) -> float:
    """The loss of a model that guesses: it knows nothing any more, however sure it is of its wrong answers."""
    if tried.score is None or not tried.classes:
        return math.inf
    return max(0.0, math.log(tried.classes) - tried.score["entropy"] / tried.score["count"])


def _accuracy(score: Sums) -> float | None:
    return None if score is None else score["right"] / score["count"]


def _rise(after: Sums, before: Sums) -> float | None:
    if after is None or before is None:
        return None
    return after["entropy"] / after["count"] - before["entropy"] / before["count"]


def _findings(tried: TrialResults, layers: Sequence[LossLayer], data: Data) -> tuple[Finding, ...]:
    """What of the weights, the outputs and the data the reader must know."""
    findings = [Finding("nan-weights", {"weight": weight}) for weight in sorted(tried.nan)]
    wrong = [name for name, power in tried.powers.items() if math.isnan(power)]
    if wrong:
        findings.append(Finding("nan-outputs", {"outputs": wrong}))
    if data.labels is None and not any(power > 0 for power in tried.powers.values()):
        findings.append(Finding("no-scale", {"outputs": list(tried.powers)}))
    for layer in layers:
        unknown = [key for key, loss in layer.losses.items() if loss is None]
        if unknown and layer.weight not in tried.nan and not wrong:
            findings.append(Finding("loss-unknown", {"layer": layer.id, "levels": unknown}))
    if tried.items < data.items:
        findings.append(Finding("fewer-items", {"items": tried.items, "wanted": data.items}))
    return tuple(findings)


def _refuse_other_kinds(model: Model) -> None:
    if model.kind != "onnx":
        raise BadInput(f"A loss profile needs an ONNX model; {model.source} is of the kind {model.kind}.")
