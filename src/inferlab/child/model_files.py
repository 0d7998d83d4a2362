"""Which files a model consists of, found without an engine or a parser of its format."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Iterator, List, Set, Tuple

# Fields of ONNX messages, by their numbers in onnx.proto.
_MODEL_GRAPH, _MODEL_TRAINING, _MODEL_FUNCTIONS = 7, 20, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_TENSOR_EXTERNAL = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_LENGTH_DELIMITED = 2
_LOCATION = b"location"
# What weights end in that lie in a folder with their configuration.
_WEIGHTS = (".safetensors", ".bin")
# Deeper than any model nests its graphs and attributes.
_DEEPEST = 64

Span = Tuple[int, int]


def files_of(path: str) -> List[str]:
    """A model's own file and those with its weights, which lie beside it; a folder and what it links to."""
    if os.path.isdir(path):
        return [path, *_linked(path)]
    stem, ending = os.path.splitext(path)
    if ending == ".xml":
        return [path, stem + ".bin"]
    folder = os.path.dirname(os.path.abspath(path))
    beside = (os.path.normpath(os.path.join(folder, name)) for name in sorted(_locations(path)))
    return [path, *(file for file in beside if file.startswith(folder.rstrip("/") + "/"))]


def _linked(folder: str) -> Iterator[str]:
    """The files outside a folder that its links may lead to: blobs of a Hub's cache, and weights kept elsewhere.

    Whoever packed a folder could have put links into it that lead to the user's own files.
    """
    parent, name = os.path.split(os.path.dirname(os.path.realpath(folder)))
    blobs = os.path.join(parent, "blobs") if name == "snapshots" else None
    for entry in os.scandir(folder):
        target = os.path.realpath(entry.path)
        if entry.is_symlink() and os.path.isfile(target):
            ending = os.path.splitext(entry.name)[1]
            is_weights = ending in _WEIGHTS and target.endswith(ending)
            if is_weights or os.path.dirname(target) == blobs:
                yield target


def _locations(path: str) -> Set[str]:
    """The names of external data that an ONNX file gives; none where it is another format or damaged."""
    locations: Set[str] = set()
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, span in _fields(data, (0, len(data))):
                if number == _MODEL_GRAPH:
                    _of_graph(data, span, locations)
                elif number in (_MODEL_TRAINING, _MODEL_FUNCTIONS):
                    _anywhere(data, span, locations, 0)
    except (OSError, ValueError, IndexError):
        pass
    return locations


def _of_graph(data: mmap.mmap, graph: Span, locations: Set[str]) -> None:
    for number, span in _fields(data, graph):
        if number == _GRAPH_INITIALIZER:
            _of_tensor(data, span, locations)
        elif number in (_GRAPH_NODE, _GRAPH_SPARSE):
            _anywhere(data, span, locations, 0)


def _of_tensor(data: mmap.mmap, tensor: Span, locations: Set[str]) -> None:
    for number, span in _fields(data, tensor):
        if number == _TENSOR_EXTERNAL:
            _of_entry(data, span, locations)


def _of_entry(data: mmap.mmap, entry: Span, locations: Set[str]) -> None:
    texts = {number: data[span[0] : span[1]] for number, span in _fields(data, entry)}
    if texts.get(_ENTRY_KEY) == _LOCATION:
        locations.add(texts.get(_ENTRY_VALUE, b"").decode("utf-8", "surrogateescape"))


def _anywhere(data: mmap.mmap, span: Span, locations: Set[str], depth: int) -> None:
    """Look into a message of any kind, if it holds the word at all: few nodes have tensors in other files."""
    if depth > _DEEPEST or data.find(_LOCATION, *span) < 0:
        return
    try:
        inner = [(number, part) for number, part in _fields(data, span) if part[1] > part[0]]
    except (ValueError, IndexError):
        return  # a text or numbers, not a message
    for number, part in inner:
        if number == _TENSOR_EXTERNAL:
            with contextlib.suppress(ValueError, IndexError):
                _of_entry(data, part, locations)
        _anywhere(data, part, locations, depth + 1)


def _fields(data: mmap.mmap, span: Span) -> Iterator[Tuple[int, Span]]:
    """The length-delimited fields of a message: their numbers, and where their contents begin and end."""
    place, end = span
    while place < end:
        key, place = _varint(data, place, end)
        kind = key & 7
        if kind == 0:
            _, place = _varint(data, place, end)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        elif kind == _LENGTH_DELIMITED:
            size, place = _varint(data, place, end)
            if size > end - place:
                raise ValueError("a field is longer than its message")
            yield key >> 3, (place, place + size)
            place += size
        else:
            raise ValueError("not a message")


def _varint(data: mmap.mmap, place: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is cut off")
