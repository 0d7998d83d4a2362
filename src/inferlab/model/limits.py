"""What values an integer input may have: below the rows of a table, or those that it is compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from inferlab.model.onnx_graph import OnnxGraph, attribute, type_name
from inferlab.model.weights import stored_values

# Operators whose output holds values of these inputs and no others but constants (None: of any input).
_PASSING: dict[str, tuple[int, ...] | None] = {
    "Cast": (0,), "Identity": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Reshape": (0,), "Flatten": (0,),
    "Transpose": (0,), "Slice": (0,), "Expand": (0,), "Tile": (0,), "Pad": (0,), "Split": (0,), "Clip": (0,),
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "ReduceMax": (0,), "ReduceMin": (0,),
    "Compress": (0,), "ReverseSequence": (0,), "Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2),
    "Concat": None, "Max": None, "Min": None,
}  # fmt: skip
_COUNTING = {"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FLOAT", "DOUBLE"}
_FEW, _MANY = 16, 65536


class Tracer:
    """Follows an input to where its values index a table or are compared with constants."""

    def __init__(self, proto: ModelProto, folder: Path) -> None:
        self._folder = folder
        self._functions = {(function.domain, function.name): function for function in proto.functions}
        self._calls: dict[int, OnnxGraph] = {}
        self._main = OnnxGraph(proto.graph)

    def limits(self, name: str) -> tuple[int | None, tuple[int, ...]]:
        """What an input's values must stay below, and the constants that they are compared with."""
        rows: list[int] = []
        literals: set[int] = set()
        waiting = [(self._main, name, 0)]
        seen = set()
        while waiting:
            scope, here, shift = waiting.pop()
            if (id(scope), here) in seen:
                continue
            seen.add((id(scope), here))
            for node, index in scope.consumers.get(here, ()):
                size = self._rows(scope, node, index)
                if size is not None:
                    rows.append(size - shift)
                if node.op_type == "Equal" and len(node.input) == 2:
                    constants = self._integers(scope, node.input[1 - index])
                    if len(constants) > 2 and constants == list(range(len(constants))):
                        rows.append(len(constants) - shift)  # a one-hot that an exporter wrote out
                    elif len(constants) <= _FEW:
                        literals.update(value - shift for value in constants)
                waiting.extend(self._onward(scope, node, index, shift))
            waiting.extend((child, here, shift) for child in scope.children if here not in child.inputs)
            waiting.extend((*place, shift) for place in _upward(scope, here))
        return (max(1, min(rows)) if rows else None), tuple(sorted(literals))

    def _rows(self, scope: OnnxGraph, node: NodeProto, index: int) -> int | None:
        """How many rows the table has that a node indexes with this input."""
        kind = node.op_type
        if kind in ("Gather", "GatherElements", "GatherBlockQuantized") and index == 1:
            axis = attribute(node, "gather_axis" if kind == "GatherBlockQuantized" else "axis", 0)
            table = self._table(scope, node.input[0])
            return table[axis] if table and -len(table) <= axis < len(table) else None
        if kind == "GatherND" and index == 1:
            return min(self._table(scope, node.input[0]), default=None)
        if kind == "EmbedLayerNormalization" and index in (0, 1) and len(node.input) > 4:
            table = self._table(scope, node.input[2 if index == 0 else 4])
            return table[0] if table else None
        if kind == "OneHot" and index == 0:
            return next(iter(self._integers(scope, node.input[1])), None)
        return None

    def _onward(
        self, scope: OnnxGraph, node: NodeProto, index: int, shift: int
    ) -> Iterator[tuple[OnnxGraph, str, int]]:
        """The names that hold an input's values after a node has read them."""
        passing = _PASSING.get(node.op_type, ())
        to_bool = node.op_type == "Cast" and attribute(node, "to") == TensorProto.BOOL
        if (passing is None or index in passing) and not to_bool:
            yield from ((scope, name, shift) for name in node.output)
        if node.op_type in ("Add", "Sub") and len(node.input) == 2 and (node.op_type == "Add" or index == 0):
            added = self._integers(scope, node.input[1 - index])
            if len(added) == 1:
                yield scope, node.output[0], shift + (added[0] if node.op_type == "Add" else -added[0])
        function = self._functions.get((node.domain, node.op_type))
        if function is not None and index < len(function.input) and _depth(scope) < len(self._functions) + 1:
            if id(node) not in self._calls:
                self._calls[id(node)] = OnnxGraph(function, scope, node, is_call=True)
            yield self._calls[id(node)], function.input[index], shift
        # A Loop's first two inputs are the number of rounds and whether to begin at all.
        for child in scope.children if index >= {"Scan": 0, "Loop": 2}.get(node.op_type, index + 1) else ():
            if child.owner is node and index < len(child.inputs):
                yield child, child.inputs[index], shift

    def _source(self, scope: OnnxGraph | None, name: str, through: tuple[str, ...]) -> TensorProto | None:
        """The constant behind a name, seen through operators that do not change what is asked of it."""
        for _ in range(64):  # names in a damaged model may go round in circles
            if scope is None:
                return None
            if name in scope.constants:
                return scope.constants[name]
            maker = scope.producers.get(name)
            if maker is not None:
                if maker.op_type not in through or not maker.input:
                    return None
                name = maker.input[0]
            elif scope.is_call:
                place = scope.inputs.index(name) if name in scope.inputs else len(scope.inputs)
                if scope.owner is None or place >= len(scope.owner.input):
                    return None
                name, scope = scope.owner.input[place], scope.parent
            else:
                scope = scope.parent
        return None

    def _table(self, scope: OnnxGraph, name: str) -> tuple[int, ...]:
        tensor = self._source(scope, name, ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity"))
        return () if tensor is None else tuple(tensor.dims)

    def _integers(self, scope: OnnxGraph, name: str) -> list[int]:
        """The values of a constant of integers that is no weight; none if it is anything else."""
        tensor = self._source(scope, name, ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand"))
        if tensor is None or type_name(tensor.data_type) not in _COUNTING or math.prod(tensor.dims) > _MANY:
            return []
        numbers = stored_values(tensor, self._folder)
        return [int(number) for number in numbers if np.isfinite(number) and number == int(number)]


def _depth(scope: OnnxGraph | None) -> int:
    depth = 0
    while scope is not None:
        depth += scope.is_call
        scope = scope.parent
    return depth


def _upward(scope: OnnxGraph, name: str) -> Iterator[tuple[OnnxGraph, str]]:
    """Where the outputs of a subgraph or a function go: to its node's outputs, or round the loop again."""
    if scope.owner is None or scope.parent is None:
        return
    owner = scope.owner
    for index, output in enumerate(scope.outputs):
        if output != name:
            continue
        after = index - 1 if owner.op_type == "Loop" else index
        if 0 <= after < len(owner.output):
            yield scope.parent, owner.output[after]
        if owner.op_type == "Loop" and 0 < index < len(scope.inputs) - 1:
            yield scope, scope.inputs[index + 1]
        if owner.op_type == "Scan" and index < len(scope.inputs) - attribute(owner, "num_scan_inputs", 0):
            yield scope, scope.inputs[index]
