"""Small ONNX models for the tests of copies, and ways to run and compare them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import read_onnx
from inferlab.model.shapes import resolve
from inferlab.records import Model

Array = np.ndarray[Any, Any]


def random(*dims: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *dims]).normal(size=dims).astype(np.float32)


def a_graph(
    nodes: Sequence[NodeProto],
    weights: Mapping[str, Array],
    dims: Sequence[int | str],
    opset: int = 13,
    ir_version: int = 8,
) -> ModelProto:
    """A model from x to y, the shape of y inferred."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0]
    inferred.type.tensor_type.elem_type = TensorProto.FLOAT
    graph.output[0].CopyFrom(inferred)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def saved(proto: ModelProto, folder: Path, **options: Any) -> Model:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, folder / "net.onnx", **options)
    return read_onnx(folder / "net.onnx", "net.onnx")


def weights_of(model: Model) -> dict[str, Array]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(model.path).graph.initializer}


def shapes_of(model: Model) -> dict[str, tuple[int, ...]]:
    return {one.name: tuple(one.dims) for one in onnx.load(model.path, load_external_data=False).graph.initializer}


def inputs_of(model: Model, count: int = 1) -> list[dict[str, Array]]:
    shapes = resolve(model.inputs, None, None, {}).shapes
    return [make_inputs(model.inputs, shapes, seed) for seed in range(count)]


def run_onnxruntime(model: Model, inputs: Mapping[str, Array]) -> list[Array]:
    import onnxruntime

    return list(
        onnxruntime.InferenceSession(model.path, providers=["CPUExecutionProvider"]).run(None, dict(inputs))
    )


def run_openvino(model: Model, inputs: Mapping[str, Array]) -> list[Array]:
    import openvino

    compiled = openvino.Core().compile_model(model.path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(dict(inputs))
    return [found[index] for index in range(len(compiled.outputs))]


def digests(folder: Path) -> dict[str, str]:
    """All files of a folder, hidden ones too."""
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.rglob("*") if one.is_file()}
