"""The index of an ONNX graph: producers, consumers, constants, types and shapes of values, graphs within graphs.

It stands on onnx's own protobufs, not on onnx_ir: what infers shapes, inlines functions and checks text needs them
anyway, so that everything would be converted there and back, and onnx_ir takes longer to import than onnx itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

from inferlab.errors import Damaged
from inferlab.records import Shape

#: A graph or the body of a model-local function.
Body = GraphProto | FunctionProto

#: Operators that only name, turn or reshape what they read first: its values are the same.
SAME_VALUES = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})

_ATTRIBUTE_TYPES = set(AttributeProto.AttributeType.values()) - {AttributeProto.UNDEFINED}
# What an attribute may be whose default is of this type; text arrives as bytes.
_ALIKE: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (bytes, str), list: (list,)}


@dataclass(frozen=True, slots=True)
class Tensor:
    """The type and shape of a value; empty and None where they are not known."""

    dtype: str = ""
    shape: Shape | None = None

    @property
    def elements(self) -> int | None:
        """How many elements it has."""
        return None if self.shape is None else math.prod(self.shape)


class OnnxGraph:
    """A graph, a subgraph or the body of a function; every index is built when it is first asked for.

    `owner` is the node that carries the subgraph, or calls the function, in the graph `parent`.
    """

    def __init__(
        self, body: Body, parent: OnnxGraph | None = None, owner: NodeProto | None = None, is_call: bool = False
    ) -> None:
        self.body, self.parent, self.owner, self.is_call = body, parent, owner, is_call
        is_graph = isinstance(body, GraphProto)
        self.inputs: list[str] = [value.name for value in body.input] if is_graph else list(body.input)
        self.outputs: list[str] = [value.name for value in body.output] if is_graph else list(body.output)

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        """The node that makes each value."""
        return {name: node for node in self.body.node for name in node.output}

    @cached_property
    def consumers(self) -> dict[str, list[tuple[NodeProto, int]]]:
        """The nodes that read each value, and at which of their inputs."""
        readers: dict[str, list[tuple[NodeProto, int]]] = {}
        for node in self.body.node:
            for index, name in enumerate(node.input):
                readers.setdefault(name, []).append((node, index))
        return readers

    @cached_property
    def stored(self) -> dict[str, TensorProto]:
        """The dense tensors in the file: initializers, and those of Constant nodes."""
        initializers = self.body.initializer if isinstance(self.body, GraphProto) else ()
        return {tensor.name: tensor for tensor in initializers} | {
            node.output[0]: value.t
            for node in self.body.node
            for value in _values_of(node)
            if value.name == "value" and value.HasField("t")
        }

    @cached_property
    def constants(self) -> dict[str, TensorProto]:
        """What is stored, and what Constant nodes have as plain numbers."""
        nodes = {
            node.output[0]: tensor for node in self.body.node if (tensor := constant_tensor(node)) is not None
        }
        return self.stored | nodes

    @cached_property
    def sparse(self) -> dict[str, SparseTensorProto]:
        """The tensors that are stored as a list of those elements that are not zero."""
        initializers = self.body.sparse_initializer if isinstance(self.body, GraphProto) else ()
        return {sparse.values.name: sparse for sparse in initializers} | {
            node.output[0]: value.sparse_tensor
            for node in self.body.node
            for value in _values_of(node)
            if value.name == "sparse_value"
        }

    @cached_property
    def declared(self) -> dict[str, Tensor]:
        """What the graph itself says of the types and shapes of its values."""
        assert isinstance(self.body, GraphProto)
        values = [*self.body.input, *self.body.output, *self.body.value_info]
        tensors = {value.name: _declared(value) for value in values}
        for tensor in self.body.initializer:
            tensors[tensor.name] = Tensor(dtype_name(tensor.data_type), tuple(tensor.dims))
        for sparse in self.body.sparse_initializer:
            tensors[sparse.values.name] = Tensor(dtype_name(sparse.values.data_type), tuple(sparse.dims))
        return tensors

    @cached_property
    def children(self) -> list[OnnxGraph]:
        """The graphs that nodes of this one carry."""
        return [OnnxGraph(inner, self, node) for node in self.body.node for inner in subgraphs(node)]

    def walk(self) -> Iterator[OnnxGraph]:
        """This graph and all inside it."""
        waiting = [self]
        while waiting:
            graph = waiting.pop()
            yield graph
            waiting.extend(graph.children)

    def origin(self, name: str, through: frozenset[str]) -> str:
        """The value that a value is, seen through producers of these operators to what they read first."""
        for _ in self.body.node:  # names in a damaged model may go round in circles
            node = self.producers.get(name)
            if node is None or node.op_type not in through or not node.input:
                break
            name = node.input[0]
        return name


def fed_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that must be fed: older models list their initializers as inputs too."""
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {sparse.values.name for sparse in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in constants]


def graphs(model: ModelProto) -> Iterator[OnnxGraph]:
    """The main graph, the functions, and every graph nested in one of their nodes."""
    for body in (model.graph, *model.functions):
        yield from OnnxGraph(body).walk()


def bodies(model: ModelProto) -> Iterator[Body]:
    """What `graphs` has, as the file has it."""
    return (graph.body for graph in graphs(model))


def all_nodes(body: Body) -> Iterator[NodeProto]:
    """The nodes of a body in the order that numbers them: each before those of the graphs that it carries."""
    waiting = list(reversed(body.node))
    while waiting:
        node = waiting.pop()
        yield node
        for inner in reversed(subgraphs(node)):
            waiting.extend(reversed(inner.node))


def all_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor that may have its data in another file."""
    for body in bodies(model):
        if isinstance(body, GraphProto):
            yield from body.initializer
            for sparse in body.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in body.node:
            for value in node.attribute:
                if value.HasField("t"):
                    yield value.t
                yield from value.tensors
                if value.HasField("sparse_tensor"):
                    yield from (value.sparse_tensor.values, value.sparse_tensor.indices)


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs that a node such as If, Loop or Scan carries."""
    inner: list[GraphProto] = []
    for value in node.attribute:
        if value.type == AttributeProto.GRAPH:
            inner.append(value.g)
        elif value.type == AttributeProto.GRAPHS:
            inner.extend(value.graphs)
    return inner


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    """The value of a node's attribute; the default where it has none, or one of another type than the default."""
    for proto in node.attribute:
        if proto.name == name and not proto.ref_attr_name and proto.type in _ATTRIBUTE_TYPES:
            value = onnx.helper.get_attribute_value(proto)
            return value if default is None or isinstance(value, _ALIKE.get(type(default), object)) else default
    return default


def first_output(node: NodeProto, default: str = "") -> str:
    """The name of the first value that a node gives, by which it is known."""
    return next(filter(None, node.output), default)


def label(node: NodeProto) -> str:
    """A node as sentences name it."""
    name = node.name or first_output(node)
    return f"{node.op_type} '{name}'" if name else str(node.op_type)


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """The tensor that a Constant node gives, if it is a dense one of numbers."""
    for value in _values_of(node):
        if value.name == "value" and value.HasField("t"):
            tensor: TensorProto = value.t
            return tensor
        if value.name == "value_int":
            return TensorProto(data_type=TensorProto.INT64, int64_data=[value.i])
        if value.name == "value_ints":
            return TensorProto(data_type=TensorProto.INT64, dims=[len(value.ints)], int64_data=value.ints)
        if value.name == "value_floats":
            return TensorProto(data_type=TensorProto.FLOAT, dims=[len(value.floats)], float_data=value.floats)
    return None


def _values_of(node: NodeProto) -> list[AttributeProto]:
    return list(node.attribute) if node.op_type == "Constant" else []


def type_name(data_type: int) -> str:
    """The name of an ONNX element type."""
    try:
        return str(TensorProto.DataType.Name(data_type))
    except ValueError:
        raise Damaged(f"it names an element type {data_type}, which does not exist") from None


def dtype_name(data_type: int) -> str:
    """An element type by NumPy's name for it; empty where it is undefined."""
    name = type_name(data_type)
    return {"FLOAT": "float32", "DOUBLE": "float64", "UNDEFINED": ""}.get(name, name.lower())


def _declared(value: ValueInfoProto) -> Tensor:
    if value.type.WhichOneof("value") != "tensor_type":
        return Tensor((value.type.WhichOneof("value") or "").removesuffix("_type"))
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    sizes = tensor.shape.dim
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in sizes):
        return Tensor(dtype)
    return Tensor(dtype, tuple(dim.dim_value for dim in sizes))
