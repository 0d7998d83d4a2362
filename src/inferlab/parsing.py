"""JSON and YAML that others wrote, read within limits: size, depth, number of values and length of numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from inferlab.units import size

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
        raise Unreadable("it is no text in UTF-8") from None


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
        raise Unreadable(f"it is no YAML: {' '.join(str(error).split())}") from error
    except TypeError as error:  # such as two keys in one mapping that cannot be compared
        raise Unreadable(f"it is no YAML: {error}") from error


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
        first: [one for one in known if not one[0].endswith((":int", ":float", ":timestamp"))]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]+$"), list("-+0123456789"))
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$"),
        list("-+.0123456789"),
    )
    made: Callable[[Any, Any], int] = lambda loader, node: _whole(node.value)  # noqa: E731
    Loader.add_constructor("tag:yaml.org,2002:int", made)
    return Loader
