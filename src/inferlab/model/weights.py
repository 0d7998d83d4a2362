"""The weights of an ONNX model: where their bytes lie, how many there are, and how many of them are zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from inferlab.errors import BadInput, Damaged
from inferlab.model.onnx_file import data_file_inside
from inferlab.model.onnx_graph import all_tensors, attribute, bodies, graphs, type_name

#: The element types of weights that can be pruned.
FLOATS = {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"}

_CHUNK = 1 << 22
# How elements are stored; several of the smallest types share a byte, the types NumPy lacks are stored as bits.
_STORED = {
    "FLOAT": "<f4", "DOUBLE": "<f8", "FLOAT16": "<f2", "BFLOAT16": "<u2",
    "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "UINT16": "<u2", "INT32": "<i4", "UINT32": "<u4",
    "INT64": "<i8", "UINT64": "<u8", "BOOL": "u1", "COMPLEX64": "<c8", "COMPLEX128": "<c16",
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
    elif kind in ("FLOAT", "COMPLEX64"):
        flat = np.array(tensor.float_data, "<f4").view(dtype)
    elif kind in ("DOUBLE", "COMPLEX128"):
        flat = np.array(tensor.double_data, "<f8").view(dtype)
    elif kind == "INT64":
        flat = np.array(tensor.int64_data, dtype)
    elif kind in ("UINT32", "UINT64"):
        flat = np.array(tensor.uint64_data, np.uint64).astype(dtype)
    elif kind == "FLOAT16":
        flat = np.array(tensor.int32_data, np.int32).astype(np.uint16).view(dtype)
    else:
        flat = np.array(tensor.int32_data, np.int32).astype(dtype)
    if len(flat) != count:
        raise Damaged(f"the weight '{tensor.name}' has {len(flat)} elements where its shape needs {count}")
    return flat


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
