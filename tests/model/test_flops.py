from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.model.flops.count import costs
from inferlab.model.flops.formulas import NO_FORMULA, formula_for, reason_for
from inferlab.model.onnx_file import read_onnx
from inferlab.model.reading import build_demo
from inferlab.model.shapes import resolve
from inferlab.records import Model
from tests.helpers.graphs import FLOAT, cost_of, fixed, floats, last, model_of, node, saved

INT64, UINT8, INT8 = TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8
MS: dict[str, Any] = {"domain": "com.microsoft"}


def demo(name: str, batch: int | None = None) -> tuple[Model, dict[str, tuple[int, ...]]]:
    model = read_onnx(build_demo(name), f"demo:{name}")
    return model, resolve(model.inputs, batch, None, {}).shapes


# (nodes, inputs, weights, flops, macs) of the last node
X34 = {"x": (FLOAT, (3, 4))}
IMAGE = {"x": (FLOAT, (2, 4, 8, 8))}
CASES: dict[str, tuple[Any, Any, Any, int, int]] = {
    "a convolution": (
        node("Conv", ["x", "w"], pads=[1, 1, 1, 1]),
        IMAGE,
        {"w": floats(6, 4, 3, 3)},
        2 * 2 * 6 * 64 * 36,
        2 * 6 * 64 * 36,
    ),
    "a convolution with bias": (
        node("Conv", ["x", "w", "b"]),
        IMAGE,
        {"w": floats(6, 4, 1, 1), "b": floats(6)},
        2 * 6 * 64 * (2 * 4 + 1),
        2 * 6 * 64 * 4,
    ),
    "a grouped convolution with stride and dilation": (
        node("Conv", ["x", "w"], group=2, strides=[2, 2], dilations=[2, 2], pads=[2, 2, 2, 2]),
        IMAGE,
        {"w": floats(6, 2, 3, 3)},
        2 * 2 * 6 * 16 * 18,
        2 * 6 * 16 * 18,
    ),
    "a depthwise convolution in 1-D": (
        node("Conv", ["x", "w"], group=4),
        {"x": (FLOAT, (1, 4, 10))},
        {"w": floats(4, 1, 3)},
        2 * 4 * 8 * 3,
        4 * 8 * 3,
    ),
    "a convolution in 3-D": (
        node("Conv", ["x", "w"]),
        {"x": (FLOAT, (1, 2, 4, 4, 4))},
        {"w": floats(3, 2, 2, 2, 2)},
        2 * 3 * 27 * 16,
        3 * 27 * 16,
    ),
    "a transposed convolution": (
        node("ConvTranspose", ["x", "w"], strides=[2, 2]),
        IMAGE,
        {"w": floats(4, 5, 2, 2)},
        2 * 512 * 20,
        512 * 20,
    ),
    "Gemm": (node("Gemm", ["x", "w", "b"], transB=1), X34, {"w": floats(5, 4), "b": floats(5)}, 15 * 9, 60),
    "Gemm with alpha": (node("Gemm", ["x", "w"], alpha=0.5), X34, {"w": floats(4, 5)}, 15 * 9, 60),
    "MatMul": (node("MatMul", ["x", "w"]), X34, {"w": floats(4, 5)}, 120, 60),
    "MatMul in batches, broadcast": (
        node("MatMul", ["x", "w"]),
        {"x": (FLOAT, (2, 1, 3, 4))},
        {"w": floats(7, 4, 5)},
        2 * 2 * 7 * 3 * 5 * 4,
        2 * 7 * 3 * 5 * 4,
    ),
    "MatMul of vectors": (node("MatMul", ["x", "w"]), {"x": (FLOAT, (4,))}, {"w": floats(4)}, 8, 4),
    "Einsum as a product of matrices": (
        node("Einsum", ["x", "w"], equation="ij,jk->ik"), X34, {"w": floats(4, 5)}, 120, 60,
    ),
    "Einsum with an ellipsis": (
        node("Einsum", ["x", "w"], equation="...ij,jk->...ik"),
        {"x": (FLOAT, (2, 3, 4))}, {"w": floats(4, 5)}, 240, 120,
    ),
    "Einsum as an outer product": (
        node("Einsum", ["x", "w"], equation="i,j->ij"), {"x": (FLOAT, (3,))}, {"w": floats(4)}, 12, 0,
    ),
    "Einsum as a transposition": (node("Einsum", ["x"], equation="ij->ji"), X34, {}, 0, 0),
    "LSTM": (
        node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=3),
        {"x": (FLOAT, (5, 2, 4))},
        {"w": floats(1, 12, 4), "r": floats(1, 12, 3), "b": floats(1, 24)},
        5 * 2 * (2 * 12 * 7 + 3 * (8 + 9)),
        5 * 2 * 12 * 7,
    ),
    "a bidirectional GRU": (
        node("GRU", ["x", "w", "r"], ["y"], hidden_size=3, direction="bidirectional"),
        {"x": (FLOAT, (5, 2, 4))},
        {"w": floats(2, 9, 4), "r": floats(2, 9, 3)},
        2 * 5 * 2 * (2 * 9 * 7 + 3 * (3 + 8)),
        2 * 5 * 2 * 9 * 7,
    ),
    "RNN": (
        node("RNN", ["x", "w", "r"], ["y"], hidden_size=3),
        {"x": (FLOAT, (5, 2, 4))},
        {"w": floats(1, 3, 4), "r": floats(1, 3, 3)},
        5 * 2 * (2 * 3 * 7 + 3 * 2),
        5 * 2 * 3 * 7,
    ),
    "Add": (node("Add", ["x", "w"]), X34, {"w": floats(2, 1, 4)}, 24, 0),
    "Sum of three": (node("Sum", ["x", "x", "x"]), X34, {}, 24, 0),
    "Relu": (node("Relu", ["x"]), X34, {}, 12, 0),
    "Gelu": (node("Gelu", ["x"]), X34, {}, 60, 0),
    "Gelu by tanh": (node("Gelu", ["x"], approximate="tanh"), X34, {}, 96, 0),
    "Softmax": (node("Softmax", ["x"]), X34, {}, 60, 0),
    "LayerNormalization": (
        node("LayerNormalization", ["x", "w", "b"]), X34, {"w": floats(4), "b": floats(4)}, 84, 0,
    ),
    "LayerNormalization without a shift": (
        node("LayerNormalization", ["x", "w"]), X34, {"w": floats(4)}, 72, 0,
    ),
    "BatchNormalization": (
        node("BatchNormalization", ["x", "w", "w", "w", "w"]), IMAGE, {"w": floats(4)}, 2 * 512, 0,
    ),
    "MaxPool": (node("MaxPool", ["x"], kernel_shape=[2, 2], strides=[2, 2]), IMAGE, {}, 2 * 4 * 16 * 4, 0),
    "GlobalAveragePool": (node("GlobalAveragePool", ["x"]), IMAGE, {}, 512, 0),
    "ReduceMean": (node("ReduceMean", ["x"], keepdims=0), X34, {}, 12, 0),
    "ReduceSumSquare": (node("ReduceSumSquare", ["x"]), X34, {}, 24, 0),
    "TopK": (
        node("TopK", ["x", "k"], ["y", "i"]), {"x": (FLOAT, (3, 100))}, {"k": np.array([8])}, 300 * 3, 0,
    ),
    "Resize to the nearest": (
        node("Resize", ["x", "", "s"], mode="nearest"), IMAGE, {"s": np.array([1, 1, 2, 2], np.float32)}, 0, 0,
    ),
    "Resize, linear": (
        node("Resize", ["x", "", "s"], mode="linear"),
        IMAGE, {"s": np.array([1, 1, 2, 2], np.float32)}, 2 * 2048 * 4, 2048 * 4,
    ),
    "Transpose": (node("Transpose", ["x"]), X34, {}, 0, 0),
    "Gather": (node("Gather", ["w", "x"]), {"x": (INT64, (3,))}, {"w": floats(10, 4)}, 0, 0),
    "Where": (node("Where", ["c", "x", "x"]), X34, {"c": np.array([True])}, 12, 0),
    "Scatter with a sum": (
        node("ScatterElements", ["x", "i", "u"], reduction="add"),
        X34, {"i": np.zeros((1, 2), np.int64), "u": floats(1, 2)}, 2, 0,
    ),
    "Attention of 3 dimensions": (
        node("Attention", ["x", "x", "x"], q_num_heads=2, kv_num_heads=2),
        {"x": (FLOAT, (1, 5, 8))}, {}, 50 * (2 * 8 + 6), 50 * 8,
    ),
    "Attention with grouped heads, a mask and a cache": (
        node("Attention", ["x", "k", "k", "m", "p", "p"], ["y", "a", "b"]),
        {"x": (FLOAT, (1, 4, 5, 8)), "k": (FLOAT, (1, 2, 5, 8)), "m": (FLOAT, (5, 8)), "p": (FLOAT, (1, 2, 3, 8))},
        {}, 160 * (2 * 16 + 7), 160 * 16,
    ),
    "RMSNormalization": (node("RMSNormalization", ["x", "w"]), X34, {"w": floats(4)}, 48, 0),
    "RotaryEmbedding": (
        node("RotaryEmbedding", ["x", "c", "c"]),
        {"x": (FLOAT, (1, 2, 5, 8)), "c": (FLOAT, (1, 5, 4))}, {}, 3 * 80, 0,
    ),
    "a linear regressor": (
        node("LinearRegressor", ["x"], coefficients=[1.0] * 8, intercepts=[0.0, 0.0], targets=2,
             domain="ai.onnx.ml"),
        X34, {}, 3 * (2 * 8 + 2), 24,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_class_of_operator_has_an_exact_count(case: str, tmp_path: Path) -> None:
    made, inputs, weights, flops, macs = CASES[case]
    found = last(cost_of(tmp_path, [made], inputs, weights, opsets={"": 24}))
    assert (found.flops, found.macs, found.uncounted) == (flops, macs, "")


# What a run shows: shapes of these operators cannot be inferred.
SEQUENCE = {"x": (FLOAT, (2, 5, 8))}
TRACED: dict[str, tuple[Any, Any, Any, int, int, str]] = {
    "Attention": (
        node("Attention", ["x", "w", "b"], num_heads=2, **MS),
        SEQUENCE,
        {"w": floats(8, 24), "b": floats(24)},
        10 * 24 * (2 * 8 + 1) + 2 * 2 * 25 * (2 * 8 + 6),
        10 * 24 * 8 + 2 * 2 * 25 * 8,
        "float32",
    ),
    "MultiHeadAttention": (
        node("MultiHeadAttention", ["x", "x", "x"], num_heads=2, **MS),
        SEQUENCE,
        {},
        2 * 2 * 25 * (2 * 8 + 6),
        2 * 2 * 25 * 8,
        "float32",
    ),
    "SkipLayerNormalization": (
        node("SkipLayerNormalization", ["x", "x", "g", "g"], **MS),
        SEQUENCE, {"g": floats(8)}, 80 * 8, 0, "float32",
    ),
    "BiasGelu": (node("BiasGelu", ["x", "b"], **MS), SEQUENCE, {"b": floats(8)}, 80 * 6, 0, "float32"),
    "FastGelu": (node("FastGelu", ["x"], **MS), SEQUENCE, {}, 80 * 8, 0, "float32"),
    "FusedMatMul": (
        node("FusedMatMul", ["x", "w"], transA=1, alpha=0.5, **MS),
        SEQUENCE, {"w": floats(5, 3)}, 2 * 8 * 3 * (2 * 5 + 1), 2 * 8 * 3 * 5, "float32",
    ),
    "FusedConv": (
        node("FusedConv", ["x", "w", "b"], activation="Relu", **MS),
        IMAGE, {"w": floats(6, 4, 1, 1), "b": floats(6)}, 2 * 6 * 64 * (2 * 4 + 2), 2 * 6 * 64 * 4, "float32",
    ),
    "MatMulNBits": (
        node("MatMulNBits", ["x", "w", "s"], K=32, N=7, bits=4, block_size=32, **MS),
        {"x": (FLOAT, (3, 32))},
        {"w": np.ones((7, 1, 16), np.uint8), "s": floats(7, 1)}, 2 * 3 * 7 * 32, 3 * 7 * 32, "float32",
    ),
    "GroupQueryAttention": (
        node("GroupQueryAttention", ["x", "k", "k", "", "", "n", "t"], num_heads=4, kv_num_heads=2, **MS),
        {"x": (FLOAT, (1, 5, 32)), "k": (FLOAT, (1, 5, 16))},
        {"n": np.array([4], np.int32), "t": np.array(5, np.int32)}, 100 * (2 * 16 + 6), 100 * 16, "float32",
    ),
    "QAttention": (
        node("QAttention", ["x", "w", "b", "s", "s", "", "z", "wz"], num_heads=2, **MS),
        {"x": (UINT8, (2, 5, 8))},
        {"w": np.ones((8, 24), np.int8), "b": floats(24), "s": np.array(0.1, np.float32),
         "z": np.array(0, np.uint8), "wz": np.array(0, np.int8)},
        10 * 24 * (2 * 8 + 1) + 2 * 2 * 25 * (2 * 8 + 6), 10 * 24 * 8 + 2 * 2 * 25 * 8, "int8",
    ),
    "DynamicQuantizeMatMul": (
        node("DynamicQuantizeMatMul", ["x", "w", "s"], **MS),
        X34, {"w": np.ones((4, 5), np.int8), "s": np.array(0.1, np.float32)}, 120 + 15 + 48, 60, "int8",
    ),
    "QGemm": (
        node("QGemm", ["x", "s", "z", "w", "s", "wz"], **MS),
        {"x": (UINT8, (3, 4))},
        {"w": np.ones((4, 5), np.int8), "s": np.array(0.1, np.float32), "z": np.array(0, np.uint8),
         "wz": np.array(0, np.int8)}, 120, 60, "int8",
    ),
    "EmbedLayerNormalization": (
        node("EmbedLayerNormalization", ["x", "", "w", "p", "", "g", "g"], ["y", "counts"], **MS),
        {"x": (TensorProto.INT32, (1, 5))},
        {"w": floats(10, 8), "p": floats(6, 8), "g": floats(8)}, 8 * 40, 0, "float32",
    ),
    "RotaryEmbedding": (
        node("RotaryEmbedding", ["x", "p", "c", "c"], **MS),
        {"x": (FLOAT, (1, 2, 5, 8))}, {"p": np.array([0]), "c": floats(5, 4)}, 3 * 80, 0, "float32",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All of them in one model, so that one child runs them all."""
    nodes: list[Any] = []
    inputs: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    for name, (made, fed, constants, *_) in TRACED.items():
        own = onnx.NodeProto()
        own.CopyFrom(made)
        del own.input[:]
        own.input.extend(one and f"{name}.{one}" for one in made.input)
        own.output[0] = name
        nodes.append(own)
        inputs |= {f"{name}.{key}": value for key, value in fed.items()}
        weights |= {f"{name}.{key}": value for key, value in constants.items()}
    outputs = dict.fromkeys(TRACED, FLOAT)
    found = cost_of(tmp_path_factory.mktemp("traced"), nodes, inputs, weights, outputs=outputs)
    return {one.id: one for one in found.nodes}


@pytest.mark.parametrize("case", TRACED)
def test_operators_of_onnx_runtime_are_counted_with_the_shapes_that_a_run_shows(
    case: str, traced: dict[str, Any]
) -> None:
    *_, flops, macs, dtype = TRACED[case]
    one = traced[case]
    assert (one.flops, one.macs, one.dtype, one.uncounted) == (flops, macs, dtype, "")


def test_every_operator_of_onnx_has_a_formula_or_a_reason_of_its_own() -> None:
    for schema in onnx.defs.get_all_schemas():
        if formula_for(schema.domain, schema.name) is None:
            assert reason_for(schema.domain, schema.name) != NO_FORMULA, schema.name


def test_an_operator_that_nobody_knows_is_listed_with_its_reason(tmp_path: Path) -> None:
    made = [node("Relu", ["x"], ["z"]), node("Frobnicate", ["z"], domain="my.own")]
    found = last(cost_of(tmp_path, made, X34, opsets={"my.own": 1}))
    assert (found.flops, found.macs) == (None, None)
    assert found.uncounted == "it is an operator of 'my.own', which inferlab does not know"


def test_what_cannot_be_run_either_says_why_its_shape_is_unknown(tmp_path: Path) -> None:
    made = [node("Frobnicate", ["x"], ["z"], domain="my.own"), node("Relu", ["z"])]
    found = last(cost_of(tmp_path, made, X34, opsets={"my.own": 1}))
    assert found.flops is None
    assert found.uncounted.startswith("the shape of what it writes is not known: Engine 'onnxruntime' ")


def test_shapes_that_depend_on_the_data_come_from_a_run(tmp_path: Path) -> None:
    # A mask is fed with ones: all 12 are found.
    made = [node("NonZero", ["mask"], ["z"]), node("Cast", ["z"], ["f"], to=FLOAT), node("Relu", ["f"])]
    found = cost_of(tmp_path, made, {"mask": (FLOAT, (3, 4))})
    assert [one.flops for one in found.nodes] == [12, 0, 24]


def test_shapes_that_the_graph_computes_are_followed(tmp_path: Path) -> None:
    made = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Div", ["n", "two"], ["half"]),
        node("Concat", ["minus", "half"], ["new"], axis=0),
        node("Reshape", ["x", "new"], ["r"]),
        node("MatMul", ["r", "w"]),
    ]
    weights = {
        "one": np.array([1]), "two": np.array([2]), "minus": np.array([-1]), "w": floats(2, 5),
    }  # fmt: skip
    found = cost_of(tmp_path, made, X34, weights)
    assert last(found).macs == 6 * 2 * 5


def test_stale_shapes_of_another_batch_size_do_not_mislead(tmp_path: Path) -> None:
    made = [node("MatMul", ["x", "w"], ["z"]), node("Relu", ["z"])]
    proto = model_of(made, {"x": (FLOAT, ("batch", 4))}, {"w": floats(4, 5)})
    proto.graph.value_info.append(helper.make_tensor_value_info("z", FLOAT, (1, 5)))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, (1, 5)))
    found = costs(saved(proto, tmp_path), {"x": (8, 4)})
    assert [one.flops for one in found.nodes] == [2 * 8 * 20, 40]


def test_shapes_at_which_the_model_does_not_run_are_refused(tmp_path: Path) -> None:
    made = [node("Reshape", ["x", "s"], ["r"]), node("Relu", ["r"])]
    model = saved(model_of(made, {"x": (FLOAT, ("batch", 4))}, {"s": np.array([2, 2])}), tmp_path)
    assert len(costs(model, {"x": (1, 4)}).nodes) == 2
    with pytest.raises(BadInput, match=r"it reshapes 'x' of \[3, 4\] to \[2, 2\]"):
        costs(model, {"x": (3, 4)})


def test_what_is_computed_at_load_costs_nothing_and_its_weight_is_the_product_s(tmp_path: Path) -> None:
    weight = np.zeros((5, 4), np.float32)
    weight[0] = 1
    made = [node("Transpose", ["w"], ["t"]), node("Identity", ["t"], ["i"]), node("MatMul", ["x", "i"])]
    found = cost_of(tmp_path, made, X34, {"w": weight})
    assert [one.flops for one in found.nodes] == [0, 0, 120]
    product = last(found)
    assert (product.weight, product.weight_shape, product.prunable, product.params) == ("w", (5, 4), True, 20)
    assert product.zero_fraction == 0.8
    assert (product.read_bytes, product.weight_bytes, product.write_bytes) == (48, 80, 60)
    assert found.nodes[0].params == 0


def test_a_weight_in_a_constant_node_can_be_pruned(tmp_path: Path) -> None:
    value = numpy_helper.from_array(floats(4, 5))
    made = [node("Constant", [], ["w"], value=value), node("MatMul", ["x", "w"])]
    found = cost_of(tmp_path, made, X34)
    assert (last(found).weight, last(found).prunable, found.params) == ("w", True, 20)


def test_a_weight_that_two_nodes_share_counts_once_for_the_model(tmp_path: Path) -> None:
    made = [node("MatMul", ["x", "w"], ["z"]), node("MatMul", ["z", "w"])]
    found = cost_of(tmp_path, made, X34, {"w": floats(4, 4)})
    assert [one.params for one in found.nodes] == [16, 16]
    assert (found.params, found.weight_bytes) == (16, 64)


def test_products_of_activations_have_nothing_to_prune(tmp_path: Path) -> None:
    made = [node("MatMul", ["x", "z"])]
    found = last(cost_of(tmp_path, made, {"x": (FLOAT, (3, 4)), "z": (FLOAT, (4, 3))}))
    assert (found.weight, found.prunable, found.zero_fraction) == ("", False, None)


def test_picking_rows_reads_the_rows_and_not_the_table(tmp_path: Path) -> None:
    found = last(cost_of(tmp_path, [node("Gather", ["w", "x"])], {"x": (INT64, (3,))}, {"w": floats(1000, 4)}))
    assert (found.read_bytes, found.weight_bytes, found.write_bytes) == (24, 48, 48)
    assert found.params == 4000


def test_both_factors_dequantised_make_a_product_of_int8(tmp_path: Path) -> None:
    quantised = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s", "wz"], ["dw"]),
    ]
    weights = {
        "s": np.array(0.1, np.float32), "z": np.array(0, np.uint8), "wz": np.array(0, np.int8),
        "w": np.eye(4, dtype=np.int8), "f": floats(4, 4),
    }  # fmt: skip
    both = cost_of(tmp_path, [*quantised, node("MatMul", ["d", "dw"])], X34, weights)
    product = last(both)
    assert (product.dtype, product.weight, product.prunable, product.weight_bytes) == ("int8", "w", False, 16)
    assert product.zero_fraction == 0.75
    assert [(one.flops, one.dtype) for one in both.nodes[:3]] == [
        (24, "float32"), (24, "float32"), (0, "float32"),
    ]  # fmt: skip
    assert last(cost_of(tmp_path, [*quantised[:2], node("MatMul", ["d", "f"])], X34, weights)).dtype == "float32"


def test_the_operators_of_quantised_models_compute_in_int8(tmp_path: Path) -> None:
    made = node("QLinearConv", ["x", "s", "z", "w", "s", "wz", "s", "z", "b"])
    weights = {
        "s": np.array(0.1, np.float32), "z": np.array(0, np.uint8), "wz": np.array(0, np.int8),
        "w": np.ones((6, 4, 3, 3), np.int8), "b": np.zeros(6, np.int32),
    }  # fmt: skip
    found = last(cost_of(tmp_path, [made], {"x": (UINT8, (1, 4, 8, 8))}, weights, outputs={"y": UINT8}))
    assert (found.dtype, found.macs, found.flops) == ("int8", 6 * 36 * 36, 6 * 36 * (72 + 1))
    made, weights = node("MatMulInteger", ["x", "w"]), {"w": np.ones((4, 5), np.int8)}
    outputs = {"y": TensorProto.INT32}
    found = last(cost_of(tmp_path, [made], {"x": (UINT8, (3, 4))}, weights, outputs=outputs))
    assert (found.dtype, found.macs, found.flops) == ("int8", 60, 120)


def test_half_precision_is_counted_by_its_name(tmp_path: Path) -> None:
    fed = {"x": (TensorProto.FLOAT16, (3, 4))}
    weights, outputs = {"w": np.ones((4, 5), np.float16)}, {"y": TensorProto.FLOAT16}
    found = last(cost_of(tmp_path, [node("MatMul", ["x", "w"])], fed, weights, outputs=outputs))
    assert (found.dtype, found.weight_bytes, found.prunable) == ("float16", 40, True)


def branch(name: str, operator: str, *weights: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("out", FLOAT, None)
    return helper.make_graph([node(operator, ["x", *weights], ["out"])], name, [], [out])


def test_the_costlier_branch_counts_and_the_other_says_so(tmp_path: Path) -> None:
    made = node("If", ["c"], then_branch=branch("a", "Relu"), else_branch=branch("b", "MatMul", "w"))
    fed = {"x": (FLOAT, (4, 4)), "c": (TensorProto.BOOL, ())}
    found = cost_of(tmp_path, [made], fed, {"w": floats(4, 4)})
    assert {one.type: one.flops for one in found.nodes} == {"If": 0, "Relu": None, "MatMul": 128}
    relu = next(one for one in found.nodes if one.type == "Relu")
    assert relu.uncounted == "the other branch of its If counts, which costs at least as much"
    assert len({one.id for one in found.nodes}) == 3


def test_a_branch_that_is_never_taken_costs_nothing(tmp_path: Path) -> None:
    made = node("If", ["c"], then_branch=branch("a", "Relu"), else_branch=branch("b", "MatMul", "w"))
    weights = {"w": floats(4, 4), "c": np.array(True)}
    found = cost_of(tmp_path, [made], {"x": (FLOAT, (4, 4))}, weights)
    assert {one.type: one.flops for one in found.nodes} == {"If": 0, "Relu": 16, "MatMul": 0}


def loop_body() -> onnx.GraphProto:
    made = [node("Identity", ["cond"], ["go_on"]), node("MatMul", ["state", "w"], ["next"])]
    inputs = [("i", INT64, ()), ("cond", TensorProto.BOOL, ()), ("state", FLOAT, None)]
    outputs = [("go_on", TensorProto.BOOL, ()), ("next", FLOAT, None)]
    return helper.make_graph(
        made,
        "body",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*output) for output in outputs],
    )


def test_a_loop_counts_its_body_as_often_as_it_runs(tmp_path: Path) -> None:
    made = node("Loop", ["n", "", "x"], body=loop_body())
    found = cost_of(tmp_path, [made], {"x": (FLOAT, (4, 4))}, {"w": floats(4, 4), "n": np.array(7)})
    product = next(one for one in found.nodes if one.type == "MatMul")
    assert (product.flops, product.macs, product.params) == (7 * 128, 7 * 64, 16)


def test_a_loop_whose_rounds_the_data_decide_is_not_counted(tmp_path: Path) -> None:
    made = node("Loop", ["n", "", "x"], body=loop_body())
    fed = {"x": (FLOAT, (4, 4)), "n": (INT64, ())}
    product = next(
        one for one in cost_of(tmp_path, [made], fed, {"w": floats(4, 4)}).nodes if one.type == "MatMul"
    )
    assert (product.flops, product.uncounted) == (
        None,
        "it is in a loop whose number of iterations depends on the data",
    )


def test_a_scan_runs_once_for_each_row(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", ["state", "row"], ["next"]), node("Identity", ["next"], ["out"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, (4,)) for name in ("state", "row")],
        [helper.make_tensor_value_info(name, FLOAT, (4,)) for name in ("next", "out")],
    )
    made = node("Scan", ["s", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    found = cost_of(tmp_path, [made], {"x": (FLOAT, (6, 4))}, {"s": floats(4)}, outputs={"y": FLOAT})
    assert {one.type: one.flops for one in found.nodes} == {"Scan": 0, "Add": 24, "Identity": 0}


def test_the_model_s_own_functions_are_counted_call_by_call(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 21)]
    inner = [node("MatMul", ["a", "b"], ["c"]), node("Relu", ["c"], ["d"])]
    layer = helper.make_function("my.own", "Layer", ["a", "b"], ["d"], inner, opsets)
    made = [node("Layer", ["x", "w"], ["z"], domain="my.own"), node("Layer", ["z", "w"], domain="my.own")]
    weights = {"w": floats(4, 4)}
    found = cost_of(tmp_path, made, X34, weights, opsets={"my.own": 1}, functions=[layer])
    assert [(one.type, one.flops) for one in found.nodes] == [
        ("MatMul", 96), ("Relu", 12), ("MatMul", 96), ("Relu", 12),
    ]  # fmt: skip
    assert found.params == 16


def test_a_model_with_its_weights_in_another_file_is_counted_and_traced(tmp_path: Path) -> None:
    made = [node("FastGelu", ["x"], ["z"], **MS), node("MatMul", ["z", "w"])]
    proto = model_of(made, {"x": (FLOAT, (3, 64))}, {"w": floats(64, 64)})
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    model = read_onnx(tmp_path / "model.onnx", "model.onnx")
    before = sorted(one.name for one in tmp_path.iterdir())
    found = costs(model, fixed(model))
    assert [one.flops for one in found.nodes] == [8 * 192, 2 * 3 * 64 * 64]
    assert last(found).zero_fraction == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == before


def test_a_model_of_another_kind_is_refused_with_a_sentence() -> None:
    model = Model("openvino", "m.xml", "m.xml", "", (), (), 0)
    with pytest.raises(BadInput, match=r"The operations of m\.xml cannot be counted"):
        costs(model, {})


def test_the_demo_models_have_the_operations_of_their_architectures() -> None:
    for name, batch, macs, params in (
        ("resnet50", None, 4_089_184_256, 25_530_472),
        ("mobilenet_v2", 2, 2 * 300_774_272, 3_487_816),
        ("bert_3layer", None, 717_373_440, 17_389_824),
    ):
        model, shapes = demo(name, batch)
        found = costs(model, shapes)
        assert sum(one.macs or 0 for one in found.nodes) == macs, name
        assert found.params == params == model.parameters
        assert not any(one.uncounted for one in found.nodes)


def test_onnx_tool_agrees_on_products_and_convolutions() -> None:
    import onnx_tool

    model, shapes = demo("mobilenet_v2")
    graph = onnx_tool.Model(model.path).graph
    graph.shape_infer({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    graph.profile()
    theirs = {one.output[0]: one.macs[0] for one in graph.nodemap.values() if one.op_type in ("Conv", "Gemm")}
    biases = {"Conv", "Gemm"}  # onnx-tool counts a bias as multiply-adds
    for one in costs(model, shapes).nodes:
        if one.type in biases:
            outputs = (one.flops or 0) - 2 * (one.macs or 0)
            assert theirs[one.id] == (one.macs or 0) + outputs


def test_a_model_of_5000_nodes_is_counted(tmp_path: Path) -> None:
    made = [node("Add", [f"v{index}", "b"], [f"v{index + 1}"]) for index in range(5000)]
    weights, outputs = {"b": floats(4)}, {"v5000": FLOAT}
    found = cost_of(tmp_path, made, {"v0": (FLOAT, (3, 4))}, weights, outputs=outputs)
    assert sum(one.flops or 0 for one in found.nodes) == 5000 * 12
    assert found.params == 4
