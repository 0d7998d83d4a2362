"""Parts of an ONNX graph as models of their own: what depends on what, where to cut, what a part needs."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

BFLOAT16 = 16
_EXTERNAL = 1
# How elements are stored, by ONNX's number of the type.
_STORED = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4",
    13: "<u8", 16: "<u2",
}  # fmt: skip
_SMALL_ELEMENTS = 1024

#: The values that a part is fed, with their element types and dimensions.
Feeds = Mapping[str, Tuple[int, Sequence[int]]]


class Parts:
    """A model's graph, taken apart; weights are read when a part needs them."""

    def __init__(self, path: str) -> None:
        import onnx

        self._folder = os.path.dirname(os.path.abspath(path))
        self.model = onnx.load(path, load_external_data=False)
        graph = self.model.graph
        self.nodes = list(graph.node)
        self.reads: List[Set[str]] = [_reads(node) for node in self.nodes]
        self.outputs = [output.name for output in graph.output]
        self._constants: Dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        for node in self.nodes:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._makers: Dict[str, int] = {}
        #: Nodes that only change constants, in order.
        self.static: Dict[int, None] = {}
        fixed = {*self._constants, *self._sparse}
        for index, node in enumerate(self.nodes):
            if self.reads[index] <= fixed and "Random" not in node.op_type:
                self.static[index] = None
                fixed.update(node.output)
            for name in node.output:
                if name:
                    self._makers[name] = index

    def has(self, weight: str) -> bool:
        """Whether a weight is a dense constant of the main graph."""
        return weight in self._constants

    def weight(self, name: str) -> Any:
        """The elements of a constant in their shape, bfloat16 as its bits; data in files is mapped, not read."""
        import numpy
        from onnx import numpy_helper

        tensor = self._constants[name]
        shape, dtype = tuple(tensor.dims), numpy.dtype(_STORED.get(tensor.data_type, "u1"))
        if tensor.data_location == _EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            path = os.path.join(self._folder, entries["location"])
            return numpy.memmap(path, dtype, "c", int(entries.get("offset", "0")), shape)
        if tensor.HasField("raw_data") and tensor.data_type in _STORED:
            return numpy.frombuffer(tensor.raw_data, dtype).reshape(shape)
        array = numpy_helper.to_array(tensor)
        if tensor.data_type == BFLOAT16:
            if array.dtype.itemsize == 4:  # older versions of onnx widen it
                array = (array.view(numpy.uint32) >> 16).astype(numpy.uint16)
            array = array.view(numpy.uint16)
        return array

    def type_of(self, name: str) -> int:
        """The element type of a constant, as ONNX numbers them."""
        return int(self._constants[name].data_type)

    def after(self, names: Iterable[str], end: int) -> List[int]:
        """The nodes before a place that depend on values, in order; those that only change constants included."""
        touched, indices = set(names), []
        for index in range(end):
            if self.reads[index] & touched:
                indices.append(index)
                touched.update(self.nodes[index].output)
        return indices

    def uses(self, weights: Iterable[str]) -> List[int]:
        """The nodes, in order, that read weights or what other nodes make of them and other constants."""
        names = set(weights)
        for index in self.static:
            if self.reads[index] & names:
                names.update(self.nodes[index].output)
        return [
            index for index in range(len(self.nodes)) if index not in self.static and self.reads[index] & names
        ]

    def moving(self, begin: int, end: int) -> List[int]:
        """The nodes between two places whose outputs depend on the inputs."""
        return [index for index in range(begin, end) if index not in self.static]

    def made_by(self, nodes: Iterable[int]) -> Set[str]:
        """The values that nodes make."""
        return {name for index in nodes for name in self.nodes[index].output if name}

    def needed_by(self, nodes: Iterable[int]) -> List[str]:
        """What nodes read that is neither constant nor made by one of them, in a fixed order."""
        nodes = list(nodes)
        names = {name for index in nodes for name in self.reads[index]} - self.made_by(nodes)
        return sorted(name for name in names if not self._is_fixed(name))

    def read_later(self, names: Iterable[str], place: int) -> List[str]:
        """Those of the values that nodes from a place on read."""
        later: Set[str] = set()
        for reads in self.reads[place:]:
            later |= reads
        return sorted(set(names) & later)

    def cuts(self, count: int) -> List[int]:
        """Up to `count` + 1 places, first and last included, between which lie parts of about equal length.

        A cut is made near its ideal place where the fewest values cross it.
        """
        total = len(self.nodes)
        crossing = self._crossing()
        places = [0]
        for number in range(1, count):
            ideal = number * total / count
            reach = 0.4 * total / count
            window = range(max(places[-1] + 1, int(ideal - reach)), min(total - 1, int(ideal + reach)) + 1)
            if window:
                places.append(min(window, key=lambda place: (crossing[place], abs(place - ideal))))
        return [*places, total]

    def part(self, nodes: Sequence[int], feeds: Feeds, outputs: Sequence[str]) -> Tuple[bytes, List[str]]:
        """A model of some nodes, fed with `feeds` and giving `outputs`, and the large constants that it lacks.

        It names them as external data: copying them would take longer than the rest.
        """
        import onnx

        model = onnx.ModelProto(ir_version=max(4, self.model.ir_version))
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        graph = model.graph
        graph.name = "part"
        lacking: List[str] = []
        for name, (kind, dims) in feeds.items():
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, dims))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        whole = self._with_static(nodes, feeds, outputs)
        graph.node.extend(self.nodes[index] for index in whole)
        names = {name for index in whole for name in self.reads[index]} | set(outputs)
        for name in sorted(names - self.made_by(whole) - set(feeds)):
            if name in self._constants:
                lacking += self._declare(name, graph.initializer.add())
            elif name in self._sparse:
                graph.sparse_initializer.append(self._sparse[name])
        return model.SerializeToString(), lacking

    def _declare(self, name: str, tensor: Any) -> List[str]:
        """Put a constant into a part: a small one itself, of a large one only its name, type and shape."""
        stored = self._constants[name]
        large = stored.data_type in (1, 10, 11) and math.prod(stored.dims) > _SMALL_ELEMENTS
        if not large and stored.data_location != _EXTERNAL:
            tensor.CopyFrom(stored)
            tensor.name = name
            return []
        tensor.name, tensor.data_type = name, stored.data_type
        tensor.dims.extend(stored.dims)
        if not large:
            tensor.raw_data = self.weight(name).tobytes()
            return []
        tensor.data_location = _EXTERNAL
        tensor.external_data.add(key="location", value="given-with-the-session")
        return [name]

    def _with_static(self, nodes: Sequence[int], feeds: Feeds, outputs: Sequence[str]) -> List[int]:
        """The nodes and those that make constants for them of other constants, but no plain constants."""
        indices = set(nodes)
        waiting = [name for index in nodes for name in self.reads[index]] + list(outputs)
        while waiting:
            name = waiting.pop()
            maker = self._makers.get(name, -1)
            if name in feeds or name in self._constants or maker not in self.static or maker in indices:
                continue
            indices.add(maker)
            waiting.extend(self.reads[maker])
        return sorted(
            index for index in indices if not all(name in self._constants for name in self.nodes[index].output)
        )

    def _is_fixed(self, name: str) -> bool:
        return name in self._constants or name in self._sparse or self._makers.get(name, -1) in self.static

    def _crossing(self) -> List[int]:
        """How many values that nodes made are read beyond each place."""
        last = {}
        for index, reads in enumerate(self.reads):
            for name in reads:
                last[name] = index
        change = [0] * (len(self.nodes) + 1)
        for index, node in enumerate(self.nodes):
            if index not in self.static:
                for name in node.output:
                    if name in last:
                        change[index + 1] += 1
                        change[last[name] + 1] -= 1
        crossing, now = [], 0
        for difference in change:
            now += difference
            crossing.append(now)
        return crossing


def _reads(node: Any) -> Set[str]:
    """What a node reads, that of its branches and loops included as far as it comes from outside."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
            own = {tensor.name for tensor in [*graph.initializer, *graph.input]}
            for inner in graph.node:
                names |= _reads(inner) - own
                own.update(inner.output)
            names |= {output.name for output in graph.output} - own
    return names
