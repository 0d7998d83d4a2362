"""Write a copy of an ONNX model with fewer channels, really smaller, and say which channels could go."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper

from inferlab.child import protocol
from inferlab.child.pruning import channels_removed
from inferlab.errors import BadInput, InferlabError
from inferlab.model.confined import confined
from inferlab.model.flops.inference import NodeTrace, inlined, read_light, trace
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import parse_onnx, read_onnx
from inferlab.model.onnx_graph import OnnxGraph, all_nodes, external_files, stored_values
from inferlab.model.shapes import resolve
from inferlab.records import Event, Listener, Model, Shape, ignore
from inferlab.transform.channel_groups import ChannelTrace, length
from inferlab.transform.channel_rules import follow
from inferlab.transform.copies import Copy, bring_in, check_numbers, check_prunable, save, staged, target_of
from inferlab.worker import ONNXRUNTIME, run_task, timeout_s

Array = np.ndarray[Any, Any]

_PATIENCE_S = 3600.0
# The largest difference over the largest output: what rounding in another order leaves.
_ROUNDING = 1e-3
_HALF_ROUNDING = 5e-2
# Any share: which channels may be removed does not depend on how many.
_SOME = 0.5


@dataclass(frozen=True, slots=True)
class Reader:
    """A weight that sums up over some channels: on which axis they stand, from where on, and how often each."""

    axis: int
    stretches: tuple[tuple[int, int], ...]
    #: Of the axis; the channels may be a part of it.
    length: int


@dataclass(frozen=True, slots=True)
class RemovableChannels:
    """Channels that are only removed together, from all the weights that make them and all that read them."""

    #: The weights that make them.
    weights: tuple[str, ...]
    #: Their numbers in the order in which they are removed, the smallest norm first.
    order: tuple[int, ...]
    #: By the weight's name, the share of its output channels that they are; depthwise convolutions included.
    outputs: Mapping[str, float]
    #: By the weight's name. To remove channels is, for the outputs, to let no reader read them.
    readers: Mapping[str, Reader]

    def inputs(self) -> dict[str, float]:
        """By the weight's name, the share of what it sums up over that they are."""
        many = len(self.order)
        return {
            name: many * sum(repeat for _, repeat in reader.stretches) / reader.length
            for name, reader in self.readers.items()
        }


@dataclass(slots=True)
class _Tied:
    """Weights whose channels go together: those that make them, with the axis, and all that carry them."""

    makers: list[tuple[str, int]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def removable_channels(model: Model, weights: Sequence[str]) -> tuple[list[RemovableChannels], dict[str, str]]:
    """The channels that can be removed where each of these weights may lose some, and why others keep all."""
    return _removable(model, weights, _shapes(model, resolve(model.inputs, None, None, {}).shapes))


@confined(reads=["model"])
def _removable(
    model: Model, weights: Sequence[str], known: Mapping[str, Shape | None]
) -> tuple[list[RemovableChannels], dict[str, str]]:
    path = Path(model.path)
    followed = follow(_loaded(path), dict(known))
    levels = {name: _SOME for name in weights if name in followed.stored}
    _check(followed, levels, path)
    keep, left_alone = _choose(followed, levels)
    tied = _tied(followed)
    return [_removable_group(followed, group, tied[group]) for group in keep], left_alone


def _removable_group(followed: ChannelTrace, group: int, tied: _Tied) -> RemovableChannels:
    weights = tuple(dict.fromkeys(name for name, _ in tied.makers))
    outputs = dict.fromkeys(weights, 1.0)
    for name, layout in followed.followers:
        own = sum(part.size * part.repeat for part in layout if followed.groups.find(part.group) == group)
        outputs |= {name: own / length(layout)} if own else {}
    readers = {}
    for name, axis in followed.sums.items():
        layout = followed.axes[name][axis]
        if stretches := followed.groups.stretches(layout, group):
            readers[name] = Reader(axis, stretches, length(layout))
    order = tuple(map(int, _order(followed, tied.makers)))
    return RemovableChannels(weights, order, outputs, readers)


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
    _check(followed, levels, original)
    keep, left_alone = _choose(followed, levels)
    if keep and not model.random:
        _mask(followed, keep)
        save(proto, beside / "masked.onnx")
        proto = _loaded(original)
        followed = follow(proto, dict(known))
    _shrink(proto, followed, keep)
    save(proto, folder / original.name)
    return left_alone


def _check(followed: ChannelTrace, levels: Mapping[str, float], original: Path) -> None:
    """Refuse levels that are none, and weights whose channels cannot be put in an order."""
    for name, level in levels.items():
        check_prunable(name, level, followed.stored.get(name))
        check_numbers(name, stored_values(followed.stored[name], original.parent), "pruned")


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
    tied = _tied(followed)
    keep: dict[int, Array] = {}
    left_alone: dict[str, str] = {}
    for group, weights in sorted(tied.items()):
        makers = {name for name, _ in weights.makers}
        shares = {name: levels.get(name, 0.0) for name in weights.names if name in levels or name in makers}
        reason = followed.groups.reason(group) or _untold(shares)
        if reason:
            left_alone.update({name: reason for name, level in shares.items() if level})
        elif makers:
            order = _order(followed, weights.makers)
            removed = channels_removed(len(order), min(shares.values()))
            keep.update({group: np.sort(order[removed:])} if removed else {})
    known = {name for weights in tied.values() for name in weights.names}
    for name in sorted(name for name, level in levels.items() if level and name not in known):
        left_alone[name] = followed.reasons.get(name, "it goes into no product whose channels could be followed")
    return keep, left_alone


def _tied(followed: ChannelTrace) -> dict[int, _Tied]:
    """The weights of every group of channels."""
    groups = followed.groups
    tied: dict[int, _Tied] = defaultdict(_Tied)
    for name, axis, group in followed.makers:
        tied[groups.find(group)].makers.append((name, axis))
        tied[groups.find(group)].names.add(name)
    for name, layout in followed.followers:
        for segment in layout:
            tied[groups.find(segment.group)].names.add(name)
    return tied


def _untold(shares: Mapping[str, float]) -> str:
    """Why channels stay that weights make together; empty where all of them are to lose some."""
    still = sorted(name for name, level in shares.items() if not level)
    return f"its channels meet those of '{still[0]}', which keeps all of them" if still else ""


def _order(followed: ChannelTrace, makers: Sequence[tuple[str, int]]) -> Array:
    """The channels that weights make together, those with the smallest sum of norms first."""
    norms: Array = np.zeros(0)
    for name, axis in makers:
        array = np.moveaxis(numpy_helper.to_array(followed.stored[name]), axis, 0)
        rows = array.reshape(len(array), -1).astype(np.float64)
        norm = np.sqrt(np.square(rows).sum(axis=1))
        norms = norms + norm if len(norms) else norm
    order: Array = np.argsort(norms, kind="stable")
    return order


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
