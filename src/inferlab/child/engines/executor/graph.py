"""A BERT's ONNX graph, brought into the one form that Intel's Neural Engine takes, or refused with the reason."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..base import BadOption
from .checks import (
    INPUTS,
    check_operators,
    check_opset,
    check_outputs,
    check_sizes,
    check_use,
    input_names,
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
        self.constants = {one.name: one for one in self.proto.initializer}
        for node in self.proto.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.makers = {name: node for node in self.proto.node for name in node.output}
        self.fed = [one for one in self.proto.input if one.name not in self.constants]
        self.dims = _infer(model, self.fed)

    def trace(self, name: str) -> Tuple[Set[str], Set[str]]:
        """The inputs whose values a tensor is made of, not only their known shapes, and the tensors between."""
        inputs, between, waiting = set(), set(), [name]
        names = {one.name for one in self.fed}
        while waiting:
            one = waiting.pop()
            if not one or one in between or one in self.constants:
                continue
            if one in names:
                inputs.add(one)
                continue
            between.add(one)
            if one in self.makers and not self.sizes(self.makers[one]):
                waiting.extend(self.makers[one].input)
        return inputs, between

    def sizes(self, node: Any) -> List[int]:
        """What a node that asks for a known shape gives; empty for any other."""
        found = self.dims.get(node.input[0], []) if node.op_type == "Shape" else []
        return found if all(found) else []

    def table(self, name: str) -> Optional[int]:
        """The rows of a constant table of numbers; None for anything else."""
        maker = self.makers.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            name = maker.input[0]
        one = self.constants.get(name)
        integer = 7  # TensorProto.INT64: indices, not features
        return int(one.dims[0]) if one is not None and len(one.dims) == 2 and one.data_type != integer else None


def rewrite(model: Any) -> Bert:
    """Change the model (an onnx.ModelProto) into the form that the engine takes, and say what it is.

    What it computes stays the same, but that masked tokens get -10000 where exporters write something lower.
    """
    check_opset(model)
    check_outputs([one.name for one in model.graph.output])
    graph = _Graph(model)
    names = input_names([one.name for one in graph.fed])
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
        found = graph.table(node.input[0]) if node.op_type in ("Gather", "Slice") else None
        if found is None:
            continue
        inputs, _ = graph.trace(node.input[1])
        if not inputs:
            positions = max(found, positions or 0)  # a table of two token types may be looked up without an input
        for name in inputs:
            rows[name] = found
    return rows, positions


def _fold_identities(graph: Any) -> None:
    """Weights that the exporter shares through Identity become weights of their own."""
    weights = {one.name: one for one in graph.initializer}
    kept = []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in weights:
            copy = graph.initializer.add()
            copy.CopyFrom(weights[node.input[0]])
            copy.name = node.output[0]
            weights[copy.name] = copy
        else:
            kept.append(node)
    _set_nodes(graph, kept)


def _infer(model: Any, fed: Sequence[Any]) -> Dict[str, List[int]]:
    """The shape of every tensor for one batch and sequence; 0 where it is not known."""
    from onnx import helper, shape_inference

    # Of weights only the shapes matter, and they may take gigabytes.
    small = [one for one in model.graph.initializer if len(one.dims) < 2]
    large = [one for one in model.graph.initializer if len(one.dims) >= 2]
    weights = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in large]
    graph = helper.make_graph(model.graph.node, "trial", [*fed, *weights], model.graph.output, small)
    for one in graph.input[: len(fed)]:
        for dim, size in zip(one.type.tensor_type.shape.dim, (_BATCH, _SEQUENCE)):
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
    used = {one for node in nodes for one in node.input}
    constants = [numpy_helper.from_array(numpy_helper.to_array(graph.constants[one]), one)
                 for one in sorted(used & set(graph.constants))]  # fmt: skip
    shapes = {node.output[0]: graph.sizes(node) for node in nodes if graph.sizes(node)}
    constants += [numpy_helper.from_array(numpy.array(shape, numpy.int64), at) for at, shape in shapes.items()]
    (value,) = [one for one in graph.fed if one.name == mask]
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
    made = numpy.asarray(outputs[0])
    if made.ndim != 4:
        return False
    counts = numpy.broadcast_to(trial[:, None, None, :], made.shape)
    return bool(numpy.all(made[counts] == 0) and numpy.all(made[~counts] <= -1000))


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

    found: Set[Tuple[int, ...]] = set()
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
            found.add(tuple(tail))
        name = "inferlab_shape_" + "_".join(map(str, tail))
        if name not in graph.constants:
            graph.constants[name] = numpy_helper.from_array(numpy.array([0, 0, *tail], numpy.int64), name)
            graph.proto.initializer.append(graph.constants[name])
        node.input[1] = name
    if len(found) != 1:
        raise BadOption("it runs only the BERT family, with the same heads in every layer")
    ((heads, size),) = found
    return heads, size


def _order_inputs(graph: _Graph, names: Dict[str, str]) -> None:
    """The inputs in the engine's order and under the names that it knows."""
    values = {one.name: one for one in graph.fed}
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
    needed = {one.name for one in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    _set_nodes(graph, kept[::-1])
    for number in reversed(range(len(graph.initializer))):
        if graph.initializer[number].name not in needed:
            del graph.initializer[number]


def _set_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    copies = [type(node)() for node in nodes]
    for copy, node in zip(copies, nodes):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)
