"""Arrays in an .npz file, each checked for its size before room is made for it, and read by who checked it."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from inferlab.errors import BadInput

Array = np.ndarray[Any, Any]

#: So many entries an archive may have.
MOST_ARRAYS = 10_000
# Numbers, text and truth values; no objects, which are pickles.
_KINDS = frozenset("biufcSU")
_BLOCK = 1 << 24
# What zipfile and NumPy raise at an .npz file that is none, is cut off or damaged.
_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, TypeError, OverflowError, RecursionError),
)


def memory_limit() -> int:
    """How many bytes of data are taken into memory at most: a quarter of what the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # not every system tells
        return 1 << 33


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz file."""
    with _opened(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """These arrays of an .npz file; refused before they are read where they would take too much memory."""
    with _opened(path) as archive:
        try:
            entries = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
            left = memory_limit()
            found: dict[str, Array] = {}
            for name in names:
                with archive.open(entries[name]) as stream:
                    found[name] = _read(stream, path, name, left)
                left -= found[name].nbytes
            return found
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        with path.open("rb") as stream:
            start = stream.read(6)
        if not start.startswith(b"PK"):
            raise ValueError("it holds one array without a name" if start == b"\x93NUMPY" else "it is none")
        archive = zipfile.ZipFile(path)
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    names = archive.namelist()
    problem = ""
    if len(names) > MOST_ARRAYS:
        problem = f"it has {len(names):,} entries, more than the {MOST_ARRAYS:,} that are read"
    elif len({name.removesuffix(".npy") for name in names}) < len(names):
        problem = "two of its arrays have the same name"
    if problem:
        archive.close()
        raise _unreadable(path, problem)
    return archive


def _read(stream: IO[bytes], path: Path, name: str, limit: int) -> Array:
    """One array: its header says how many bytes follow, which are checked against the limit and then read."""
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise ValueError(f"'{name}' is written in version {version[0]}.{version[1]} of NumPy's format")
    shape, by_columns, dtype = read_header(stream)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"'{name}' is an array of {dtype}, which is not read")
    size = math.prod(shape) * dtype.itemsize
    if size > limit or any(axis < 0 for axis in shape):
        raise BadInput(
            f"'{name}' in {path} of shape {list(shape)} takes {size / 1e9:.3g} GB; data may take "
            f"{memory_limit() / 1e9:.3g} GB here in all, a quarter of the memory. Give fewer rows."
        )
    # Block by block: what the header promises need not be there.
    blocks, left = [], size
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        blocks.append(block)
        left -= len(block)
    if left or stream.read(1):
        raise ValueError(f"'{name}' has {'fewer' if left else 'more'} bytes than its shape needs")
    if not size:
        return np.empty(shape, dtype)
    content = bytearray().join(blocks)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")


def _unreadable(path: Path, problem: object) -> BadInput:
    return BadInput(
        f"{path} cannot be read as an .npz file: {problem}. Write it with numpy.savez, inputs by name."
    )
