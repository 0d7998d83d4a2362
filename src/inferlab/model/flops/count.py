"""What the nodes of an ONNX model cost at fixed input shapes, by the architecture alone.

- Of the branches of an If, all nodes are listed; the costlier branch counts, unless the condition is constant.
- The body of a Loop or Scan counts as often as it runs, where constants and shapes decide that.
- A node that reads only constants is computed when the model is loaded: it costs nothing.
- A node that only gives its input another name or shape reads and writes nothing; one that picks rows reads them,
  not the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx import AttributeProto, GraphProto, NodeProto

from inferlab.errors import BadInput, InferlabError
from inferlab.model.confined import confined
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.flops.inference import (
    Constant,
    LightModel,
    NodeTrace,
    Parameter,
    Scope,
    bytes_of,
    read_light,
    refine,
    trace,
)
from inferlab.model.onnx_graph import (
    FLOATS,
    SAME_VALUES,
    OnnxGraph,
    Tensor,
    all_nodes,
    attribute,
    first_output,
    subgraphs,
)
from inferlab.records import Model, Shape

if TYPE_CHECKING:
    from inferlab.model.flops.products import Count

_DEFAULT_DOMAINS = ("", "ai.onnx", "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
_PRUNABLE = {
    "Conv", "ConvTranspose", "Gemm", "MatMul", "FusedConv", "FusedGemm", "FusedMatMul", "NhwcConv",
    "NhwcFusedConv", "TransposeMatMul", "FusedMatMulActivation", "GemmFastGelu",
}  # fmt: skip
_INTEGER = {"ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QAttention", "QGemm",
            "DynamicQuantizeLSTM", "MulInteger", "ReduceSumInteger"}  # fmt: skip

Costed = tuple[NodeCost, tuple[Parameter, ...]]
# They do no work at all where they stand: an engine hands the same memory on.
_VIEWS = {
    "Constant", "Dropout", "Flatten", "Identity", "If", "Loop", "Optional", "OptionalGetElement", "Reshape",
    "Scan", "SequenceMap", "Shape", "Size", "Squeeze", "Unsqueeze",
}  # fmt: skip
# They read only what they give of their first input.
_PARTIAL = {"Compress", "Gather", "GatherElements", "GatherND", "GatherBlockQuantized", "Slice", "TorchEmbedding"}
# They pick rows of their tables.
_TABLES = {"EmbedLayerNormalization", "QEmbedLayerNormalization"}
_OTHER_BRANCH = "the other branch of its If counts, which costs at least as much"
_ROUNDS = "it is in a loop whose number of iterations depends on the data"
_NO_TENSORS = {"sequence", "optional", "map", "sparse_tensor"}


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
    # Late: only the confined process that counts needs them.
    from inferlab.model.flops.formulas import formula_for, reason_for
    from inferlab.model.flops.products import Operands, Unknown

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
    if node.op_type in _VIEWS:
        return replace(cost, read_bytes=0, write_bytes=0)
    written = _sum(bytes_of(tensor) for tensor in outputs)
    read: list[int | None] = []
    weights = 0
    for name in dict.fromkeys(name for name in node.input if name):
        size = bytes_of(scope.tensor(name))
        constant = constants.get(name)
        if constant is not None and constant.weight is not None:
            size = constant.weight.size_bytes
        if node.op_type in _PARTIAL and name == node.input[0]:
            size = _least(size, written)
        elif node.op_type in _TABLES and constant is not None and len(cost.weight_shape) == 2:
            size = _least(size, bytes_of(outputs[0]))
        if constant is None:
            read.append(size)
        else:
            weights += size or 0
    return replace(cost, read_bytes=_sum(read), write_bytes=written, weight_bytes=weights)


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


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


def costs(model: Model, shapes: Mapping[str, Shape]) -> Costs:
    """All nodes of an ONNX model with what they cost when its inputs have these shapes."""
    if model.kind != "onnx":
        raise BadInput(
            f"The operations of {model.source} cannot be counted: it is a model of the kind {model.kind}. "
            "Give an ONNX file; inferlab export writes one."
        )
    counted = _counted(model, shapes, {}, "", False)
    if counted is not None:
        return counted
    traced: Mapping[int, NodeTrace] = {}
    no_trace = ""
    try:
        traced = trace(model, shapes)
    except InferlabError as error:
        no_trace = str(error)
    counted = _counted(model, shapes, traced, no_trace, True)
    assert counted is not None
    return counted


@confined(reads=["model"])
def _counted(
    model: Model, shapes: Mapping[str, Shape], traced: Mapping[int, NodeTrace], no_trace: str, finish: bool
) -> Costs | None:
    """All nodes with their costs; None where a trace would show missing shapes, unless it is to finish."""
    light = read_light(model, shapes)
    scope = Scope(light.proto.graph, light)
    missing = _unknown(scope)
    while missing and refine(scope):
        scope = Scope(light.proto.graph, light)
        before, missing = missing, _unknown(scope)
        if missing == before:
            break
    _check_reshapes(scope, shapes)
    if missing and not finish:
        return None
    nodes = _graph(scope, Place(1, "", traced, no_trace), light, [0])
    return _collected(nodes)


def _check_reshapes(scope: Scope, shapes: Mapping[str, Shape]) -> None:
    """Refuse shapes at which the model does not run: inference believes what is written into the file."""
    for node in scope.graph.node:
        if node.op_type == "Reshape" and node.input:
            before, after = scope.tensor(node.input[0]) or Tensor(), scope.tensor(node.output[0]) or Tensor()
            if before.elements is not None and after.elements not in (None, before.elements):
                shapes_text = ", ".join(f"'{name}' {list(shape)}" for name, shape in shapes.items())
                raise BadInput(
                    f"The model does not run with inputs of the shapes {shapes_text}: it reshapes "
                    f"'{node.input[0]}' of {list(before.shape or ())} to {list(after.shape or ())}. "
                    "Give the shapes that it was exported with, or export it again with free dimensions."
                )


def _collected(nodes: list[Costed]) -> Costs:
    """The nodes, numbered and with one name each; parameters that several nodes read count once."""
    seen: dict[str, int] = {}
    costed = []
    for index, (node, _) in enumerate(nodes):
        again = seen[node.id] = seen.get(node.id, 0) + 1
        # Two branches may give their values the same names.
        name = node.id if again == 1 else f"{node.id}#{again}"
        costed.append(replace(node, index=index, id=name))
    distinct = {id(parameter): parameter for _, parameters in nodes for parameter in parameters}.values()
    return Costs(
        nodes=tuple(costed),
        params=sum(parameter.elements for parameter in distinct),
        weight_bytes=sum(parameter.size_bytes for parameter in distinct),
    )


def _unknown(scope: Scope) -> int:
    """How many shapes are missing that a run would show."""
    missing = 0
    for index, node in enumerate(scope.graph.node):
        if index not in scope.folded:
            tensors = [scope.tensor(name) or Tensor() for name in node.output if name]
            missing += sum(tensor.shape is None and tensor.dtype not in _NO_TENSORS for tensor in tensors)
            missing += sum(_unknown(Scope(inner, scope.light, scope)) for inner in subgraphs(node))
    return missing


def _graph(scope: Scope, place: Place, light: LightModel, number: list[int]) -> list[Costed]:
    """The costs of a graph's nodes and of those inside them, in order; `number` counts all nodes of the model."""
    # First all that the run showed: a node's inputs may be known only from there.
    at = number[0]
    for node in scope.graph.node:
        if at in place.traced:
            scope.learn(node, place.traced[at])
        at += 1 + sum(1 for inner in subgraphs(node) for _ in all_nodes(inner))
    costed = []
    for index, node in enumerate(scope.graph.node):
        number[0] += 1
        costed.append(node_cost(scope, node, index in scope.folded, place))
        bodies = [
            _graph(Scope(inner, light, scope), _inside(scope, node, inner, place), light, number)
            for inner in subgraphs(node)
        ]
        if node.op_type == "If" and len(bodies) == 2:
            bodies = _branches(scope, node, bodies)
        costed += [node for body in bodies for node in body]
    return costed


def _inside(scope: Scope, node: NodeProto, body: GraphProto, place: Place) -> Place:
    """The place of a node's body: how many rounds it makes in all."""
    if node.op_type not in ("Loop", "Scan", "SequenceMap"):
        return place
    rounds = _rounds(scope, node, body)
    if rounds is None:
        return replace(place, problem=place.problem or _ROUNDS)
    return replace(place, rounds=place.rounds * rounds)


def _rounds(scope: Scope, node: NodeProto, body: GraphProto) -> int | None:
    if node.op_type == "Scan":
        states = len(node.input) - attribute(node, "num_scan_inputs", 0)
        axes = attribute(node, "scan_input_axes", []) or [0]
        tensor = scope.tensor(node.input[states]) if 0 <= states < len(node.input) else None
        shape = () if tensor is None or tensor.shape is None else tensor.shape
        return shape[axes[0]] if -len(shape) <= axes[0] < len(shape) else None
    if node.op_type == "SequenceMap" or not node.input or not node.input[0]:
        return None
    most = scope.integers(node.input[0])
    begins = scope.integers(node.input[1]) if len(node.input) > 1 and node.input[1] else [1]
    if begins == [0]:
        return 0
    return most[0] if most and begins and _goes_on(body) else None


def _goes_on(body: GraphProto) -> bool:
    """Whether a Loop's condition stays true: the body hands it on, or gives a constant."""
    graph = OnnxGraph(body)
    if not graph.outputs:
        return False
    condition = graph.origin(graph.outputs[0], frozenset({"Identity"}))
    value = graph.constants.get(condition)
    always = value is not None and (value.raw_data == b"\x01" or list(value.int32_data) == [1])
    return always or condition in graph.inputs[1:2]


def _branches(scope: Scope, node: NodeProto, bodies: list[list[Costed]]) -> list[list[Costed]]:
    """Both branches, of which one counts: the one that is always taken, or the costlier one."""
    names = [value.name for value in node.attribute if value.type == AttributeProto.GRAPH]
    condition = scope.integers(node.input[0]) if node.input and len(names) == len(bodies) else []
    sums = [sum(node.flops or 0 for node, _ in body) for body in bodies]
    counts = int(sums[1] > sums[0])
    if condition:
        taken_branch = "then_branch" if condition[0] else "else_branch"
        counts = names.index(taken_branch) if taken_branch in names else counts
    idle = _never if condition else _instead
    return [body if index == counts else [idle(node) for node in body] for index, body in enumerate(bodies)]


def _never(costed: Costed) -> Costed:
    node, _ = costed
    return replace(node, flops=0, macs=0, read_bytes=0, write_bytes=0, weight_bytes=0, params=0, uncounted=""), ()


def _instead(costed: Costed) -> Costed:
    node, read = costed
    node = replace(node, read_bytes=None, write_bytes=None)
    if node.flops == 0:  # nothing is left out
        return node, read
    return replace(node, flops=None, macs=None, uncounted=_OTHER_BRANCH), read
