"""Read an ONNX file into a Model, and write changed copies of it."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from inferlab.errors import BadInput
from inferlab.model import sparsity
from inferlab.model.shapes import batch_axis
from inferlab.model.sparsity import Body, attribute, bodies, external_files, subgraphs, type_name
from inferlab.records import Dim, Model, TensorSpec

__all__ = ["external_files", "read_onnx", "rewrite"]

_LARGEST_FILE = 2**31 - 1  # protobuf reads no more
_BLOCK = 1 << 20

_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_INTEGER_OPERATORS = {
    "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
    "MatMulIntegerToFloat", "MatMulInteger16", "QAttention",
}  # fmt: skip
_PRECISIONS = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "UINT8": "INT8",
               "UINT4": "INT4"}  # fmt: skip

# Operators whose output holds values of these inputs and no others but constants (None: of any input).
_PASSING: dict[str, tuple[int, ...] | None] = {
    "Cast": (0,), "Identity": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Reshape": (0,), "Flatten": (0,),
    "Transpose": (0,), "Slice": (0,), "Expand": (0,), "Tile": (0,), "Pad": (0,), "Split": (0,), "Clip": (0,),
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "ReduceMax": (0,), "ReduceMin": (0,),
    "Compress": (0,), "ReverseSequence": (0,), "Where": (1, 2), "ScatterElements": (0, 2), "ScatterND": (0, 2),
    "Concat": None, "Max": None, "Min": None,
}  # fmt: skip
_COUNTING = {"INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FLOAT", "DOUBLE"}
_FEW, _MANY = 16, 65536


def read_onnx(path: Path, source: str) -> Model:
    """Read what a model is: its inputs, outputs, weights and precision."""
    content = _content(path)
    proto = _parse(path, content)
    try:
        _refuse_broken_text(proto)
        files = external_files(proto, path.parent, path)
        inputs = _inputs(proto, path.parent)
        quantization, precision = _precision(proto)
        return Model(
            kind="onnx",
            source=source,
            path=str(path),
            digest=_digest(content, files),
            inputs=inputs,
            outputs=tuple(_spec(output) for output in proto.graph.output),
            size_bytes=len(content) + sum(file.stat().st_size for file in files),
            opset=_opset(proto),
            parameters=sum(weight.elements for weight in sparsity.weights(proto)),
            zero_fraction=sparsity.zero_fraction(proto, path.parent),
            precision=precision,
            quantization=quantization,
            random=_is_random(proto, path.parent),
        )
    except (ValueError, OverflowError, IndexError, OSError) as error:
        # Bytes that parse as protobuf may still hold text that is none, sizes that cannot be, unknown types.
        raise BadInput(
            f"The ONNX file {path} is damaged and cannot be read: {error}. Download or export it again."
        ) from error


def rewrite(
    model: Model, target_folder: Path, batch: tuple[int, int] | None, newest_ir: int | None, copy_data: bool
) -> Path:
    """Write a copy of a model with another fixed batch size, an older IR version, or only for itself.

    Data files come to stand beside the copy: as hard links where that is possible and `copy_data` is not set.
    """
    original = Path(model.path)
    target = target_folder / original.name
    assert not (target.exists() and target.samefile(original)), "a copy never takes its original's place"
    proto = _parse(original, _content(original))
    if batch is not None:
        _set_batch(
            proto.graph, {spec.name for spec in model.inputs if batch_axis(spec, model.inputs) == 0}, *batch
        )
    if newest_ir is not None and proto.ir_version > newest_ir:
        proto.ir_version = newest_ir
    target_folder.mkdir(parents=True, exist_ok=True)
    for file in external_files(proto, original.parent, original):
        _place_beside(file, target_folder / file.relative_to(original.parent), copy_data)
    target.unlink(missing_ok=True)
    target.write_bytes(proto.SerializeToString())
    return target


def _content(path: Path) -> bytes:
    try:
        if not path.exists():
            raise BadInput(f"There is no file {path}. Check the path of the model.")
        if not path.is_file():
            raise BadInput(f"{path} is not a file. Give the path of an ONNX file.")
        if path.stat().st_size > _LARGEST_FILE:
            raise BadInput(
                f"{path} has more than 2 GB in one file, which ONNX does not allow. "
                "Save the model with its weights as external data."
            )
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"The model file {path} cannot be read: {error.strerror or error}.") from error


def _parse(path: Path, content: bytes) -> ModelProto:
    if not content:
        raise BadInput(f"The model file {path} is empty. Download or export it again.")
    if content.startswith(b"version https://git-lfs"):
        raise BadInput(f"{path} is a Git LFS pointer, not the model itself. Fetch the model with: git lfs pull")
    try:
        proto: ModelProto = ModelProto.FromString(content)
    except (DecodeError, RuntimeError) as error:
        if content.startswith(b"\x08"):  # the tag of the IR version, with which ONNX files begin
            raise BadInput(_cut_off(path, content)) from error
        raise BadInput(f"{path} is not an ONNX model. Give an ONNX file, or export the model to one.") from error
    if not proto.HasField("graph") and not proto.ir_version:
        raise BadInput(f"{path} is not an ONNX model. Give an ONNX file, or export the model to one.")
    if not proto.graph.node or not proto.graph.output or not proto.opset_import:
        raise BadInput(_cut_off(path, content))
    return proto


def _refuse_broken_text(proto: ModelProto) -> None:
    """Protobuf hands over text that is not UTF-8 as bytes, which no name may be."""
    for body in bodies(proto):
        texts = [text for node in body.node for text in (node.op_type, node.domain, *node.input, *node.output)]
        if isinstance(body, GraphProto):
            for value in [*body.input, *body.output]:
                texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
            for tensor in body.initializer:
                texts += [tensor.name, *(entry.value for entry in tensor.external_data)]
        if any(isinstance(text, bytes) for text in texts):
            raise ValueError("a name in it is not text")


def _cut_off(path: Path, content: bytes) -> str:
    return (
        f"The ONNX file {path} is cut off or damaged: it ends after {len(content):,} bytes without a whole model. "
        "Download or export it again."
    )


def _digest(content: bytes, files: Sequence[Path]) -> str:
    total = hashlib.sha256(content)
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                total.update(block)
    return total.hexdigest()


def _opset(proto: ModelProto) -> int | None:
    return next((int(one.version) for one in proto.opset_import if one.domain in ("", "ai.onnx")), None)


def _inputs(proto: ModelProto, folder: Path) -> tuple[TensorSpec, ...]:
    graph = proto.graph
    tracer = _Tracer(proto, folder)
    specs = []
    for value in _fed(graph):
        if value.type.WhichOneof("value") != "tensor_type":
            kind = (value.type.WhichOneof("value") or "unknown").removesuffix("_type")
            raise BadInput(
                f"The model's input '{value.name}' is of the kind {kind}; only tensors can be fed. "
                "Export the model with tensors as inputs."
            )
        spec = _spec(value)
        if spec.dtype.startswith(("int", "uint")):
            below, known = tracer.limits(value.name)
            spec = TensorSpec(spec.name, spec.dtype, spec.dims, below, known)
        specs.append(spec)
    return tuple(specs)


def _fed(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs that must be fed: older models list their initializers as inputs too."""
    constant = {one.name for one in graph.initializer} | {one.values.name for one in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in constant]


def _spec(value: ValueInfoProto) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return TensorSpec(value.name, (kind or "unknown").removesuffix("_type"), None)
    tensor = value.type.tensor_type
    name = type_name(tensor.elem_type)
    if name == "UNDEFINED":
        raise ValueError(f"'{value.name}' has no element type")
    dtype = {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())
    if not tensor.HasField("shape"):
        return TensorSpec(value.name, dtype, None)
    return TensorSpec(value.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: Any) -> Dim:
    """A size, a name that ties dimensions together, or None: 0, -1 and ? are unknown each on its own."""
    if dim.dim_value > 0:
        return int(dim.dim_value)
    name = dim.dim_param.strip()
    return None if name in ("", "?", "0", "-1", "None") else str(name)


def _precision(proto: ModelProto) -> tuple[str, str]:
    """How quantisation shows, and the precision that most of the weights are computed in."""
    operators = {node.op_type for body in bodies(proto) for node in body.node}
    kinds: Counter[str] = Counter()
    for weight in sparsity.weights(proto):
        if len(weight.dims) >= 2 and sparsity.bits(weight.type_name):
            kinds[_precision_name(weight.type_name)] += weight.elements
    packed = Counter(sparsity.packed_weights(proto).values())
    if packed:
        return "", f"INT{packed.most_common(1)[0][0]}"
    integers = "INT4" if kinds["INT4"] > kinds["INT8"] else "FP8" if kinds["FP8"] > kinds["INT8"] else "INT8"
    if any(name.startswith("QLinear") or name == "QGemm" for name in operators):
        return "QOperator", integers
    if operators & _INTEGER_OPERATORS:
        return "integer operators", integers
    if {"QuantizeLinear", "DequantizeLinear"} <= operators:
        return "QDQ", integers
    most = kinds.most_common(1)
    if most:
        return ("int8 weights" if most[0][0] == "INT8" else ""), most[0][0]
    floats = [type_name(value.type.tensor_type.elem_type) for value in _fed(proto.graph)]
    return "", next(
        (_PRECISIONS[name] for name in floats if name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")), "FP32"
    )


def _precision_name(kind: str) -> str:
    if kind.startswith("FLOAT8"):
        return "FP8"
    return _PRECISIONS.get(kind, kind)


def _is_random(proto: ModelProto, folder: Path) -> bool:
    for body in bodies(proto):
        scope = _Scope(body, None, None)
        for node in body.node:
            if node.op_type in _RANDOM:
                return True
            if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
                training = scope.constants.get(node.input[2])
                if training is None or sparsity.values(training, folder).any():
                    return True
    return False


class _Scope:
    """One graph, subgraph or function body: who reads which name, who makes it, what is constant."""

    def __init__(self, body: Body, parent: _Scope | None, owner: NodeProto | None, call: bool = False) -> None:
        self.parent, self.owner, self.is_call = parent, owner, call
        graph = isinstance(body, GraphProto)
        self.inputs: list[str] = [one.name for one in body.input] if graph else list(body.input)
        self.outputs: list[str] = [one.name for one in body.output] if graph else list(body.output)
        self.constants: dict[str, TensorProto] = {one.name: one for one in body.initializer} if graph else {}
        self.readers: dict[str, list[tuple[NodeProto, int]]] = {}
        self.makers: dict[str, NodeProto] = {}
        self.children: list[_Scope] = []
        for node in body.node:
            for index, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, index))
            self.makers.update(dict.fromkeys(node.output, node))
            if (value := sparsity.constant(node)) is not None:
                self.constants[node.output[0]] = value
            self.children.extend(_Scope(inner, self, node) for inner in subgraphs(node))


class _Tracer:
    """Follows an input to where its values index a table or are compared with constants."""

    def __init__(self, proto: ModelProto, folder: Path) -> None:
        self._folder = folder
        self._functions = {(one.domain, one.name): one for one in proto.functions}
        self._calls: dict[int, _Scope] = {}
        self._main = _Scope(proto.graph, None, None)

    def limits(self, name: str) -> tuple[int | None, tuple[int, ...]]:
        """What an input's values must stay below, and the constants that they are compared with."""
        rows: list[int] = []
        known: set[int] = set()
        waiting = [(self._main, name, 0)]
        seen = set()
        while waiting:
            scope, here, shift = waiting.pop()
            if (id(scope), here) in seen:
                continue
            seen.add((id(scope), here))
            for node, index in scope.readers.get(here, ()):
                size = self._rows(scope, node, index)
                if size is not None:
                    rows.append(size - shift)
                if node.op_type == "Equal" and len(node.input) == 2:
                    constants = self._integers(scope, node.input[1 - index])
                    if len(constants) > 2 and constants == list(range(len(constants))):
                        rows.append(len(constants) - shift)  # a one-hot that an exporter wrote out
                    elif len(constants) <= _FEW:
                        known.update(value - shift for value in constants)
                waiting.extend(self._onward(scope, node, index, shift))
            waiting.extend((child, here, shift) for child in scope.children if here not in child.inputs)
            waiting.extend((*place, shift) for place in _upward(scope, here))
        return (max(1, min(rows)) if rows else None), tuple(sorted(known))

    def _rows(self, scope: _Scope, node: NodeProto, index: int) -> int | None:
        """How many rows the table has that a node indexes with this input."""
        kind = node.op_type
        if kind in ("Gather", "GatherElements", "GatherBlockQuantized") and index == 1:
            axis = attribute(node, "gather_axis" if kind == "GatherBlockQuantized" else "axis", 0)
            table = self._table(scope, node.input[0])
            return table[axis] if table and -len(table) <= axis < len(table) else None
        if kind == "GatherND" and index == 1:
            return min(self._table(scope, node.input[0]), default=None)
        if kind == "EmbedLayerNormalization" and index in (0, 1) and len(node.input) > 4:
            table = self._table(scope, node.input[2 if index == 0 else 4])
            return table[0] if table else None
        if kind == "OneHot" and index == 0:
            return next(iter(self._integers(scope, node.input[1])), None)
        return None

    def _onward(self, scope: _Scope, node: NodeProto, index: int, shift: int) -> Iterator[tuple[_Scope, str, int]]:
        """The names that hold an input's values after a node has read them."""
        passing = _PASSING.get(node.op_type, ())
        to_bool = node.op_type == "Cast" and attribute(node, "to") == TensorProto.BOOL
        if (passing is None or index in passing) and not to_bool:
            yield from ((scope, name, shift) for name in node.output)
        if node.op_type in ("Add", "Sub") and len(node.input) == 2 and (node.op_type == "Add" or index == 0):
            added = self._integers(scope, node.input[1 - index])
            if len(added) == 1:
                yield scope, node.output[0], shift + (added[0] if node.op_type == "Add" else -added[0])
        function = self._functions.get((node.domain, node.op_type))
        if function is not None and index < len(function.input) and _depth(scope) < len(self._functions) + 1:
            if id(node) not in self._calls:
                self._calls[id(node)] = _Scope(function, scope, node, call=True)
            yield self._calls[id(node)], function.input[index], shift
        # A Loop's first two inputs are the number of rounds and whether to begin at all.
        for child in scope.children if index >= {"Scan": 0, "Loop": 2}.get(node.op_type, index + 1) else ():
            if child.owner is node and index < len(child.inputs):
                yield child, child.inputs[index], shift

    def _source(self, scope: _Scope | None, name: str, through: tuple[str, ...]) -> TensorProto | None:
        """The constant behind a name, seen through operators that do not change what is asked of it."""
        for _ in range(64):  # names in a damaged model may go round in circles
            if scope is None:
                return None
            if name in scope.constants:
                return scope.constants[name]
            maker = scope.makers.get(name)
            if maker is not None:
                if maker.op_type not in through or not maker.input:
                    return None
                name = maker.input[0]
            elif scope.is_call:
                place = scope.inputs.index(name) if name in scope.inputs else len(scope.inputs)
                if scope.owner is None or place >= len(scope.owner.input):
                    return None
                name, scope = scope.owner.input[place], scope.parent
            else:
                scope = scope.parent
        return None

    def _table(self, scope: _Scope, name: str) -> tuple[int, ...]:
        tensor = self._source(scope, name, ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity"))
        return () if tensor is None else tuple(tensor.dims)

    def _integers(self, scope: _Scope, name: str) -> list[int]:
        """The values of a constant of integers that is no weight; none if it is anything else."""
        tensor = self._source(scope, name, ("Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Expand"))
        if tensor is None or type_name(tensor.data_type) not in _COUNTING or math.prod(tensor.dims) > _MANY:
            return []
        numbers = sparsity.values(tensor, self._folder)
        return [int(one) for one in numbers if np.isfinite(one) and one == int(one)]


def _depth(scope: _Scope | None) -> int:
    depth = 0
    while scope is not None:
        depth += scope.is_call
        scope = scope.parent
    return depth


def _upward(scope: _Scope, name: str) -> Iterator[tuple[_Scope, str]]:
    """Where the outputs of a subgraph or a function go: to its node's outputs, or round the loop again."""
    if scope.owner is None or scope.parent is None:
        return
    owner = scope.owner
    for index, output in enumerate(scope.outputs):
        if output != name:
            continue
        after = index - 1 if owner.op_type == "Loop" else index
        if 0 <= after < len(owner.output):
            yield scope.parent, owner.output[after]
        if owner.op_type == "Loop" and 0 < index < len(scope.inputs) - 1:
            yield scope, scope.inputs[index + 1]
        if owner.op_type == "Scan" and index < len(scope.inputs) - attribute(owner, "num_scan_inputs", 0):
            yield scope, scope.inputs[index]


def _set_batch(graph: GraphProto, batched: set[str], old: int, new: int) -> None:
    """Set the first dimension of inputs and outputs that have the old batch size; inner shapes are forgotten."""
    for value in [*(one for one in graph.input if one.name in batched), *graph.output]:
        dims = value.type.tensor_type.shape.dim if value.type.WhichOneof("value") == "tensor_type" else ()
        if dims and dims[0].dim_value == old:
            dims[0].dim_value = new
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        del one.value_info[:]
        waiting.extend(inner for node in one.node for inner in subgraphs(node))


def _place_beside(file: Path, target: Path, copy: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if not copy:
        try:
            os.link(file.resolve(), target)
            return
        except OSError:
            pass  # another file system, or one without hard links
    shutil.copyfile(file, target)
