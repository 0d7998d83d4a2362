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
from inferlab.model.inputs import Data, load_data
from inferlab.model.onnx_file import read_onnx
from inferlab.model.reading import digits_data
from inferlab.profiling.loss import evaluate
from inferlab.records import Event, Model
from inferlab.records.optimization import Quantization, Scheme
from inferlab.transform.quantize import quantize
from tests.helpers.networks import a_graph, run_onnxruntime, run_openvino, saved
from tests.helpers.real_models import one


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
    made = quantize(model, data.sets[:4], tmp_path / "int8", listener=events.append).model
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
    made = quantize(model, some_inputs(), tmp_path / "b").model
    operators = [node.op_type for node in onnx.load(made.path).graph.node]
    assert (made.opset, made.quantization) == (13, "QDQ")
    assert operators.count("Softplus") == 1
    loss = evaluate(made, model, Data(tuple(some_inputs()), None, (1, 1, 1), generated=True)).loss
    assert loss is not None and 0 < loss < 1e-3


def test_weights_are_quantised_channel_by_channel(tmp_path: Path) -> None:
    made = quantize(a_net(tmp_path / "a"), some_inputs(), tmp_path / "b").model
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
    assert not (tmp_path / "b").exists()
    with pytest.raises(BadInput, match="is the model itself"):
        quantize(plain, some_inputs(), tmp_path / "a")
    with pytest.raises(BadInput, match="at least one set of inputs"):
        quantize(model, [], tmp_path / "c")
    made = quantize(model, data.sets[:1], tmp_path / "d").model
    with pytest.raises(BadInput, match="is quantised already"):
        quantize(made, data.sets[:1], tmp_path / "e")
    with pytest.raises(BadInput, match="'w' has 27 values that are not numbers"):
        quantize(a_net(tmp_path / "f", nan=True), some_inputs(), tmp_path / "g")
    assert not (tmp_path / "g").exists()


def two_products(folder: Path, **changed: Any) -> Model:
    """A convolution, products of matrices with a turned weight and with a bias, and one of activations."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Transpose", ["t"], ["turned"]),
        helper.make_node("MatMul", ["f", "turned"], ["h"], name="first"),
        helper.make_node("Softplus", ["h"], ["s"]),
        helper.make_node("MatMul", ["s", "v"], ["m"], name="second"),
        helper.make_node("Add", ["m", "b"], ["n"]),
        helper.make_node("Gemm", ["n", "n"], ["y"], transB=1),
    ]
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "t": (16, 8), "v": (16, 16), "b": (1, 16)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return saved(a_graph(nodes, weights, [1, 3, 8, 8], **changed), folder)


def kinds_of(model: Model) -> dict[str, int]:
    return {one.name: one.data_type for one in onnx.load(model.path).graph.initializer if len(one.dims) >= 2}


SCHEMES: list[dict[str, Any]] = [
    {"scheme": "static"},
    {"scheme": "static", "per_channel": False},
    {"scheme": "dynamic"},
    {"scheme": "dynamic", "per_channel": False},
    {"scheme": "weights"},
    {"scheme": "weights", "bits": 4},
    {"scheme": "fp16"},
]


@pytest.mark.parametrize("how", SCHEMES, ids=lambda one: " ".join(map(str, one.values())))
def test_every_scheme_runs_alike_on_onnxruntime_and_openvino(tmp_path: Path, how: dict[str, Any]) -> None:
    model = two_products(tmp_path / "a")
    data = some_inputs() if how["scheme"] == "static" else []
    made = quantize(model, data, tmp_path / "b", Quantization(**how)).model
    precision = {"weights": f"INT{how.get('bits', 8)}", "fp16": "FP16"}.get(how["scheme"], "INT8")
    assert made.precision == precision
    assert (made.inputs, made.outputs) == (model.inputs, model.outputs)
    assert [one.name for one in (tmp_path / "b").iterdir()] == ["net.onnx"]
    (inputs,) = some_inputs(1)
    (expected,) = run_onnxruntime(model, inputs)
    for run in (run_onnxruntime, run_openvino):
        np.testing.assert_allclose(run(made, inputs)[0], expected, rtol=0.5 if how.get("bits") == 4 else 0.1)


@pytest.mark.parametrize(
    ("scheme", "products", "others"),
    [
        ("static", set(), {"Softplus"}),
        ("dynamic", set(), set()),
        ("weights", {"conv"}, set()),
        ("fp16", set(), set()),
    ],
)
def test_what_stays_as_it_is_is_named_with_the_reason(
    tmp_path: Path, scheme: Scheme, products: set[str], others: set[str]
) -> None:
    copy = quantize(two_products(tmp_path / "a"), some_inputs(), tmp_path / "b", Quantization(scheme))
    activations = {"y"} if scheme in ("dynamic", "weights") else set()
    assert set(copy.left_alone) == products | others | activations
    if activations:
        assert copy.left_alone["y"] == "it multiplies activations: no factor is a constant"


@pytest.mark.parametrize("scheme", ["static", "dynamic", "weights", "fp16"])
@pytest.mark.parametrize("wanted", ["second", "m", "v"], ids=["node", "output", "weight"])
def test_what_is_excluded_by_node_output_or_weight_keeps_its_weight(
    tmp_path: Path, scheme: Scheme, wanted: str
) -> None:
    left = Quantization(scheme, exclude=(wanted,))
    copy = quantize(two_products(tmp_path / "a"), some_inputs(), tmp_path / "b", left)
    assert copy.left_alone["second"] == "it was excluded"
    assert kinds_of(copy.model)["v"] == TensorProto.FLOAT
    assert len([kind for kind in kinds_of(copy.model).values() if kind != TensorProto.FLOAT]) >= 1


def test_a_weight_that_is_turned_on_its_way_is_excluded_with_the_product_it_goes_into(tmp_path: Path) -> None:
    left = Quantization("static", exclude=("t",))
    copy = quantize(two_products(tmp_path / "a"), some_inputs(), tmp_path / "b", left)
    assert copy.left_alone["first"] == "it was excluded"


def test_a_weight_that_two_products_share_is_not_turned_for_both(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], name="one", transB=1),
        helper.make_node("Gemm", ["a", "w"], ["b"], name="other"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="third"),
    ]
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 8)).astype(np.float32), "v": rng.normal(size=(8, 4)).astype(np.float32)}
    model = saved(a_graph(nodes, weights, [1, 8]), tmp_path / "a")
    inputs = {"x": rng.normal(size=(1, 8)).astype(np.float32)}
    (expected,) = run_onnxruntime(model, inputs)
    schemes: tuple[Scheme, ...] = ("dynamic", "weights")
    for scheme in schemes:
        copy = quantize(model, [], tmp_path / scheme, Quantization(scheme))
        assert set(copy.left_alone) == {"one", "other"}
        np.testing.assert_allclose(
            run_onnxruntime(copy.model, inputs)[0], expected, atol=0.05 * abs(expected).max()
        )


def test_an_old_model_with_its_constants_among_the_inputs_is_quantised_too(tmp_path: Path) -> None:
    model = read_model(str(one("mnist_cntk")))
    inputs = [{"Input3": np.random.default_rng(0).uniform(0, 255, (1, 1, 28, 28)).astype(np.float32)}]
    (expected,) = run_onnxruntime(model, inputs[0])
    schemes: tuple[Scheme, ...] = ("static", "dynamic", "fp16")
    for scheme in schemes:
        copy = quantize(model, inputs, tmp_path / scheme, Quantization(scheme))
        (found,) = run_onnxruntime(copy.model, inputs[0])
        np.testing.assert_allclose(found, expected, atol=0.1 * abs(expected).max())
        assert copy.model.inputs == model.inputs
        assert copy.model.size_bytes < 0.7 * model.size_bytes


def test_the_head_of_the_file_stays_and_no_domain_is_added_that_no_node_needs(tmp_path: Path) -> None:
    model = two_products(tmp_path / "a")
    proto = onnx.load(model.path)
    proto.metadata_props.add(key="author", value="me")
    proto.producer_name = "someone"
    model = saved(proto, tmp_path / "a")
    domains_of: dict[Scheme, set[str]] = {
        "static": {""},
        "dynamic": {""},
        "weights": {"", "com.microsoft"},
        "fp16": {""},
    }
    for scheme, domains in domains_of.items():
        made = onnx.load(quantize(model, some_inputs(), tmp_path / scheme, Quantization(scheme)).model.path)
        assert {one.domain for one in made.opset_import} == domains
        assert (made.ir_version, made.producer_name, made.metadata_props[0].value) == (8, "someone", "me")


@pytest.mark.parametrize("stored", ["initializer", "node"])
def test_a_variance_that_fp16_cannot_hold_is_not_cut_off_but_a_mask_is(tmp_path: Path, stored: str) -> None:
    weights = {
        "w": 1000 * np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32),
        "one": np.ones(8, np.float32),
        "variance": np.full(8, 2.5e7, np.float32),
        "never": np.full(1, np.finfo(np.float32).min, np.float32),
        "zero": np.zeros(1, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("BatchNormalization", ["a", "one", "one", "one", "variance"], ["b"], name="norm"),
        helper.make_node("Greater", ["b", "zero"], ["shown"], name="greater"),
        helper.make_node("Where", ["shown", "b", "never"], ["c"], name="where"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax"),
    ]
    if stored == "node":
        value = numpy_helper.from_array(weights.pop("variance"))
        nodes.insert(0, helper.make_node("Constant", [], ["variance"], name="constant", value=value))
    model = saved(a_graph(nodes, weights, [1, 3, 8, 8]), tmp_path / "a")
    copy = quantize(model, [], tmp_path / "b", Quantization("fp16"))
    assert copy.left_alone == {"norm": "FP16 cannot hold its constants"}
    kinds = {one.name: one.data_type for one in onnx.load(copy.model.path).graph.initializer}
    assert (kinds["variance"], kinds["never"]) == (TensorProto.FLOAT, TensorProto.FLOAT16)
    (inputs,) = some_inputs(1)
    (expected,) = run_onnxruntime(model, inputs)
    for run in (run_onnxruntime, run_openvino):
        np.testing.assert_allclose(run(copy.model, inputs)[0], expected, atol=0.01)


def test_settings_that_cannot_be_are_refused_with_a_sentence(tmp_path: Path) -> None:
    model = two_products(tmp_path / "a")
    half = quantize(model, [], tmp_path / "half", Quantization("fp16")).model
    four = quantize(model, [], tmp_path / "four", Quantization("weights", bits=4)).model
    refused: list[tuple[Model, dict[str, Any], str]] = [
        (model, {"scheme": "int3"}, "no quantisation scheme 'int3'. There are: static"),
        (model, {"scheme": "dynamic", "bits": 4}, "dynamic cannot have 4 bits"),
        (model, {"scheme": "weights", "bits": 3}, "weights cannot have 3 bits"),
        (model, {"scheme": "fp16", "per_channel": False}, "fp16 has no scale"),
        (model, {"scheme": "dynamic", "exclude": ["nothing"]}, "no node and no weight 'nothing'"),
        (half, {"scheme": "fp16"}, "is in FP16 already"),
        (four, {"scheme": "dynamic"}, r"is quantised already \(INT4\)"),
    ]
    for given, how, words in refused:
        with pytest.raises(BadInput, match=words):
            quantize(given, [], tmp_path / "b", Quantization(**{"scheme": "static", **how}))
    with pytest.raises(EngineRefused, match="all were excluded"):
        quantize(model, [], tmp_path / "b", Quantization("dynamic", exclude=("conv", "first", "second")))
    assert not (tmp_path / "b").exists()
