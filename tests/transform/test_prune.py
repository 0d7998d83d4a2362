from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from inferlab.child.pruning import energy_shares, how_many, smallest
from inferlab.errors import BadInput
from inferlab.model.onnx_file import read_onnx
from inferlab.model.onnx_graph import stored_values
from inferlab.transform.prune import prune

WEIGHT = np.array([[0.5, -0.1, 0.3], [-0.4, 0.2, -0.6]], np.float32)
PRUNED = np.array([[0.5, 0, 0], [-0.4, 0, -0.6]], np.float32)


def a_model(weight: TensorProto, constant: bool = False) -> ModelProto:
    """y = x · weight, in the weight's own type."""
    kind = weight.data_type
    nodes = [helper.make_node("MatMul", ["x", weight.name], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], [weight.name], value=weight))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", kind, ["n", 2])],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
        [] if constant else [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def saved(model: ModelProto, folder: Path, **options: Any) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx", **options)
    return folder / "model.onnx"


def digests(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}


def test_the_smallest_half_by_magnitude_is_chosen_and_of_equal_values_the_first() -> None:
    assert smallest(np.array([3.0, -1, 1, -1, 2, 5]), 0.5).tolist() == [False, True, True, True, False, False]
    assert smallest(np.array([1.0, -1, 1, -1]), 0.5).tolist() == [True, True, False, False]
    assert smallest(np.array([-0.0, 5, 0.0, 1]), 0.5).tolist() == [True, False, True, False]
    assert smallest(np.array([2.0, 1]), 0.0).tolist() == [False, False]
    assert smallest(np.array([2.0, 1]), 1.0).tolist() == [True, True]
    assert smallest(np.array([]), 0.9).tolist() == []


def test_masks_of_rising_levels_lie_within_each_other() -> None:
    values = np.random.default_rng(0).integers(-4, 5, 1000).astype(np.float16)
    masks = [smallest(values, level) for level in (0.2, 0.5, 0.9)]
    assert [int(mask.sum()) for mask in masks] == [200, 500, 900]
    assert all((low <= high).all() for low, high in itertools.pairwise(masks))


def test_a_count_is_rounded() -> None:
    assert how_many(100, 0.29) == 29
    assert how_many(10, 0.7) == 7
    assert how_many(3, 0.5) == 2


def test_energy_shares_are_the_squares_that_pruning_removes() -> None:
    values = np.array([4.0, -1, 2, -3], np.float32)
    assert energy_shares(values, [0.0, 0.25, 0.5, 0.75, 1.0]) == [0, 1 / 30, 5 / 30, 14 / 30, 1]
    assert energy_shares(np.zeros(4, np.float32), [0.5]) == [0]


@pytest.mark.parametrize("constant", [False, True], ids=["initialiser", "Constant node"])
@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("raw", [True, False])
def test_weights_of_every_float_type_are_pruned(tmp_path: Path, kind: str, raw: bool, constant: bool) -> None:
    data_type = TensorProto.DataType.Value(kind)
    dense = helper.make_tensor("w", data_type, WEIGHT.shape, WEIGHT.reshape(-1))
    if raw:
        stored = stored_values(dense, tmp_path).tobytes()
        dense = TensorProto(name="w", data_type=data_type, dims=WEIGHT.shape, raw_data=stored)
    original = read_onnx(saved(a_model(dense, constant), tmp_path / "a"), "here")
    pruned = prune(original, {"w": 0.5}, tmp_path / "b")
    graph = onnx.load(pruned.path).graph
    tensor = graph.node[0].attribute[0].t if constant else graph.initializer[0]
    assert pruned.zero_fraction == 0.5
    assert tensor.data_type == data_type
    expected = np.where(PRUNED == 0, 0, numpy_helper.to_array(dense).astype(np.float64))
    np.testing.assert_array_equal(numpy_helper.to_array(tensor).astype(np.float64), expected)


def test_external_data_is_pruned_in_a_copy_and_the_original_stays(tmp_path: Path) -> None:
    path = saved(
        a_model(numpy_helper.from_array(WEIGHT, "w")),
        tmp_path / "a",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    before = digests(tmp_path / "a")
    pruned = prune(read_onnx(path, "here"), {"w": 0.5}, tmp_path / "b")
    assert digests(tmp_path / "a") == before
    assert sorted(one.name for one in (tmp_path / "b").iterdir()) == ["model.onnx", "weights.bin"]
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(pruned.path).graph.initializer[0]), PRUNED)


def test_a_weight_whose_bytes_another_one_shares_is_pruned_alone(tmp_path: Path) -> None:
    model = a_model(numpy_helper.from_array(WEIGHT, "w"))
    twin = model.graph.initializer.add()
    twin.CopyFrom(model.graph.initializer[0])
    twin.name = "twin"
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
    path = saved(model, tmp_path / "a")
    (tmp_path / "a" / "weights.bin").write_bytes(WEIGHT.tobytes())
    pruned = prune(read_onnx(path, "here"), {"w": 0.5}, tmp_path / "b")
    first, second = onnx.load(pruned.path).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(first), PRUNED)
    np.testing.assert_array_equal(numpy_helper.to_array(second), WEIGHT)


def test_a_sparse_weight_only_gets_sparser(tmp_path: Path) -> None:
    sparse = np.array([[0, 0, 0], [0, 2, 1]], np.float32)
    model = read_onnx(saved(a_model(numpy_helper.from_array(sparse, "w")), tmp_path / "a"), "here")
    assert prune(model, {"w": 0.5}, tmp_path / "b").zero_fraction == 4 / 6
    assert prune(model, {"w": 0.8}, tmp_path / "c").zero_fraction == 5 / 6


def test_what_cannot_be_pruned_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    broken = np.where(WEIGHT == 0.5, np.nan, WEIGHT).astype(np.float32)
    model = read_onnx(saved(a_model(numpy_helper.from_array(broken, "w")), tmp_path / "a"), "here")
    for levels, words in (
        ({"w": 0.5}, "'w' has 1 values that are not numbers"),
        ({"v": 0.5}, "no weight 'v'"),
        ({"w": 1.5}, "cannot be pruned to 1.5"),
        ({"w": float("nan")}, "cannot be pruned to nan"),
    ):
        with pytest.raises(BadInput, match=words):
            prune(model, levels, tmp_path / "b")
    assert not (tmp_path / "b" / "model.onnx").exists()
    with pytest.raises(BadInput, match="is the model itself"):
        prune(model, {}, tmp_path / "a")


def test_integers_are_refused(tmp_path: Path) -> None:
    model = a_model(numpy_helper.from_array(np.ones((2, 3), np.int32), "w"))
    with pytest.raises(BadInput, match="'w' is of the type INT32; only floats"):
        prune(read_onnx(saved(model, tmp_path / "a"), "here"), {"w": 0.5}, tmp_path / "b")
