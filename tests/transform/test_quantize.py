from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.errors import BadInput, EngineRefused
from inferlab.lab import read_model
from inferlab.model.datasets import Data, load_data
from inferlab.model.demo import digits_data
from inferlab.model.graph import read_onnx
from inferlab.profiling.loss import evaluate
from inferlab.records import Event, Model
from inferlab.transform.quantize import quantize


@pytest.fixture(scope="module")
def digits() -> tuple[Model, Data]:
    model = read_model("demo:digits")
    return model, load_data(digits_data(), model.inputs, model.outputs)


def a_net(folder: Path, opset: int = 13, nan: bool = False, operator: str = "Conv") -> Model:
    """A convolution, an operator that has no INT8 kernel, and a sum."""
    weight = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    weight[0] *= np.nan if nan else 1
    nodes = [
        helper.make_node(operator, ["x", "w"] if operator == "Conv" else ["x"], ["a"]),
        helper.make_node("Softplus", ["a"], ["b"]),
        helper.make_node("Sum", ["b", "a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(weight, "w")] if operator == "Conv" else [],
    )
    graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 6, 6] if operator == "Conv" else [1, 3, 8, 8])
    )
    folder.mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6), folder / "net.onnx"
    )
    return read_onnx(folder / "net.onnx", "net.onnx")


def some_inputs(count: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def test_the_trained_digits_keep_their_accuracy_in_int8_on_onnxruntime_and_openvino(
    digits: tuple[Model, Data], tmp_path: Path
) -> None:
    model, data = digits
    before = hashlib.sha256(Path(model.path).read_bytes()).hexdigest()
    events: list[Event] = []
    made = quantize(model, data.sets[:4], tmp_path / "int8", events.append)
    assert (made.precision, made.quantization) == ("INT8", "QDQ")
    assert made.size_bytes < model.size_bytes / 2
    assert [event.fraction for event in events] == [None, 0.2, 0.8, 1.0]
    assert [one.name for one in (tmp_path / "int8").iterdir()] == ["digits.onnx"]
    assert hashlib.sha256(Path(model.path).read_bytes()).hexdigest() == before
    found = evaluate(made, model, data)
    assert found.accuracy is not None and found.dense_accuracy is not None
    assert found.accuracy >= found.dense_accuracy - 0.01

    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(made.path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert data.labels is not None
    right = [
        (compiled(dict(one))[0].argmax(axis=-1) == labels).mean()
        for one, labels in zip(data.sets, data.labels, strict=True)
    ]
    assert np.mean(right) >= found.dense_accuracy - 0.01


def test_an_old_opset_is_converted_and_an_operator_without_int8_is_left_alone(tmp_path: Path) -> None:
    model = a_net(tmp_path / "a", opset=9)
    made = quantize(model, some_inputs(), tmp_path / "b")
    operators = [node.op_type for node in onnx.load(made.path).graph.node]
    assert (made.opset, made.quantization) == (13, "QDQ")
    assert operators.count("Softplus") == 1
    loss = evaluate(made, model, Data(tuple(some_inputs()), None, (1, 1, 1), generated=True)).loss
    assert loss is not None and 0 < loss < 1e-3


def test_weights_are_quantised_channel_by_channel(tmp_path: Path) -> None:
    made = quantize(a_net(tmp_path / "a"), some_inputs(), tmp_path / "b")
    graph = onnx.load(made.path).graph
    kernel = next(one for one in graph.initializer if one.data_type == TensorProto.INT8 and len(one.dims) == 4)
    reader = next(node for node in graph.node if kernel.name in node.input)
    scale = next(one for one in graph.initializer if one.name == reader.input[1])
    assert (reader.op_type, list(scale.dims)) == ("DequantizeLinear", [8])


def test_what_cannot_be_quantised_is_refused_with_a_sentence_and_leaves_nothing(
    digits: tuple[Model, Data], tmp_path: Path
) -> None:
    model, data = digits
    plain = a_net(tmp_path / "a", operator="Relu")
    with pytest.raises(EngineRefused, match="no convolution and no product of matrices"):
        quantize(plain, some_inputs(), tmp_path / "b")
    assert list((tmp_path / "b").iterdir()) == []
    with pytest.raises(BadInput, match="is the model itself"):
        quantize(plain, some_inputs(), tmp_path / "a")
    with pytest.raises(BadInput, match="at least one set of inputs"):
        quantize(model, [], tmp_path / "c")
    made = quantize(model, data.sets[:1], tmp_path / "d")
    with pytest.raises(BadInput, match="is quantised already"):
        quantize(made, data.sets[:1], tmp_path / "e")
    with pytest.raises(EngineRefused, match=r"No INT8 copy of net\.onnx could be made"):
        quantize(a_net(tmp_path / "f", nan=True), some_inputs(), tmp_path / "g")
    assert list((tmp_path / "g").iterdir()) == []
