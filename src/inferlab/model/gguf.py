"""GGUF files: their header, metadata and tensors, read without trusting them; and written, for built-in models."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.model.confined import confined

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
# More than any model has; a file that claims more is damaged.
_MOST_TENSORS = 1_000_000
_MOST_KEYS = 100_000
_LONGEST_TEXT = 16 << 20
_MOST_DIMS = 8


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file, without its values."""

    name: str
    type: str
    parameters: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a file says of itself; of an array of texts only its length is read."""

    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    #: Arrays of numbers.
    lists: Mapping[str, tuple[float, ...]]
    lengths: Mapping[str, int]
    tensors: tuple[GgufTensor, ...]


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
        found = [self._tensor() for _ in range(tensor_count)]
        alignment = int(numbers.get("general.alignment", _ALIGNMENT)) or _ALIGNMENT
        data = -(-self._file.tell() // alignment) * alignment
        for tensor, offset in found:
            if data + offset + tensor.size_bytes > self._size:
                raise _CutOff
        return GgufFile(numbers, texts, lists, lengths, tuple(tensor for tensor, _ in found))

    def _tensor(self) -> tuple[GgufTensor, int]:
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
        return GgufTensor(name, kind, parameters, -(-parameters // block) * block_bytes), offset

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
