"""The index of an ONNX graph: producers, consumers, constants, types and shapes of values, graphs within graphs;
and its weights: where their bytes lie, how many there are, and how many of them are zero.

It stands on onnx's own protobufs, not on onnx_ir: what infers shapes, inlines functions and checks text needs them
anyway, so that everything would be converted there and back, and onnx_ir takes longer to import than onnx itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
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

from inferlab.errors import BadInput, Damaged
from inferlab.model.onnx_file import data_file_inside
from inferlab.records import Shape

#: A graph or the body of a model-local function.
Body = GraphProto | FunctionProto

#: Operators that only name, turn or reshape what they read first: its values are the same.
SAME_VALUES = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
#: Operators that draw numbers: what they give is not constant, even where all that they read is.
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

_ATTRIBUTE_TYPES = set(AttributeProto.AttributeType.values()) - {AttributeProto.UNDEFINED}
# What an attribute may be whose default is of this type; text arrives as bytes.
_ALIKE: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (bytes, str), list: (list,)}
#: The element types of weights that can be pruned.
FLOATS = {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"}
_CHUNK = 1 << 22
# How elements are stored; several of the smallest types share a byte, the types NumPy lacks are stored as bits.
_STORED = {
    "FLOAT": "<f4", "DOUBLE": "<f8", "FLOAT16": "<f2", "BFLOAT16": "<u2",
    "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "UINT16": "<u2", "INT32": "<i4", "UINT32": "<u4",
    "INT64": "<i8", "UINT64": "<u8", "BOOL": "u1", "COMPLEX64": "<c8", "COMPLEX128": "<c16",
}  # fmt: skip
_FIELDS = {
    "FLOAT": ("float_data", "<f4"), "COMPLEX64": ("float_data", "<f4"), "DOUBLE": ("double_data", "<f8"),
    "COMPLEX128": ("double_data", "<f8"), "INT64": ("int64_data", "<i8"), "UINT32": ("uint64_data", "<u8"),
    "UINT64": ("uint64_data", "<u8"),
}  # fmt: skip
_NO_WEIGHTS = {"INT64", "UINT64", "BOOL", "STRING", "UNDEFINED"}
# Where an operator that takes a quantised weight at one place takes its zero point, and the axis of that
# zero point where it has several values (None: the attribute `axis`).
_ZERO_POINTS: dict[tuple[str, int], tuple[int, int | None]] = {
    ("DequantizeLinear", 0): (2, None),
    ("MatMulInteger", 0): (2, -2),
    ("MatMulInteger", 1): (3, -1),
    ("ConvInteger", 1): (3, 0),
    ("QLinearConv", 3): (5, 0),
    ("QLinearMatMul", 0): (2, -2),
    ("QLinearMatMul", 3): (5, -1),
    ("QGemm", 3): (5, -1),
    ("MatMulIntegerToFloat", 1): (5, -1),
    ("DynamicQuantizeMatMul", 1): (3, -1),
    ("QAttention", 1): (7, -1),
}


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


# Weights: where their bytes lie, how many there are, and how many of them are zero.


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant of the graph that holds parameters; `stored` has fewer elements than `dims` if it is sparse."""

    name: str
    dims: tuple[int, ...]
    stored: TensorProto

    @property
    def type_name(self) -> str:
        """The element type as ONNX names it: FLOAT, INT8, …"""
        return type_name(self.stored.data_type)

    @property
    def elements(self) -> int:
        """How many parameters it has."""
        return math.prod(self.dims)

    @property
    def size_bytes(self) -> int:
        """What it takes in the file."""
        return tensor_bytes(self.stored)

    @property
    def plain(self) -> bool:
        """Stored element by element: neither packed nor as a list of those that are not zero."""
        return tuple(self.stored.dims) == self.dims


def list_weights(model: ModelProto) -> list[Weight]:
    """All parameters, in initializers and Constant nodes; no scalars, no shapes, no indices."""
    packed = {name: (8 // width,) for name, width in packed_weights(model).items()}
    weights: list[Weight] = []
    for graph in graphs(model):
        for name, tensor in graph.constants.items():
            weights.append(Weight(name, (*tensor.dims, *packed.get(name, ())), tensor))
        weights += [Weight(name, tuple(sparse.dims), sparse.values) for name, sparse in graph.sparse.items()]
    return [weight for weight in weights if weight.dims and weight.type_name not in _NO_WEIGHTS]


def packed_weights(model: ModelProto) -> dict[str, int]:
    """Weights of MatMulNBits, several elements to a byte, with the bits of an element."""
    return {
        node.input[1]: attribute(node, "bits", 4)
        for body in bodies(model)
        for node in body.node
        if node.op_type == "MatMulNBits" and len(node.input) > 1 and attribute(node, "bits", 4) in (2, 4, 8)
    }


def external_files(model: ModelProto, folder: Path, model_file: Path | None = None) -> list[Path]:
    """The files beside the model that hold its weights, each found to be there, inside and long enough."""
    files: dict[str, Path] = {}
    for tensor in all_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        location, offset, length = data_place(tensor)
        if location not in files:
            files[location] = data_file_inside(location, folder, model_file)
        size = files[location].stat().st_size
        needed = tensor_bytes(tensor)
        if length is not None and length != needed:
            raise BadInput(
                f"The model's data file '{location}' gives {length} bytes to the weight '{tensor.name}', "
                f"whose shape needs {needed}. The model is damaged: export it again."
            )
        if offset + needed > size:
            raise BadInput(
                f"The model's data file '{location}' is cut off: it has {size} bytes, but the weight "
                f"'{tensor.name}' ends at {offset + needed}. Download or copy it again."
            )
    return [files[location] for location in sorted(files)]


def external_names(model: ModelProto) -> list[str]:
    """What the model calls the files of `external_files`, in the same order."""
    return sorted(
        {data_place(tensor)[0] for tensor in all_tensors(model) if tensor.data_location == TensorProto.EXTERNAL}
    )


def stored_values(tensor: TensorProto, folder: Path) -> np.ndarray[Any, Any]:
    """A tensor's elements as they are stored, flat; data in a file is mapped, not read."""
    kind = type_name(tensor.data_type)
    dtype = np.dtype(_STORED.get(kind, "u1"))
    count = tensor_bytes(tensor) // dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        location, offset, _ = data_place(tensor)
        if not count:
            return np.empty(0, dtype)
        return np.memmap(folder / location, dtype, "r", offset, (count,))
    if tensor.HasField("raw_data"):
        flat = np.frombuffer(tensor.raw_data, dtype)
    else:
        field, held = value_field(kind)
        flat = np.array(getattr(tensor, field), held)
        # Halves and complex numbers are stored as the bits or the parts of which they are made.
        parts = np.uint16 if kind == "FLOAT16" else held if dtype.kind in "fc" else dtype
        flat = flat.astype(parts).view(dtype)
    if len(flat) != count:
        raise Damaged(f"the weight '{tensor.name}' has {len(flat)} elements where its shape needs {count}")
    return flat


def value_field(kind: str) -> tuple[str, str]:
    """The field of a tensor with its elements where they are not stored as bytes, and the type of its numbers."""
    return _FIELDS.get(kind, ("int32_data", "<i4"))


def put_values(tensor: TensorProto, content: bytes | None) -> None:
    """Give a tensor other elements as bytes, in the graph itself, or none."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
                  "string_data", "external_data", "data_location"):  # fmt: skip
        tensor.ClearField(field)
    if content is not None:
        tensor.raw_data = content


def zero_fraction(model: ModelProto, folder: Path) -> float | None:
    """The sparsity of matrices and kernels; a quantised weight is zero where it equals its zero point."""
    counted = [(weight, zeros) for weight, zeros in zero_counts(model, folder) if zeros is not None]
    total = sum(weight.elements for weight, _ in counted)
    return sum(zeros for _, zeros in counted) / total if total else None


def zero_counts(model: ModelProto, folder: Path) -> list[tuple[Weight, int | None]]:
    """All parameters, each with its zeros; None for vectors, other types and where the zero point is unclear."""
    points = _zero_points(model, folder)
    counts: list[tuple[Weight, int | None]] = []
    for weight in list_weights(model):
        point = points.get(weight.name, 0)
        matrix = len(weight.dims) >= 2 and bit_width(weight.type_name) is not None
        counts.append((weight, _zeros(weight, folder, point) if matrix and point is not None else None))
    return counts


def element_count(tensor: TensorProto) -> int:
    """How many elements a tensor has."""
    return int(math.prod(tensor.dims))


def is_number(tensor: TensorProto) -> bool:
    """Whether a tensor holds numbers of a type that NumPy has."""
    return type_name(tensor.data_type) in _STORED


def bit_width(kind: str) -> int | None:
    """The width of an element type that weights may have, None for the others."""
    if kind in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"):
        return {"FLOAT": 32, "DOUBLE": 64}.get(kind, 16)
    if kind.startswith("FLOAT8") or kind in ("INT8", "UINT8"):
        return 8
    if kind.startswith("FLOAT4") or kind in ("INT4", "UINT4"):
        return 4
    return 2 if kind in ("INT2", "UINT2") else None


def _zeros(weight: Weight, folder: Path, point: int | np.ndarray[Any, Any]) -> int:
    flat = stored_values(weight.stored, folder)
    points = point if isinstance(point, int) else point.reshape(-1)
    stored_elements: int = math.prod(weight.stored.dims)
    zeros = weight.elements - stored_elements
    width = bit_width(weight.type_name) or 8
    packed = 8 // width if width < 8 else 1
    for start in range(0, len(flat), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        if packed > 1:
            mask = (1 << width) - 1
            chunk = np.stack([chunk >> shift & mask for shift in range(0, 8, width)], axis=1).reshape(-1)
            chunk = chunk[: stored_elements - start * packed]
        if weight.type_name.startswith(("BFLOAT", "FLOAT8", "FLOAT4")):
            chunk = chunk << 1 & ((1 << width) - 1)  # without the sign: a negative zero is a zero
        first = start * packed
        here = points if isinstance(points, int) else points[first : first + len(chunk)]
        zeros += int(np.count_nonzero(chunk == here))
    return zeros


def _zero_points(model: ModelProto, folder: Path) -> dict[str, int | np.ndarray[Any, Any] | None]:
    """The zero points of quantised weights by name: one for all, one for each element, or None if unclear."""
    named = {tensor.name: tensor for tensor in all_tensors(model)}
    for graph in graphs(model):
        named.update(graph.constants)
    points: dict[str, int | np.ndarray[Any, Any] | None] = dict.fromkeys(packed_weights(model))
    for body in bodies(model):
        for node in body.node:
            for index, name in enumerate(node.input):
                place, axis = _ZERO_POINTS.get((node.op_type, index), (len(node.input), 0))
                if name in named and place < len(node.input) and node.input[place]:
                    axis = attribute(node, "axis", 1) if axis is None else axis
                    points[name] = _zero_point(named[name], named.get(node.input[place]), axis, folder)
    return points


def _zero_point(
    weight: TensorProto, point: TensorProto | None, axis: int, folder: Path
) -> int | np.ndarray[Any, Any] | None:
    if point is None or (bit_width(type_name(point.data_type)) or 8) != 8:
        return None
    points = stored_values(point, folder)
    if not len(points) or (points == points[0]).all():
        return int(points[0]) if len(points) else 0
    dims = tuple(weight.dims)
    if not -len(dims) <= axis < len(dims) or dims[axis] != len(points):
        return None
    shape = [1] * len(dims)
    shape[axis] = len(points)
    return np.broadcast_to(points.reshape(shape), dims)  # a view: it takes no room


def tensor_bytes(tensor: TensorProto) -> int:
    """How many bytes a tensor's elements take."""
    if any(dim < 0 for dim in tensor.dims):
        raise Damaged(f"the weight '{tensor.name}' has a negative dimension")
    kind = type_name(tensor.data_type)
    count: int = math.prod(tensor.dims)
    if kind in _STORED:
        return count * np.dtype(_STORED[kind]).itemsize
    width = bit_width(kind)
    if width is None:
        raise Damaged(f"the weight '{tensor.name}' has the type {kind}, which cannot be read")
    return -(-count * width // 8)


def data_place(tensor: TensorProto) -> tuple[str, int, int | None]:
    """Where a tensor's data lies: the file's name, the offset in it, and the length where it is given."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        length = int(entries["length"]) if "length" in entries else None
        offset = int(entries.get("offset", "0"))
    except ValueError:
        raise Damaged(f"where the data of the weight '{tensor.name}' begins or ends is not a number") from None
    if offset < 0:
        raise Damaged(f"the data of the weight '{tensor.name}' begins before its file does")
    return entries.get("location", ""), offset, length
