"""Small ONNX files to measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save_linear(path: Path, batch: int | str, width: int = 4, names: tuple[str, str] = ("x", "y")) -> Path:
    """y = x·W with W = 2·I, the batch fixed or symbolic."""
    weight = numpy_helper.from_array(2 * np.eye(width, dtype=np.float32), "W")
    x, y = names
    graph = helper.make_graph(
        [helper.make_node("MatMul", [x, "W"], [y])],
        "linear",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [batch, width])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def small_model(path: Path, width: int = 16, external: bool = False) -> Path:
    """A model of one layer, its weights beside it where wanted."""
    weight = np.random.default_rng(0).standard_normal((width, width)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if external:
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=0)
    else:
        onnx.save_model(model, path)
    return path
