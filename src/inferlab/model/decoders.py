"""What ONNX graphs that generate say of themselves: a decoder with past and present, and an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.child import past_present
from inferlab.child.past_present import BadGraph, Decoder, Port
from inferlab.errors import BadInput, EngineFailed
from inferlab.model.confined import confined
from inferlab.model.onnx_file import data_files_of, parse_onnx
from inferlab.worker import ONNXRUNTIME, run_task

_PATIENCE_S = 120.0
# As safetensors names what ONNX has other names for.
_TYPES = {"FLOAT": "F32", "DOUBLE": "F64", "FLOAT16": "F16", "BFLOAT16": "BF16"}
_ATTENTION = ("MultiHeadAttention", "GroupQueryAttention", "Attention", "DecoderMaskedMultiHeadAttention")


@dataclass(frozen=True, slots=True)
class GraphPort:
    """An input or output of a graph."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """What is read of one file."""

    inputs: tuple[GraphPort, ...]
    outputs: tuple[GraphPort, ...]
    #: The type, the parameters and the bytes of every tensor of weights.
    tensors: tuple[tuple[str, int, int], ...]
    #: Query heads, where an operator says, and the width of the table of tokens.
    heads: int | None = None
    hidden: int | None = None


@dataclass(frozen=True, slots=True)
class Decoders:
    """The graphs of a model that generates, and what they are."""

    files: tuple[Path, ...]
    #: Whether one of them is in ONNX Runtime's own format.
    is_ort: bool
    #: Of all files together, but for the decoder of later steps, which has the weights of the first again.
    tensors: tuple[tuple[str, int, int], ...]
    encoder_parameters: int
    #: What the encoder takes, and bands of a spectrum; empty for a decoder alone.
    takes: str
    bands: int | None
    layers: int
    heads: int
    kv_heads: int
    kv_values_per_token: int
    vocabulary: int | None


def read_decoders(path: Path, source: str, head_size: int | None = None) -> Decoders:
    """Read the graphs of a file or a folder; refuses those that do not generate or do not fit together.

    The size of a head is that of the cache, where the graph leaves it open.
    """
    try:
        parts = past_present.find_parts(str(path))
        files = [Path(file) for file in parts.files()]
        graphs = {str(file): _read(file) for file in files}
        first = _decoder(graphs[parts.decoder], parts.decoder, head_size)
        later = _decoder(graphs[parts.with_past], parts.with_past, head_size) if parts.with_past else None
        encoder = None
        if parts.encoder:
            graph = graphs[parts.encoder]
            encoder = past_present.read_encoder(
                _ports(graph.inputs), _ports(graph.outputs), Path(parts.encoder).name
            )
        past_present.check_together(first, later, encoder, Path(parts.decoder).name)
    except BadGraph as error:
        hint = "" if path.is_dir() else " A model that is one call is measured with: inferlab benchmark"
        raise BadInput(f"{source} cannot generate: {error}.{hint}") from None
    own = [group for group in (later or first).past if not group.cross]
    kv_heads = max(group.heads for group in own)
    vocabulary = first.logits.dims[2]
    decoder = graphs[parts.decoder]
    heads = decoder.heads or _heads_by_width(decoder.hidden, own[0].size, kv_heads)
    bands = encoder.input.dims[1] if encoder and past_present.TAKES[encoder.input.name] == "features" else None
    data = [data for file in files if file.suffix.lower() == ".onnx" for data in data_files_of(file).values()]
    return Decoders(
        files=(*files, *dict.fromkeys(data)),
        is_ort=any(file.suffix.lower() == ".ort" for file in files),
        tensors=tuple(
            tensor for file, graph in graphs.items() if file != parts.with_past for tensor in graph.tensors
        ),
        encoder_parameters=sum(tensor[1] for tensor in graphs[parts.encoder].tensors) if parts.encoder else 0,
        takes=past_present.TAKES[encoder.input.name] if encoder else "",
        bands=bands if isinstance(bands, int) else None,
        layers=len(own) // 2,
        heads=heads,
        kv_heads=kv_heads,
        kv_values_per_token=sum(group.heads * group.size for group in own),
        vocabulary=vocabulary if isinstance(vocabulary, int) else None,
    )


def _heads_by_width(hidden: int | None, size: int, kv_heads: int) -> int:
    """Query heads by the width of the model, which most have; else as many as keys have."""
    count = (hidden or 0) // size
    return count if count * size == hidden and count % kv_heads == 0 and count else kv_heads


def _decoder(graph: Graph, file: str, head_size: int | None) -> Decoder:
    inputs = past_present.with_head_size(_ports(graph.inputs), head_size)
    return past_present.read_decoder(inputs, _ports(graph.outputs), Path(file).name)


def _ports(ports: Sequence[GraphPort]) -> list[Port]:
    return [Port(port.name, port.dtype, list(port.dims)) for port in ports]


def _read(file: Path) -> Graph:
    return _read_onnx(file) if file.suffix.lower() == ".onnx" else _read_ort(file)


@confined(reads=["file"])
def _read_onnx(file: Path) -> Graph:
    from inferlab.model import describe
    from inferlab.model.onnx_graph import attribute, bodies, fed_inputs
    from inferlab.model.weights import list_weights, packed_weights, tensor_bytes

    proto = parse_onnx(file)
    packed = packed_weights(proto)
    weights = list_weights(proto)
    tensors = []
    for weight in weights:
        bits = packed.get(weight.name)
        kind = f"I{bits}" if bits else _TYPES.get(weight.type_name, weight.type_name.replace("INT", "I"))
        tensors.append((kind.replace("UI", "U"), weight.elements, tensor_bytes(weight.stored)))
    tables = {weight.name: weight.dims for weight in weights if len(weight.dims) == 2}
    heads = hidden = None
    for body in bodies(proto):
        for node in body.node:
            if node.op_type in _ATTENTION:
                heads = attribute(node, "num_heads", 0) or heads
            if node.op_type == "Gather" and len(node.input) > 1 and "input_ids" in node.input[1]:
                hidden = tables.get(node.input[0], (0, hidden))[1]

    def ports(values: Sequence[object]) -> tuple[GraphPort, ...]:
        specs = [describe.tensor_spec(value) for value in values]  # type: ignore[arg-type]
        return tuple(GraphPort(spec.name, spec.dtype, spec.dims or ()) for spec in specs)

    return Graph(ports(fed_inputs(proto.graph)), ports(proto.graph.output), tuple(tensors), heads, hidden)


def _read_ort(file: Path) -> Graph:
    """By ONNX Runtime itself, in a confined process: the format is its own."""
    try:
        answer = run_task(ONNXRUNTIME, "ort_file", {"model": str(file)}, patience_s=_PATIENCE_S)
    except (BadInput, EngineFailed) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error

    def ports(values: Sequence[tuple[str, str, list[int | str | None]]]) -> tuple[GraphPort, ...]:
        return tuple(GraphPort(name, dtype, tuple(dims)) for name, dtype, dims in values)

    tensors = tuple((str(kind), int(count), int(size)) for kind, count, size in answer["tensors"])
    return Graph(ports(answer["inputs"]), ports(answer["outputs"]), tensors)
