"""Mutations of ONNX files by protobuf field: the same bytes and seed always give the same file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

_NUMBERS = (
    *(0, 1, -1, 2, 3, -2, 5, 7, 16, 100, 255, 256, -128, 1024, 65536, 2**20, 2**24),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**53, 2**62, 2**63 - 1, -(2**63)),
)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e38, float("inf"), float("-inf"), float("nan"))
_PLACEHOLDER = "\x02utf8\x03"
_NOT_UTF8 = b"\xff\xfe\xc3(\xf0\x80"
_TEXTS = ("", " ", "x", "../x", "/dev/zero", "a,b", "\x1b[31m", "\u202e", "é" * 300, "axis", _PLACEHOLDER)
_OPERATORS = (
    *(
        "Add",
        "Cast",
        "Concat",
        "Constant",
        "Conv",
        "DequantizeLinear",
        "Gather",
        "GatherND",
        "Gemm",
        "Identity",
        "If",
    ),
    *("Loop", "MatMul", "MatMulInteger", "MatMulNBits", "OneHot", "Pad", "QLinearConv", "QLinearMatMul", "Range"),
    *(
        "QuantizeLinear",
        "ReduceSum",
        "Reshape",
        "Resize",
        "Scan",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "TopK",
        "Where",
    ),
    *("Equal", "Transpose", "Einsum", "LSTM", "Attention", "QAttention", "EmbedLayerNormalization", "Dropout"),
    *(
        "BatchNormalization",
        "Flatten",
        "Unsqueeze",
        "Expand",
        "GatherBlockQuantized",
        "DynamicQuantizeLSTM",
        "DFT",
    ),
)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "unknown.domain")
_ATTRIBUTES = ("axis", "axes", "group", "bits", "to", "perm", "start", "end", "value", "kernel_shape", "body", "k")
# Field numbers of protobuf's kinds of fields.
_STRING, _BYTES, _MESSAGE, _DOUBLE, _FLOAT, _BOOL, _ENUM = 9, 12, 11, 1, 2, 8, 14


def mutate(model_bytes: bytes, seed: int) -> bytes:
    """A changed copy of an ONNX file: one to six changes of its fields, or, rarely, of its raw bytes."""
    rng = random.Random(f"{seed}")
    if rng.random() < 0.05:
        return _bytes_changed(model_bytes, rng)
    model = ModelProto.FromString(model_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(_CHANGES)(model, rng)
    content = model.SerializeToString().replace(_PLACEHOLDER.encode(), _NOT_UTF8)
    return _bytes_changed(content, rng) if rng.random() < 0.02 else content


def _bytes_changed(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 2, 8))):
        place = rng.randrange(len(changed) + 1) if changed else 0
        action = rng.randrange(4)
        if action == 0 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif action == 1:
            del changed[place : place + rng.choice((1, 4, 64))]
        elif action == 2:
            changed[place:place] = rng.randbytes(rng.choice((1, 4, 16)))
        else:
            del changed[place:]
    return bytes(changed)


def _messages(message: Any, depth: int = 0) -> Iterator[Any]:
    """A message and all messages inside it."""
    yield message
    if depth > 60:
        return
    for field, value in message.ListFields():
        if field.type == _MESSAGE:
            for inner in value if _repeated(field) else (value,):
                yield from _messages(inner, depth + 1)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _pick(model: ModelProto, rng: random.Random, kind: type | None = None) -> Any:
    """Some message of the model: first its kind, so that a kind with many messages has no advantage."""
    by_kind: dict[str, list[Any]] = {}
    for message in _messages(model):
        if kind is None or isinstance(message, kind):
            by_kind.setdefault(message.DESCRIPTOR.name, []).append(message)
    return rng.choice(by_kind[rng.choice(sorted(by_kind))]) if by_kind else None


def _names(model: ModelProto) -> list[str]:
    names = {
        name
        for message in _messages(model)
        if isinstance(message, NodeProto)
        for name in (*message.input, *message.output)
    }
    names |= {message.name for message in _messages(model) if isinstance(message, TensorProto)}
    return sorted(name for name in names if isinstance(name, str))


def _value(field: Any, model: ModelProto, rng: random.Random) -> Any:
    """Some value for a field that is no message."""
    if field.type == _STRING:
        own = {"op_type": _OPERATORS, "domain": _DOMAINS}.get(field.name, ())
        return rng.choice((*own, *_TEXTS, *rng.sample(_ATTRIBUTES, 2), *_sample(_names(model), rng)))
    if field.type == _BYTES:
        return rng.choice((b"", b"\x00", b"\xff" * 3, b"\x01", rng.randbytes(8), rng.randbytes(64)))
    if field.type in (_DOUBLE, _FLOAT):
        return rng.choice(_FLOATS)
    if field.type == _BOOL:
        return rng.random() < 0.5
    if field.type == _ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    number = rng.choice(_NUMBERS)
    if field.cpp_type in (1, 3):  # of 32 bits
        number = rng.choice((number % 32, (number + 2**31) % 2**32 - 2**31))
    if field.cpp_type in (3, 4):  # without a sign
        number = abs(number) % (2**32 if field.cpp_type == 3 else 2**63)
    return number


def _sample(names: list[str], rng: random.Random) -> list[str]:
    return rng.sample(names, min(6, len(names)))


def _set(model: ModelProto, rng: random.Random) -> None:
    """Give a field another value."""
    message = _pick(model, rng)
    field = rng.choice(message.DESCRIPTOR.fields)
    if field.type == _MESSAGE:
        return
    if _repeated(field):
        values = getattr(message, field.name)
        if not len(values) or rng.random() < 0.3:
            values.append(_value(field, model, rng))
        else:
            values[rng.randrange(len(values))] = _value(field, model, rng)
    else:
        setattr(message, field.name, _value(field, model, rng))


def _delete(model: ModelProto, rng: random.Random) -> None:
    """Remove a field, or one of its values."""
    message = _pick(model, rng)
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    if _repeated(field) and rng.random() < 0.7:
        del value[rng.randrange(len(value))]
    else:
        message.ClearField(field.name)


def _duplicate(model: ModelProto, rng: random.Random) -> None:
    """Repeat a value of a field."""
    message = _pick(model, rng)
    repeated = [(field, value) for field, value in message.ListFields() if _repeated(field)]
    if not repeated:
        return
    field, values = rng.choice(repeated)
    for _ in range(rng.choice((1, 1, 3))):
        value = values[rng.randrange(len(values))]
        if field.type == _MESSAGE:
            values.add().CopyFrom(value)
        else:
            values.append(value)


def _swap(model: ModelProto, rng: random.Random) -> None:
    """Exchange two values of a field, so that nodes stand in another order and names meet others."""
    message = _pick(model, rng)
    repeated = [(field, value) for field, value in message.ListFields() if _repeated(field) and len(value) > 1]
    if not repeated:
        return
    field, values = rng.choice(repeated)
    first, second = rng.sample(range(len(values)), 2)
    if field.type == _MESSAGE:
        other = type(values[first])()
        other.CopyFrom(values[first])
        values[first].CopyFrom(values[second])
        values[second].CopyFrom(other)
    else:
        values[first], values[second] = values[second], values[first]


def _transplant(model: ModelProto, rng: random.Random) -> None:
    """Put a copy of a message in the place of another of its kind."""
    target = _pick(model, rng)
    source = _pick(model, rng, type(target))
    copy = type(source)()
    copy.CopyFrom(source)
    if copy.ByteSize() < 100_000:
        target.CopyFrom(copy)


def _rename(model: ModelProto, rng: random.Random) -> None:
    """Let a node read or make another value: names then go round in circles, or are made twice."""
    node, names = _pick(model, rng, NodeProto), _names(model)
    if node is None or not names:
        return
    values = node.output if rng.random() < 0.4 else node.input
    if len(values):
        values[rng.randrange(len(values))] = rng.choice(names)


def _attribute(model: ModelProto, rng: random.Random) -> None:
    """Give a node an attribute of any type."""
    node = _pick(model, rng, NodeProto)
    if node is None:
        return
    name = rng.choice([*_ATTRIBUTES, *(attribute.name for attribute in node.attribute)])
    value = rng.choice(
        (
            rng.choice(_NUMBERS),
            rng.choice(_FLOATS),
            rng.choice(("", "text", "zz...,->", "linear")),
            [rng.choice(_NUMBERS) for _ in range(rng.randrange(1, 4))],
            helper.make_tensor("t", TensorProto.INT64, [2], [1, -1]),
        )
    )
    for place, attribute in enumerate(node.attribute):
        if attribute.name == name:
            del node.attribute[place]
            break
    node.attribute.append(helper.make_attribute(str(name), value))


def _external(model: ModelProto, rng: random.Random) -> None:
    """Say that a tensor's data lies in a file."""
    tensor = _pick(model, rng, TensorProto)
    if tensor is None:
        return
    tensor.data_location = TensorProto.EXTERNAL
    entries = {
        "location": (
            "data.bin",
            "model.onnx",
            "../data.bin",
            "/etc/hostname",
            "",
            ".",
            "\x00",
            "a/b",
            _PLACEHOLDER,
        ),
        "offset": ("0", "-1", "4096", str(2**63), "x", "", "1e3", "9" * 5000),
        "length": ("0", "4", "-4", str(2**62), "x"),
    }
    for key, values in entries.items():
        if rng.random() < 0.7:
            tensor.external_data.add(key=key, value=rng.choice(values))


def _huge(model: ModelProto, rng: random.Random) -> None:
    """Declare a tensor of many elements that has next to no data."""
    tensor = _pick(model, rng, TensorProto)
    if tensor is not None:
        del tensor.dims[:]
        tensor.dims.extend(rng.choice(_NUMBERS) for _ in range(rng.randrange(6)))
        if rng.random() < 0.5:
            tensor.data_type = rng.choice(list(TensorProto.DataType.values()))


def _sparse(model: ModelProto, rng: random.Random) -> None:
    """Turn an initializer into a sparse one."""
    graph = _pick(model, rng, GraphProto)
    if graph is None or not len(graph.initializer):
        return
    place = rng.randrange(len(graph.initializer))
    sparse = graph.sparse_initializer.add()
    sparse.values.CopyFrom(graph.initializer[place])
    sparse.indices.data_type = TensorProto.INT64
    sparse.indices.dims.extend([rng.choice((0, 1, 2, -1, 2**40))])
    sparse.dims.extend(rng.choice(_NUMBERS) for _ in range(rng.randrange(4)))
    if rng.random() < 0.7:
        del graph.initializer[place]


def _nested(model: ModelProto, rng: random.Random) -> None:
    """Put the nodes of a graph into the branches of an If, several times over."""
    for _ in range(rng.choice((1, 3, 12))):
        inner = GraphProto()
        inner.node.extend(model.graph.node)
        inner.output.extend(model.graph.output)
        inner.name = "inner"
        if inner.ByteSize() > 500_000:
            return
        node = NodeProto(op_type=rng.choice(("If", "Loop", "Scan")), name="nested")
        node.input.extend(_sample(_names(model), rng)[:2] if rng.random() < 0.5 else ["condition"])
        node.output.extend(output.name for output in model.graph.output)
        names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
        for name in names[: rng.choice((1, 2))]:
            try:
                node.attribute.append(AttributeProto(name=name, type=AttributeProto.GRAPH, g=inner))
            except DecodeError:  # nested deeper than a file can be
                return
        del model.graph.node[:]
        model.graph.node.append(node)


def _functions(model: ModelProto, rng: random.Random) -> None:
    """Add functions that call each other, in a chain or in a circle."""
    count, calls = rng.choice((1, 2, 10)), rng.choice((1, 2, 3))
    if not any(opset.domain == "local" for opset in model.opset_import):
        model.opset_import.add(domain="local", version=1)
    for index in range(count):
        last = index == count - 1
        function = FunctionProto(name=f"f{index}", domain="local", input=["x"], output=["y"])
        function.opset_import.add(domain="", version=17)
        function.opset_import.add(domain="local", version=1)
        if last and rng.random() < 0.5:
            function.node.add(op_type="Identity", input=["x"], output=["y"])
        else:
            name = "x"
            for call in range(calls):
                output = "y" if call == calls - 1 else f"t{call}"
                following = rng.randrange(count) if rng.random() < 0.2 else (index + 1) % count
                function.node.add(op_type=f"f{following}", domain="local", input=[name], output=[output])
                name = output
        model.functions.append(function)
    node = _pick(model, rng, NodeProto)
    if node is not None:
        node.op_type, node.domain = "f0", "local"


def _retype(model: ModelProto, rng: random.Random) -> None:
    """Give a tensor another type than its data has."""
    tensor = _pick(model, rng, TensorProto)
    if tensor is not None:
        tensor.data_type = rng.choice((*TensorProto.DataType.values(), 99, -1))


def _operator(model: ModelProto, rng: random.Random) -> None:
    """Turn a node into one of another operator."""
    node = _pick(model, rng, NodeProto)
    if node is not None:
        node.op_type = rng.choice(_OPERATORS)
        node.domain = rng.choice((node.domain, *_DOMAINS))


_CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    *(
        _set,
        _set,
        _set,
        _delete,
        _delete,
        _duplicate,
        _swap,
        _transplant,
        _rename,
        _rename,
        _attribute,
        _attribute,
    ),
    *(_external, _huge, _sparse, _nested, _functions, _retype, _operator, _operator),
)


@lru_cache(maxsize=1)
def seed_models() -> dict[str, bytes]:
    """Small models to mutate: convolutions, a Loop, an If, a Scan, functions, tables, and weights in INT8."""
    return {
        name: make().SerializeToString()
        for name, make in {
            "convolutions": _convolutions,
            "control": _control,
            "functions": _with_functions,
            "tables": _tables,
            "quantized": _quantized,
            "integers": _integers,
            "shapes": _shapes,
        }.items()
    }


def _array(name: str, *dims: int, dtype: Any = np.float32) -> TensorProto:
    values = np.random.default_rng(len(name)).integers(-3, 4, dims)
    return numpy_helper.from_array(values.astype(dtype), name)


def _model(graph: GraphProto, **more: Any) -> ModelProto:
    opsets = [helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "local")]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *opsets], ir_version=9, **more)


def _of(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def _convolutions() -> ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "s", "s", "v"], ["n1"], "norm"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", kernel_shape=[1, 1], group=2),
        helper.make_node("Add", ["c2", "r1"], ["a"], "add"),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "fc", transB=1),
    ]
    weights = [
        _array("w1", 4, 2, 3, 3),
        _array("b1", 4),
        _array("w2", 4, 2, 1, 1),
        _array("w3", 3, 16),
        _array("b3", 3),
    ]
    weights += [numpy_helper.from_array(np.ones(4, np.float32), name) for name in ("s", "v")]
    return _model(helper.make_graph(nodes, "g", [_of("x", ["N", 2, 4, 4])], [_of("y", ["N", 3])], weights))


def _control() -> ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["h2"], "product"),
            helper.make_node("Identity", ["go"], ["go2"], "going"),
        ],
        "body",
        [_of("i", [], TensorProto.INT64), _of("go", [], TensorProto.BOOL), _of("h", [2, 3])],
        [_of("go2", [], TensorProto.BOOL), _of("h2", [2, 3])],
    )
    then = helper.make_graph([helper.make_node("MatMul", ["l", "w"], ["t"])], "then", [], [_of("t", [2, 3])])
    other = helper.make_graph([helper.make_node("Identity", ["l"], ["e"])], "else", [], [_of("e", [2, 3])])
    scanned = helper.make_graph(
        [helper.make_node("Add", ["s", "row"], ["s2"]), helper.make_node("Identity", ["s2"], ["out"])],
        "scan",
        [_of("s", [3]), _of("row", [3])],
        [_of("s2", [3]), _of("out", [3])],
    )
    nodes = [
        helper.make_node("Constant", [], ["rounds"], value=numpy_helper.from_array(np.array(3, np.int64))),
        helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("Loop", ["rounds", "yes", "x"], ["l"], "loop", body=body),
        helper.make_node("If", ["condition"], ["b"], "branch", then_branch=then, else_branch=other),
        helper.make_node("Scan", ["zero", "b"], ["last", "y"], "scan", body=scanned, num_scan_inputs=1),
    ]
    inputs = [_of("x", [2, 3]), _of("condition", [], TensorProto.BOOL)]
    weights = [_array("w", 3, 3), numpy_helper.from_array(np.zeros(3, np.float32), "zero")]
    return _model(helper.make_graph(nodes, "g", inputs, [_of("y", [2, 3])], weights))


def _with_functions() -> ModelProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32))
    inner = helper.make_function(
        "local",
        "inner",
        ["x"],
        ["y"],
        [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["x", "w"], ["y"])],
        opsets,
    )
    outer = helper.make_function(
        "local",
        "outer",
        ["x", "ids"],
        ["y"],
        [
            helper.make_node("inner", ["x"], ["a"], domain="local"),
            helper.make_node("inner", ["a"], ["b"], domain="local"),
            helper.make_node("Gather", ["b", "ids"], ["y"], axis=1),
        ],
        opsets,
    )
    nodes = [
        helper.make_node("outer", ["x", "ids"], ["a"], "first", domain="local"),
        helper.make_node("outer", ["a", "ids"], ["y"], "second", domain="local"),
    ]
    inputs = [_of("x", ["N", 4]), _of("ids", [4], TensorProto.INT64)]
    return _model(helper.make_graph(nodes, "g", inputs, [_of("y", ["N", 4])]), functions=[inner, outer])


def _tables() -> ModelProto:
    nodes = [
        helper.make_node("Sub", ["ids", "one"], ["shifted"], "shift"),
        helper.make_node("Gather", ["table", "shifted"], ["e"], "embed", axis=0),
        helper.make_node("Equal", ["ids", "known"], ["same"], "compare"),
        helper.make_node("Cast", ["same"], ["mask"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "axes"], ["wide"], "unsqueeze"),
        helper.make_node("Mul", ["e", "wide"], ["m"], "scale"),
        helper.make_node("OneHot", ["ids", "depth", "values"], ["hot"], "onehot"),
        helper.make_node("MatMul", ["hot", "table"], ["again"], "product"),
        helper.make_node("Add", ["m", "again"], ["y"], "add"),
    ]
    integers = {"one": 1, "known": [2], "axes": [2], "depth": 6}
    weights = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]
    weights += [_array("table", 6, 4), numpy_helper.from_array(np.array([0, 1], np.float32), "values")]
    inputs = [_of("ids", ["batch", "length"], TensorProto.INT64)]
    return _model(helper.make_graph(nodes, "g", inputs, [_of("y", ["batch", "length", 4])], weights))


def _quantized() -> ModelProto:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        helper.make_node("DequantizeLinear", ["w", "scales", "points"], ["dw"], "weight", axis=0),
        helper.make_node("Conv", ["d", "dw"], ["c"], "conv", kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    weights = [
        numpy_helper.from_array(np.array(0.1, np.float32), "s"),
        numpy_helper.from_array(np.array(3, np.uint8), "z"),
        _array("w", 4, 2, 1, 1, dtype=np.int8),
        numpy_helper.from_array(np.full(4, 0.2, np.float32), "scales"),
        _array("points", 4, dtype=np.int8),
    ]
    return _model(helper.make_graph(nodes, "g", [_of("x", [1, 2, 4, 4])], [_of("y", [1, 4, 4, 4])], weights))


def _integers() -> ModelProto:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "dynamic"),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["m"], "product"),
        helper.make_node("Cast", ["m"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node(
            "MatMulNBits",
            ["f", "packed", "scales"],
            ["y"],
            "bits",
            domain="com.microsoft",
            K=16,
            N=4,
            bits=4,
            block_size=16,
        ),
    ]
    weights = [
        _array("w", 8, 16, dtype=np.int8),
        numpy_helper.from_array(np.array(0, np.int8), "wz"),
        _array("packed", 4, 1, 8, dtype=np.uint8),
        numpy_helper.from_array(np.ones(4, np.float32), "scales"),
    ]
    return _model(helper.make_graph(nodes, "g", [_of("x", ["N", 8])], [_of("y", ["N", 4])], weights))


def _shapes() -> ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape"),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], "rows"),
        helper.make_node("Unsqueeze", ["rows", "axes"], ["r"], "unsqueeze"),
        helper.make_node("Concat", ["r", "rest"], ["to"], "concat", axis=0),
        helper.make_node("Reshape", ["x", "to"], ["flat"], "reshape"),
        helper.make_node("Transpose", ["w"], ["wt"], "transpose", perm=[1, 0]),
        helper.make_node("MatMul", ["flat", "wt"], ["p"], "product"),
        helper.make_node("Range", ["zero", "rows", "step"], ["range"], "range"),
        helper.make_node("Gather", ["p", "range"], ["g"], "gather", axis=0),
        helper.make_node("Softmax", ["g"], ["y"], "softmax", axis=-1),
    ]
    integers = {"zero": 0, "axes": [0], "rest": [-1], "step": 1}
    weights = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in integers.items()]
    weights.append(_array("w", 5, 6))
    return _model(helper.make_graph(nodes, "g", [_of("x", ["N", 2, 3])], [_of("y", ["N", 5])], weights))
