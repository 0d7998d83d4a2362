"""What one node costs where it stands: its operations, its type of arithmetic, its weight, the bytes it moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from onnx import NodeProto

from inferlab.model.flops.costs import NodeCost
from inferlab.model.flops.formulas import formula_for, reason_for
from inferlab.model.flops.inference import NodeTrace, Parameter
from inferlab.model.flops.operands import Count, Operands, Unknown
from inferlab.model.flops.operators import PARTIAL, VIEWS
from inferlab.model.flops.scope import Constant, Scope, bytes_of
from inferlab.model.onnx_graph import SAME_VALUES, Tensor, attribute, first_output
from inferlab.model.weights import FLOATS

_DEFAULT_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_PRUNABLE = {
    "Conv", "ConvTranspose", "Gemm", "MatMul", "FusedConv", "FusedGemm", "FusedMatMul", "NhwcConv",
    "NhwcFusedConv", "TransposeMatMul", "FusedMatMulActivation", "GemmFastGelu",
}  # fmt: skip
_INTEGER = {"ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QAttention", "QGemm",
            "DynamicQuantizeLSTM", "MulInteger", "ReduceSumInteger"}  # fmt: skip


Costed = tuple[NodeCost, tuple[Parameter, ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a graph stands: how often it runs, or why that is not known; which trace its nodes left."""

    rounds: int
    problem: str
    traced: Mapping[int, NodeTrace]
    no_trace: str


def node_cost(scope: Scope, node: NodeProto, folded: bool, place: Place) -> Costed:
    """A node's costs, not numbered yet, and the parameters that it reads."""
    inputs = tuple(scope.tensor(name) for name in node.input)
    outputs = tuple(scope.tensor(name) for name in node.output)
    cost = NodeCost(
        index=0,
        id=first_output(node, node.name or node.op_type),
        type=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        name=node.name,
        domain=node.domain,
        dtype=_dtype(scope, node, inputs, outputs),
    )
    if folded or place.rounds == 0:
        return replace(cost, flops=0, macs=0, read_bytes=0, write_bytes=0), ()
    constant_of = {name: scope.constant(name) for name in node.input if name}
    constants = {name: constant for name, constant in constant_of.items() if constant is not None}
    read = {id(each): each for constant in constants.values() for each in constant.parameters}
    cost = _with_weight(cost, node, constants)
    cost = _with_bytes(cost, node, scope, constants, outputs)
    cost = replace(cost, params=sum(parameter.elements for parameter in read.values()))
    counted, reason = _operations(scope, node, inputs, outputs, place)
    if place.problem:
        cost = replace(cost, read_bytes=None, write_bytes=None)
    if counted is None:
        return replace(cost, uncounted=reason), tuple(read.values())
    return replace(
        cost,
        flops=counted.flops * place.rounds,
        macs=counted.macs * place.rounds,
        read_bytes=None if cost.read_bytes is None else cost.read_bytes * place.rounds,
        write_bytes=None if cost.write_bytes is None else cost.write_bytes * place.rounds,
        weight_bytes=cost.weight_bytes * place.rounds,
    ), tuple(read.values())


def _operations(
    scope: Scope,
    node: NodeProto,
    inputs: tuple[Tensor | None, ...],
    outputs: tuple[Tensor | None, ...],
    place: Place,
) -> tuple[Count | None, str]:
    """How many operations a node takes in one round, or why that is not known."""
    formula = formula_for(node.domain, node.op_type)
    if formula is None:
        return None, reason_for(node.domain, node.op_type)

    def integers(index: int) -> list[int]:
        return scope.integers(node.input[index]) if index < len(node.input) and node.input[index] else []

    try:
        counted = formula(Operands(node, inputs, outputs, integers))
    except Unknown as error:
        return None, place.problem or (f"{error}: {place.no_trace}" if place.no_trace else str(error))
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        return None, "its inputs or attributes are not as its definition says"
    if place.problem and counted.flops:
        return None, place.problem
    return counted, ""


def _with_weight(cost: NodeCost, node: NodeProto, constants: Mapping[str, Constant]) -> NodeCost:
    """Note the largest weight, whether pruning could thin it out, and the groups it works in."""
    candidates = [
        (parameter.elements, -place, constant, parameter)
        for place, constant in enumerate(constants.values())
        for parameter in constant.parameters
    ]
    if not candidates:
        return cost
    _, _, constant, weight = max(candidates, key=lambda item: item[:2])
    is_it = constant.weight is weight
    prunable = (
        node.op_type in _PRUNABLE
        and node.domain in _DEFAULT_DOMAINS
        and is_it
        and constant.same_values
        and weight.plain
        and weight.type_name in FLOATS
        and len(weight.dims) >= 2
    )
    return replace(
        cost,
        weight=weight.name,
        weight_shape=weight.dims,
        zero_fraction=weight.zero_fraction if is_it else None,
        prunable=prunable,
        groups=attribute(node, "group", 1),
    )


def _with_bytes(
    cost: NodeCost,
    node: NodeProto,
    scope: Scope,
    constants: Mapping[str, Constant],
    outputs: tuple[Tensor | None, ...],
) -> NodeCost:
    """Note what a node moves: activations that it reads and writes, constants that it reads."""
    if node.op_type in VIEWS:
        return replace(cost, read_bytes=0, write_bytes=0)
    written = _sum(bytes_of(tensor) for tensor in outputs)
    read: list[int | None] = []
    weights = 0
    for name in dict.fromkeys(name for name in node.input if name):
        size = bytes_of(scope.tensor(name))
        constant = constants.get(name)
        if constant is not None and constant.weight is not None:
            size = constant.weight.size_bytes
        if node.op_type in PARTIAL and name == node.input[0]:
            size = _least(size, written)
        elif node.op_type in _TABLES and constant is not None and len(cost.weight_shape) == 2:
            size = _least(size, bytes_of(outputs[0]))
        if constant is None:
            read.append(size)
        else:
            weights += size or 0
    return replace(cost, read_bytes=_sum(read), write_bytes=written, weight_bytes=weights)


# They pick rows of their tables.
_TABLES = {"EmbedLayerNormalization", "QEmbedLayerNormalization"}


def _sum(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _least(first: int | None, other: int | None) -> int | None:
    return first if other is None else other if first is None else min(first, other)


def _dtype(
    scope: Scope, node: NodeProto, inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]
) -> str:
    """What a node computes in: INT8 also where both factors of a product are dequantised just before it."""
    kind = node.op_type
    if kind in _INTEGER or kind.startswith(("QLinear", "QOrdered")):
        return "int8"
    if kind == "MatMulInteger16":
        return "int16"
    if kind == "MatMulNBits" and attribute(node, "accuracy_level", 0) == 4:
        return "int8"
    if kind in _PRUNABLE and len(node.input) > 1 and all(_from_int8(scope, name) for name in node.input[:2]):
        return "int8"
    if kind == "DequantizeLinear":
        inputs = inputs[1:2]
    dtypes = [tensor.dtype for tensor in (*inputs, *outputs) if tensor is not None and tensor.dtype]
    floats = [dtype for dtype in dtypes if "float" in dtype]
    numbers = [dtype for dtype in dtypes if dtype != "bool"]
    return next(iter(floats or numbers or dtypes), "float32")


def _from_int8(scope: Scope, name: str) -> bool:
    for _ in range(8):
        maker = scope.maker(name)
        if maker is None or not maker.input:
            return False
        if maker.op_type == "DequantizeLinear":
            source = scope.tensor(maker.input[0])
            return source is not None and source.dtype in ("int8", "uint8")
        if maker.op_type not in SAME_VALUES:
            return False
        name = maker.input[0]
    return False
