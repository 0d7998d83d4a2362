"""What an ONNX graph says of its model: inputs with the values that they may have, outputs, precision, batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.model.onnx_graph import (
    RANDOM,
    OnnxGraph,
    attribute,
    bit_width,
    bodies,
    dtype_name,
    fed_inputs,
    graphs,
    is_number,
    list_weights,
    packed_weights,
    stored_values,
    type_name,
)
from inferlab.records import Dim, TensorSpec

_INTEGER_OPERATORS = {
    "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
    "MatMulIntegerToFloat", "MatMulInteger16", "QAttention",
}  # fmt: skip
_PRECISIONS = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "UINT8": "INT8",
               "UINT4": "INT4"}  # fmt: skip
# Operators whose output holds values of these inputs and no others but constants (None: of any input).
_PASSING: dict[str, tuple[int, ...] | None] = {
    "Cast": (0,), "Identity": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Reshape": (0,), "Flatten": (0,),
    "Transpose": (0,), "Slice": (0,), "Expand": (0,), "Tile": (0,), "Pad": (0,), "Split": (0,), "Clip": (0,),
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "ReduceMax": (0,), "ReduceMin": (0,),
    "Compress": (0,), "ReverseSequence": (0,), "Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2),
    "Concat": None, "Max": None, "Min": None,
}  # fmt: skip
_COUNTING = {"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FLOAT", "DOUBLE"}
_FEW, _MANY = 16, 65536


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


# What values an integer input may have: below the rows of a table, or those that it is compared with.


class Tracer:
    """Follows an input to where its values index a table or are compared with constants."""

    def __init__(self, proto: ModelProto, folder: Path) -> None:
        self._folder = folder
        self._functions = {(function.domain, function.name): function for function in proto.functions}
        self._calls: dict[int, OnnxGraph] = {}
        self._main = OnnxGraph(proto.graph)

    def limits(self, name: str) -> tuple[int | None, tuple[int, ...]]:
        """What an input's values must stay below, and the constants that they are compared with."""
        rows: list[int] = []
        literals: set[int] = set()
        waiting = [(self._main, name, 0)]
        seen = set()
        while waiting:
            scope, value_name, shift = waiting.pop()
            if (id(scope), value_name) in seen:
                continue
            seen.add((id(scope), value_name))
            for node, index in scope.consumers.get(value_name, ()):
                size = self._rows(scope, node, index)
                if size is not None:
                    rows.append(size - shift)
                if node.op_type == "Equal" and len(node.input) == 2:
                    constants = self._integers(scope, node.input[1 - index])
                    if len(constants) > 2 and constants == list(range(len(constants))):
                        rows.append(len(constants) - shift)  # a one-hot that an exporter wrote out
                    elif len(constants) <= _FEW:
                        literals.update(value - shift for value in constants)
                waiting.extend(self._onward(scope, node, index, shift))
            waiting.extend(
                (child, value_name, shift) for child in scope.children if value_name not in child.inputs
            )
            waiting.extend((*place, shift) for place in _upward(scope, value_name))
        return (max(1, min(rows)) if rows else None), tuple(sorted(literals))

    def _rows(self, scope: OnnxGraph, node: NodeProto, index: int) -> int | None:
        """How many rows the table has that a node indexes with this input."""
        kind = node.op_type
        if kind in ("Gather", "GatherElements", "GatherBlockQuantized") and index == 1:
            axis = attribute(node, "gather_axis" if kind == "GatherBlockQuantized" else "axis", 0)
            table = self._table(scope, node.input[0])
            return table[axis] if table and -len(table) <= axis < len(table) else None
        if kind == "GatherND" and index == 1:
            return min(self._table(scope, node.input[0]), default=None)
        if kind == "EmbedLayerNormalization" and index in (0, 1) and len(node.input) > 4:
            table = self._table(scope, node.input[2 if index == 0 else 4])
            return table[0] if table else None
        if kind == "OneHot" and index == 0:
            return next(iter(self._integers(scope, node.input[1])), None)
        return None

    def _onward(
        self, scope: OnnxGraph, node: NodeProto, index: int, shift: int
    ) -> Iterator[tuple[OnnxGraph, str, int]]:
        """The names that hold an input's values after a node has read them."""
        passing = _PASSING.get(node.op_type, ())
        to_bool = node.op_type == "Cast" and attribute(node, "to") == TensorProto.BOOL
        if (passing is None or index in passing) and not to_bool:
            yield from ((scope, name, shift) for name in node.output)
        if node.op_type in ("Add", "Sub") and len(node.input) == 2 and (node.op_type == "Add" or index == 0):
            added = self._integers(scope, node.input[1 - index])
            if len(added) == 1:
                yield scope, node.output[0], shift + (added[0] if node.op_type == "Add" else -added[0])
        function = self._functions.get((node.domain, node.op_type))
        if function is not None and index < len(function.input) and _depth(scope) < len(self._functions) + 1:
            if id(node) not in self._calls:
                self._calls[id(node)] = OnnxGraph(function, scope, node, is_call=True)
            yield self._calls[id(node)], function.input[index], shift
        # A Loop's first two inputs are the number of rounds and whether to begin at all.
        for child in scope.children if index >= {"Scan": 0, "Loop": 2}.get(node.op_type, index + 1) else ():
            if child.owner is node and index < len(child.inputs):
                yield child, child.inputs[index], shift

    def _source(self, scope: OnnxGraph | None, name: str, through: tuple[str, ...]) -> TensorProto | None:
        """The constant behind a name, seen through operators that do not change what is asked of it."""
        for _ in range(64):  # names in a damaged model may go round in circles
            if scope is None:
                return None
            if name in scope.constants:
                return scope.constants[name]
            maker = scope.producers.get(name)
            if maker is not None:
                if maker.op_type not in through or not maker.input:
                    return None
                name = maker.input[0]
            elif scope.is_call:
                place = scope.inputs.index(name) if name in scope.inputs else len(scope.inputs)
                if scope.owner is None or place >= len(scope.owner.input):
                    return None
                name, scope = scope.owner.input[place], scope.parent
            else:
                scope = scope.parent
        return None

    def _table(self, scope: OnnxGraph, name: str) -> tuple[int, ...]:
        tensor = self._source(scope, name, ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity"))
        return () if tensor is None else tuple(tensor.dims)

    def _integers(self, scope: OnnxGraph, name: str) -> list[int]:
        """The values of a constant of integers that is no weight; none if it is anything else."""
        tensor = self._source(scope, name, ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand"))
        if tensor is None or type_name(tensor.data_type) not in _COUNTING or math.prod(tensor.dims) > _MANY:
            return []
        numbers = stored_values(tensor, self._folder)
        return [int(number) for number in numbers if np.isfinite(number) and number == int(number)]


def _depth(scope: OnnxGraph | None) -> int:
    depth = 0
    while scope is not None:
        depth += scope.is_call
        scope = scope.parent
    return depth


def _upward(scope: OnnxGraph, name: str) -> Iterator[tuple[OnnxGraph, str]]:
    """Where the outputs of a subgraph or a function go: to its node's outputs, or round the loop again."""
    if scope.owner is None or scope.parent is None:
        return
    owner = scope.owner
    for index, output in enumerate(scope.outputs):
        if output != name:
            continue
        after = index - 1 if owner.op_type == "Loop" else index
        if 0 <= after < len(owner.output):
            yield scope.parent, owner.output[after]
        if owner.op_type == "Loop" and 0 < index < len(scope.inputs) - 1:
            yield scope, scope.inputs[index + 1]
        if owner.op_type == "Scan" and index < len(scope.inputs) - attribute(owner, "num_scan_inputs", 0):
            yield scope, scope.inputs[index]
