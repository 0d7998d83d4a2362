"""Framed messages between parent and child: a JSON header, then raw blocks of bytes. Never pickles."""

from __future__ import annotations

import json
import struct
from array import array
from typing import Any, BinaryIO, Dict, List, Mapping, Sequence, Tuple

# Version 1: the first. Parent and child are always of the same inferlab, so no older reader is kept.
PROTOCOL_VERSION = 1

_HEAD = struct.Struct("<II")
_SIZE = struct.Struct("<Q")

Blocks = List[bytes]


class Closed(Exception):
    """The other side closed the pipe."""


def send(pipe: BinaryIO, message: Mapping[str, Any], blocks: Sequence[Any] = ()) -> None:
    """Write one message and its blocks (anything that supports the buffer protocol)."""
    text = json.dumps(message, default=str).encode()
    sizes = [memoryview(block).nbytes for block in blocks]
    pipe.write(_HEAD.pack(len(text), len(sizes)))
    for size in sizes:
        pipe.write(_SIZE.pack(size))
    pipe.write(text)
    for block in blocks:
        pipe.write(memoryview(block).cast("B") if memoryview(block).nbytes else b"")
    pipe.flush()


def receive(pipe: BinaryIO) -> Tuple[Dict[str, Any], Blocks]:
    """Read one message and its blocks; raises Closed at the end of the pipe."""
    text_size, count = _HEAD.unpack(_read(pipe, _HEAD.size))
    sizes = [_SIZE.unpack(_read(pipe, _SIZE.size))[0] for _ in range(count)]
    message = json.loads(_read(pipe, text_size))
    return message, [_read(pipe, size) for size in sizes]


def pack_arrays(arrays: Mapping[str, Any]) -> Tuple[List[Dict[str, Any]], List[Any]]:
    """Describe NumPy arrays for a message's header, and give their bytes as blocks."""
    heads = [
        {"name": name, "dtype": value.dtype.str, "shape": list(value.shape)} for name, value in arrays.items()
    ]
    return heads, [value.tobytes() for value in arrays.values()]


def unpack_arrays(heads: Sequence[Mapping[str, Any]], blocks: Sequence[bytes]) -> Dict[str, Any]:
    """The arrays that pack_arrays took, writable and contiguous."""
    import numpy

    return {
        head["name"]: numpy.frombuffer(bytearray(block), dtype=head["dtype"]).reshape(head["shape"])
        for head, block in zip(heads, blocks)
    }


def numbers(block: bytes) -> "array[int]":
    """The 64-bit integers that a block holds."""
    found = array("q")
    found.frombytes(block)
    return found


def _read(pipe: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            raise Closed
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
