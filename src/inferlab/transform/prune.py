"""Write a copy of an ONNX model in which the smallest weights are zero."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.model.confined import confined
from inferlab.model.onnx_file import parse_onnx, read_onnx
from inferlab.model.onnx_graph import (
    SAME_VALUES,
    all_tensors,
    attribute,
    data_place,
    external_files,
    graphs,
    put_values,
    stored_values,
    tensor_bytes,
)
from inferlab.records import Model
from inferlab.transform.copies import (
    check_numbers,
    check_prunable,
    target_of,
    writing,
)
from inferlab.transform.patterns import mask, parse_groups

Array = np.ndarray[Any, Any]

#: A file of external data, and where in it a tensor begins and ends.
Span = tuple[str, int, int]

# A level that was written with two digits still means its N of M.
_ROUNDED = 0.005


@confined(reads=["model"], writes=["folder"])
def prune(model: Model, levels: Mapping[str, float], folder: Path, pattern: str = "unstructured") -> Model:
    """Write a copy into `folder` with the share `levels[name]` of each named weight zero, the smallest first.

    Zeros that are there count, so a sparse weight only gets sparser. Files of the copy appear whole or not at
    all, the model file last. With the pattern block4, blocks of four neighbours among what an output is a sum over
    become zero; with N:M, N of every M of them in every layer whose level is not 0.
    """
    target = target_of(model, folder, "pruned")
    original = Path(model.path)
    proto = parse_onnx(original)
    data = {file.relative_to(original.parent): file for file in external_files(proto, original.parent, original)}
    chosen = _chosen(proto, levels, parse_groups(pattern))
    layouts = ProductRows(proto)
    external = [tensor for tensor in all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL]
    spans = [_span(tensor) for tensor in external]
    for tensor in external:
        # With its length: without one, some readers take all up to the file's end.
        _set_place(tensor, data_place(tensor)[1])
    with writing(folder, "pruned"):
        with ExitStack() as stack:
            copies = _copied(data, folder, stack)
            for name, tensor, level in chosen:
                stored = np.array(stored_values(tensor, original.parent))
                check_numbers(name, stored, "pruned")
                if pattern == "unstructured":
                    stored[mask(stored, level, pattern)] = 0
                else:
                    places = layouts.rows(name, tuple(tensor.dims))
                    stored[places.reshape(-1)[mask(stored[places], level, pattern)]] = 0
                _put(tensor, stored, copies, spans)
        # Its data is in place by now: a model file that is there is whole.
        with whole_file(target) as file:
            file.write(proto.SerializeToString())
    return read_onnx(target, str(target))


def _chosen(
    proto: ModelProto, levels: Mapping[str, float], groups: tuple[int, int] | None
) -> list[tuple[str, TensorProto, float]]:
    """The tensors to prune, each name known and each level a share, and the one that the groups imply."""
    named = [(name, tensor) for graph in graphs(proto) for name, tensor in graph.stored.items() if name in levels]
    known = dict(named)
    for name, level in sorted(levels.items()):
        check_prunable(name, level, known.get(name))
        if groups is not None and level and abs(level - groups[0] / groups[1]) > _ROUNDED:
            raise BadInput(
                f"The weight '{name}' cannot be pruned to {level:g} with the pattern {groups[0]}:{groups[1]}, "
                f"which makes {groups[0] / groups[1]:g} of it zero. Give that level, or 0 to leave it as it is."
            )
    return [(name, tensor, levels[name]) for name, tensor in named if groups is None or levels[name]]


def _copied(data: Mapping[Path, Path], folder: Path, stack: ExitStack) -> dict[Path, BinaryIO]:
    """Copies of the data files, open for changes; they take their names when the stack is left."""
    copies = {}
    for relative, file in data.items():
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        copies[relative] = stack.enter_context(whole_file(folder / relative))
        with file.open("rb") as source:
            shutil.copyfileobj(source, copies[relative], 1 << 22)
    return copies


def _put(
    tensor: TensorProto, stored: np.ndarray[Any, Any], copies: Mapping[Path, BinaryIO], spans: Sequence[Span]
) -> None:
    """Write the new elements of a weight into the graph or into the copy of its data file."""
    if tensor.data_location != TensorProto.EXTERNAL:
        put_values(tensor, stored.tobytes())
        return
    span = _span(tensor)
    file, offset = copies[Path(span[0])], span[1]
    if _shared(span, spans):
        # Others read the same bytes: the pruned ones come to stand at the end.
        offset = file.seek(0, os.SEEK_END)
        _set_place(tensor, offset)
    file.seek(offset)
    file.write(stored.data)


def _span(tensor: TensorProto) -> Span:
    """The file that holds a tensor's data, where it begins in it, and where it ends."""
    location, offset, _ = data_place(tensor)
    return location, offset, offset + tensor_bytes(tensor)


def _shared(span: Span, spans: Sequence[Span]) -> bool:
    """Whether more than one tensor reads some of these bytes."""
    location, begin, end = span
    return sum(span[0] == location and span[1] < end and begin < span[2] for span in spans) > 1


def _set_place(tensor: TensorProto, offset: int) -> None:
    location, _, _ = data_place(tensor)
    size = tensor_bytes(tensor)
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))


class ProductRows:
    """Finds the products that weights go into, through nodes that only turn or reshape them."""

    def __init__(self, proto: ModelProto) -> None:
        self._graphs = list(graphs(proto))
        self._constants = {name: tensor for graph in self._graphs for name, tensor in graph.constants.items()}

    def rows(self, name: str, dims: Sequence[int]) -> Array:
        """The places of a weight's elements, a row for each sum, in the order in which kernels sum them up.

        That order has the input channels innermost: the dot products of VNNI and AMX, and the sparse kernels of
        DeepSparse, take four neighbouring input channels at once.
        """
        size = int(np.prod(dims))
        places = np.arange(size, dtype=np.int32 if size < 1 << 31 else np.int64).reshape(dims)
        rows = self._into_product(name, places)
        if rows is None:
            raise BadInput(
                f"The weight '{name}' goes into no convolution and no product of matrices that could be followed, "
                "so it has no rows to prune by a pattern. Leave it out, or prune it unstructured."
            )
        return rows

    def _into_product(self, name: str, places: Array) -> Array | None:
        for node, place in (reader for graph in self._graphs for reader in graph.consumers.get(name, ())):
            rows = _rows(node, place, places)
            if rows is None and place == 0 and node.op_type in SAME_VALUES:
                turned = self._turned(node, places)
                rows = None if turned is None else self._into_product(node.output[0], turned)
            if rows is not None:
                return rows
        return None

    def _turned(self, node: NodeProto, places: Array) -> Array | None:
        """The places after a node that turns or reshapes, as ONNX's own reference computes it."""
        from onnx import checker
        from onnx.reference import ReferenceEvaluator

        feeds = {node.input[0]: places}
        for name in node.input[1:]:
            if name not in self._constants:
                return None
            feeds[name] = numpy_helper.to_array(self._constants[name])
        try:
            (turned,) = ReferenceEvaluator(node).run(None, feeds)
        except (ValueError, RuntimeError, TypeError, checker.ValidationError):
            return None
        return turned if isinstance(turned, np.ndarray) and turned.size == places.size else None


def _rows(node: NodeProto, place: int, places: Array) -> Array | None:
    """The operand of a product as rows that are summed up; None where it is no factor of one."""
    kind = node.op_type
    if kind == "Conv" and place == 1 and places.ndim > 2:
        return np.moveaxis(places, 1, -1).reshape(places.shape[0], -1)
    if kind == "ConvTranspose" and place == 1 and places.ndim > 2:
        groups = attribute(node, "group", 1)
        split = places.reshape(groups, places.shape[0] // groups, *places.shape[1:])
        turned = np.moveaxis(split, 1, -1)
        return turned.reshape(groups * places.shape[1], -1)
    if kind == "Gemm" and place < 2 and places.ndim == 2:
        crossed = bool(attribute(node, "transB" if place else "transA", 0))
        # The first factor is summed along its second axis, the second one along its first.
        return places.T if crossed != bool(place) else places
    if kind == "MatMul" and place < 2 and places.ndim >= 2:
        turned = np.swapaxes(places, -1, -2) if place else places
        return turned.reshape(-1, turned.shape[-1])
    return None
