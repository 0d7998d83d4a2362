from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.errors import BadInput, EngineRefused
from inferlab.lab import read_model
from inferlab.records import Model
from inferlab.transform.cleanup import clean_up
from tests.helpers.networks import (
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


def a_roundabout_net(folder: Path, **options: object) -> Model:
    """A convolution with batch normalisation, a product with a turned weight, and much that does nothing."""
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Conv", ["i", "w"], ["c"], name="conv"),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        node("Dropout", ["n"], ["d"]),
        node("Shape", ["w"], ["shape"]),
        node("Gather", ["shape", "first"], ["channels"], axis=0),
        node("Unsqueeze", ["channels", "axis"], ["size"]),
        node("Concat", ["minus", "size"], ["target"], axis=0),
        node("GlobalAveragePool", ["d"], ["p"]),
        node("Reshape", ["p", "target"], ["f"]),
        node("Transpose", ["t"], ["turned"], perm=[1, 0]),
        node("MatMul", ["f", "turned"], ["y"], name="product"),
        node("Relu", ["f"], ["unused"]),
    ]
    weights = {
        "w": random(4, 3, 3, 3),
        **{name: np.abs(random(4, seed=place)) for place, name in enumerate(("s", "b", "m", "v"))},
        "t": random(2, 4),
        "first": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "minus": np.array([-1], np.int64),
        "forgotten": random(64, 64),
    }
    return saved(a_graph(nodes, weights, ["batch", 3, 8, 8]), folder, **options)


def operators(model: Model) -> list[str]:
    return [one.op_type for one in onnx.load(model.path, load_external_data=False).graph.node]


def test_constants_are_folded_dead_nodes_go_and_weights_keep_names_and_values(tmp_path: Path) -> None:
    model = a_roundabout_net(tmp_path / "a")
    copy = clean_up(model, tmp_path / "b")
    assert operators(copy.model) == [
        "Conv", "BatchNormalization", "GlobalAveragePool", "Reshape", "Transpose", "MatMul",
    ]  # fmt: skip
    before, after = weights_of(model), weights_of(copy.model)
    assert "forgotten" not in after
    for name in ("w", "t", "s", "b", "m", "v"):
        np.testing.assert_array_equal(after[name], before[name])
    assert copy.left_alone == {}
    old, new = onnx.load(model.path), onnx.load(copy.model.path)
    assert (new.ir_version, new.opset_import, new.graph.input) == (
        old.ir_version,
        old.opset_import,
        old.graph.input,
    )
    (inputs,) = inputs_of(model)
    (expected,) = run_onnxruntime(model, inputs)
    for run in (run_onnxruntime, run_openvino):
        np.testing.assert_allclose(run(copy.model, inputs)[0], expected, rtol=1e-4, atol=1e-5)


def test_the_same_model_gives_the_same_bytes_and_stays_as_it_was(tmp_path: Path) -> None:
    model = a_roundabout_net(tmp_path / "a")
    before = digests(tmp_path / "a")
    clean_up(model, tmp_path / "b")
    clean_up(model, tmp_path / "c")
    assert digests(tmp_path / "b") == digests(tmp_path / "c")
    assert digests(tmp_path / "a") == before


def test_data_in_other_files_stays_in_them(tmp_path: Path) -> None:
    model = a_roundabout_net(tmp_path / "a", save_as_external_data=True, location="data.bin", size_threshold=128)
    copy = clean_up(model, tmp_path / "b")
    assert sorted(digests(tmp_path / "b")) == ["data.bin", "net.onnx"]
    (inputs,) = inputs_of(model)
    np.testing.assert_allclose(
        run_onnxruntime(copy.model, inputs)[0], run_onnxruntime(model, inputs)[0], rtol=1e-4, atol=1e-5
    )


def test_weights_in_nodes_and_branches_keep_their_names(tmp_path: Path) -> None:
    def branch(name: str, weight: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2])
        nodes = [node("Transpose", [weight], [f"{name}t"]), node("MatMul", ["h", f"{name}t"], [name])]
        return helper.make_graph(nodes, name, [], [value], [numpy_helper.from_array(random(2, 4), weight)])

    nodes = [
        node("Constant", [], ["k"], value=numpy_helper.from_array(random(3, 4))),
        node("MatMul", ["x", "k"], ["h"]),
        node("ReduceSum", ["h"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["yes"]),
        node("If", ["yes"], ["y"], then_branch=branch("one", "u"), else_branch=branch("other", "v")),
    ]
    model = saved(a_graph(nodes, {"zero": np.array(0, np.float32)}, ["batch", 3]), tmp_path / "a")
    copy = clean_up(model, tmp_path / "b")
    assert {name: dims for name, dims in shapes_of(copy.model).items() if dims} == {
        "k": (3, 4), "u": (2, 4), "v": (2, 4),
    }  # fmt: skip
    for inputs in inputs_of(model, 4):
        inputs["x"] -= 0.5
        np.testing.assert_allclose(
            run_onnxruntime(copy.model, inputs)[0], run_onnxruntime(model, inputs)[0], rtol=1e-5, atol=1e-6
        )


def test_an_old_model_keeps_its_constants_among_its_inputs(tmp_path: Path) -> None:
    model = read_model(str(one("mnist_cntk")))
    copy = clean_up(model, tmp_path)
    old, new = onnx.load(model.path), onnx.load(copy.model.path)
    assert (old.ir_version, new.ir_version) == (3, 3)
    onnx.checker.check_model(new)
    assert copy.model.inputs == model.inputs
    (inputs,) = inputs_of(model)
    np.testing.assert_allclose(
        run_onnxruntime(copy.model, inputs)[0], run_onnxruntime(model, inputs)[0], rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("name", ["silero_vad", "g2p_bert", "ppocrv4_det"])
def test_real_models_get_smaller_and_keep_every_weight_that_is_used(name: str, tmp_path: Path) -> None:
    model = read_model(str(one(name, "silero_vad.onnx" if name == "silero_vad" else ".onnx")))
    copy = clean_up(model, tmp_path)
    nodes, fewer = onnx.load(model.path).graph, onnx.load(copy.model.path).graph
    assert len(fewer.node) < len(nodes.node)
    assert copy.model.size_bytes < model.size_bytes
    products = {each.input[1] for each in nodes.node if each.op_type in ("Conv", "Gemm", "MatMul")}
    stored = {each.name for each in nodes.initializer}
    assert products & stored <= {each.name for each in fewer.initializer}


def test_what_onnxruntime_cannot_load_is_refused_with_a_sentence(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Strange", ["x"], ["y"], domain="somebody.else")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("somebody.else", 1)]
    model = saved(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "a")
    with pytest.raises(EngineRefused, match=r"net\.onnx cannot be cleaned up.*Optimise it without the clean-up"):
        clean_up(model, tmp_path / "b")
    with pytest.raises(BadInput, match="is the model itself"):
        clean_up(model, tmp_path / "a")
    assert not (tmp_path / "b").exists()


def test_functions_of_the_model_are_left_alone_and_named(tmp_path: Path) -> None:
    twice = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 13)]
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="mine")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[twice])
    copy = clean_up(saved(proto, tmp_path / "a"), tmp_path / "b")
    assert copy.left_alone == {"Twice": "the model's own functions are not cleaned up"}
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
