"""What an ONNX graph says of its model: inputs and outputs, precision, randomness, and its batch size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.model.flops.operators import RANDOM
from inferlab.model.limits import Tracer
from inferlab.model.onnx_graph import OnnxGraph, bodies, dtype_name, fed_inputs, graphs, type_name
from inferlab.model.weights import bit_width, is_number, list_weights, packed_weights, stored_values
from inferlab.records import Dim, TensorSpec

_INTEGER_OPERATORS = {
    "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
    "MatMulIntegerToFloat", "MatMulInteger16", "QAttention",
}  # fmt: skip
_PRECISIONS = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "UINT8": "INT8",
               "UINT4": "INT4"}  # fmt: skip


def opset(proto: ModelProto) -> int | None:
    """The version of ONNX's own operators."""
    return next((int(opset.version) for opset in proto.opset_import if opset.domain in ("", "ai.onnx")), None)


def input_specs(proto: ModelProto, folder: Path) -> tuple[TensorSpec, ...]:
    """The inputs that must be fed, with the values that integers may have."""
    graph = proto.graph
    tracer = Tracer(proto, folder)
    specs = []
    for value in fed_inputs(graph):
        if value.type.WhichOneof("value") != "tensor_type":
            kind = (value.type.WhichOneof("value") or "unknown").removesuffix("_type")
            raise BadInput(
                f"The model's input '{value.name}' is of the kind {kind}; only tensors can be fed. "
                "Export the model with tensors as inputs."
            )
        spec = tensor_spec(value)
        if spec.dtype.startswith(("int", "uint")):
            below, literals = tracer.limits(value.name)
            spec = TensorSpec(spec.name, spec.dtype, spec.dims, below, literals)
        specs.append(spec)
    return tuple(specs)


def tensor_spec(value: ValueInfoProto) -> TensorSpec:
    """The name, type and dimensions of an input or output."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorSpec(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not dtype:
        raise ValueError(f"'{value.name}' has no element type")
    if not tensor.HasField("shape"):
        return TensorSpec(value.name, dtype, None)
    return TensorSpec(value.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: Any) -> Dim:
    """A size, a name that ties dimensions together, or None: 0, -1 and ? are unknown each on its own."""
    if dim.dim_value > 0:
        return int(dim.dim_value)
    name = dim.dim_param.strip()
    return None if name in ("", "?", "0", "-1", "None") else str(name)


def precision(proto: ModelProto) -> tuple[str, str]:
    """How quantisation shows, and the precision that most of the weights are computed in."""
    operators = {node.op_type for body in bodies(proto) for node in body.node}
    kinds: Counter[str] = Counter()
    for weight in list_weights(proto):
        if len(weight.dims) >= 2 and bit_width(weight.type_name):
            kinds[precision_name(weight.type_name)] += weight.elements
    packed = Counter(packed_weights(proto).values())
    if packed:
        return "", f"INT{packed.most_common(1)[0][0]}"
    integers = "INT4" if kinds["INT4"] > kinds["INT8"] else "FP8" if kinds["FP8"] > kinds["INT8"] else "INT8"
    if any(name.startswith("QLinear") or name == "QGemm" for name in operators):
        return "QOperator", integers
    if operators & _INTEGER_OPERATORS:
        return "integer operators", integers
    if {"QuantizeLinear", "DequantizeLinear"} <= operators:
        return "QDQ", integers
    most = kinds.most_common(1)
    if most:
        return ("int8 weights" if most[0][0] == "INT8" else ""), most[0][0]
    floats = [type_name(value.type.tensor_type.elem_type) for value in fed_inputs(proto.graph)]
    return "", next(
        (_PRECISIONS[name] for name in floats if name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")), "FP32"
    )


def precision_name(kind: str) -> str:
    """The precision that weights of an element type have: FP32, INT8, …"""
    if kind.startswith("FLOAT8"):
        return "FP8"
    return _PRECISIONS.get(kind, kind)


def is_random(proto: ModelProto, folder: Path) -> bool:
    """Whether two runs on the same inputs may differ."""
    for graph in graphs(proto):
        for node in graph.body.node:
            if node.op_type in RANDOM:
                return True
            if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
                training = graph.constants.get(node.input[2])
                if training is None or stored_values(training, folder).any():
                    return True
    return False


def set_batch(graph: GraphProto, batched: set[str], old: int, new: int) -> None:
    """Set the first dimension of inputs and outputs that have the old batch size; inner shapes are forgotten."""
    for value in [*(value for value in graph.input if value.name in batched), *graph.output]:
        dims = value.type.tensor_type.shape.dim if value.type.WhichOneof("value") == "tensor_type" else ()
        if dims and dims[0].dim_value == old:
            dims[0].dim_value = new
    _set_reshapes(graph, batched, old, new)
    for inner in OnnxGraph(graph).walk():
        del inner.body.value_info[:]


def _set_reshapes(graph: GraphProto, batched: set[str], old: int, new: int) -> None:
    """Set the batch in the constant targets of Reshape nodes behind these inputs that begin with the old one."""
    constants = {name: tensor for name, tensor in OnnxGraph(graph).stored.items() if is_number(tensor)}
    behind = set(batched)
    targets = []
    for node in graph.node:
        if behind.isdisjoint(node.input):
            continue
        behind.update(node.output)
        target = constants.get(node.input[1]) if node.op_type == "Reshape" and len(node.input) > 1 else None
        if target is None or node.input[0] not in behind or target.data_location == TensorProto.EXTERNAL:
            continue
        sizes = numpy_helper.to_array(target)
        if sizes.ndim == 1 and sizes.size > 1 and sizes[0] == old:
            # A target of its own: others may share this one.
            name = f"{node.input[1]}/batch-of-{node.output[0]}"
            value = numpy_helper.from_array(np.array([new, *sizes[1:]], np.int64), name)
            targets.append(helper.make_node("Constant", [], [name], value=value))
            node.input[1] = name
    for target_node in reversed(targets):
        graph.node.insert(0, target_node)
