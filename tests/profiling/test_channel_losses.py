"""What removing shares of channels costs, tried without removing any, against copies that really lost them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from inferlab.lab import read_model
from inferlab.model.inputs import Data, generate_data, load_data
from inferlab.model.reading import digits_data
from inferlab.model.shapes import resolve
from inferlab.profiling.loss import evaluate, measure_channels
from inferlab.records import Model
from inferlab.records.profile import CHANNEL_SHARES, ChannelGroup, level_key
from inferlab.transform.channels import prune_channels
from tests.helpers.networks import Array, a_graph, random, saved

node = helper.make_node
KEYS = [level_key(share) for share in CHANNEL_SHARES]


def positive(size: int, seed: int) -> Array:
    return (np.abs(random(size, seed=seed)) + 0.5).astype(np.float32)


def a_network(folder: Path) -> Model:
    """Residuals, a concatenation, a convolution of each channel alone, normalisation, and a flattened product."""
    weights = {
        "stem": random(8, 3, 3, 3),
        **{name: positive(8, number) for number, name in enumerate(("scale", "shift", "mean", "variance"))},
        "inner": random(16, 8, 3, 3, seed=5),
        "bias": random(16, seed=6),
        "alone": random(16, 1, 3, 3, seed=7),
        "back": random(8, 16, 1, 1, seed=8),
        "other": random(4, 8, 1, 1, seed=9),
        "slope": random(4, 1, 1, seed=10),
        "mix": random(6, 12, 1, 1, seed=11),
        "dense": random(6 * 36, 10, seed=12),
        "last": random(10, 5, seed=13),
    }
    nodes = [
        node("Conv", ["x", "stem"], ["c0"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c0", "scale", "shift", "mean", "variance"], ["n0"]),
        # What is left of a channel of zeros here is not zero: only nobody may read it.
        node("Sigmoid", ["n0"], ["s0"]),
        node("Conv", ["s0", "inner", "bias"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "alone"], ["c2"], pads=[1, 1, 1, 1], group=16),
        node("Relu", ["c2"], ["r2"]),
        node("Conv", ["r2", "back"], ["c3"]),
        node("Add", ["s0", "c3"], ["a"]),
        node("Conv", ["a", "other"], ["c4"]),
        node("PRelu", ["c4", "slope"], ["p"]),
        node("Concat", ["a", "p"], ["both"], axis=1),
        node("Conv", ["both", "mix"], ["c5"]),
        node("Flatten", ["c5"], ["f"]),
        node("MatMul", ["f", "dense"], ["d"]),
        node("Tanh", ["d"], ["t"]),
        node("MatMul", ["t", "last"], ["y"]),
    ]
    return saved(a_graph(nodes, weights, [1, 3, 6, 6]), folder)


def inputs_for(model: Model, items: int = 3) -> Data:
    return generate_data(model.inputs, resolve(model.inputs, None, None, {}).shapes, items, seed=4)


def really_removed(model: Model, group: ChannelGroup, share: str, folder: Path) -> Model:
    return prune_channels(
        model, dict.fromkeys(group.weights, float(share)), folder / group.weights[0] / share
    ).model


def test_each_loss_is_that_of_a_copy_that_really_lost_the_channels(tmp_path: Path) -> None:
    model = a_network(tmp_path / "net")
    data = inputs_for(model)
    makers = ["stem", "inner", "back", "other", "mix", "dense"]
    groups, kept = measure_channels(model, makers, data)
    assert {group.weights: group.channels for group in groups} == {
        ("stem", "back"): 8,
        ("inner",): 16,
        ("other",): 4,
        ("mix",): 6,
        ("dense",): 10,
    }
    assert kept == {}
    for group in groups:
        tried = {share: loss for share, loss in group.losses.items() if loss is not None}
        assert list(tried) == KEYS[: len(tried)] and max(tried.values()) > 1e-4
        assert len(tried) == len(KEYS) or max(tried.values()) >= 2
        for share, loss in tried.items():
            expected = evaluate(really_removed(model, group, share, tmp_path), model, data).loss
            assert loss == pytest.approx(expected, rel=1e-4, abs=1e-9), (group.weights, share)


def test_a_group_says_which_part_of_every_weight_it_is(tmp_path: Path) -> None:
    model = a_network(tmp_path / "net")
    groups, _ = measure_channels(model, ["stem", "inner", "back", "other", "mix", "dense"], inputs_for(model, 1))
    residual, inner, other, mix, dense = [(dict(group.outputs), dict(group.inputs)) for group in groups]
    assert residual[0] == {"stem": 1.0, "back": 1.0}
    assert residual[1] == pytest.approx({"inner": 1.0, "other": 1.0, "mix": 8 / 12})
    assert inner == ({"inner": 1.0, "alone": 1.0}, {"back": 1.0})
    assert other[0] == {"other": 1.0} and other[1] == pytest.approx({"mix": 4 / 12})
    assert mix == ({"mix": 1.0}, {"dense": 1.0})
    assert dense == ({"dense": 1.0}, {"last": 1.0})


def test_what_keeps_its_channels_is_named_with_the_reason(tmp_path: Path) -> None:
    model = a_network(tmp_path / "net")
    groups, kept = measure_channels(model, ["stem", "other", "last"], inputs_for(model, 1))
    assert [group.weights for group in groups] == [("other",)]
    assert kept == {
        "stem": "its channels meet those of 'back', which keeps all of them",
        "last": "its channels are an output of the model",
    }
    assert measure_channels(model, ["last"], inputs_for(model, 1)) == ((), {"last": kept["last"]})


def test_without_time_no_group_is_tried_and_each_says_so(tmp_path: Path) -> None:
    model = a_network(tmp_path / "net")
    groups, kept = measure_channels(model, ["inner", "other"], inputs_for(model, 1), seconds=-1)
    assert groups == ()
    assert kept == dict.fromkeys(["inner", "other"], "no time was left for it")


def test_with_labels_a_loss_is_the_rise_of_the_cross_entropy(tmp_path: Path) -> None:
    model = read_model("demo:digits")
    data = load_data(digits_data(), model.inputs, model.outputs)
    groups, _ = measure_channels(model, ["2.weight", "6.weight"], data)
    for group in groups:
        assert list(group.losses) == list(group.accuracies) == KEYS
        share = KEYS[3]
        evaluated = evaluate(really_removed(model, group, share, tmp_path), model, data)
        assert group.losses[share] == pytest.approx(evaluated.loss, abs=1e-6)
        assert group.accuracies[share] == evaluated.accuracy
