"""What a formula sees of a node, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onnx import NodeProto

from inferlab.model.onnx_graph import Tensor, attribute
from inferlab.records import Shape


class Unknown(Exception):
    """The operations of a node cannot be told; the message says why."""


@dataclass(frozen=True, slots=True)
class Count:
    """Operations: a multiply-add is two of `flops` and one of `macs`."""

    flops: int
    macs: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.flops + other.flops, self.macs + other.macs)


def multiply_adds(macs: int, more: int = 0) -> Count:
    """So many multiply-adds, and more operations beside."""
    return Count(2 * macs + more, macs)


@dataclass(frozen=True, slots=True)
class Operands:
    """A node with the types and shapes of what it reads and writes; None where an input is left out."""

    node: NodeProto
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    #: The whole numbers of a small constant input; empty where it is none.
    integers: Callable[[int], list[int]] = field(default=lambda _: [])

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value; text as str."""
        value = attribute(self.node, name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def has(self, index: int) -> bool:
        """Whether this input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int) -> Shape:
        """The shape of an input."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise Unknown(f"its input {index} is missing")
        if tensor.shape is None:
            raise Unknown("the shape of what it reads is not known")
        return tensor.shape

    def result(self, index: int = 0) -> Shape:
        """The shape of an output."""
        tensor = self.outputs[index] if index < len(self.outputs) else None
        if tensor is None:
            raise Unknown(f"its output {index} is missing")
        if tensor.shape is None:
            raise Unknown("the shape of what it writes is not known")
        return tensor.shape

    def size(self, index: int = 0) -> int:
        """How many elements an input has."""
        return math.prod(self.shape(index))

    def result_size(self, index: int = 0) -> int:
        """How many elements an output has."""
        return math.prod(self.result(index))


Formula = Callable[[Operands], Count]
