"""Models of which something must be told or cannot be done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def odd_model(path: Path) -> Path:
    """A model whose input is left open, though only 19 columns fit."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((19, 5), np.float32), "w")],
    )
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def weightless_model(path: Path) -> Path:
    """A model that has constants and nothing that could be pruned."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["rows"]), helper.make_node("Add", ["rows", "shift"], ["y"])],
        "weightless",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [
            numpy_helper.from_array(np.linspace(0, 1, 512, dtype=np.float32).reshape(64, 8), "table"),
            numpy_helper.from_array(np.ones(8, np.float32), "shift"),
        ],
    )
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def random_model(path: Path) -> Path:
    """A model that adds noise: it can be timed, but what pruning changes cannot be told from randomness."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["z"]),
            helper.make_node("RandomNormalLike", ["z"], ["noise"]),
            helper.make_node("Add", ["z", "noise"], ["y"]),
        ],
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")],
    )
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
