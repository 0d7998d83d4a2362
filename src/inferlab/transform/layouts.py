"""How the elements of a weight lie in the product that uses it: one row for each sum that gives an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferlab.errors import BadInput
from inferlab.model.sparsity import attribute, bodies, constant

Array = np.ndarray[Any, Any]

_PASSING = {"Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}


class Layouts:
    """Finds the products that weights go into, through nodes that only turn or reshape them."""

    def __init__(self, proto: ModelProto) -> None:
        self._readers: dict[str, list[tuple[NodeProto, int]]] = {}
        self._constants: dict[str, TensorProto] = {}
        for body in bodies(proto):
            self._constants.update({one.name: one for one in getattr(body, "initializer", ())})
            for node in body.node:
                if (value := constant(node)) is not None:
                    self._constants[node.output[0]] = value
                for place, name in enumerate(node.input):
                    self._readers.setdefault(name, []).append((node, place))

    def rows(self, name: str, dims: Sequence[int]) -> Array:
        """The places of a weight's elements, a row for each sum, in the order in which kernels sum them up.

        That order has the input channels innermost: the dot products of VNNI and AMX, and the sparse kernels of
        DeepSparse, take four neighbouring input channels at once.
        """
        size = int(np.prod(dims))
        places = np.arange(size, dtype=np.int32 if size < 1 << 31 else np.int64).reshape(dims)
        found = self._into_product(name, places)
        if found is None:
            raise BadInput(
                f"The weight '{name}' goes into no convolution and no product of matrices that could be followed, "
                "so it has no rows to prune by a pattern. Leave it out, or prune it unstructured."
            )
        return found

    def _into_product(self, name: str, places: Array) -> Array | None:
        for node, place in self._readers.get(name, ()):
            rows = _rows(node, place, places)
            if rows is None and place == 0 and node.op_type in _PASSING:
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
            (found,) = ReferenceEvaluator(node).run(None, feeds)
        except (ValueError, RuntimeError, TypeError, checker.ValidationError):
            return None
        return found if isinstance(found, np.ndarray) and found.size == places.size else None


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
