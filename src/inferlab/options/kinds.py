"""The kinds of values with a structure: levels of sparsity, shapes of inputs, pairs of a name and a value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput
from inferlab.options import NUMBER, Kind, Number, Whole, Word, refusal

_PRICE = Number(0, above=True)


class Levels(Number):
    """Shares of zeros such as 0.5,0.9; all stands for those that profiles have, none for no level."""

    metavar = "LEVELS"
    whole = True

    def read(self, part: str) -> Sequence[float]:
        """A number, all of them, or none."""
        return _named_levels(part) if part in ("all", "none") else super().read(part)

    def check(self, name: str, value: Any) -> Any:
        """Some numbers, "all" or "none"."""
        if value is None:
            return None
        if isinstance(value, str) and value in ("all", "none"):
            return _named_levels(value)
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise refusal(name, "a list such as [0.6, 0.9], 'all' or 'none'", value)
        return tuple(dict.fromkeys(NUMBER.check(name, level) for level in value))

    def join(self, values: Sequence[Any], name: str = "values") -> str:
        """By name where they have one."""
        return "all" if tuple(values) == _named_levels("all") else super().join(values, name) or "none"


def _named_levels(name: str) -> tuple[float, ...]:
    # Imported late: only few commands need the records of profiles.
    from inferlab.records.profile import LEVELS

    return LEVELS if name == "all" else ()


class Shapes(Kind):
    """Shapes of inputs, by position or by name."""

    metavar = "SHAPES"

    def check(self, name: str, value: Any) -> str:
        """Shapes as the command line takes them."""
        if isinstance(value, str):
            return Word().check(name, value)
        by_input = shapes(name, value)
        if isinstance(by_input, dict):
            return ",".join(f"{key}={_dims(shape)}" for key, shape in by_input.items())
        return ",".join(map(_dims, by_input))


def shapes(name: str, value: Any) -> dict[str, tuple[int, ...]] | list[tuple[int, ...]]:
    """Shapes by name, or in the order of the inputs; a single list of numbers is the shape of the only input."""
    examples = "text, a list such as [[1, 3, 224, 224]], or a dictionary such as {'x': [1, 3, 224, 224]}"

    def shape(sizes: Any) -> tuple[int, ...]:
        if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Iterable):
            raise refusal(name, examples, value)
        return tuple(Whole(1).check(name, size) for size in sizes)

    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and key for key in value):
            raise refusal(name, examples, value)
        return {key: shape(sizes) for key, sizes in value.items()}
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise refusal(name, examples, value)
    several = list(value)
    if several and all(isinstance(size, numbers.Integral) for size in several):
        several = [several]
    if not several:
        raise BadInput(f"{name} is empty: give at least one shape.")
    return [shape(sizes) for sizes in several]


def _dims(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


class Pairs(Kind):
    """Options of an engine: KEY=VALUE, a dictionary in Python."""

    metavar = "KEY=VALUE"
    whole = True
    #: What Python gives.
    dictionary = "a dictionary such as {'spinning': 0}"

    def read(self, part: str) -> Sequence[tuple[str, Any]]:
        """A key and its value."""
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"The engine option '{part}' is not of the form KEY=VALUE.")
        return [(key, value)]

    def collect(self, values: Sequence[Any]) -> Any:
        """In an order that does not depend on how they were given."""
        return tuple(sorted(dict(values).items()))

    def text(self, value: Any) -> str:
        """KEY=VALUE."""
        return f"{value[0]}={value[1]}"

    def check(self, name: str, value: Any) -> Any:
        """A dictionary by text, or none."""
        if value is None:
            return self.collect(())
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise refusal(name, self.dictionary, value)
        return self.collect([(key, self.check_value(name, key, value)) for key in value])

    def check_value(self, name: str, key: str, values: Mapping[str, Any]) -> Any:
        """What stands under a key; engines read 1 and 0 for yes and no."""
        value = values[key]
        if not key:
            raise refusal(name, self.dictionary, values)
        if not isinstance(value, str | numbers.Real):
            raise refusal(f"{name}[{key!r}]", "text or a number", value)
        return str(int(value) if isinstance(value, bool) else value)


class LevelsByName(Pairs):
    """Shares of zeros by the names of weights: NAME=LEVEL, a dictionary in Python."""

    metavar = "NAME=LEVEL"
    dictionary = "a dictionary such as {'conv1.weight': 0.9}"

    def read(self, part: str) -> Sequence[tuple[str, float]]:
        """A name and its level; of several equals signs the last counts."""
        name, _, level = part.rpartition("=")
        try:
            if not name:
                raise ValueError
            return [(name, float(level))]
        except ValueError:
            raise ValueError(f"'{part}' is not of the form NAME=LEVEL, such as conv1.weight=0.9.") from None

    def collect(self, values: Sequence[Any]) -> dict[str, float]:
        """By name."""
        return dict(values)

    def check_value(self, name: str, key: str, values: Mapping[str, Any]) -> float:
        """A number."""
        return NUMBER.check(f"{name}[{key!r}]", values[key])


class Prices(Pairs):
    """Prices by name, such as c7i=0.0892,c7g=0.0725; a dictionary in Python."""

    dictionary = "a dictionary such as {'c7i': 0.0892}"
    #: In the order in which they were given.
    collect = Kind.collect

    def read(self, part: str) -> Sequence[tuple[str, float]]:
        """A name and its price."""
        name, _, price = part.rpartition("=")
        try:
            amount = float(price)
        except ValueError:
            amount = 0.0
        if not name or not 0 < amount < math.inf:
            raise ValueError(f"'{part}' is not a price per hour such as c7i=0.0892.")
        return [(name.strip(), amount)]

    def limited(self, name: str, value: Any) -> Any:
        """A price above nothing."""
        _PRICE.limited(f"{name} of {value[0]}", value[1])
        return value

    def check_value(self, name: str, key: str, values: Mapping[str, Any]) -> float:
        """A price above nothing."""
        return _PRICE.check(f"{name}[{Word().check(name, key)!r}]", values[key])

    def text(self, value: Any) -> str:
        """NAME=PRICE."""
        return f"{value[0]}={NUMBER.text(value[1])}"
