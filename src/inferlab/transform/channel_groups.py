"""Channels that are kept or removed together, and what is known of them while they are followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from inferlab.child.pruning import channel_places
from inferlab.model.onnx_graph import FLOATS, OnnxGraph, attribute, bodies, label, type_name
from inferlab.records import Shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of an axis: all channels of a group, each `repeat` times in a row."""

    group: int
    size: int
    repeat: int = 1


#: An axis, as segments one after the other.
Layout = tuple[Segment, ...]


def length(layout: Layout) -> int:
    """How many elements an axis has."""
    return sum(segment.size * segment.repeat for segment in layout)


def repeated(layout: Layout, times: int) -> Layout:
    """The axis with each of its elements so many times in a row."""
    return tuple(Segment(segment.group, segment.size, segment.repeat * times) for segment in layout)


class Groups:
    """Groups of channels, joined where tensors meet; a group that is held keeps all its channels."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def new(self, size: int) -> Layout:
        """An axis of a new group's own."""
        self._parents.append(len(self._parents))
        return (Segment(len(self._parents) - 1, size),)

    def find(self, group: int) -> int:
        """The group that it has become part of."""
        while self._parents[group] != group:
            self._parents[group] = self._parents[self._parents[group]]
            group = self._parents[group]
        return group

    def hold(self, layout: Layout, reason: str) -> None:
        """Keep all channels of an axis; of several reasons the first counts."""
        for segment in layout:
            self._reasons.setdefault(self.find(segment.group), reason)

    def join(self, layout: Layout, other: Layout) -> None:
        """Two axes whose elements belong to each other, one by one."""
        if [(part.size, part.repeat) for part in layout] != [(part.size, part.repeat) for part in other]:
            reason = "its channels meet others that are divided in another way"
            self.hold(layout, reason)
            self.hold(other, reason)
            return
        for first, second in zip(layout, other, strict=True):
            root, merged = self.find(first.group), self.find(second.group)
            if root != merged:
                self._parents[merged] = root
                if merged in self._reasons:
                    self._reasons.setdefault(root, self._reasons[merged])

    def reason(self, group: int) -> str:
        """Why a group is held; empty where it is not."""
        return self._reasons.get(self.find(group), "")

    def kept(self, layout: Layout, keep: Mapping[int, Array]) -> Array:
        """The places on an axis that stay, where `keep` has the channels that stay of groups that lose some."""
        return np.concatenate([*self._places(layout, keep), np.empty(0, np.int64)])

    def _places(self, layout: Layout, keep: Mapping[int, Array]) -> Iterator[Array]:
        start = 0
        for segment in layout:
            channels = keep.get(self.find(segment.group), np.arange(segment.size))
            yield channel_places(channels, start, segment.repeat).reshape(-1)
            start += segment.size * segment.repeat

    def stretches(self, layout: Layout, group: int) -> tuple[tuple[int, int], ...]:
        """Where the channels of a group begin on an axis, and how many times in a row each stands there."""
        starts = np.cumsum([0, *(segment.size * segment.repeat for segment in layout)])
        return tuple(
            (int(start), segment.repeat)
            for start, segment in zip(starts, layout, strict=False)
            if self.find(segment.group) == group
        )


#: The axes of a value that are followed.
Axes = dict[int, Layout]

#: Of ONNX's own operators.
DOMAINS = ("", "ai.onnx")


class Unclear(Exception):
    """The channels that go into a node cannot be followed, and why."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A stored tensor as a node reads it: which of its axes stand where."""

    name: str
    axes: tuple[int, ...]
    dims: tuple[int, ...]


class ChannelTrace:
    """What was found: groups of channels, the axes of stored tensors that they lie on, what else has to change."""

    def __init__(self, proto: ModelProto, shapes: Mapping[str, Shape | None]) -> None:
        self.groups = Groups()
        index = OnnxGraph(proto.graph)
        self.stored, self.nodes = index.stored, index.producers
        #: The axes of stored tensors that lose elements.
        self.axes: dict[str, Axes] = {}
        #: The weights whose output channels a group is, with that axis.
        self.makers: list[tuple[str, int, int]] = []
        #: Depthwise convolutions: weights that follow a group without making it.
        self.followers: list[tuple[str, Layout]] = []
        #: The axis along which a weight sums up what it reads.
        self.sums: dict[str, int] = {}
        #: Numbers that say how many channels there are: `group` of nodes, elements of stored shapes.
        self.group_counts: list[tuple[NodeProto, Layout]] = []
        self.sizes: list[tuple[str, int, Layout]] = []
        #: Products that are no part of it, and why, by weight.
        self.reasons: dict[str, str] = {}
        self._shapes = shapes
        self.opset = next((opset.version for opset in proto.opset_import if opset.domain in DOMAINS), 13)
        self.values: dict[str, Axes] = {}
        self.turned: dict[str, Operand] = {}
        self.uses = Counter(name for body in bodies(proto) for node in body.node for name in node.input)
        self.understood: Counter[str] = Counter()

    # What nodes read.

    def turns(self, node: NodeProto) -> bool:
        """Note a stored tensor that is only turned before it is read."""
        operand = self.operand(node.input[0]) if len(node.input) == 1 else None
        if operand is None or node.op_type not in ("Transpose", "Identity"):
            return False
        order = attribute(node, "perm", None) if node.op_type == "Transpose" else range(len(operand.dims))
        order = list(order if order is not None else reversed(range(len(operand.dims))))
        if sorted(order) != list(range(len(operand.dims))):
            return False
        axes, dims = tuple(operand.axes[axis] for axis in order), tuple(operand.dims[axis] for axis in order)
        self.turned[node.output[0]] = Operand(operand.name, axes, dims)
        self.understood[node.input[0]] += 1
        return True

    def operand(self, name: str) -> Operand | None:
        """What a name stands for, if it is a stored tensor."""
        if name in self.turned:
            return self.turned[name]
        if name not in self.stored:
            return None
        dims = tuple(self.stored[name].dims)
        return Operand(name, tuple(range(len(dims))), dims)

    def weight(self, node: NodeProto, place: int) -> Operand:
        """The stored floats that a product reads at a place."""
        operand = self.operand(node.input[place]) if place < len(node.input) else None
        if operand is None or type_name(self.stored[operand.name].data_type) not in FLOATS:
            raise Unclear(f"its channels go into {label(node)}, whose weight is not a constant of floats")
        return operand

    def axes_of(self, name: str) -> Axes:
        """What is followed of a value."""
        return self.values.get(name, {})

    def shape(self, name: str) -> Shape:
        """The shape of a value, which must be known."""
        shape = self._shapes.get(name)
        if shape is None:
            raise Unclear("its channels go into a value whose shape is not known")
        return shape

    def only(self, node: NodeProto, axis: int) -> Layout | None:
        """What is followed on an axis of a node's first input, which may be followed on no other."""
        axes = self.axes_of(node.input[0])
        if set(axes) - {axis}:
            raise Unclear(f"its channels go into {label(node)} on another axis than its channels'")
        return axes.get(axis)

    # What follows.

    def lose(self, operand: Operand, axis: int, layout: Layout) -> None:
        """Let an axis of a stored tensor lose what a layout loses."""
        if operand.dims[axis] != length(layout):
            raise Unclear("its channels meet a constant of another size")
        own = self.axes.setdefault(operand.name, {})
        place = operand.axes[axis]
        if place in own:
            self.groups.join(own[place], layout)
        own.setdefault(place, layout)

    def read(self, node: NodeProto, *places: int) -> None:
        """Note that all that a node does with what it reads at these places is known."""
        for place in places:
            if place < len(node.input) and node.input[place]:
                self.understood[node.input[place]] += 1

    def make(self, node: NodeProto, weight: Operand, axis: int, out: int) -> Layout:
        """The channels that a product makes, along an axis of its weight, on an axis of its output."""
        layout = self.groups.new(weight.dims[axis])
        self.lose(weight, axis, layout)
        self.makers.append((weight.name, weight.axes[axis], layout[0].group))
        self.values[node.output[0]] = {out: layout}
        return layout

    def sum_over(self, weight: Operand, axis: int, layout: Layout | None) -> None:
        """Let a weight lose what it sums up over."""
        if layout is not None:
            self.lose(weight, axis, layout)
            self.sums[weight.name] = weight.axes[axis]

    def vector(self, node: NodeProto, place: int, layout: Layout) -> None:
        """A bias or a scale with an element for each channel."""
        if place < len(node.input) and node.input[place]:
            operand = self.operand(node.input[place])
            if operand is None or (operand.dims and operand.dims[-1] not in (1, length(layout))):
                reason = f"its channels meet an operand of {label(node)} that is not followed"
                self.groups.hold(layout, reason)
                self.hold(node.input[place], reason)
            elif operand.dims and operand.dims[-1] == length(layout):
                self.lose(operand, len(operand.dims) - 1, layout)

    def hold(self, name: str, reason: str) -> None:
        """Keep all channels of a value."""
        for layout in self.axes_of(name).values():
            self.groups.hold(layout, reason)

    def hold_what_others_read(self) -> None:
        """Channels of a stored tensor stay where a node reads it that was not followed."""
        open_ends = {name for name in self.uses if self.understood[name] < self.uses[name]}
        for name, operand in self.turned.items():
            if name in open_ends:
                open_ends.add(operand.name)
        for name in sorted(open_ends & self.axes.keys()):
            for layout in self.axes[name].values():
                self.groups.hold(layout, f"'{name}' is read by a node through which channels are not followed")
