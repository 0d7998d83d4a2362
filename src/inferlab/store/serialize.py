"""Records as plain JSON and back, exactly; unknown fields are ignored, missing ones take their default."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from inferlab.records import Samples

T = TypeVar("T")
_Decoder = Callable[[Any, Sequence[Samples]], Any]


def dumps(value: Any) -> str:
    """JSON in one spelling; infinities and NaN are written as Python does."""
    return json.dumps(value, separators=(",", ":"))


def plain(value: Any, samples: list[Samples] | None = None) -> Any:
    """A record as JSON values; its Samples are appended to the list, and a number stands in for each."""
    if isinstance(value, Samples):
        assert samples is not None, "raw samples are kept beside the JSON, not in it"
        samples.append(value)
        return len(samples) - 1
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), samples) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item, samples) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, samples) for item in value]
    return value


def restored(kind: type[T], value: Any, samples: Sequence[Samples] = ()) -> T:
    """The record of this kind that `plain` made JSON of; a ValueError says why it is none."""
    decoder: Callable[[Any, Sequence[Samples]], T] = _decoder(kind)  # type: ignore[arg-type]
    return decoder(value, samples)


@cache
def _decoder(hint: Any) -> _Decoder:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Samples:
        return _sample
    if is_dataclass(hint):
        return _record(hint)
    if origin in (Union, types.UnionType):
        return _either([_decoder(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return _many(_decoder(arguments[0]))
    if origin is tuple:
        return _fixed([_decoder(one) for one in arguments])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(arguments[1]))
    return _scalar(hint)


def _sample(value: Any, samples: Sequence[Samples]) -> Samples:
    if not isinstance(value, int) or not 0 <= value < len(samples):
        raise ValueError(f"there are no samples {value!r}")
    return samples[value]


def _record(kind: Any) -> _Decoder:
    hints = get_type_hints(kind)
    known = [
        (one.name, _decoder(hints[one.name]), one.default is MISSING and one.default_factory is MISSING)
        for one in fields(kind)
    ]

    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"a {kind.__name__} is an object, not {value!r:.40}")
        found = {}
        for name, inner, needed in known:
            if name in value:
                found[name] = inner(value[name], samples)
            elif needed:
                raise ValueError(f"a {kind.__name__} lacks its {name}")
        return kind(**found)

    return decode


def _either(inner: Sequence[_Decoder]) -> _Decoder:
    # None apart: it is frequent, and of what fits nothing the other member's reason says more.
    others = [one for one in inner if one is not _nothing]
    optional = len(others) < len(inner)

    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if value is None and optional:
            return None
        for index, one in enumerate(others):
            try:
                return one(value, samples)
            except ValueError:
                if index == len(others) - 1:
                    raise
        raise AssertionError("a union has members")

    return decode


def _many(inner: _Decoder) -> _Decoder:
    return lambda value, samples: tuple(inner(one, samples) for one in _list(value))


def _fixed(inner: Sequence[_Decoder]) -> _Decoder:
    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if len(_list(value)) != len(inner):
            raise ValueError(f"{len(inner)} values are expected, not {len(value)}")
        return tuple(one(item, samples) for one, item in zip(inner, value, strict=True))

    return decode


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"a list is expected, not {value!r:.40}")
    return value


def _mapping(inner: _Decoder) -> _Decoder:
    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected, not {value!r:.40}")
        return {key: inner(item, samples) for key, item in value.items()}

    return decode


def _nothing(value: Any, samples: Sequence[Samples]) -> None:
    if value is not None:
        raise ValueError(f"nothing is expected, not {value!r:.40}")


def _scalar(hint: Any) -> _Decoder:
    if hint is type(None):
        return _nothing
    # A whole number stays one where a fraction may stand: a cell's identity depends on how it is written.
    allowed: dict[Any, tuple[type, ...]] = {float: (float, int), int: (int,), str: (str,), bool: (bool,)}
    # A newer version may know more words than we do.
    kinds = (str,) if get_origin(hint) is Literal else allowed.get(hint, (object,))

    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and hint in (int, float)):
            raise ValueError(f"{getattr(hint, '__name__', 'text')} is expected, not {value!r:.40}")
        return value

    return decode
