"""What the operators of a PyTorch model cost by the architecture alone, as a child with torch tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.child import protocol
from inferlab.model.costs import Costs, NodeCost
from inferlab.model.inputs import Array
from inferlab.model.inspect import need_torch
from inferlab.records import Model, Shape
from inferlab.worker import Worker


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
    with Worker(need_torch()) as worker:
        found = worker.ask("task", blocks, task="torch_costs", arguments=arguments).data["nodes"]
    return Costs(tuple(_node(index, one) for index, one in enumerate(found)))


def _node(index: int, found: dict[str, Any]) -> NodeCost:
    plain = {
        key: value for key, value in found.items() if key not in ("kernel", "inputs", "outputs", "weight_shape")
    }
    return NodeCost(
        index=index,
        inputs=tuple(found["inputs"]),
        outputs=tuple(found["outputs"]),
        weight_shape=tuple(found["weight_shape"]),
        **plain,
    )
