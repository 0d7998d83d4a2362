"""Files of models that generate, read without trusting them: GGUF, safetensors, OpenVINO IR, ONNX with a cache.

GGUF is written, too: for built-in models. The tokenizers that lie beside them say what token ids mean.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from inferlab.child.engines import past_present
from inferlab.child.engines.past_present import BadGraph, Decoder, Port
from inferlab.errors import BadInput, EngineFailed
from inferlab.model.confined import confined
from inferlab.model.onnx_file import data_files_of, parse_onnx
from inferlab.records import TensorSpec
from inferlab.worker import ONNXRUNTIME, run_task

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
#: Name, values in a block, bytes of a block.
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
# The types of metadata by their numbers.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_UINT32, _FLOAT, _STRING, _ARRAY = 4, 6, 8, 9
_LONGEST_HEADER = 100 << 20
# More than any model has; a file that claims more is damaged.
_MOST_TENSORS = 1_000_000
_MOST_KEYS = 100_000
_LONGEST_TEXT = 16 << 20
_MOST_DIMS = 8
# Constants of these types are shapes, axes and switches.
_NO_WEIGHTS = frozenset({"i64", "i32", "u64", "u32", "boolean", "string"})
_STATE_RANK = 4
_PATIENCE_S = 120.0
# As safetensors names what ONNX has other names for.
_TYPES = {"FLOAT": "F32", "DOUBLE": "F64", "FLOAT16": "F16", "BFLOAT16": "BF16"}
_ATTENTION = ("MultiHeadAttention", "GroupQueryAttention", "Attention", "DecoderMaskedMultiHeadAttention")
# A list of the tokens' bytes, each behind its length, as Moonshine's packages have it.
_LIST = "tokenizer.bin"
_JSON = "tokenizer.json"
_SPACE = "▁".encode()
_LARGEST = 200 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file, without its values."""

    type: str
    parameters: int
    size_bytes: int
    name: str = ""


# GGUF.


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a file says of itself; of an array of texts only its length is read."""

    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    #: Arrays of numbers.
    lists: Mapping[str, tuple[float, ...]]
    lengths: Mapping[str, int]
    tensors: tuple[StoredTensor, ...]


class _CutOff(Exception):
    """The file ends before what it announces."""


@confined(reads=["path"])
def read_gguf(path: Path) -> GgufFile:
    """The metadata and the tensors of a GGUF file; every tensor lies within it."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path).read()
    except _CutOff:
        raise BadInput(f"{path} cannot be read: it is cut off. Copy or download it again.") from None
    except (OverflowError, UnicodeDecodeError, MemoryError) as error:
        raise BadInput(f"{path} cannot be read: it is damaged ({error}).") from error


class _Reader:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._size = path.stat().st_size

    def read(self) -> GgufFile:
        if self._bytes(4) != MAGIC:
            raise BadInput(f"{self._path} is not a GGUF file.")
        version, tensor_count, key_count = self._scalar("I"), self._scalar("Q"), self._scalar("Q")
        if version not in _VERSIONS:
            raise BadInput(f"{self._path} is a GGUF file of version {version}; versions 2 and 3 can be read.")
        if tensor_count > _MOST_TENSORS or key_count > _MOST_KEYS:
            raise BadInput(f"{self._path} cannot be read: it is damaged ({tensor_count} tensors).")
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        lists: dict[str, tuple[float, ...]] = {}
        lengths: dict[str, int] = {}
        for _ in range(key_count):
            name = self._text()
            value = self._value(self._scalar("I"))
            if isinstance(value, str):
                texts[name] = value
            elif isinstance(value, tuple):
                lists[name] = value
                lengths[name] = len(value)
            elif isinstance(value, _Length):
                lengths[name] = value.count
            else:
                numbers[name] = value
        placed = [self._tensor() for _ in range(tensor_count)]
        alignment = int(numbers.get("general.alignment", _ALIGNMENT)) or _ALIGNMENT
        data = -(-self._file.tell() // alignment) * alignment
        for tensor, offset in placed:
            if data + offset + tensor.size_bytes > self._size:
                raise _CutOff
        return GgufFile(numbers, texts, lists, lengths, tuple(tensor for tensor, _ in placed))

    def _tensor(self) -> tuple[StoredTensor, int]:
        name, dims_count = self._text(), self._scalar("I")
        if dims_count > _MOST_DIMS:
            raise BadInput(f"{self._path} cannot be read: it is damaged (a tensor of {dims_count} dimensions).")
        parameters = 1
        for _ in range(dims_count):
            parameters *= self._scalar("Q")
        number, offset = self._scalar("I"), self._scalar("Q")
        if number not in TYPES:
            raise BadInput(f"{self._path} has a tensor of type {number}, which inferlab does not know.")
        kind, block, block_bytes = TYPES[number]
        return StoredTensor(kind, parameters, -(-parameters // block) * block_bytes, name), offset

    def _value(self, kind: int) -> float | str | tuple[float, ...] | _Length:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(kind)
        inner, count = self._scalar("I"), self._scalar("Q")
        if inner == _STRING:
            for _ in range(count):
                self._skip(self._scalar("Q"))
            return _Length(count)
        if inner not in _SCALARS:
            raise BadInput(f"{self._path} cannot be read: it is damaged (an array of type {inner}).")
        code = _SCALARS[inner]
        return struct.unpack(f"<{count}{code}", self._bytes(count * struct.calcsize(code)))

    def _number(self, kind: int) -> float:
        if kind not in _SCALARS:
            raise BadInput(f"{self._path} cannot be read: it is damaged (a value of type {kind}).")
        return float(self._scalar(_SCALARS[kind]))

    def _scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}")))[0]

    def _text(self) -> str:
        length = self._scalar("Q")
        if length > _LONGEST_TEXT:
            raise _CutOff
        return self._bytes(length).decode("utf-8", "replace")

    def _bytes(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise _CutOff
        content = self._file.read(count)
        if len(content) < count:
            raise _CutOff
        return content

    def _skip(self, count: int) -> None:
        if count > self._size - self._file.tell():
            raise _CutOff
        self._file.seek(count, 1)


@dataclass(frozen=True, slots=True)
class _Length:
    """An array of which only the length matters."""

    count: int


def write_gguf(
    file: BinaryIO, metadata: Mapping[str, str | int | float], tensors: Mapping[str, NDArray[np.float32]]
) -> None:
    """Write a file of version 3 with 32-bit numbers; dimensions are those of the arrays, the last one first."""
    file.write(MAGIC + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for name, value in metadata.items():
        file.write(_packed(name))
        if isinstance(value, str):
            file.write(struct.pack("<I", _STRING) + _packed(value))
        elif isinstance(value, int):
            file.write(struct.pack("<II", _UINT32, value))
        else:
            file.write(struct.pack("<If", _FLOAT, value))
    offset = 0
    for name, array in tensors.items():
        dims: Sequence[int] = array.shape[::-1]
        file.write(_packed(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset))
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    for array in tensors.values():
        file.write(np.ascontiguousarray(array, "<f4").tobytes())
        file.write(b"\0" * (-file.tell() % _ALIGNMENT))


def _packed(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


# Safetensors, and OpenVINO IR.


@confined(reads=["path"])
def read_safetensors(path: Path) -> list[StoredTensor]:
    """Every tensor that the header lists; each lies within the file."""
    whole = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_LONGEST_HEADER, whole):
                raise ValueError("its header is longer than the file")
            header: Mapping[str, Any] = json.loads(file.read(length))
        tensors = []
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            begin, end = tensor["data_offsets"]
            if 8 + length + end > whole:
                raise ValueError("a tensor lies beyond its end")
            parameters = math.prod(int(dim) for dim in tensor["shape"])
            tensors.append(StoredTensor(str(tensor["dtype"]), parameters, int(end - begin), name))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: it is cut off or damaged ({error}).") from error
    return tensors


@dataclass(frozen=True, slots=True)
class Ir:
    """The weights of a graph, and its states of keys or values."""

    tensors: tuple[StoredTensor, ...]
    #: Of each state of keys or of values: its heads and the size of a head.
    states: tuple[tuple[int, int], ...]


@confined(reads=["path"])
def read_ir(path: Path) -> Ir:
    """Read an IR's XML; each constant must lie within the file of weights beside it."""
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise BadInput(f"{path} lacks its weights: there is no {weights.name} beside it.")
    whole = weights.stat().st_size
    tensors, states = [], []
    try:
        for _, layer in ElementTree.iterparse(path):  # noqa: S314  # confined, and expat limits entities
            if layer.tag != "layer":
                continue
            data = layer.find("data")
            if data is not None and layer.get("type") == "Const":
                size_bytes = int(data.attrib["size"])
                if not 0 <= int(data.attrib["offset"]) <= whole - size_bytes <= whole:
                    raise BadInput(
                        f"{weights} is cut off: it has {whole} bytes, and {path.name} names more. Copy it again."
                    )
                dims, kind = _dims(data.attrib["shape"]), data.attrib["element_type"]
                if dims and kind not in _NO_WEIGHTS:
                    tensors.append(StoredTensor(kind.upper(), math.prod(dims), size_bytes))
            if data is not None and layer.get("type") == "ReadValue":
                dims = _dims(data.attrib.get("variable_shape", ""))
                if len(dims) == _STATE_RANK and dims[1] > 0 and dims[3] > 0:
                    states.append((dims[1], dims[3]))
            layer.clear()
    except BadInput:
        raise
    except (ElementTree.ParseError, OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path} cannot be read: it is cut off or damaged ({error}).") from error
    return Ir(tuple(tensors), tuple(states))


def _dims(text: str) -> list[int]:
    """Sizes; those that are open, also within bounds, are -1."""
    return [int(part) if part.strip().isdecimal() else -1 for part in text.split(",") if part.strip()]


# ONNX graphs that take their cache as inputs.


@dataclass(frozen=True, slots=True)
class Graph:
    """What is read of one file."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    tensors: tuple[StoredTensor, ...]
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
    tensors: tuple[StoredTensor, ...]
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
        encoder_parameters=sum(tensor.parameters for tensor in graphs[parts.encoder].tensors)
        if parts.encoder
        else 0,
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


def _ports(specs: Sequence[TensorSpec]) -> list[Port]:
    return [Port(spec.name, spec.dtype, list(spec.dims or ())) for spec in specs]


def _read(file: Path) -> Graph:
    return _read_onnx(file) if file.suffix.lower() == ".onnx" else _read_ort(file)


@confined(reads=["file"])
def _read_onnx(file: Path) -> Graph:
    from inferlab.model.describe import tensor_spec
    from inferlab.model.onnx_graph import attribute, bodies, fed_inputs, list_weights, packed_weights, tensor_bytes

    proto = parse_onnx(file)
    packed = packed_weights(proto)
    weights = list_weights(proto)
    tensors = []
    for weight in weights:
        bits = packed.get(weight.name)
        kind = f"I{bits}" if bits else _TYPES.get(weight.type_name, weight.type_name.replace("INT", "I"))
        tensors.append(StoredTensor(kind.replace("UI", "U"), weight.elements, tensor_bytes(weight.stored)))
    tables = {weight.name: weight.dims for weight in weights if len(weight.dims) == 2}
    heads = hidden = None
    for body in bodies(proto):
        for node in body.node:
            if node.op_type in _ATTENTION:
                heads = attribute(node, "num_heads", 0) or heads
            if node.op_type == "Gather" and len(node.input) > 1 and "input_ids" in node.input[1]:
                hidden = tables.get(node.input[0], (0, hidden))[1]
    inputs, outputs = map(tensor_spec, fed_inputs(proto.graph)), map(tensor_spec, proto.graph.output)
    return Graph(tuple(inputs), tuple(outputs), tuple(tensors), heads, hidden)


def _read_ort(file: Path) -> Graph:
    """By ONNX Runtime itself, in a confined process: the format is its own."""
    try:
        answer = run_task(ONNXRUNTIME, "onnx_files.read_ort", {"model": str(file)}, patience_s=_PATIENCE_S)
    except (BadInput, EngineFailed) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error
    inputs, outputs = (
        tuple(TensorSpec(name, dtype, tuple(dims)) for name, dtype, dims in answer[side])
        for side in ("inputs", "outputs")
    )
    tensors = tuple(StoredTensor(str(kind), int(count), int(size)) for kind, count, size in answer["tensors"])
    return Graph(inputs, outputs, tensors)


# Tokenizers.


def text_of(folder: Path, tokens: Sequence[int]) -> str:
    """The text of token ids; empty where the folder has no tokenizer, or none that can be read."""
    for name in (_LIST, _JSON):
        if (folder / name).is_file():
            return _decoded(folder / name, list(tokens)).strip()
    return ""


@confined(reads=["file"])
def _decoded(file: Path, tokens: list[int]) -> str:
    if file.name == _JSON:
        return _by_library(file, tokens)
    pieces = list(_pieces(file))
    texts = (pieces[token] for token in tokens if 0 <= token < len(pieces))
    joined = b"".join(piece for piece in texts if not _is_special(piece))
    return joined.replace(_SPACE, b" ").decode("utf-8", "replace")


def _by_library(file: Path, tokens: list[int]) -> str:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return ""
    try:
        return str(Tokenizer.from_file(str(file)).decode(tokens))
    except Exception as error:  # the library has no class of its own for what it cannot read
        raise BadInput(f"{file} cannot be read: {error}.") from error


@confined(reads=["folder"])
def special_tokens(folder: Path) -> dict[str, int]:
    """The ids of tokens that are no text, such as `<s>`, by name; none where there is no tokenizer."""
    if (folder / _LIST).is_file():
        pieces = enumerate(_pieces(folder / _LIST))
        return {piece.decode("utf-8", "replace"): number for number, piece in pieces if _is_special(piece)}
    if not (folder / _JSON).is_file():
        return {}
    try:
        added = json.loads((folder / _JSON).read_text(encoding="utf-8"))["added_tokens"]
        return {str(token["content"]): int(token["id"]) for token in added}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{folder / _JSON} cannot be read: it is cut off or damaged ({error}).") from error


def _is_special(piece: bytes) -> bool:
    return len(piece) > 2 and piece.startswith(b"<") and piece.endswith(b">")


def _pieces(file: Path) -> Iterator[bytes]:
    """The tokens of a list: one byte of length, or two from 128 on, the lower seven bits first."""
    if file.stat().st_size > _LARGEST:
        raise BadInput(f"{file} is too large for a tokenizer.")
    content = file.read_bytes()
    place = 0
    while place < len(content):
        length = content[place]
        place += 1
        if length >= 128:
            if place >= len(content):
                raise BadInput(f"{file} cannot be read: it is cut off or damaged.")
            length += 128 * content[place] - 128
            place += 1
        if place + length > len(content):
            raise BadInput(f"{file} cannot be read: it is cut off or damaged.")
        yield content[place : place + length]
        place += length
