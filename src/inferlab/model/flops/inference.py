"""The types and shapes of all values of a model at fixed input shapes: inferred, or traced by a child."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto, inliner, shape_inference

from inferlab.child import protocol
from inferlab.errors import Damaged, InferlabError
from inferlab.model.confined import confined
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import data_files_of, parse_onnx
from inferlab.model.onnx_graph import Tensor, all_nodes, all_tensors, bodies
from inferlab.model.weights import element_count, external_files, stored_values, tensor_bytes, zero_counts
from inferlab.records import Model, Shape
from inferlab.worker import ONNXRUNTIME, run_task

# Constants up to this many elements keep their values: shapes, axes and the like are computed from them.
_FEW = 1024


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that holds parameters, without its values."""

    name: str
    dims: Shape
    #: As ONNX names it: FLOAT, INT8, …
    type_name: str
    size_bytes: int
    zero_fraction: float | None
    #: Stored element by element: neither packed nor as a list of those that are not zero.
    plain: bool

    @property
    def elements(self) -> int:
        """How many parameters it has."""
        return math.prod(self.dims)


@dataclass(frozen=True, slots=True)
class LightModel:
    """A model without its weights' values, its functions put in their callers' place, its shapes inferred."""

    proto: ModelProto
    #: By the mark that a stripped tensor carries.
    parameters: Mapping[str, Parameter]


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """What a node read and wrote when the model ran."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def read_light(model: Model, shapes: Mapping[str, Shape]) -> LightModel:
    """Read a model, forget its weights' values, and infer all shapes from those of the inputs."""
    proto = parse_onnx(Path(model.path))
    folder = Path(model.path).parent
    external_files(proto, folder, Path(model.path))
    parameters: dict[str, Parameter] = {}
    for number, (weight, zeros) in enumerate(zero_counts(proto, folder)):
        # A mark in the tensor itself, because functions give their constants new names.
        weight.stored.doc_string = mark = f"inferlab:{number}"
        parameters[mark] = Parameter(
            weight.name,
            weight.dims,
            weight.type_name,
            tensor_bytes(weight.stored),
            zeros / weight.elements if zeros is not None and weight.elements else None,
            tuple(weight.stored.dims) == weight.dims,
        )
    for tensor in all_tensors(proto):
        _lighten(tensor, folder)
    proto = inlined(proto)
    _fix_inputs(proto, shapes)
    with contextlib.suppress(Exception):  # what it cannot infer is traced
        proto = shape_inference.infer_shapes(proto, data_prop=True)
    return LightModel(proto, parameters)


def inlined(proto: ModelProto) -> ModelProto:
    """The model with its own functions' nodes in the place of their calls."""
    if not proto.functions:
        return proto
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # several kinds, of which onnx has no common name
        raise Damaged(f"its functions cannot be inlined ({error})") from error


def trace(model: Model, shapes: Mapping[str, Shape]) -> dict[int, NodeTrace]:
    """What every node that ran read and wrote, by its number: a child runs the model once, not optimised."""
    with tempfile.TemporaryDirectory(prefix="inferlab-trace-") as folder:
        path = _numbered_copy(model, shapes, Path(folder))
        heads, blocks = protocol.pack_arrays(make_inputs(model.inputs, shapes, 0))
        arguments = {"model": str(path), "folder": folder, "arrays": heads}
        nodes = run_task(ONNXRUNTIME, "shapes", arguments, blocks)["nodes"]
    return {
        int(number): NodeTrace(tuple(map(_of_pair, node["inputs"])), tuple(map(_of_pair, node["outputs"])))
        for number, node in nodes.items()
    }


def _lighten(tensor: TensorProto, folder: Path) -> None:
    """Drop the values of a large tensor; bring those of a small one in."""
    if element_count(tensor) <= _FEW:
        if tensor.data_location == TensorProto.EXTERNAL:
            values = stored_values(tensor, folder).tobytes()
            _drop(tensor)
            tensor.raw_data = values
        return
    _drop(tensor)


def _drop(tensor: TensorProto) -> None:
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
                  "string_data", "external_data", "data_location"):  # fmt: skip
        tensor.ClearField(field)


def _fix_inputs(proto: ModelProto, shapes: Mapping[str, Shape]) -> None:
    """Give the inputs their shapes, and forget all others: they may be of another batch size."""
    for body in bodies(proto):
        if not isinstance(body, GraphProto):
            continue
        del body.value_info[:]
        for value in [*body.output, *(body.input if body is not proto.graph else ())]:
            if value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.shape.dim:
                value.type.tensor_type.ClearField("shape")
    for value in proto.graph.input:
        if value.name in shapes and value.type.WhichOneof("value") == "tensor_type":
            shape = value.type.tensor_type.shape
            shape.ClearField("dim")
            for size in shapes[value.name]:
                shape.dim.add().dim_value = size


def _of_pair(pair: Any) -> Tensor:
    dtype, dims = pair
    return Tensor({"float": "float32", "double": "float64"}.get(dtype, dtype), tuple(dims))


def _numbered_copy(model: Model, shapes: Mapping[str, Shape], folder: Path) -> Path:
    """A copy of the model whose nodes are named by their numbers, its data files beside it."""
    for name, file in data_files_of(Path(model.path)).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Engines follow no link out of the model's folder, so the folder itself must hold the file.
        try:
            os.link(file.resolve(), target)
        except OSError as error:
            raise InferlabError(f"the data file '{file.name}' cannot be placed beside a copy: {error}") from error
    _write_numbered(model, shapes, folder)
    return folder / "model.onnx"


@confined(reads=["model"], writes=["folder"])
def _write_numbered(model: Model, shapes: Mapping[str, Shape], folder: Path) -> None:
    """Write the graph whose nodes are named by their numbers."""
    proto = inlined(parse_onnx(Path(model.path)))
    _fix_inputs(proto, shapes)
    for number, node in enumerate(all_nodes(proto.graph)):
        node.name = f"n{number}"
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
