"""Records as bytes and as JSON, and back, and text that others wrote read within limits.

What is decoded need not be trusted: it has the type that is asked for, or `ValueError` is raised. msgspec does it
between processes (`encode`, `decode`). JSON that is stored or exchanged has rules that msgspec does not have, so
`plain` and `restored` do it: raw samples lie beside the JSON; a whole number stays one where a fraction may stand,
as the identity of a cell depends on how it is written; words that only a newer version knows are read as they are.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from inferlab.records import Samples
from inferlab.units import size

if TYPE_CHECKING:  # late: whoever only lists what is stored needs neither
    import msgspec
    import numpy as np


#: Of a file with JSON; what it stands for in memory is up to 24 times as large.
MOST_BYTES = 64 << 20
#: Of a file with YAML, whose reader is slow.
MOST_YAML_BYTES = 2 << 20
MOST_DEPTH = 64
MOST_CONTAINERS = 2_000_000
MOST_YAML_VALUES = 100_000
MOST_DIGITS = 30
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
T = TypeVar("T")
_JsonDecoder = Callable[[Any, Sequence[Samples]], Any]
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
    import msgspec

    return msgspec.msgpack.Encoder(enc_hook=_simplify)


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    import msgspec

    return msgspec.msgpack.Decoder(kind, dec_hook=_restore)


def _simplify(value: Any) -> Any:
    import numpy as np

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
    import numpy as np

    if kind is Path and isinstance(value, str):
        return Path(value)
    if (get_origin(kind) or kind) is np.ndarray:
        return _array(value)
    raise NotImplementedError(f"{kind} cannot be decoded")


def _array(value: Any) -> np.ndarray[Any, Any]:
    import numpy as np

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


def dumps(value: Any, samples: list[Samples] | None = None) -> str:
    """JSON in one spelling, of values and records; infinities and NaN are written as Python does.

    Samples are appended to the list, and a number stands in for each.
    """

    def simplified(inner: Any) -> Any:
        if isinstance(inner, Samples):
            return plain(inner, samples)
        if is_dataclass(inner):
            return {field.name: getattr(inner, field.name) for field in fields(inner)}
        if isinstance(inner, Mapping):
            return dict(inner)
        raise TypeError(f"{type(inner).__name__} cannot be written as JSON")

    return json.dumps(value, separators=(",", ":"), default=simplified)


def finite(value: Any) -> Any:
    """JSON values in which null stands for what is not a number, or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


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
    decoder: Callable[[Any, Sequence[Samples]], T] = _json_decoder(kind)  # type: ignore[arg-type]
    return decoder(value, samples)


@cache
def _json_decoder(hint: Any) -> _JsonDecoder:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Samples:
        return _sample
    if is_dataclass(hint):
        return _record(hint)
    if origin in (Union, types.UnionType):
        return _either([_json_decoder(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return _many(_json_decoder(arguments[0]))
    if origin is tuple:
        return _fixed([_json_decoder(argument) for argument in arguments])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_json_decoder(arguments[1]), float if arguments[0] is float else str)
    return _scalar(hint)


def _sample(value: Any, samples: Sequence[Samples]) -> Samples:
    if not isinstance(value, int) or not 0 <= value < len(samples):
        raise ValueError(f"there are no samples {value!r}")
    return samples[value]


def _record(kind: Any) -> _JsonDecoder:
    hints = get_type_hints(kind)
    decoders = [
        (
            field.name,
            _json_decoder(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    ]

    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"a {kind.__name__} is an object, not {value!r:.40}")
        values = {}
        for name, inner, needed in decoders:
            if name in value:
                values[name] = inner(value[name], samples)
            elif needed:
                raise ValueError(f"a {kind.__name__} lacks its {name}")
        return kind(**values)

    return decode


def _either(inner: Sequence[_JsonDecoder]) -> _JsonDecoder:
    # None apart: it is frequent, and of what fits nothing the other member's reason says more.
    others = [decoder for decoder in inner if decoder is not _nothing]
    optional = len(others) < len(inner)

    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if value is None and optional:
            return None
        for index, other in enumerate(others):
            try:
                return other(value, samples)
            except ValueError:
                if index == len(others) - 1:
                    raise
        raise AssertionError("a union has members")

    return decode


def _many(inner: _JsonDecoder) -> _JsonDecoder:
    return lambda value, samples: tuple(inner(item, samples) for item in _list(value))


def _fixed(inner: Sequence[_JsonDecoder]) -> _JsonDecoder:
    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if len(_list(value)) != len(inner):
            raise ValueError(f"{len(inner)} values are expected, not {len(value)}")
        return tuple(decoder(item, samples) for decoder, item in zip(inner, value, strict=True))

    return decode


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"a list is expected, not {value!r:.40}")
    return value


def _mapping(inner: _JsonDecoder, key_of: Callable[[str], Any]) -> _JsonDecoder:
    def decode(value: Any, samples: Sequence[Samples]) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"an object is expected, not {value!r:.40}")
        return {key_of(key): inner(item, samples) for key, item in value.items()}

    return decode


def _nothing(value: Any, samples: Sequence[Samples]) -> None:
    if value is not None:
        raise ValueError(f"nothing is expected, not {value!r:.40}")


def _scalar(hint: Any) -> _JsonDecoder:
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


class Unreadable(ValueError):
    """What was read is beyond a limit; the message says which, and begins in lower case."""


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, line ends as they are; an OSError or a ValueError says why it cannot be read."""
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise Unreadable(f"it is larger than {size(most_bytes)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None


def parse_json(text: str | bytes) -> Any:
    """JSON as values; a ValueError says what is wrong with it, or which limit it exceeds."""
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if not isinstance(text, str):
        raise Unreadable(f"it is {text!r:.40}, not text")  # SQLite stores whatever it is given
    _check_depth(text)
    # Cut: the text around a mistake may be foreign, and a document of any length.
    return json.loads(text, parse_int=_whole)


def _check_depth(text: str) -> None:
    containers = text.count("[") + text.count("{")
    if containers <= MOST_DEPTH:
        return
    if containers > MOST_CONTAINERS:
        raise Unreadable(f"it has more than {MOST_CONTAINERS:,} lists and objects")
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MOST_DEPTH:
        raise Unreadable(f"it is nested more than {MOST_DEPTH} levels deep")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise Unreadable(f"it has a number of {len(text)} digits; at most {MOST_DIGITS} are read")
    return int(text)


def parse_yaml(text: str) -> Any:
    """YAML as values; a ValueError says what is wrong with it, or which limit it exceeds.

    Numbers are read as YAML 1.2 does: in 1.1, 2:4 is the number 124 and 1e-3 is text. Dates are text, too.
    References and tags are refused: a few lines of references stand for more than any memory holds.
    """
    import yaml

    if len(text) > MOST_YAML_BYTES:
        raise Unreadable(f"it is larger than {size(MOST_YAML_BYTES)}")
    try:
        return yaml.load(text, _loader())  # noqa: S506  it is a safe one
    except yaml.YAMLError as error:
        raise Unreadable(f"it is not valid YAML: {' '.join(str(error).split())}") from error
    except TypeError as error:  # such as two keys in one mapping that cannot be compared
        raise Unreadable(f"it is not valid YAML: {error}") from error


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Checks the limits while it reads, before anything is made of what it read."""

        depth = values = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """One value with all that is in it."""
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise Unreadable("it has references (&name, *name), which are not read")
            if getattr(event, "tag", None):
                raise Unreadable(f"it has the tag {event.tag!r:.40}; tags are not read")
            self.depth, self.values = self.depth + 1, self.values + 1
            if self.depth > MOST_DEPTH:
                raise Unreadable(f"it is nested more than {MOST_DEPTH} levels deep")
            if self.values > MOST_YAML_VALUES:
                raise Unreadable(f"it has more than {MOST_YAML_VALUES:,} values")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    Loader.yaml_implicit_resolvers = {
        first: [resolver for resolver in resolvers if not resolver[0].endswith((":int", ":float", ":timestamp"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]+$"), list("-+0123456789"))
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$"),
        list("-+.0123456789"),
    )
    construct: Callable[[Any, Any], int] = lambda loader, node: _whole(node.value)  # noqa: E731
    Loader.add_constructor("tag:yaml.org,2002:int", construct)
    return Loader
