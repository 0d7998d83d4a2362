"""Write a copy of an ONNX model in which the smallest weights are zero, or with fewer channels, really smaller."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferlab.child import protocol
from inferlab.child.pruning import how_many
from inferlab.errors import BadInput, InferlabError
from inferlab.files import whole_file
from inferlab.model.confined import confined
from inferlab.model.flops.inference import NodeTrace, inlined, read_light, trace
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import parse_onnx, read_onnx
from inferlab.model.onnx_graph import (
    SAME_VALUES,
    OnnxGraph,
    all_nodes,
    all_tensors,
    attribute,
    data_place,
    external_files,
    graphs,
    put_values,
    stored_values,
    tensor_bytes,
)
from inferlab.model.shapes import resolve
from inferlab.records import Event, Listener, Model, Shape, ignore
from inferlab.transform.channel_groups import ChannelTrace
from inferlab.transform.channel_rules import follow
from inferlab.transform.copies import (
    Copy,
    bring_in,
    check_numbers,
    check_prunable,
    save,
    staged,
    target_of,
    writing,
)
from inferlab.transform.patterns import mask, parse_groups
from inferlab.worker import ONNXRUNTIME, run_task, timeout_s

Array = np.ndarray[Any, Any]

#: A file of external data, and where in it a tensor begins and ends.
Span = tuple[str, int, int]

# A level that was written with two digits still means its N of M.
_ROUNDED = 0.005
_PATIENCE_S = 3600.0
# The largest difference over the largest output: what rounding in another order leaves.
_ROUNDING = 1e-3
_HALF_ROUNDING = 5e-2


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


def prune_channels(model: Model, levels: Mapping[str, float], folder: Path, listener: Listener = ignore) -> Copy:
    """Write a copy into `folder` in which each named weight lost the share `levels[name]` of its output channels.

    Those of the smallest norm go, with all that reads them. Channels that meet, such as in a sum, go together, as
    many as the smallest level among their weights says, by the sum of their norms. The copy is run before it is
    done: it gives what the original does with those weights zero that read the removed channels.
    """
    target = target_of(model, folder, "pruned")
    listener(Event("removing-channels", {"model": model.source}))
    shapes = resolve(model.inputs, None, None, {}).shapes
    known = _shapes(model, shapes)
    with staged(target, "pruned") as out, tempfile.TemporaryDirectory(prefix="inferlab-channels-") as beside:
        masked = Path(beside) / "masked.onnx"
        left_alone = _write_shrunk(model, levels, known, out, masked.parent)
        if masked.exists():
            _compare(model, shapes, masked, out / target.name)
    return Copy(read_onnx(target, str(target)), left_alone)


@confined(reads=["model"], writes=["folder", "beside"])
def _write_shrunk(
    model: Model, levels: Mapping[str, float], known: Mapping[str, Shape | None], folder: Path, beside: Path
) -> dict[str, str]:
    """Write the copy, and where channels are removed one that has them masked; which weights keep all, and why."""
    original = Path(model.path)
    proto = _loaded(original)
    followed = follow(proto, dict(known))
    for name, level in levels.items():
        check_prunable(name, level, followed.stored.get(name))
        check_numbers(name, stored_values(followed.stored[name], original.parent), "pruned")
    keep, left_alone = _choose(followed, levels)
    if keep and not model.random:
        _mask(followed, keep)
        save(proto, beside / "masked.onnx")
        proto = _loaded(original)
        followed = follow(proto, dict(known))
    _shrink(proto, followed, keep)
    save(proto, folder / original.name)
    return left_alone


def _loaded(path: Path) -> ModelProto:
    """The model with all its weights in memory, its own functions' nodes in their callers' place."""
    proto = parse_onnx(path)
    external_files(proto, path.parent, path)
    bring_in(proto, path)
    return inlined(proto)


def _shapes(model: Model, shapes: Mapping[str, Shape]) -> dict[str, Shape | None]:
    """The shapes of all values: inferred, or else seen when the model runs."""
    known, whole = _known_shapes(model, shapes, {})
    if not whole:
        with contextlib.suppress(InferlabError):  # what is not known is not followed
            known, _ = _known_shapes(model, shapes, trace(model, shapes))
    return known


@confined(reads=["model"])
def _known_shapes(
    model: Model, shapes: Mapping[str, Shape], seen: Mapping[int, NodeTrace]
) -> tuple[dict[str, Shape | None], bool]:
    """The shapes of all values as inferred or seen, and whether none is missing."""
    graph = read_light(model, shapes).proto.graph
    known = {name: tensor.shape for name, tensor in OnnxGraph(graph).declared.items()}
    for number, node in enumerate(all_nodes(graph)) if seen else ():
        outputs = [name for name in node.output if name]
        if number in seen and len(outputs) == len(seen[number].outputs):
            known.update(zip(outputs, (tensor.shape for tensor in seen[number].outputs), strict=True))
    return known, all(known.get(name) is not None for node in graph.node for name in node.output if name)


def _choose(followed: ChannelTrace, levels: Mapping[str, float]) -> tuple[dict[int, Array], dict[str, str]]:
    """The channels that stay of each group that loses some, and which weights keep all of theirs, and why."""
    groups = followed.groups
    makers: dict[int, list[tuple[str, int]]] = defaultdict(list)
    tied: dict[int, set[str]] = defaultdict(set)
    for name, axis, group in followed.makers:
        makers[groups.find(group)].append((name, axis))
        tied[groups.find(group)].add(name)
    for name, layout in followed.followers:
        for segment in layout:
            tied[groups.find(segment.group)].add(name)
    keep: dict[int, Array] = {}
    left_alone: dict[str, str] = {}
    for group, weights in sorted(tied.items()):
        shares = {name: levels.get(name, 0.0) for name in weights if name in levels or _makes(name, makers[group])}
        reason = groups.reason(group) or _untold(shares)
        if reason:
            left_alone.update({name: reason for name, level in shares.items() if level})
        elif makers[group]:
            remaining = _largest(followed, makers[group], min(shares.values()))
            keep.update({group: remaining} if remaining is not None else {})
    known = {name for weights in tied.values() for name in weights}
    for name in sorted(name for name, level in levels.items() if level and name not in known):
        left_alone[name] = followed.reasons.get(name, "it goes into no product whose channels could be followed")
    return keep, left_alone


def _makes(name: str, makers: list[tuple[str, int]]) -> bool:
    return any(name == maker for maker, _ in makers)


def _untold(shares: Mapping[str, float]) -> str:
    """Why channels stay that weights make together; empty where all of them are to lose some."""
    still = sorted(name for name, level in shares.items() if not level)
    return f"its channels meet those of '{still[0]}', which keeps all of them" if still else ""


def _largest(followed: ChannelTrace, makers: list[tuple[str, int]], level: float) -> Array | None:
    """The channels with the largest norms, in order; None where all stay."""
    norms: Array = np.zeros(0)
    for name, axis in makers:
        array = np.moveaxis(numpy_helper.to_array(followed.stored[name]), axis, 0)
        rows = array.reshape(len(array), -1).astype(np.float64)
        norm = np.sqrt(np.square(rows).sum(axis=1))
        norms = norms + norm if len(norms) else norm
    removed = min(how_many(len(norms), level), len(norms) - 1)
    return np.sort(np.argsort(norms, kind="stable")[removed:]) if removed else None


def _mask(followed: ChannelTrace, keep: Mapping[int, Array]) -> None:
    """Zero the weights that read channels that will be removed."""
    for name, axis in followed.sums.items():
        array = numpy_helper.to_array(followed.stored[name]).copy()
        gone = np.ones(array.shape[axis], bool)
        gone[followed.groups.kept(followed.axes[name][axis], keep)] = False
        np.moveaxis(array, axis, 0)[gone] = 0
        followed.stored[name].CopyFrom(numpy_helper.from_array(array, followed.stored[name].name))


def _shrink(proto: ModelProto, followed: ChannelTrace, keep: Mapping[int, Array]) -> None:
    """Take the removed channels out of all tensors, and set the numbers that count them."""
    groups = followed.groups
    for name, axes in followed.axes.items():
        tensor = followed.stored[name]
        array = numpy_helper.to_array(tensor)
        for axis, layout in axes.items():
            array = np.take(array, groups.kept(layout, keep), axis)
        if list(array.shape) != list(tensor.dims):
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    for node, layout in followed.group_counts:
        for proto_attribute in node.attribute:
            if proto_attribute.name == "group":
                proto_attribute.i = len(groups.kept(layout, keep))
    for name, place, layout in followed.sizes:
        told = numpy_helper.to_array(followed.stored[name]).copy()
        told.reshape(-1)[place] = len(groups.kept(layout, keep))
        followed.stored[name].CopyFrom(numpy_helper.from_array(told, followed.stored[name].name))
    del proto.graph.value_info[:]
    dims = {tensor.name: tensor.dims for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        # Old models list their constants among the inputs.
        for place, size in enumerate(dims.get(value.name, ())):
            value.type.tensor_type.shape.dim[place].dim_value = size


def _compare(model: Model, shapes: Mapping[str, Shape], masked: Path, made: Path) -> None:
    """The copy must compute what the original does without the removed channels: else they were not followed."""
    packed, blocks = protocol.pack_sets([make_inputs(model.inputs, shapes, 0)], None)
    arguments = {"model": str(masked), "copy": str(made), **packed}
    answer = run_task(ONNXRUNTIME, "onnx_files.check_copy", arguments, blocks, timeout_s(_PATIENCE_S))
    difference = answer["difference"]
    if difference is None:
        raise BadInput(
            f"{model.source} does not run on inputs that are made up for it, so it cannot be checked that nothing "
            "else lost its channels. Prune it by another pattern, or fix the shapes of its inputs."
        )
    if difference > (_ROUNDING if model.precision in ("FP32", "FP64") else _HALF_ROUNDING):
        raise InferlabError(
            f"Channels of {model.source} were removed that others still need; nothing was written."
        )
