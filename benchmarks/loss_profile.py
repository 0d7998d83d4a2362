"""The loss profile, all layers and levels on 8 inputs: inferlab's time and decisions against a session for each.

Interleaved on each network: inferlab's own, and a fresh session for every layer and level, made of the model with
that one weight pruned, with all cores as its threads. Prints the ratio of both times, the largest difference of a
loss, and whether both decide alike: the order of the layers by sensitivity, and the levels taken under each budget
that the page's slider can be set to. Levels above one that leaves nothing of the outputs are not computed. Beside
it, why no others are skipped: how many steps to a higher level *lower* the loss, so that a level is not bounded by
its neighbours, and what estimates would do with half of the inputs, or with every other level on a line between
others: under how many budgets they decide otherwise, and what they would really spend of a budget at most.
And for half of the inputs first, and all of them for each level that an estimate takes: the share of such levels.

Names of networks as arguments run only those.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from inferlab import machine
from inferlab.child.pruning import smallest
from inferlab.child.scoring import UNRELATED
from inferlab.lab import read_model
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs
from inferlab.model.inputs import ITEMS, Data, generate_data
from inferlab.model.shapes import resolve
from inferlab.profiling.loss import layers_to_prune, measure, sensitivity
from inferlab.profiling.zeros import estimate, loss_at, usual_weights
from inferlab.records import Model
from inferlab.records.profile import LEVELS, LossProfile, level_key
from tests.helpers.real_models import one as real_model

BUDGETS = tuple(10 ** (exponent / 20) for exponent in range(-60, 21))

KEYS = tuple(map(level_key, LEVELS))

Losses = dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Network:
    """Where a network comes from: a built-in one, or the file of a package that ends so."""

    source: str
    ending: str = ""
    batch_size: int = 1
    items: int = ITEMS


NETWORKS = {
    "mobilenet_v2": Network("demo:mobilenet_v2", batch_size=ITEMS),
    "mobilenet_v1": Network("demo:mobilenet_v1"),
    "bert_3layer": Network("demo:bert_3layer"),
    "digits": Network("demo:digits"),
    "mlp_medium": Network("demo:mlp_medium"),
    "g2p_bert": Network("g2p_bert", ".onnx"),
    "magika": Network("magika", ".onnx"),
    "silero_vad": Network("silero_vad", "op18_ifless.onnx"),
    "mnist": Network("mnist_cntk", ".onnx"),
    "mtcnn_onet": Network("mtcnn", "onet.onnx"),
    "mtcnn_rnet": Network("mtcnn", "rnet.onnx"),
    "mtcnn_pnet": Network("mtcnn", "pnet.onnx"),
    # Of one input: a session for each of 640 and 470 layers and levels would take ten minutes on eight.
    "ppocr_det": Network("ppocrv4_det", ".onnx", items=1),
    "ppocr_rec": Network("ppocrv4_rec", ".onnx", items=1),
}


def a_session_each(model: Model, counted: Costs, data: Data, num_cores: int) -> Losses:
    """The same losses, from a session for every layer and level."""
    proto = onnx.load(model.path)
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    tensors |= {node.output[0]: node.attribute[0].t for node in proto.graph.node if node.op_type == "Constant"}
    dense = _outputs(proto, data, num_cores)
    losses: Losses = {}
    for node in layers_to_prune(counted):
        tensor = tensors[node.weight]
        original = onnx.TensorProto()
        original.CopyFrom(tensor)
        values = numpy_helper.to_array(tensor)
        losses[node.weight] = []
        for level in LEVELS:
            pruned = values.copy()
            pruned.reshape(-1)[smallest(values, level)] = 0
            tensor.CopyFrom(numpy_helper.from_array(pruned, tensor.name))
            losses[node.weight].append(_relative_power(_outputs(proto, data, num_cores), dense))
        tensor.CopyFrom(original)
    return losses


def _outputs(proto: onnx.ModelProto, data: Data, num_cores: int) -> list[list[Any]]:
    """The outputs of real numbers, each of all sets."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_cores
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    by_output = zip(*(session.run(None, dict(inputs)) for inputs in data.sets), strict=True)
    return [list(arrays) for arrays in by_output if arrays[0].dtype.kind == "f"]


def _relative_power(changed: Sequence[Sequence[Any]], dense: Sequence[Sequence[Any]]) -> float | None:
    shares = []
    for arrays, originals in zip(changed, dense, strict=True):
        power = sum(float(np.square(array, dtype=np.float64).sum()) for array in originals)
        change = sum(
            float(np.square(a - b, dtype=np.float64).sum()) for a, b in zip(arrays, originals, strict=True)
        )
        if power > 0:
            shares.append(change / power)
    mean = sum(shares) / len(shares)
    return mean if np.isfinite(mean) else None


def with_losses(profile: LossProfile, losses: Mapping[str, Sequence[float | None]]) -> LossProfile:
    """The profile as it would be with other losses; the sensitivity goes by what is worth trying of them."""
    layers = (
        replace(
            layer,
            losses=dict(zip(KEYS, losses[layer.weight], strict=True)),
            sensitivity=sensitivity(worth_trying(losses[layer.weight]), UNRELATED),
        )
        for layer in profile.layers
    )
    return replace(profile, layers=tuple(layers))


def worth_trying(losses: Sequence[float | None]) -> Sequence[float | None]:
    """The losses up to the first that leaves nothing of the outputs."""
    hopeless = (place for place, loss in enumerate(losses) if loss is not None and loss >= UNRELATED)
    return losses[: next(hopeless, len(losses)) + 1]


def between_neighbours(losses: Sequence[float | None]) -> Sequence[float | None]:
    """Every other loss as it would lie on a line between its neighbours."""
    values = list(losses)
    for place in range(1, len(LEVELS) - 1, 2):
        low, high = losses[place - 1], losses[place + 1]
        if low is not None and high is not None:
            share = (LEVELS[place] - LEVELS[place - 1]) / (LEVELS[place + 1] - LEVELS[place - 1])
            values[place] = low + share * (high - low)
    return values


def taken_in_full(fewer: LossProfile, full: LossProfile) -> tuple[LossProfile, float]:
    """Losses of fewer inputs, then of all for each level that an estimate takes, until it takes no other.

    Beside the profile, the share of such levels among all those of the layers that estimates prune.
    """
    losses = {layer.weight: layer.losses for layer in full.layers}
    mixed = {layer.weight: dict(layer.losses) for layer in fewer.layers}
    replaced: set[tuple[str, str]] = set()
    while True:
        profile = with_losses(full, {weight: [curve.get(key) for key in KEYS] for weight, curve in mixed.items()})
        taken = {
            (weight, level_key(level)) for budget in BUDGETS for weight, level in _levels(profile, budget).items()
        }
        if taken <= replaced:
            return profile, len(replaced) / (len(LEVELS) * len(usual_weights(full.layers)))
        for weight, key in taken - replaced:
            mixed[weight][key] = losses[weight][key]
        replaced |= taken


def spent_at_most(chosen_by: LossProfile, full: LossProfile) -> float:
    """How much of a budget the levels that one profile chooses really cost, by the other, where it is most."""
    layers = {layer.weight: layer for layer in full.layers}
    return max(
        sum(loss_at(layers[weight], level) for weight, level in _levels(chosen_by, budget).items()) / budget
        for budget in BUDGETS
    )


def order(profile: LossProfile) -> list[str]:
    """The layers, most sensitive first."""
    return [layer.id for layer in sorted(profile.layers, key=lambda layer: -(layer.sensitivity or 0.0))]


def other_budgets(first: LossProfile, second: LossProfile) -> int:
    """Under how many budgets the two choose different levels."""
    return sum(_levels(first, budget) != _levels(second, budget) for budget in BUDGETS)


def _levels(profile: LossProfile, budget: float) -> Mapping[str, float]:
    chosen = estimate(None, profile, budget)
    return {} if chosen is None else chosen.levels


def compare(name: str, network: Network, num_cores: int) -> tuple[float, float, bool]:
    """One network: the ratio of the times, the largest difference of a loss, whether both decide alike."""
    source = str(real_model(network.source, network.ending)) if network.ending else network.source
    model = read_model(source)
    shapes = resolve(model.inputs, network.batch_size, None, {}).shapes
    counted, data = costs(model, shapes), generate_data(model.inputs, shapes, network.items)
    started = time.perf_counter()
    ours = measure(model, counted, data, num_cores=num_cores)
    middle = time.perf_counter()
    losses = a_session_each(model, counted, data, num_cores)
    ended = time.perf_counter()
    full = with_losses(ours, losses)
    pairs = [
        (loss, losses[layer.weight][place])
        for layer in ours.layers
        for place, loss in enumerate(layer.losses.values())
    ]
    assert all(len(layer.losses) == len(worth_trying(losses[layer.weight])) for layer in ours.layers)
    # Relative where a loss is above 1: a hopeless layer may have one of a million.
    difference = max(abs(a - b) / max(1.0, b) for a, b in pairs if a is not None and b is not None)
    budgets = other_budgets(ours, full)
    same = order(ours) == order(full) and not budgets
    points = len(ours.layers) * len(LEVELS)
    skipped = points - len(pairs)
    steps = [
        (before, after)
        for layer in full.layers
        for before, after in zip([0.0, *layer.losses.values()], layer.losses.values(), strict=False)
        if before is not None and after is not None
    ]
    falling = sum(after < before for before, after in steps)
    halves = with_losses(ours, {weight: between_neighbours(curve) for weight, curve in losses.items()})
    less = (
        f"; every other level: {other_budgets(halves, full)} of {len(BUDGETS)} budgets otherwise, "
        f"{spent_at_most(halves, full):.2f} of one spent"
    )
    if len(data.sets) > 1:
        count = len(data.sets) // 2
        fewer = measure(
            model, counted, replace(data, sets=data.sets[:count], rows=data.rows[:count]), num_cores=num_cores
        )
        less += (
            f"; half of the inputs: {other_budgets(fewer, full)} of {len(BUDGETS)} budgets otherwise, "
            f"{spent_at_most(fewer, full):.2f} of one spent"
        )
        mixed, share = taken_in_full(fewer, full)
        less += (
            f"; half first, then all for what estimates take: {share:.0%} of the losses that they choose from, "
            f"{other_budgets(mixed, full)} of {len(BUDGETS)} budgets otherwise"
        )
    print(
        f"# {name}: {len(ours.layers)} layers × {len(LEVELS)} levels × {data.items} inputs on {num_cores} cores: "
        f"inferlab {middle - started:.1f} s, a session each {ended - middle:.1f} s, "
        f"ratio {(ended - middle) / (middle - started):.2f}; largest difference {difference:.1e}, "
        f"order {'the same' if order(ours) == order(full) else 'another'}, "
        f"{budgets} of {len(BUDGETS)} budgets otherwise; {skipped} of {points} losses not computed; "
        f"{falling} of {len(steps)} steps lower the loss{less}",
        flush=True,
    )
    return (ended - middle) / (middle - started), difference, same


def main(*names: str) -> None:
    """Compare both on all cores, on the named networks or on all of them."""
    num_cores = machine.usable_cores()
    results = {name: compare(name, NETWORKS[name], num_cores) for name in names or NETWORKS}
    ratios = [ratio for ratio, _, _ in results.values()]
    print(
        f"loss profile, a session each / inferlab: median {statistics.median(ratios):.2f}, each {_listed(results)}"
    )
    print(
        "loss profile, largest difference of a loss: "
        f"{max(result[1] for result in results.values()):.1e} (at most 1e-4)"
    )
    print(f"networks with the same decisions: {sum(result[2] for result in results.values())} of {len(results)}")


def _listed(results: Mapping[str, tuple[float, float, bool]]) -> str:
    return ", ".join(f"{name} {ratio:.2f}" for name, (ratio, _, _) in results.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
