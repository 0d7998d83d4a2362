"""Framed messages between parent and child: a JSON header, then raw blocks of bytes. Never pickles."""

from __future__ import annotations

import json
import struct
from array import array
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Sequence, Tuple

# Parent and child are always of the same inferlab, so messages have no version.
_HEAD = struct.Struct("<II")
_SIZE = struct.Struct("<Q")

# What a parent takes from a child. Descriptions of large models have some 10 MB of text; blocks are outputs (those
# of a large segmentation take 1 GB) and samples.
MOST_TEXT_BYTES = 64 << 20
MOST_BLOCKS = 1 << 16
MOST_BLOCK_BYTES = 4 << 30

Blocks = List[bytes]
#: What a request is answered with: plain data, and blocks that go with it.
Answer = Tuple[Dict[str, Any], List[Any]]


class Closed(Exception):
    """The other side closed the pipe."""


class BadFrame(Exception):
    """What came is no message, or a larger one than any is; the text says what."""


def encode(message: Mapping[str, Any], blocks: Sequence[Any] = ()) -> List[Any]:
    """One message and its blocks (anything that supports the buffer protocol) as buffers of bytes."""
    text = json.dumps(message, default=str).encode()
    views = [memoryview(block) for block in blocks]
    sizes = [view.nbytes for view in views]
    head = _HEAD.pack(len(text), len(sizes)) + b"".join(map(_SIZE.pack, sizes)) + text
    return [head, *(view.cast("B") for view in views if view.nbytes)]


def send(pipe: BinaryIO, message: Mapping[str, Any], blocks: Sequence[Any] = ()) -> None:
    """Write one message and its blocks."""
    for part in encode(message, blocks):
        pipe.write(part)
    pipe.flush()


class Incoming:
    """A message that arrives in pieces from a child that is not trusted: fill `space`, then say how much came."""

    def __init__(self) -> None:
        self._target = bytearray(_HEAD.size)
        self._count = 0
        self._sizes: List[int] = []
        self._parts: List[bytearray] = []

    @property
    def begun(self) -> bool:
        """Whether a part of the message is there."""
        return bool(self._parts) or self._count > 0

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty before the message is whole."""
        return memoryview(self._target)[self._count :]

    def advance(self, count: int) -> bool:
        """Take note of bytes that were put there; True when the message is whole."""
        self._count += count
        while self._count == len(self._target):
            self._parts.append(self._target)
            self._count = 0
            if len(self._parts) == 1:
                text_size, blocks = _HEAD.unpack(self._parts[0])
                if text_size > MOST_TEXT_BYTES or blocks > MOST_BLOCKS:
                    raise BadFrame("announces {:,} bytes of text and {:,} blocks".format(text_size, blocks))
                self._sizes = [_SIZE.size * blocks, text_size]
            elif len(self._parts) == 2:
                sizes = [size for (size,) in _SIZE.iter_unpack(self._parts[1])]
                if sum(sizes) > MOST_BLOCK_BYTES:
                    raise BadFrame("announces blocks of {:,} bytes".format(sum(sizes)))
                self._sizes += sizes
            if len(self._parts) > len(self._sizes):
                return True
            self._target = bytearray(self._sizes[len(self._parts) - 1])
        return False

    def message(self) -> Tuple[Dict[str, Any], Blocks]:
        """The message and its blocks, once it is whole."""
        try:
            message = json.loads(self._parts[2])
        except (ValueError, RecursionError) as error:
            raise BadFrame("is not JSON: {}".format(error)) from None
        if not isinstance(message, dict) or not isinstance(message.get("ok"), bool):
            raise BadFrame("does not say whether the request was done")
        return message, [bytes(part) for part in self._parts[3:]]


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


def pack_sets(
    sets: Sequence[Mapping[str, Any]], labels: Optional[Sequence[Any]]
) -> Tuple[Dict[str, Any], List[Any]]:
    """Several sets of inputs, with or without labels, as a task's arguments and the bytes that go with them."""
    arrays: Dict[str, Any] = {}
    for number, inputs in enumerate(sets):
        arrays.update({"{}/{}".format(number, name): value for name, value in inputs.items()})
        if labels is not None:
            arrays[str(number)] = labels[number]
    heads, blocks = pack_arrays(arrays)
    return {"sets": len(sets), "labelled": labels is not None, "arrays": heads}, blocks


def unpack_sets(
    arguments: Mapping[str, Any], blocks: Sequence[bytes]
) -> Tuple[List[Dict[str, Any]], Optional[List[Any]]]:
    """The sets and labels that pack_sets took."""
    sets: List[Dict[str, Any]] = [{} for _ in range(arguments["sets"])]
    labels: List[Any] = [None] * arguments["sets"]
    for key, value in unpack_arrays(arguments["arrays"], blocks).items():
        number, _, name = key.partition("/")
        if name:
            sets[int(number)][name] = value
        else:
            labels[int(number)] = value
    return sets, labels if arguments["labelled"] else None


def numbers(block: bytes) -> "array[int]":
    """The 64-bit integers that a block holds."""
    integers = array("q")
    integers.frombytes(block)
    return integers


def _read(pipe: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            raise Closed
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
