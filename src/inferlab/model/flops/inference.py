"""The values of a model at fixed input shapes: types and shapes, inferred or traced, and which are constant."""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, inliner, numpy_helper, shape_inference

from inferlab.child import protocol
from inferlab.errors import Damaged, InferlabError
from inferlab.model.confined import confined
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import data_files_of, parse_onnx
from inferlab.model.onnx_graph import (
    RANDOM,
    SAME_VALUES,
    OnnxGraph,
    Tensor,
    Weight,
    all_nodes,
    all_tensors,
    attribute,
    bodies,
    dtype_name,
    element_count,
    external_files,
    is_number,
    put_values,
    stored_values,
    subgraphs,
    zero_counts,
)
from inferlab.records import Model, Shape
from inferlab.worker import ONNXRUNTIME, run_task

# Constants up to this many elements keep their values: shapes, axes and the like are computed from them.
_FEW = 1024
# What a weight may pass through and still be that weight, as far as its values are concerned.
_SAME_WEIGHT = {*SAME_VALUES, "Cast", "DequantizeLinear"}
# What shapes and the number of a loop's rounds are computed with.
_COUNTING = {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Flatten", "Floor",
    "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg",
    "Not", "Or", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Shape", "Size", "Slice",
    "Split", "Sqrt", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
_DEEPEST = 200
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Parameter(Weight):
    """A constant that holds parameters, its values forgotten."""

    zero_fraction: float | None


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
        zero_fraction = zeros / weight.elements if zeros is not None and weight.elements else None
        parameters[mark] = Parameter(weight.name, weight.dims, weight.stored, zero_fraction)
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
        nodes = run_task(ONNXRUNTIME, "onnx_files.node_shapes", arguments, blocks)["nodes"]
    return {
        int(number): NodeTrace(tuple(map(_of_pair, node["inputs"])), tuple(map(_of_pair, node["outputs"])))
        for number, node in nodes.items()
    }


def _lighten(tensor: TensorProto, folder: Path) -> None:
    """Drop the values of a large tensor; bring those of a small one in."""
    if element_count(tensor) > _FEW:
        put_values(tensor, None)
    elif tensor.data_location == TensorProto.EXTERNAL:
        put_values(tensor, stored_values(tensor, folder).tobytes())


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


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is there before the model runs: the parameters in it, and the one that it is, if it is one."""

    parameters: tuple[Parameter, ...] = ()
    weight: Parameter | None = None
    #: The weight's own values, perhaps in another shape or order, but not converted.
    same_values: bool = True


class Scope(OnnxGraph):
    """One graph; names that it does not know are its surroundings'."""

    def __init__(self, graph: GraphProto, light: LightModel, around: Scope | None = None) -> None:
        super().__init__(graph)
        self.graph, self.light, self._parent = graph, light, around
        self.tensors = self.declared
        for name, tensor in self.constants.items():
            self.tensors.setdefault(name, Tensor(dtype_name(tensor.data_type), tuple(tensor.dims)))
        values = self.constants | {name: sparse.values for name, sparse in self.sparse.items()}
        self._constants = {name: self._of(tensor) for name, tensor in values.items()}
        self._computed: dict[str, Array | None] = {}
        self.folded = {place for place, node in enumerate(graph.node) if self._fold(node)}

    def tensor(self, name: str) -> Tensor | None:
        """A value's type and shape; None for an input that is left out."""
        if not name:
            return None
        if name in self.tensors:
            return self.tensors[name]
        return self._parent.tensor(name) if self._parent else Tensor()

    def constant(self, name: str) -> Constant | None:
        """What is constant about a value, None if it is made again by every run."""
        if name in self._constants:
            return self._constants[name]
        if name in self.tensors or name in self.producers or self._parent is None:
            return None
        return self._parent.constant(name)

    def maker(self, name: str) -> NodeProto | None:
        """The node that makes a value, in this graph or around it."""
        if name in self.producers:
            return self.producers[name]
        return self._parent.maker(name) if self._parent and name not in self.tensors else None

    def learn(self, node: NodeProto, traced: NodeTrace) -> None:
        """Take over what a run showed of a node, where it was not known; outputs first, then inputs."""
        for names, tensors in ((node.output, traced.outputs), (node.input, traced.inputs)):
            tensor_names = [name for name in names if name]
            if len(tensor_names) != len(tensors):
                # Weights that the engine has packed for itself are missing from what it shows.
                tensor_names = [name for name in tensor_names if self.constant(name) is None]
            if len(tensor_names) != len(tensors):
                continue
            for name, tensor in zip(tensor_names, tensors, strict=True):
                before = self.tensor(name) or Tensor()
                if before.shape is None:
                    self._put(name, Tensor(before.dtype or tensor.dtype, tensor.shape))

    def integers(self, name: str) -> list[int]:
        """The whole numbers of a small value that constants and shapes decide; empty if there is none."""
        value = self.value(name)
        if value is None or value.dtype.kind not in "iub":
            return []
        return [int(number) for number in value.reshape(-1)]

    def _put(self, name: str, tensor: Tensor) -> None:
        if name in self.tensors or name in self.producers or self._parent is None:
            self.tensors[name] = tensor
        else:
            self._parent._put(name, tensor)

    def _of(self, tensor: TensorProto) -> Constant:
        parameter = self.light.parameters.get(tensor.doc_string)
        return Constant((parameter,), parameter) if parameter else Constant()

    def _fold(self, node: NodeProto) -> bool:
        """Note what a node makes out of constants alone, once for all runs."""
        if node.op_type == "Constant":
            self._constants.setdefault(node.output[0], Constant())
            return True
        sources = [self.constant(name) for name in node.input if name]
        if not sources or None in sources or node.op_type in RANDOM or subgraphs(node):
            return False
        constants = [constant for constant in sources if constant is not None]
        parameters = {id(each): each for constant in constants for each in constant.parameters}
        first = constants[0] if node.op_type in _SAME_WEIGHT else Constant()
        same = first.same_values and node.op_type in SAME_VALUES
        for name in node.output:
            self._constants[name] = Constant(tuple(parameters.values()), first.weight, same)
        return True

    def value(self, name: str, depth: int = 0) -> Array | None:
        """A small value that constants and shapes decide; None if it is not one."""
        if name not in self._computed:
            self._computed[name] = self._compute(name, depth)
        return self._computed[name]

    def _compute(self, name: str, depth: int) -> Array | None:
        if name in self.constants:
            tensor = self.constants[name]
            small = is_number(tensor) and math.prod(tensor.dims) <= _FEW
            return numpy_helper.to_array(tensor) if small else None
        node = self.producers.get(name)
        if node is None:
            outside = name not in self.tensors and self._parent is not None
            return self._parent.value(name, depth) if outside and self._parent else None
        tensor_there = self.tensor(name)
        if tensor_there is not None and (tensor_there.elements or 0) > _FEW:
            return None
        if node.op_type not in _COUNTING or depth > _DEEPEST:
            return None
        if node.op_type in ("Shape", "Size"):
            return self._sizes(node)
        values = [self.value(name, depth + 1) if name else None for name in node.input]
        if any(value is None and name for value, name in zip(values, node.input, strict=True)):
            return None
        result = _run(node, values, self.light.proto.opset_import)
        for output, value in zip(node.output, result, strict=False):
            self._computed[output] = value if value.size <= _FEW else None
        return self._computed.get(name)

    def _sizes(self, node: NodeProto) -> Array | None:
        tensor = self.tensor(node.input[0]) if node.input else None
        if tensor is None or tensor.shape is None:
            return None
        if node.op_type == "Size":
            return np.array(math.prod(tensor.shape))
        start, end = attribute(node, "start", 0), attribute(node, "end", None)
        return np.array(tensor.shape[start:end], np.int64)


def refine(scope: Scope) -> bool:
    """Infer shapes again with the values that shapes decide put in place of the nodes that compute them.

    ONNX's own inference follows such values through a few operators only. Returns whether that could help.
    """
    proto = scope.light.proto
    copy = ModelProto()
    copy.CopyFrom(proto)
    replaced = 0
    for node in copy.graph.node:
        dtype = (scope.tensor(node.output[0]) or Tensor()).dtype if node.op_type in _COUNTING else ""
        if dtype.startswith(("int", "uint", "bool")) and len(node.output) == 1:
            value = scope.value(node.output[0])
            if value is not None:
                tensor = numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape))
                node.CopyFrom(onnx.helper.make_node("Constant", [], list(node.output), value=tensor))
                replaced += 1
    if not replaced:
        return False
    try:
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    except Exception:  # what it cannot infer is traced
        return False
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(copy.graph.value_info)
    for mine, better in zip(proto.graph.output, copy.graph.output, strict=True):
        mine.CopyFrom(better)
    for old, new in zip(proto.graph.node, copy.graph.node, strict=True):
        if subgraphs(old):
            old.CopyFrom(new)
    return True


def _run(node: NodeProto, values: list[Any], opsets: Any) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    values_by_name = {name: value for name, value in zip(node.input, values, strict=True) if name}
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in values_by_name.items()
    ]
    outputs = [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    graph = onnx.helper.make_graph([node], "counting", inputs, outputs)
    try:
        evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=list(opsets)))
        return [np.asarray(output) for output in evaluator.run(None, values_by_name)]
    except Exception:  # what cannot be computed is not known
        return []


def bytes_of(tensor: Tensor | None) -> int | None:
    """How many bytes a value takes; None where that is not known or it is text."""
    if tensor is None:
        return 0
    digits = re.search(r"\d+", tensor.dtype)
    width = 8 if tensor.dtype == "bool" else int(digits[0]) if digits else None
    if width is None or tensor.elements is None:
        return None
    return -(-tensor.elements * width // 8)
