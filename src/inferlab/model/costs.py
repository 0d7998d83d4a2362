"""What the nodes of a model cost by the architecture alone: the records that model/flops.py fills."""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.records import Shape


@dataclass(frozen=True, slots=True)
class NodeCost:
    """One node of a graph; None stands where a number cannot be told, and `uncounted` then says why."""

    #: Its place in the order of execution.
    index: int
    #: The name of its first output, which no other node has.
    id: str
    #: Its operator: Conv, MatMul, Attention, …
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: The name that the file gives it; may be empty, and several nodes may share it.
    name: str = ""
    domain: str = ""
    #: What it computes in: float32, int8, …
    dtype: str = "float32"
    #: A multiply-add counts as two; macs are the multiply-adds alone.
    flops: int | None = None
    macs: int | None = None
    #: The parameters that it reads, biases and scales included.
    params: int = 0
    #: The name of its largest weight, empty where it has none; its shape, and the share of zeros in it.
    weight: str = ""
    weight_shape: Shape = ()
    zero_fraction: float | None = None
    #: Its weight is a plain float tensor of a layer that pruning could thin out.
    prunable: bool = False
    groups: int = 1
    read_bytes: int | None = None
    weight_bytes: int = 0
    write_bytes: int | None = None
    uncounted: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """All nodes of a model at fixed shapes, in the order of execution; nodes of branches and loops included."""

    nodes: tuple[NodeCost, ...]
    #: Of the whole model: what several nodes read counts once.
    params: int = 0
    weight_bytes: int = 0
