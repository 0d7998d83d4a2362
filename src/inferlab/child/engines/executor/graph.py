"""A BERT's ONNX graph, brought into the one form that Intel's Neural Engine takes, or refused with the reason."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..base import BadOption

#: The inputs in the order that the engine takes them, each with the names that it is known by.
INPUTS = {
    "input_ids": ("input_ids",),
    "token_type_ids": ("token_type_ids", "segment_ids"),
    "attention_mask": ("attention_mask", "input_mask"),
}
# Others compile and run, but were seen to compute something else (128/4, 256/8, 384/12, 768/8, 32/2), or do not
# compile (64, 192).
_HEAD_SIZE = 64
_HIDDEN_SIZES = (128, 256, 384, 768, 1024)
_OPSETS = (13, 14)
# What is left of a BERT that was seen to run, and of its quantised copies.
_OPERATORS = frozenset({
    "Add", "Cast", "Constant", "DequantizeLinear", "Div", "Erf", "Gather", "Gemm", "Identity", "MatMul", "Mul",
    "Pow", "QuantizeLinear", "ReduceMean", "Relu", "Reshape", "Shape", "Slice", "Softmax", "Split", "Sqrt",
    "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze",
})  # fmt: skip


def check_opset(model: Any) -> None:
    """Refuse operator sets that its compiler does not read."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset not in _OPSETS:
        raise BadOption(
            "it takes models of opset {} or {}, and this one has opset {}; export it again, for example with: "
            "inferlab export FOLDER -o model.onnx --opset 14".format(*_OPSETS, opset)
        )


def check_outputs(names: Sequence[str]) -> None:
    """Refuse several outputs: its compiler loses all but one."""
    if len(names) != 1:
        raise BadOption(
            "it computes one output only, and the model has {}; export it with one".format(", ".join(names))
        )


def check_operators(nodes: Sequence[Any]) -> None:
    """Refuse operators that would abort the process or raise at the first inference."""
    added = {name for node in nodes if node.op_type == "Add" for name in node.input}
    for node in nodes:
        if node.op_type not in _OPERATORS or node.domain not in ("", "ai.onnx"):
            raise BadOption("it does not know the operator {}; it runs only the BERT family".format(node.op_type))
        if node.op_type == "Tanh" and node.output[0] in added:
            raise BadOption(
                "the model has a GELU by tanh (gelu_new, gelu_fast), which it cannot run; it runs GELU by erf"
            )


def input_names(names: Sequence[str]) -> Dict[str, str]:
    """The model's name of each input that there is."""
    roles = {name: role for role, known in INPUTS.items() for name in known}
    names_by_role: Dict[str, str] = {}
    for name in names:
        role = roles.get(name)
        if role is None or role in names_by_role:
            raise BadOption(
                "it does not know the input '{}'; it takes input_ids, token_type_ids and attention_mask".format(
                    name
                )
            )
        names_by_role[role] = name
    for role in ("input_ids", "attention_mask"):
        if role not in names_by_role:
            raise BadOption(
                "it needs the input {}, and the model has only {}".format(
                    role, ", ".join(names_by_role.values()) or "none"
                )
            )
    return names_by_role


def check_use(names: Dict[str, str], rows: Dict[str, int]) -> None:
    """Refuse inputs that are not what their names say: they would be mixed up without an error."""
    for role in ("input_ids", "token_type_ids"):
        if role in names and names[role] not in rows:
            raise BadOption(_misnamed(names[role]))
    if names["attention_mask"] in rows:
        raise BadOption(_misnamed(names["attention_mask"]))
    types = names.get("token_type_ids")
    if types is not None and rows[types] > rows[names["input_ids"]]:
        raise BadOption(_misnamed(types))


def _misnamed(name: str) -> str:
    return (
        "the model does not use the input '{}' as its name says, so the inputs would be mixed up; "
        "export it with each input under its own name".format(name)
    )


def check_sizes(heads: int, size: int) -> None:
    """Refuse heads and hidden sizes that it computes wrongly or does not compile."""
    if size != _HEAD_SIZE:
        raise BadOption(
            "it computes wrong results for attention heads of {} features, without an error; only heads of {} "
            "are right (hidden size {} with {} heads)".format(size, _HEAD_SIZE, heads * size, heads)
        )
    if heads * size not in _HIDDEN_SIZES:
        raise BadOption(
            "it does not take the hidden size {}; it takes {}".format(
                heads * size, ", ".join(map(str, _HIDDEN_SIZES))
            )
        )


# Batch and sequence while shapes are inferred: no number of heads or features is one of them, nor their product.
_BATCH, _SEQUENCE = 5, 7
_MASKED = -10000.0


class Bert(NamedTuple):
    """What the graph turned out to be."""

    #: The model's own names of its inputs, in the order that the engine takes them.
    inputs: List[str]
    output: str
    heads: int
    hidden: int
    #: The rows of the position table; None where the positions are fixed in the graph.
    positions: Optional[int]
    #: Whether there is a GELU by erf, which the engine computes by tanh.
    gelu: bool
    #: Whether the output has a row for every token; the engine gives those of all items as one list.
    per_token: bool


class _Graph:
    """A graph with its constants, its producers and the shapes that were inferred for the trial sizes."""

    def __init__(self, model: Any) -> None:
        self.model, self.proto = model, model.graph
        _fold_identities(self.proto)
        self.constants = {tensor.name: tensor for tensor in self.proto.initializer}
        for node in self.proto.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.makers = {name: node for node in self.proto.node for name in node.output}
        self.fed = [port for port in self.proto.input if port.name not in self.constants]
        self.dims = _infer(model, self.fed)

    def trace(self, name: str) -> Tuple[Set[str], Set[str]]:
        """The inputs whose values a tensor is made of, not only their known shapes, and the tensors between."""
        inputs, between, waiting = set(), set(), [name]
        names = {port.name for port in self.fed}
        while waiting:
            tensor = waiting.pop()
            if not tensor or tensor in between or tensor in self.constants:
                continue
            if tensor in names:
                inputs.add(tensor)
                continue
            between.add(tensor)
            if tensor in self.makers and not self.sizes(self.makers[tensor]):
                waiting.extend(self.makers[tensor].input)
        return inputs, between

    def sizes(self, node: Any) -> List[int]:
        """What a node that asks for a known shape gives; empty for any other."""
        sizes = self.dims.get(node.input[0], []) if node.op_type == "Shape" else []
        return sizes if all(sizes) else []

    def table(self, name: str) -> Optional[int]:
        """The rows of a constant table of numbers; None for anything else."""
        maker = self.makers.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            name = maker.input[0]
        tensor = self.constants.get(name)
        integer = 7  # TensorProto.INT64: indices, not features
        return (
            int(tensor.dims[0])
            if tensor is not None and len(tensor.dims) == 2 and tensor.data_type != integer
            else None
        )


def rewrite(model: Any) -> Bert:
    """Change the model (an onnx.ModelProto) into the form that the engine takes, and say what it is.

    What it computes stays the same, but that masked tokens get -10000 where exporters write something lower.
    """
    check_opset(model)
    check_outputs([port.name for port in model.graph.output])
    graph = _Graph(model)
    names = input_names([port.name for port in graph.fed])
    rows, positions = _tables(graph)
    check_use(names, rows)
    _replace_masks(graph, names["attention_mask"])
    _prune(graph.proto)
    heads, size = _fix_reshapes(graph)
    _prune(graph.proto)
    check_operators(graph.proto.node)
    check_sizes(heads, size)
    _order_inputs(graph, names)
    model.ir_version = min(model.ir_version, 8)
    return Bert(
        inputs=[names[role] for role in INPUTS if role in names],
        output=graph.proto.output[0].name,
        heads=heads,
        hidden=heads * size,
        positions=positions,
        gelu=any(node.op_type == "Erf" for node in graph.proto.node),
        per_token=graph.dims.get(graph.proto.output[0].name, [])[:2] == [_BATCH, _SEQUENCE],
    )


def _tables(graph: _Graph) -> Tuple[Dict[str, int], Optional[int]]:
    """The rows of the table that each input looks things up in, and those of the position table."""
    rows: Dict[str, int] = {}
    positions: Optional[int] = None
    for node in graph.proto.node:
        length = graph.table(node.input[0]) if node.op_type in ("Gather", "Slice") else None
        if length is None:
            continue
        inputs, _ = graph.trace(node.input[1])
        if not inputs:
            positions = max(length, positions or 0)  # a table of two token types may be looked up without an input
        for name in inputs:
            rows[name] = length
    return rows, positions


def _fold_identities(graph: Any) -> None:
    """Weights that the exporter shares through Identity become weights of their own."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in weights:
            copy = graph.initializer.add()
            copy.CopyFrom(weights[node.input[0]])
            copy.name = node.output[0]
            weights[copy.name] = copy
        else:
            nodes.append(node)
    _set_nodes(graph, nodes)


def _infer(model: Any, fed: Sequence[Any]) -> Dict[str, List[int]]:
    """The shape of every tensor for one batch and sequence; 0 where it is not known."""
    from onnx import helper, shape_inference

    # Of weights only the shapes matter, and they may take gigabytes.
    small = [tensor for tensor in model.graph.initializer if len(tensor.dims) < 2]
    large = [tensor for tensor in model.graph.initializer if len(tensor.dims) >= 2]
    weights = [helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in large]
    graph = helper.make_graph(model.graph.node, "trial", [*fed, *weights], model.graph.output, small)
    for port in graph.input[: len(fed)]:
        for dim, size in zip(port.type.tensor_type.shape.dim, (_BATCH, _SEQUENCE)):
            dim.dim_value = dim.dim_value or size
    # In opset 14 the shapes that reshapes are given are followed; the operators of a BERT do not differ.
    trial = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    inferred = shape_inference.infer_shapes(trial, data_prop=True).graph
    values = [*inferred.value_info, *inferred.input, *inferred.output]
    return {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values}


def _replace_masks(graph: _Graph, mask: str) -> None:
    """Give every softmax the mask in the engine's form, where the model's own was seen to mean the same."""
    softmaxes = [node for node in graph.proto.node if node.op_type == "Softmax"]
    known: Dict[str, bool] = {}
    for softmax in softmaxes:
        add = graph.makers.get(softmax.input[0])
        if add is None or add.op_type != "Add":
            raise BadOption(_unmasked(mask))
        sides = [side for side, name in enumerate(add.input) if graph.trace(name)[0] == {mask}]
        for name in [add.input[side] for side in sides]:
            if name not in known:
                known[name] = _masks(graph, name, mask)
        if len(sides) != 1 or not known[add.input[sides[0]]]:
            raise BadOption(_unmasked(mask))
        add.input[sides[0]] = "inferlab_mask"
    if not softmaxes:
        raise BadOption("it runs only the BERT family, and this model has no attention")
    _add_mask(graph.proto, mask)


def _unmasked(mask: str) -> str:
    return (
        "the model does not add its input '{}' to the attention as BERT does, and other masks give wrong results "
        "without an error".format(mask)
    )


def _masks(graph: _Graph, name: str, mask: str) -> bool:
    """Whether a tensor, computed for one mask, is 0 for tokens that count and far below for those that do not."""
    import numpy
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    _, between = graph.trace(name)
    nodes = [node for node in graph.proto.node if between.intersection(node.output)]
    used = {tensor for node in nodes for tensor in node.input}
    constants = [numpy_helper.from_array(numpy_helper.to_array(graph.constants[tensor]), tensor)
                 for tensor in sorted(used & set(graph.constants))]  # fmt: skip
    shapes = {node.output[0]: graph.sizes(node) for node in nodes if graph.sizes(node)}
    constants += [numpy_helper.from_array(numpy.array(shape, numpy.int64), at) for at, shape in shapes.items()]
    (value,) = [port for port in graph.fed if port.name == mask]
    body = helper.make_graph(
        [node for node in nodes if node.output[0] not in shapes],
        "mask",
        [value],
        [helper.make_tensor_value_info(name, 1, None)],
        constants,
    )
    trial = numpy.arange(numpy.prod(graph.dims[mask])).reshape(graph.dims[mask]) % 3 != 1
    evaluator = ReferenceEvaluator(helper.make_model(body, opset_imports=graph.model.opset_import))
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    outputs: Any = evaluator.run(None, {mask: trial.astype(kind)})
    computed = numpy.asarray(outputs[0])
    if computed.ndim != 4:
        return False
    counts = numpy.broadcast_to(trial[:, None, None, :], computed.shape)
    return bool(numpy.all(computed[counts] == 0) and numpy.all(computed[~counts] <= -1000))


def _add_mask(graph: Any, mask: str) -> None:
    """(1 - mask) times -10000, in the operators by which the engine knows a mask."""
    import numpy
    from onnx import helper, numpy_helper

    def part(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        return helper.make_node(kind, inputs, [output], output + "_node", **attributes)

    float32 = 1
    nodes = [
        part("Unsqueeze", [mask, "inferlab_axis_1"], "inferlab_mask_3d"),
        part("Unsqueeze", ["inferlab_mask_3d", "inferlab_axis_2"], "inferlab_mask_4d"),
        part("Cast", ["inferlab_mask_4d"], "inferlab_mask_float", to=float32),
        part("Sub", ["inferlab_one", "inferlab_mask_float"], "inferlab_masked"),
        part("Mul", ["inferlab_masked", "inferlab_low"], "inferlab_mask"),
    ]
    _set_nodes(graph, [*nodes, *graph.node])
    values = {
        "inferlab_axis_1": numpy.array([1], numpy.int64),
        "inferlab_axis_2": numpy.array([2], numpy.int64),
        "inferlab_one": numpy.float32(1),
        "inferlab_low": numpy.float32(_MASKED),
    }
    graph.initializer.extend(numpy_helper.from_array(numpy.asarray(value), name) for name, value in values.items())


def _fix_reshapes(graph: _Graph) -> Tuple[int, int]:
    """Write the shapes of attention as [0, 0, heads, size] and [0, 0, hidden]; gives heads and size."""
    import numpy
    from onnx import numpy_helper

    tails: Set[Tuple[int, ...]] = set()
    for node in graph.proto.node:
        if node.op_type != "Reshape":
            continue
        before, after = graph.dims.get(node.input[0], []), graph.dims.get(node.output[0], [])
        tail = after[2:]
        free = any(size in (0, _BATCH, _SEQUENCE, _BATCH * _SEQUENCE) for size in tail)
        if not tail or free or before[:2] != after[:2] or 0 in before[:2]:
            raise BadOption("it does not know the form of the attention: {} reshapes otherwise than BERT".format(
                node.name or node.output[0]))  # fmt: skip
        if len(tail) == 2:
            tails.add(tuple(tail))
        name = "inferlab_shape_" + "_".join(map(str, tail))
        if name not in graph.constants:
            graph.constants[name] = numpy_helper.from_array(numpy.array([0, 0, *tail], numpy.int64), name)
            graph.proto.initializer.append(graph.constants[name])
        node.input[1] = name
    if len(tails) != 1:
        raise BadOption("it runs only the BERT family, with the same heads in every layer")
    ((heads, size),) = tails
    return heads, size


def _order_inputs(graph: _Graph, names: Dict[str, str]) -> None:
    """The inputs in the engine's order and under the names that it knows."""
    values = {port.name: port for port in graph.fed}
    ordered = []
    for role in INPUTS:
        if role in names:
            ordered.append(type(values[names[role]])())
            ordered[-1].CopyFrom(values[names[role]])
            ordered[-1].name = role
    own = {name: role for role, name in names.items()}
    for node in graph.proto.node:
        for number, name in enumerate(node.input):
            node.input[number] = own.get(name, name)
    del graph.proto.input[:]
    graph.proto.input.extend(ordered)


def _prune(graph: Any) -> None:
    """Leave out what no output needs."""
    needed = {port.name for port in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(node.input)
    _set_nodes(graph, nodes[::-1])
    for number in reversed(range(len(graph.initializer))):
        if graph.initializer[number].name not in needed:
            del graph.initializer[number]


def _set_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    copies = [type(node)() for node in nodes]
    for copy, node in zip(copies, nodes):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)
