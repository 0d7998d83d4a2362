"""Write a copy of an ONNX model without what does nothing: constants folded, dead nodes gone."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, TensorProto, defs, helper

from inferlab.errors import BadInput, EngineRefused
from inferlab.model.confined import confined
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.onnx_graph import all_tensors, bodies, constant_tensor, element_count, fed_inputs, tensor_bytes
from inferlab.records import Event, Listener, Model, ignore
from inferlab.transform.copies import LARGE_BYTES, Copy, bring_in, target_of, write
from inferlab.worker import ONNXRUNTIME, run_task, timeout_s

_PATIENCE_S = 600.0
# Constants with more elements keep their name and place: they are weights, not shapes or axes.
_FEW = 1024
# From this version on constants need not be listed among the inputs.
_FREE_CONSTANTS_IR = 4


def clean_up(model: Model, folder: Path, listener: Listener = ignore) -> Copy:
    """Write the copy into `folder`; weights keep their names and bytes, the file its opset and IR version.

    Weights are hidden from the optimiser, as inputs: so it folds none of them into others, also not batch
    normalisation, which engines do when they load, and never holds more than the graph in memory.
    """
    target = target_of(model, folder, "cleaned up")
    listener(Event("cleaning-up", {"model": model.source}))
    with tempfile.TemporaryDirectory(prefix="inferlab-clean-") as beside:
        light, out = Path(beside) / "light.onnx", Path(beside) / "out.onnx"
        hidden = _write_light(model, light.parent)
        if light.exists():
            _optimise(light, out, model)
        return _cleaned(model, out if light.exists() else None, hidden, target.parent)


@confined(reads=["model"], writes=["folder"])
def _write_light(model: Model, folder: Path) -> list[str]:
    """Write the model without its weights, and name those; nothing is written of one with functions of its own."""
    original = Path(model.path)
    proto = parse_onnx(original)
    if proto.functions:
        return []
    light, hidden = _light(proto, original)
    (folder / "light.onnx").write_bytes(light.SerializeToString())
    return sorted(hidden)


@confined(reads=["model", "optimised"], writes=["folder"])
def _cleaned(model: Model, optimised: Path | None, hidden: Sequence[str], folder: Path) -> Copy:
    """The copy, of what the optimiser made of the model; as it was where that cannot be used."""
    original = Path(model.path)
    target = folder / original.name
    proto = parse_onnx(original)
    if optimised is None:
        reasons = {function.name: "the model's own functions are not cleaned up" for function in proto.functions}
    else:
        cleaned = onnx.load(optimised)
        foreign = _foreign(cleaned, proto)
        reasons = dict.fromkeys(foreign, "cleaning up would need this operator, which not all engines have")
        if not foreign:
            _put_back(proto, cleaned, set(hidden))
    return Copy(write(proto, original, target, "cleaned-up"), reasons)


def _light(proto: ModelProto, original: Path) -> tuple[ModelProto, set[str]]:
    """A copy of the model whose weights are inputs, and their names; what is stored outside is brought in."""
    light = ModelProto()
    light.CopyFrom(proto)
    light.ir_version = max(light.ir_version, _FREE_CONSTANTS_IR)
    graph = light.graph
    _hoist(light)
    fed = fed_inputs(graph)
    large = {tensor.name: tensor for tensor in graph.initializer if _is_weight(tensor)}
    shapes = [(tensor.name, tensor.data_type, tensor.dims) for tensor in large.values()]
    shapes += [(sparse.values.name, sparse.values.data_type, sparse.dims) for sparse in graph.sparse_initializer]
    small = [tensor for tensor in graph.initializer if tensor.name not in large]
    for field in ("input", "initializer", "sparse_initializer"):
        graph.ClearField(field)
    graph.input.extend(fed)
    graph.input.extend(helper.make_tensor_value_info(*shape) for shape in shapes)
    graph.initializer.extend(small)
    outside = sum(
        tensor_bytes(tensor) for tensor in all_tensors(light) if tensor.data_location == TensorProto.EXTERNAL
    )
    if outside > LARGE_BYTES:
        raise BadInput(
            f"{original.name} keeps more than {LARGE_BYTES / 1e9:g} GB of weights in branches or loops, "
            "which cannot be cleaned up. Optimise it without the clean-up."
        )
    bring_in(light, original)
    return light, {name for name, _, _ in shapes}


def _hoist(model: ModelProto) -> None:
    """Make all weights initializers of the main graph, by the same names: also of Constant nodes and branches."""
    graphs = _graphs(model)
    names = Counter(name for graph in graphs for name in _defined(graph))
    for graph in graphs:
        for place, node in reversed(list(enumerate(graph.node))):
            value = constant_tensor(node)
            if value is not None and _is_weight(value) and names[node.output[0]] == 1:
                tensor = model.graph.initializer.add()
                tensor.CopyFrom(value)
                tensor.name = node.output[0]
                del graph.node[place]
        for place, stored in reversed(list(enumerate(graph.initializer if graph is not model.graph else ()))):
            if _is_weight(stored) and names[stored.name] == 1:
                model.graph.initializer.add().CopyFrom(stored)
                del graph.initializer[place]


def _defined(graph: GraphProto) -> Iterator[str]:
    for value in (*graph.initializer, *graph.input):
        yield value.name
    for node in graph.node:
        yield from filter(None, node.output)


def _is_weight(tensor: TensorProto) -> bool:
    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return element_count(tensor) > _FEW or (len(tensor.dims) >= 2 and tensor.data_type in floats)


def _optimise(light: Path, out: Path, model: Model) -> None:
    arguments = {"model": str(light), "out": str(out)}
    try:
        run_task(ONNXRUNTIME, "onnx_files.clean_up", arguments, patience_s=timeout_s(_PATIENCE_S))
    except BadInput as error:
        raise EngineRefused(
            f"{model.source} cannot be cleaned up. {error} Optimise it without the clean-up."
        ) from error


def _foreign(optimised: ModelProto, proto: ModelProto) -> list[str]:
    """Operators that the original's opsets do not have."""
    opsets = {opset.domain: opset.version for opset in proto.opset_import}
    before = {(node.domain, node.op_type) for body in bodies(proto) for node in body.node}
    after = {(node.domain, node.op_type) for body in bodies(optimised) for node in body.node}
    return sorted(
        kind
        for domain, kind in after - before
        if domain not in opsets or domain or not defs.has(kind, opsets[domain], domain)
    )


def _put_back(proto: ModelProto, cleaned: ModelProto, hidden: set[str]) -> None:
    """Replace the nodes and small constants of the original by those that were found."""
    _hoist(proto)
    graph, optimised = proto.graph, cleaned.graph
    listed = {value.name for value in graph.input} if proto.ir_version < _FREE_CONSTANTS_IR else set()
    used = {name for body in _graphs(cleaned) for node in body.node for name in node.input}
    used |= {value.name for body in _graphs(cleaned) for value in body.output}
    dense = [tensor for tensor in graph.initializer if tensor.name in hidden & used]
    sparse = [sparse for sparse in graph.sparse_initializer if sparse.values.name in hidden & used]
    fed = [value for value in graph.input if value.name in {value.name for value in optimised.input} - hidden]
    dense += sorted(optimised.initializer, key=lambda tensor: str(tensor.name))
    for field in ("node", "initializer", "sparse_initializer", "input", "value_info"):
        graph.ClearField(field)
    graph.node.extend(optimised.node)
    graph.initializer.extend(dense)
    graph.sparse_initializer.extend(sparse)
    graph.input.extend(fed)
    if listed:
        graph.input.extend(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in dense
        )


def _graphs(model: ModelProto) -> list[GraphProto]:
    return [body for body in bodies(model) if isinstance(body, GraphProto)]
