"""Small ONNX models made by hand, and what their nodes cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import read_onnx
from inferlab.records import Model, Shape

FLOAT = TensorProto.FLOAT
OPSETS = {"": 21, "com.microsoft": 1, "ai.onnx.ml": 3}


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> NodeProto:
    """A node; `domain` may be among its attributes."""
    return helper.make_node(operator, inputs, outputs, **attributes)


def floats(*shape: int) -> Any:
    """A weight of ones."""
    return np.ones(shape, np.float32)


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    weights: Mapping[str, Any] | None = None,
    outputs: Mapping[str, int] | None = None,
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """A model whose output is `y` unless others are named."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in (outputs or {"y": FLOAT}).items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in {**OPSETS, **(opsets or {})}.items()]
    return helper.make_model(graph, ir_version=10, opset_imports=imports, functions=list(functions))


def saved(proto: ModelProto, folder: Path) -> Model:
    """The model, written and read as a user's would be."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return read_onnx(path, str(path))


def fixed(model: Model) -> dict[str, Shape]:
    """The inputs' shapes, where the model fixes all of them."""
    return {one.name: tuple(int(str(dim)) for dim in one.dims or ()) for one in model.inputs}


def cost_of(
    folder: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    weights: Mapping[str, Any] | None = None,
    **more: Any,
) -> Costs:
    """What the nodes of such a model cost."""
    model = saved(model_of(nodes, inputs, weights, **more), folder)
    return costs(model, fixed(model))


def last(found: Costs) -> NodeCost:
    """The last node."""
    return found.nodes[-1]
