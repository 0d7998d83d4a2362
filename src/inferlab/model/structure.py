"""What an ONNX file must be before anything reads it further: names that are text, sizes that can be, no bombs.

Every reader gets its graph from here, so that what they index exists: see `check`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

from inferlab.errors import Damaged
from inferlab.model.onnx_graph import (
    Body,
    all_nodes,
    all_tensors,
    bit_width,
    bodies,
    subgraphs,
    tensor_bytes,
    type_name,
    value_field,
)

#: Nodes, and bytes of them, that a model may have once its functions are inlined.
MOST_NODES = 250_000
MOST_BYTES = 2**31 - 1
# No model has so many elements in one tensor; sums of sizes stay within 64 bits.
_MOST_ELEMENTS = 2**48
# Graphs within graphs; readers follow them by recursion.
_DEEPEST = 24

_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}

_Key = tuple[str, str, str]


def check(proto: ModelProto) -> None:
    """Refuse a graph that readers could stumble over; the error says what is wrong with which part."""
    check_text(proto)
    functions = {_key(function.domain, function.name, function.overload): function for function in proto.functions}
    if len(functions) < len(proto.functions):
        raise Damaged("two of its functions have the same name")
    _check_depth(proto)
    for tensor in all_tensors(proto):
        _check_tensor(tensor)
    for body in bodies(proto):
        _check_names(body)
        for sparse in body.sparse_initializer if isinstance(body, GraphProto) else ():
            _check_dims(sparse.values.name, sparse.dims)
    for root in (proto.graph, *proto.functions):
        own = root.opset_import if isinstance(root, FunctionProto) else ()
        opsets = {_domain(opset.domain): int(opset.version) for opset in (*proto.opset_import, *own)}
        for node in all_nodes(root):
            _check_node(node, opsets, functions)
    _check_inlined(proto, functions)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _key(domain: str, name: str, overload: str) -> _Key:
    return _domain(domain), name, overload


def check_text(proto: ModelProto) -> None:
    """Protobuf hands over text that is not UTF-8 as bytes, which no name may be."""
    texts: list[Any] = [proto.producer_name, proto.producer_version, proto.domain, proto.doc_string]
    for entry in proto.metadata_props:
        texts += [entry.key, entry.value]
    for body in bodies(proto):
        texts.append(body.name)
        if isinstance(body, GraphProto):
            for value in [*body.input, *body.output, *body.value_info]:
                texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
        else:
            texts += [body.domain, body.overload, *body.input, *body.output, *body.attribute]
            texts += [opset.domain for opset in body.opset_import]
        for node in body.node:
            texts += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
            for attribute in node.attribute:
                texts += [attribute.name, attribute.ref_attr_name]
    texts += [opset.domain for opset in proto.opset_import]
    for tensor in all_tensors(proto):
        texts += [tensor.name, tensor.doc_string]
        for entry in tensor.external_data:
            texts += [entry.key, entry.value]
    if any(isinstance(text, bytes) for text in texts):
        raise Damaged("a name in it is not text")


def _check_depth(proto: ModelProto) -> None:
    waiting: list[tuple[Body, int]] = [(root, 0) for root in (proto.graph, *proto.functions)]
    while waiting:
        body, depth = waiting.pop()
        if depth > _DEEPEST:
            raise Damaged(f"its graphs are nested more than {_DEEPEST} deep")
        waiting.extend((inner, depth + 1) for node in body.node for inner in subgraphs(node))


def _check_names(body: Body) -> None:
    """Every value is made once: by an input, a weight or a node. Weights may be defaults of inputs."""
    inputs = [value if isinstance(value, str) else value.name for value in body.input]
    names_seen = set(inputs)
    if len(names_seen) < len(inputs):
        raise Damaged("two of its inputs have the same name")
    if isinstance(body, GraphProto):
        names_seen.update(weight.name for weight in body.initializer)
    for name in (name for node in body.node for name in node.output if name):
        if name in names_seen:
            raise Damaged(f"the value '{name}' is made twice")
        names_seen.add(name)


def _check_tensor(tensor: TensorProto) -> None:
    if tensor.data_type not in _TYPES:
        raise Damaged(f"the tensor '{tensor.name}' is of the type {tensor.data_type}, which does not exist")
    _check_dims(tensor.name, tensor.dims)
    kind = type_name(tensor.data_type)
    if tensor.data_location == TensorProto.EXTERNAL:
        return
    needed = _stored_values(tensor, kind)
    if needed is not None and needed[0] != needed[1]:
        raise Damaged(f"the weight '{tensor.name}' has {needed[0]} elements where its shape needs {needed[1]}")


def _check_dims(name: str, dims: Iterable[int]) -> None:
    sizes = list(dims)
    if any(size < 0 for size in sizes):
        raise Damaged(f"the weight '{name}' has a negative dimension")
    if math.prod(max(1, size) for size in sizes) > _MOST_ELEMENTS:
        raise Damaged(f"the weight '{name}' declares more than {_MOST_ELEMENTS:,} elements")


def _stored_values(tensor: TensorProto, kind: str) -> tuple[int, int] | None:
    """How many values a tensor holds in the file, and how many its shape needs; None for types without a width."""
    count: int = math.prod(tensor.dims)
    if bit_width(kind) is None and kind.startswith("FLOAT6"):
        return None
    if kind == "STRING":
        return len(tensor.string_data), count
    if tensor.HasField("raw_data"):
        needed_bytes, held_bytes = tensor_bytes(tensor), len(tensor.raw_data)  # each look at raw_data copies it
        width = max(1, needed_bytes // count) if count else 1
        return held_bytes // width if held_bytes != needed_bytes else count, count
    packed = 8 // (bit_width(kind) or 8) if (bit_width(kind) or 8) < 8 else 1
    needed = -(-count // packed)
    held = len(getattr(tensor, value_field(kind)[0]))
    return held, needed * (2 if kind.startswith("COMPLEX") else 1)


def _check_node(node: NodeProto, opsets: dict[str, int], functions: dict[_Key, FunctionProto]) -> None:
    """A node has the inputs, outputs and attributes that its definition needs, where its definition is known."""
    if not node.output:
        raise Damaged(f"its node {_called(node)} has no output")
    function = functions.get(_key(node.domain, node.op_type, node.overload))
    if function is not None:
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise Damaged(f"its node {_called(node)} has more inputs or outputs than the function that it calls")
        return
    domain = _domain(node.domain)
    fewest = _fewest_inputs(node.op_type, opsets.get(domain, 0), domain)
    if len(node.input) < fewest:
        raise Damaged(f"its node {_called(node)} has {len(node.input)} inputs where its definition needs {fewest}")
    attributes = {value.name: value for value in node.attribute}
    for name, kind, required in _attributes(node.op_type, opsets.get(domain, 0), domain):
        value = attributes.get(name)
        if value is None and required and kind == AttributeProto.GRAPH:
            raise Damaged(f"its node {_called(node)} lacks the graph '{name}'")
        # Old files do not write an attribute's type down.
        if value is not None and value.type not in (kind, AttributeProto.UNDEFINED):
            raise Damaged(f"the attribute '{name}' of its node {_called(node)} is of another type than it must be")


def _called(node: NodeProto) -> str:
    name = node.name or next(filter(None, node.output), "")
    return f"'{name}' ({node.op_type})" if name else node.op_type


@lru_cache(maxsize=4096)
def _schema(operator: str, version: int, domain: str) -> Any:
    if not 0 < version < 2**31:
        return None
    try:
        return defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def _fewest_inputs(operator: str, version: int, domain: str) -> int:
    schema = _schema(operator, version, domain)
    return 0 if schema is None else int(schema.min_input)


@lru_cache(maxsize=4096)
def _attributes(operator: str, version: int, domain: str) -> tuple[tuple[str, int, bool], ...]:
    """Name, type and necessity of an operator's attributes."""
    schema = _schema(operator, version, domain)
    if schema is None:
        return ()
    return tuple(
        (attribute.name, int(attribute.type.value), bool(attribute.required))
        for attribute in schema.attributes.values()
    )


def _check_inlined(proto: ModelProto, functions: dict[_Key, FunctionProto]) -> None:
    """Refuse functions that call each other in circles, or that become more nodes than a model may have.

    Thirty functions that each call the next one twice fit into 2.4 kB and stand for a billion nodes.
    """
    sizes: dict[_Key, tuple[int, int]] = {}
    waiting = list(functions)
    open_calls: set[_Key] = set()
    while waiting:
        key = waiting[-1]
        if key in sizes:
            waiting.pop()
            continue
        called = [other for other in _calls(functions[key], functions) if other not in sizes]
        if not called:
            sizes[key] = _size(functions[key], functions, sizes)
            open_calls.discard(key)
            waiting.pop()
            continue
        open_calls.add(key)
        if any(other in open_calls for other in called):
            raise Damaged(f"its function '{key[1]}' calls itself, directly or through others")
        waiting.extend(called)
    nodes, size = _size(proto.graph, functions, sizes)
    if nodes > MOST_NODES:
        raise Damaged(
            f"it has {nodes:,} nodes once its functions are inlined, more than the {MOST_NODES:,} that are read"
        )
    if functions and size > MOST_BYTES:
        raise Damaged("it takes more than 2 GB once its functions are inlined")


def _calls(body: Body, functions: dict[_Key, FunctionProto]) -> list[_Key]:
    keys = (_key(node.domain, node.op_type, node.overload) for node in all_nodes(body))
    return [key for key in keys if key in functions]


def _size(body: Body, functions: dict[_Key, FunctionProto], sizes: dict[_Key, tuple[int, int]]) -> tuple[int, int]:
    """How many nodes and bytes a body has with all that it calls; the sizes of those are known."""
    called = _calls(body, functions)
    nodes = sum(1 for _ in all_nodes(body)) - len(called) + sum(sizes[key][0] for key in called)
    # Serialising a graph only to learn its size takes long; without functions nobody asks.
    own = body.ByteSize() if functions else 0
    return nodes, own + sum(sizes[key][1] for key in called)
