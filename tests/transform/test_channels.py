from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.lab import read_model
from inferlab.records import Model
from inferlab.transform.channels import prune_channels
from inferlab.transform.copies import Copy
from tests.helpers.networks import (
    Array,
    a_graph,
    digests,
    inputs_of,
    random,
    run_onnxruntime,
    run_openvino,
    saved,
    shapes_of,
    weights_of,
)
from tests.helpers.real_models import one

node = helper.make_node


def scaled(weight: Array, norms: Sequence[float], axis: int = 0) -> Array:
    """The weight with these norms of its channels."""
    rows = np.moveaxis(weight, axis, 0).copy()
    rows /= np.sqrt(np.square(rows.reshape(len(rows), -1)).sum(axis=1)).reshape(-1, *[1] * (rows.ndim - 1))
    rows *= np.array(norms, np.float32).reshape(-1, *[1] * (rows.ndim - 1))
    return np.moveaxis(rows, 0, axis).copy()


def made(
    tmp_path: Path,
    nodes: Sequence[NodeProto],
    weights: Mapping[str, Array],
    dims: Sequence[int],
    opset: int = 13,
    **levels: float,
) -> tuple[Model, Copy]:
    """A model and its copy with fewer channels, both sound, and both engines at one on the copy."""
    model = saved(a_graph(nodes, weights, dims, opset), tmp_path / "a")
    copy = prune_channels(model, levels, tmp_path / "b")
    onnx.checker.check_model(copy.model.path, full_check=True)
    (inputs,) = inputs_of(model)
    (expected,), (found,) = run_onnxruntime(copy.model, inputs), run_openvino(copy.model, inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert expected.shape == run_onnxruntime(model, inputs)[0].shape
    return model, copy


def masked(model: Model, zeroed: Mapping[str, tuple[int, Sequence[int]]], folder: Path) -> Model:
    """The dense model with some places along an axis of its weights zero."""
    proto = onnx.load(model.path)
    for tensor in proto.graph.initializer:
        if tensor.name in zeroed:
            axis, places = zeroed[tensor.name]
            array = numpy_helper.to_array(tensor).copy()
            np.moveaxis(array, axis, 0)[list(places)] = 0
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return saved(proto, folder)


def assert_same_outputs(one: Model, other: Model) -> None:
    for inputs in inputs_of(one, 2):
        for first, second in zip(run_onnxruntime(one, inputs), run_onnxruntime(other, inputs), strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_the_channels_of_smallest_norm_go_with_their_bias_and_what_reads_them(tmp_path: Path) -> None:
    weights = {
        "w": scaled(random(6, 3, 3, 3), [5, 1, 4, 2, 6, 3]),
        "b": random(6),
        "v": random(2, 6, 1, 1),
    }
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["r"]), node("Conv", ["r", "v"], ["y"])]
    model, copy = made(tmp_path, nodes, weights, [1, 3, 8, 8], w=0.5)
    small = weights_of(copy.model)
    kept = [0, 2, 4]
    np.testing.assert_array_equal(small["w"], weights["w"][kept])
    np.testing.assert_array_equal(small["b"], weights["b"][kept])
    np.testing.assert_array_equal(small["v"], weights["v"][:, kept])
    assert copy.left_alone == {}
    gone = [1, 3, 5]
    assert_same_outputs(masked(model, {"w": (0, gone), "b": (0, gone)}, tmp_path / "c"), copy.model)


def test_batch_normalisation_loses_the_same_channels(tmp_path: Path) -> None:
    weights = {
        "w": scaled(random(4, 2, 3, 3), [1, 4, 2, 3]),
        **{name: np.abs(random(4, seed=number)) + 0.5 for number, name in enumerate(("s", "b", "m", "v"))},
        "o": random(3, 4, 1, 1),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Sigmoid", ["n"], ["g"]),
        node("Mul", ["n", "g"], ["a"]),
        node("Conv", ["a", "o"], ["y"]),
    ]
    model, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], w=0.5)
    small = weights_of(copy.model)
    for name in ("s", "b", "m", "v"):
        np.testing.assert_array_equal(small[name], weights[name][[1, 3]])
    # A channel that is gone is one that nobody reads: sigmoid(0) is not 0.
    assert_same_outputs(masked(model, {"o": (1, [0, 2])}, tmp_path / "c"), copy.model)


def test_a_residual_group_goes_together_by_the_sum_of_its_norms_to_its_smallest_level(tmp_path: Path) -> None:
    weights = {
        "u": scaled(random(4, 2, 1, 1), [9, 1, 1, 9]),
        "w": scaled(random(4, 4, 3, 3), [1, 2, 9, 9]),
        "o": random(2, 4, 1, 1),
    }
    nodes = [
        node("Conv", ["x", "u"], ["a"]),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        node("Add", ["a", "b"], ["s"]),
        node("Conv", ["s", "o"], ["y"]),
    ]
    model, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], u=0.5, w=0.25)
    # The sums are 10, 3, 10 and 18; a quarter of four channels is one.
    assert shapes_of(copy.model) == {"u": (3, 2, 1, 1), "w": (3, 3, 3, 3), "o": (2, 3, 1, 1)}
    np.testing.assert_array_equal(weights_of(copy.model)["u"], weights["u"][[0, 2, 3]])
    zeros = {"u": (0, [1]), "w": (0, [1])}
    assert_same_outputs(masked(model, zeros, tmp_path / "c"), copy.model)


def test_a_partner_that_is_not_to_lose_any_keeps_the_whole_group(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "u"], ["a"]),
        node("Conv", ["x", "w"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
        node("Conv", ["s", "o"], ["y"]),
    ]
    weights = {"u": random(4, 2, 1, 1), "w": random(4, 2, 1, 1, seed=1), "o": random(2, 4, 1, 1)}
    _, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], w=0.5)
    assert copy.left_alone == {"w": "its channels meet those of 'u', which keeps all of them"}
    assert copy.model.parameters == sum(weight.size for weight in weights.values())


def test_flattened_channels_take_all_their_places_with_them(tmp_path: Path) -> None:
    weights = {
        "w": scaled(random(3, 2, 3, 3), [2, 1, 3]),
        "d": random(3 * 4, 5),
        "e": random(5),
        "z": random(2, 5),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "d", "e"], ["g"]),
        node("Relu", ["g"], ["r"]),
        node("Gemm", ["r", "z"], ["y"], transB=1),
    ]
    model, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], w=1 / 3)
    np.testing.assert_array_equal(weights_of(copy.model)["d"], weights["d"][[0, 1, 2, 3, 8, 9, 10, 11]])
    assert_same_outputs(masked(model, {"w": (0, [1])}, tmp_path / "c"), copy.model)


@pytest.mark.parametrize("shape", [[1, 12], [-1, 12], [0, -1], [1, -1]])
def test_a_shape_that_counts_channels_is_counted_again(tmp_path: Path, shape: list[int]) -> None:
    weights = {"w": scaled(random(3, 2, 3, 3), [2, 1, 3]), "s": np.array(shape, np.int64), "d": random(12, 2)}
    nodes = [
        node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        node("Reshape", ["c", "s"], ["f"]),
        node("MatMul", ["f", "d"], ["y"]),
    ]
    _, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], w=1 / 3)
    assert shapes_of(copy.model)["d"] == (8, 2)
    assert weights_of(copy.model)["s"].tolist() == [8 if size == 12 else size for size in shape]


def test_a_depthwise_convolution_follows_and_has_fewer_groups(tmp_path: Path) -> None:
    weights = {
        "w": scaled(random(4, 2, 1, 1), [4, 1, 3, 2]),
        "d": random(8, 1, 3, 3),
        "b": random(8),
        "o": random(2, 8, 1, 1),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Conv", ["a", "d", "b"], ["c"], group=4),
        node("Conv", ["c", "o"], ["y"]),
    ]
    _, copy = made(tmp_path, nodes, weights, [1, 2, 6, 6], w=0.5, d=0.5)
    small = weights_of(copy.model)
    np.testing.assert_array_equal(small["d"], weights["d"][[0, 1, 4, 5]])
    np.testing.assert_array_equal(small["o"], weights["o"][:, [0, 1, 4, 5]])
    assert [one.i for one in onnx.load(copy.model.path).graph.node[1].attribute] == [2]
    assert copy.left_alone == {}


def test_joined_channels_are_followed_each_to_its_own_place(tmp_path: Path) -> None:
    weights = {
        "u": scaled(random(2, 3, 1, 1), [1, 2]),
        "w": scaled(random(4, 3, 1, 1), [4, 1, 3, 2]),
        "o": random(2, 9, 1, 1),
    }
    nodes = [
        node("Conv", ["x", "u"], ["a"]),
        node("Conv", ["x", "w"], ["b"]),
        node("Concat", ["a", "x", "b"], ["c"], axis=1),
        node("Conv", ["c", "o"], ["y"]),
    ]
    _, copy = made(tmp_path, nodes, weights, [1, 3, 6, 6], u=0.5, w=0.5)
    np.testing.assert_array_equal(weights_of(copy.model)["o"], weights["o"][:, [1, 2, 3, 4, 5, 7]])


def a_nested_u(tmp_path: Path, **levels: float) -> tuple[Model, Copy]:
    """A small U within a U: skips that are put beside what was made larger again, and a sum around it all."""
    weights = {
        "stem": scaled(random(4, 3, 3, 3), [4, 1, 3, 2]),
        "down": scaled(random(4, 4, 3, 3, seed=1), [1, 4, 2, 3]),
        "deep": scaled(random(4, 4, 3, 3, seed=2), [3, 4, 1, 2]),
        "inner": scaled(random(4, 8, 3, 3, seed=3), [2, 3, 4, 1]),
        "outer": scaled(random(4, 8, 3, 3, seed=4), [1, 1, 1, 4]),
        "side": random(2, 4, 1, 1, seed=5),
        "half": np.array([1, 4, 4, 4], np.int64),
        "full": np.array([8, 8], np.int64),
    }
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "stem"], ["s"], **pads),
        node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "down"], ["d"], **pads),
        node("MaxPool", ["d"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["q", "deep"], ["e"], **pads),
        # The first is told all sizes, as folded exports tell them, the second only height and width.
        node("Resize", ["e", "", "", "half"], ["f"], mode="linear"),
        node("Concat", ["f", "d"], ["fd"], axis=1),
        node("Conv", ["fd", "inner"], ["i"], **pads),
        node("Resize", ["i", "", "", "full"], ["j"], mode="linear", axes=[2, 3]),
        node("Concat", ["j", "s"], ["js"], axis=1),
        node("Conv", ["js", "outer"], ["o"], **pads),
        node("Add", ["o", "s"], ["sum"]),
        node("Conv", ["sum", "side"], ["y"]),
    ]
    return made(tmp_path, nodes, weights, [1, 3, 8, 8], 18, **levels)


def test_channels_are_followed_through_a_nested_u(tmp_path: Path) -> None:
    levels = dict.fromkeys(("stem", "down", "deep", "inner", "outer"), 0.5)
    model, copy = a_nested_u(tmp_path, **levels)
    assert copy.left_alone == {}
    # The stem and the outer layer meet in the sum: 5, 2, 4 and 6.
    gone = {"stem": [1, 2], "down": [0, 2], "deep": [2, 3], "inner": [0, 3], "outer": [1, 2]}
    shapes = shapes_of(copy.model)
    assert {name: shapes[name][:2] for name in (*gone, "side")} == {
        "stem": (2, 3),
        "down": (2, 2),
        "deep": (2, 2),
        "inner": (2, 4),
        "outer": (2, 4),
        "side": (2, 2),
    }
    assert weights_of(copy.model)["half"].tolist() == [1, 2, 4, 4]
    # Without a bias, a channel whose weights are zero is one that nobody reads.
    assert_same_outputs(
        masked(model, {name: (0, places) for name, places in gone.items()}, tmp_path / "c"), copy.model
    )


def test_sizes_that_two_are_told_hold_the_channels_of_both(tmp_path: Path) -> None:
    weights = {"w": random(4, 3, 1, 1), "o": random(2, 8, 1, 1), "sizes": np.array([1, 4, 12, 12], np.int64)}
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        *(node("Resize", [name, "", "", "sizes"], [f"{name}_large"]) for name in ("c", "r")),
        node("Concat", ["c_large", "r_large"], ["both"], axis=1),
        node("Conv", ["both", "o"], ["y"]),
    ]
    _, copy = made(tmp_path, nodes, weights, [1, 3, 6, 6], w=0.5)
    assert copy.left_alone == {"w": "the sizes that Resize 'c_large' is told are also another's"}


def test_products_of_matrices_lose_columns_through_turned_weights_biases_and_activations(tmp_path: Path) -> None:
    weights = {"w": scaled(random(6, 4), [6, 1, 5, 2, 4, 3]), "b": random(6), "o": random(6, 3)}
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("MatMul", ["x", "t"], ["h"]),
        node("Add", ["h", "b"], ["a"]),
        node("Tanh", ["a"], ["r"]),
        node("MatMul", ["r", "o"], ["y"]),
    ]
    model, copy = made(tmp_path, nodes, weights, [1, 5, 4], w=0.5)
    assert shapes_of(copy.model) == {"w": (3, 4), "b": (3,), "o": (3, 3)}
    assert_same_outputs(masked(model, {"o": (0, [1, 3, 5])}, tmp_path / "c"), copy.model)


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ([node("Softmax", ["c"], ["m"], axis=1)], "computes over all its channels"),
        ([node("ReduceMean", ["c"], ["m"], axes=[1])], "computes over all its channels"),
        ([node("DepthToSpace", ["c"], ["m"], blocksize=2)], "DepthToSpace .* not followed"),
        ([node("Split", ["c"], ["m", "k"], axis=1)], "divided by Split"),
        ([node("Reshape", ["c", "heads"], ["m"])], "such as into heads"),
        ([node("Add", ["c", "x"], ["m"])], "meet others in Add .* not followed"),
        ([node("Conv", ["c", "grouped"], ["m"], group=2)], "in 2 groups"),
        ([node("LRN", ["c"], ["m"], size=3)], "LRN .* not followed"),
        ([node("Gemm", ["c", "vector"], ["m"])], "Gemm .* is not a matrix"),
        ([node("Identity", ["c"], ["m"])], "an output of the model"),
    ],
    ids=lambda one: one[0].op_type if isinstance(one, list) else "",
)
def test_channels_that_cannot_be_followed_stay_and_the_reason_is_given(
    tmp_path: Path, between: list[NodeProto], reason: str
) -> None:
    weights = {
        "w": random(4, 4, 1, 1),
        "grouped": random(4, 2, 1, 1),
        "heads": np.array([1, 2, 2, 4, 4], np.int64),
        "vector": random(4),
    }
    read = {name for one in between for name in one.input}
    nodes = [node("Conv", ["x", "w"], ["c"]), *between, node("Relu", ["m"], ["y"])]
    used = {name: value for name, value in weights.items() if name == "w" or name in read}
    model = saved(a_graph(nodes, used, [1, 4, 4, 4]), tmp_path / "a")
    copy = prune_channels(model, {"w": 0.5}, tmp_path / "b")
    assert list(copy.left_alone) == ["w"]
    assert re.search(reason, copy.left_alone["w"])
    assert copy.model.parameters == model.parameters


def test_a_weight_that_something_else_reads_keeps_its_channels(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("ReduceMean", ["w"], ["m"], keepdims=0),
        node("Conv", ["c", "o"], ["d"]),
        node("Add", ["d", "m"], ["y"]),
    ]
    _, copy = made(tmp_path, nodes, {"w": random(4, 2, 1, 1), "o": random(2, 4, 1, 1)}, [1, 2, 4, 4], w=0.5)
    assert copy.left_alone == {"w": "'w' is read by a node through which channels are not followed"}


def test_a_weight_that_two_products_share_stays_one(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Neg", ["x"], ["n"]),
        node("Conv", ["n", "w"], ["b"]),
        node("Mul", ["a", "b"], ["m"]),
        node("Conv", ["m", "o"], ["y"]),
    ]
    weights = {"w": scaled(random(4, 2, 1, 1), [4, 1, 3, 2]), "o": random(2, 4, 1, 1)}
    _, copy = made(tmp_path, nodes, weights, [1, 2, 4, 4], w=0.5)
    assert shapes_of(copy.model) == {"w": (2, 2, 1, 1), "o": (2, 2, 1, 1)}


def test_one_channel_is_always_left(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["a", "o"], ["y"])]
    _, copy = made(tmp_path, nodes, {"w": random(4, 2, 1, 1), "o": random(2, 4, 1, 1)}, [1, 2, 4, 4], w=1)
    assert shapes_of(copy.model)["w"] == (1, 2, 1, 1)


def test_branches_keep_what_they_read(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [node("Relu", ["c"], ["r"])], "branch", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    )
    other = helper.make_graph(
        [node("Neg", ["c"], ["s"])], "other", [], [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)]
    )
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("If", ["yes"], ["i"], then_branch=inner, else_branch=other),
        node("Conv", ["i", "o"], ["y"]),
    ]
    weights = {"w": random(4, 2, 1, 1), "o": random(2, 4, 1, 1), "yes": np.array(True)}
    _, copy = made(tmp_path, nodes, weights, [1, 2, 4, 4], w=0.5)
    assert "a branch or loop" in copy.left_alone["w"]


def test_the_digits_shrink_and_run_on_both_engines(tmp_path: Path) -> None:
    model = read_model("demo:digits")
    before = digests(Path(model.path).parent)
    levels = {name: 0.5 for name, dims in shapes_of(model).items() if len(dims) >= 2}
    copy = prune_channels(model, levels, tmp_path / "a")
    again = prune_channels(model, levels, tmp_path / "b")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(Path(model.path).parent) == before
    assert copy.model.size_bytes < model.size_bytes / 3
    assert list(copy.left_alone.values()) == ["its channels are an output of the model"]
    (inputs,) = inputs_of(model)
    (expected,), (found,) = run_onnxruntime(again.model, inputs), run_openvino(copy.model, inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_data_in_other_files_comes_into_the_small_copy(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["a", "o"], ["y"])]
    proto = a_graph(nodes, {"w": random(4, 2, 1, 1), "o": random(2, 4, 1, 1)}, [1, 2, 4, 4])
    inside = saved(proto, tmp_path / "a")
    outside = saved(proto, tmp_path / "b", save_as_external_data=True, location="w.bin", size_threshold=0)
    prune_channels(inside, {"w": 0.5}, tmp_path / "c")
    prune_channels(outside, {"w": 0.5}, tmp_path / "d")
    assert list(digests(tmp_path / "d")) == ["net.onnx"]
    assert weights_of(saved(onnx.load(tmp_path / "d" / "net.onnx"), tmp_path / "e"))["w"].shape == (2, 2, 1, 1)


def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["a", "o"], ["y"])]
    broken = np.full((4, 2, 1, 1), np.nan, np.float32)
    model = saved(a_graph(nodes, {"w": broken, "o": random(2, 4, 1, 1)}, [1, 2, 4, 4]), tmp_path / "a")
    for levels, words in (
        ({"w": 0.5}, "'w' has 8 values that are not numbers"),
        ({"v": 0.5}, "no weight 'v'"),
        ({"o": -1.0}, "cannot be pruned to -1"),
    ):
        with pytest.raises(BadInput, match=words):
            prune_channels(model, levels, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(BadInput, match="is the model itself"):
        prune_channels(model, {}, tmp_path / "a")


def test_a_detector_of_text_loses_half_of_its_channels(tmp_path: Path) -> None:
    path = one("ppocrv4_det")
    model = read_model(str(path))
    proto: ModelProto = onnx.load(path)
    products = {each.input[1] for each in proto.graph.node if each.op_type in ("Conv", "ConvTranspose")}
    copy = prune_channels(model, dict.fromkeys(products, 0.5), tmp_path)
    assert list(copy.left_alone.values()) == ["its channels are an output of the model"]
    assert model.parameters is not None and copy.model.parameters is not None
    assert copy.model.parameters < 0.27 * model.parameters
