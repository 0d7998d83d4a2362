"""Records, paths and arrays as bytes and back: the one place that encodes and decodes them.

What is decoded need not be trusted: it has the type that is asked for, or `ValueError` is raised.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, get_origin

import msgspec
import numpy as np

# Numbers, text and truth values; no objects, which would be pickles.
_ARRAY_KINDS = frozenset("biufcSU")


def encode(value: Any) -> bytes:
    """A value of records, containers, numbers, text, paths and arrays as bytes."""
    return _encoder().encode(value)


def decode(content: bytes, kind: Any) -> Any:
    """The value that `encode` wrote, checked to be of a type."""
    return _decoder(kind).decode(content)


@lru_cache(maxsize=1)
def _encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(enc_hook=_simplify)


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_restore)


def _simplify(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _ARRAY_KINDS:
            raise NotImplementedError(f"arrays of {value.dtype} cannot be encoded")
        return [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} cannot be encoded")


def _restore(kind: Any, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    if (get_origin(kind) or kind) is np.ndarray:
        return _array(value)
    raise NotImplementedError(f"{kind} cannot be decoded")


def _array(value: Any) -> np.ndarray[Any, Any]:
    try:
        name, shape, content = value
        dtype = np.dtype(name)
        if (
            dtype.kind not in _ARRAY_KINDS
            or dtype.names
            or any(type(size) is not int or size < 0 for size in shape)
        ):
            raise ValueError("it is not an array of numbers or text")
        if math.prod(shape) * dtype.itemsize != len(content):
            raise ValueError("its data does not fit its shape")
        return np.frombuffer(content, dtype).reshape(shape)
    except TypeError as error:
        raise ValueError(str(error)) from error
