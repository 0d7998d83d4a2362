"""What the nodes of a model cost by the architecture alone; those of a PyTorch model as a child tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from inferlab.child import protocol
from inferlab.model.inputs import Array
from inferlab.model.reading import need_torch
from inferlab.records import Model, Shape
from inferlab.worker import record_of, run_task


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
    #: The name of its largest weight, empty where it has none; its shape and its sparsity.
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


def torch_costs(
    model: Model,
    shapes: Mapping[str, Shape],
    inputs: Mapping[str, Array],
    options: Mapping[str, str] | None = None,
) -> Costs:
    """The costs of a torch.export program, a TorchScript file or a Hugging Face folder at these shapes.

    The options are those of the engine torch (head, mode, freeze, plain_call), because they change what runs;
    compiled and frozen models cost what they cost as they were.
    """
    heads, blocks = protocol.pack_arrays(inputs)
    arguments = {
        "model": model.path,
        "kind": model.kind,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "options": dict(options or {}),
        "arrays": heads,
    }
    nodes = run_task(need_torch(), "torch_models.operator_costs", arguments, blocks)["nodes"]
    return Costs(tuple(record_of(NodeCost, node, index=index) for index, node in enumerate(nodes)))
