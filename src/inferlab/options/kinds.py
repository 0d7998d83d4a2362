"""The kinds of values that options take: read from text, checked as Python has them, written as text again."""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput

#: No list has more values than this.
MOST_VALUES = 1000
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_LONGEST_LABEL = 200
_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*x])(\d+))?")


def refusal(name: str, wanted: str, value: Any) -> BadInput:
    """The error for a keyword argument that is not what it must be."""
    return BadInput(f"{name} is {wanted}, not {value!r} ({type(value).__name__}).")


class Kind:
    """Any text; its subclasses take less."""

    name = "text"
    #: What stands for one value in the help.
    metavar = "TEXT"
    #: What Python gives is checked as a whole, such as a dictionary, and not value by value.
    whole = False

    def read(self, part: str) -> Sequence[Any]:
        """The values that one part of a list stands for; a ValueError says what is wrong with it."""
        return [part]

    def collect(self, values: Sequence[Any]) -> Any:
        """What a record holds of several values that were read."""
        if len(values) > MOST_VALUES:
            raise ValueError(f"These are {len(values)} values; more than {MOST_VALUES} are not measured.")
        return tuple(dict.fromkeys(values))

    def check(self, name: str, value: Any) -> Any:
        """A value that a Python program gave, if it is one; of plain text, whatever reads it says more."""
        return value

    def limited(self, name: str, value: Any) -> Any:
        """The value, if it is within the limits of its kind."""
        return value

    def text(self, value: Any) -> str:
        """The value as the command line takes it."""
        return str(value)

    def join(self, values: Sequence[Any], name: str = "values") -> str:
        """Several values as the command line takes them; a ValueError says which cannot stand in a list."""
        texts = [self.text(value) for value in values]
        for text in texts:
            if "," in text or text != text.strip():
                raise ValueError(f"'{text}' cannot be in a list of {name}")
        return ",".join(texts)


class Word(Kind):
    """A word, of some or of any."""

    name = "words"
    metavar = "NAME"

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        if choices:
            self.metavar = f"[{'|'.join(choices)}]"

    def read(self, part: str) -> Sequence[str]:
        """A word."""
        if not part:
            raise ValueError("a name is missing between commas.")
        if self.choices and part not in self.choices:
            raise ValueError(f"'{part}' is not one of {', '.join(self.choices)}.")
        return [part]

    def check(self, name: str, value: Any) -> str:
        """Any word: whether it is a possible one, the validation of the request says."""
        if isinstance(value, str) and value:
            return value
        raise refusal(name, "a word", value)

    def limited(self, name: str, value: Any) -> Any:
        """One of the choices, where there are some."""
        if self.choices and value not in self.choices:
            raise BadInput(f"'{value}' is not possible here; it is one of {', '.join(self.choices)}.")
        return value


class Number(Kind):
    """A finite number, perhaps with a lower end that it may have, or (`above`) may not."""

    name = "rates"
    metavar = "NUMBER"

    def __init__(self, least: float | None = None, above: bool = False, unit: str = "") -> None:
        self.least, self.above, self.unit = least, above, unit and f" {unit}"

    def read(self, part: str) -> Sequence[float]:
        """A number."""
        try:
            return [float(part)]
        except ValueError:
            raise ValueError(f"'{part}' is not a number.") from None

    def check(self, name: str, value: Any) -> float:
        """A real number."""
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value):
            return float(self.limited(name, float(value)))
        raise refusal(name, "a number", value)

    def limited(self, name: str, value: Any) -> Any:
        """The value, if it is finite and not below the least."""
        if self.least is None:
            return value
        if not self.least <= value < math.inf or (self.above and value == self.least):
            limit = f"{'more than' if self.above else 'at least'} {self.least:g}{self.unit}"
            finite = " and finite" if self.unit else ""
            raise BadInput(f"{name} must be {limit}{finite}, not {value:g}.")
        return value

    def text(self, value: Any) -> str:
        """All digits that tell it from others, and none more."""
        return repr(value).removesuffix(".0")


class Share(Number):
    """A share such as 1% or 0.01."""

    name = "share"
    metavar = "SHARE"

    def read(self, part: str) -> Sequence[float]:
        """A fraction."""
        try:
            return [float(part[:-1]) / 100 if part.endswith("%") else float(part)]
        except ValueError:
            raise ValueError(f"'{part}' is not a share such as 1% or 0.01.") from None

    def limited(self, name: str, value: Any) -> Any:
        """A share of something, neither nothing nor all."""
        if not 0 < value < 1:
            raise BadInput(f"{name} must lie between 0 and 100 %, not {100 * value:g} %.")
        return value

    def text(self, value: Any) -> str:
        """In percent where that is exact."""
        percent = f"{100 * value:.12g}"
        return f"{percent}%" if float(percent) / 100 == value else super().text(value)


class Whole(Number):
    """Whole numbers: 8, ranges 1-4, 2-10+4, 1-64*2; where `most` is, also max, which is None."""

    name = "numbers"

    def __init__(self, least: int | None = None, most: bool = False) -> None:
        super().__init__(least)
        self.most = most
        self.metavar = "N|max" if most else "N"

    def read(self, part: str) -> Sequence[Any]:
        """A number, a range, or max."""
        if part == "max" and self.most:
            return [None]
        if part.lstrip("-").isdigit():
            return [int(part)]
        bounds = _RANGE.fullmatch(part)
        if not bounds:
            raise ValueError(f"'{part}' is not a whole number such as 8, nor a range such as 1-4 or 1-64*2.")
        first, last, sign, step = int(bounds[1]), int(bounds[2]), bounds[3], int(bounds[4] or 1)
        if first > last or (sign and step < (2 if sign in "*x" else 1)) or (sign in ("*", "x") and first < 1):
            raise ValueError(f"The range '{part}' does not lead from its first to its last number.")
        if sign in ("*", "x"):
            values = [first]
            while values[-1] * step <= last:
                values.append(values[-1] * step)
            return values
        if (last - first) // step >= MOST_VALUES:
            raise ValueError(f"The range '{part}' has more than {MOST_VALUES} numbers.")
        return range(first, last + 1, step)

    def check(self, name: str, value: Any) -> Any:
        """A whole number, or all that there are."""
        if self.most and value == "max":
            return None
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return self.limited(name, int(value))
        raise refusal(name, "a whole number", value)

    def text(self, value: Any) -> str:
        """A number, or max."""
        return "max" if value is None and self.most else super().text(value)


class Levels(Number):
    """Shares of zeros such as 0.5,0.9; all stands for those that profiles have, none for no level."""

    name = "levels"
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


class LevelsByName(Kind):
    """Shares of zeros by the names of weights: NAME=LEVEL, a dictionary in Python."""

    name = "levels"
    metavar = "NAME=LEVEL"
    whole = True

    def read(self, part: str) -> Sequence[tuple[str, float]]:
        """A name and its level; of several equals signs the last counts."""
        name, equals, level = part.rpartition("=")
        try:
            if not equals or not name:
                raise ValueError
            return [(name, float(level))]
        except ValueError:
            raise ValueError(f"'{part}' is not of the form NAME=LEVEL, such as conv1.weight=0.9.") from None

    def collect(self, values: Sequence[Any]) -> dict[str, float]:
        """By name."""
        return dict(values)

    def check(self, name: str, value: Any) -> dict[str, float]:
        """A dictionary, or none."""
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise refusal(name, "a dictionary such as {'conv1.weight': 0.9}", value)
        return {key: NUMBER.check(f"{name}[{key!r}]", level) for key, level in value.items()}


class File(Kind):
    """A path."""

    metavar = "FILE"

    def check(self, name: str, value: Any) -> str:
        """Text, or a path object."""
        if isinstance(value, str | os.PathLike) and (path := os.fspath(value)) and isinstance(path, str):
            return path
        raise refusal(name, "a path", value)


class Flag(Kind):
    """True or False."""

    metavar = ""

    def check(self, name: str, value: Any) -> bool:
        """A truth value, nothing that merely stands for one."""
        if isinstance(value, bool):
            return value
        raise refusal(name, "True or False", value)


class Shapes(Kind):
    """Shapes of inputs, by position or by name."""

    metavar = "SHAPES"

    def check(self, name: str, value: Any) -> str:
        """Shapes as the command line takes them."""
        if isinstance(value, str):
            return Word().check(name, value)
        given = shapes(name, value)
        if isinstance(given, dict):
            return ",".join(f"{key}={_dims(shape)}" for key, shape in given.items())
        return ",".join(map(_dims, given))


def shapes(name: str, value: Any) -> dict[str, tuple[int, ...]] | list[tuple[int, ...]]:
    """Shapes by name, or in the order of the inputs; a single list of numbers is the shape of the only input."""
    wanted = "text, a list such as [[1, 3, 224, 224]], or a dictionary such as {'x': [1, 3, 224, 224]}"

    def shape(sizes: Any) -> tuple[int, ...]:
        if isinstance(sizes, str | bytes | Mapping) or not isinstance(sizes, Iterable):
            raise refusal(name, wanted, value)
        return tuple(Whole(1).check(name, size) for size in sizes)

    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and key for key in value):
            raise refusal(name, wanted, value)
        return {key: shape(sizes) for key, sizes in value.items()}
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise refusal(name, wanted, value)
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

    def read(self, part: str) -> Sequence[tuple[str, str]]:
        """A key and its value."""
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise ValueError(f"The engine option '{part}' is not of the form KEY=VALUE.")
        return [(key, value)]

    def collect(self, values: Sequence[Any]) -> tuple[tuple[str, str], ...]:
        """In an order that does not depend on how they were given."""
        return tuple(sorted(dict(values).items()))

    def text(self, value: Any) -> str:
        """KEY=VALUE."""
        return f"{value[0]}={value[1]}"

    def check(self, name: str, value: Any) -> tuple[tuple[str, str], ...]:
        """Engines read 1 and 0 for yes and no."""
        if value is None:
            return ()
        if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
            raise refusal(name, "a dictionary such as {'spinning': 0}", value)
        for key, setting in value.items():
            if not isinstance(setting, str | numbers.Real):
                raise refusal(f"{name}[{key!r}]", "text or a number", setting)
        texts = {key: str(int(one) if isinstance(one, bool) else one) for key, one in value.items()}
        return self.collect(list(texts.items()))


class Labels(Pairs):
    """What an entry is marked with: NAME=VALUE, a dictionary in Python."""

    metavar = "NAME=VALUE"

    def read(self, part: str) -> Sequence[tuple[str, str]]:
        """A name and its value."""
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"The label '{part}' is not of the form NAME=VALUE, such as branch=main.")
        try:
            return [self.limited("", (name.strip(), value.strip()))]
        except BadInput as error:
            raise ValueError(str(error)) from None

    def check(self, name: str, value: Any) -> tuple[tuple[str, str], ...]:
        """A dictionary of short texts."""
        if value is None:
            return ()
        texts = isinstance(value, Mapping) and [one for pair in value.items() for one in pair]
        if texts is False or not all(isinstance(text, str) for text in texts):
            raise refusal(name, "a dictionary of texts such as {'branch': 'main'}", value)
        return self.collect([self.limited(name, pair) for pair in value.items()])

    def limited(self, name: str, value: Any) -> Any:
        """A name of letters, digits and _ . -, with a text of one line that is not too long."""
        key, text = value
        if not _LABEL.fullmatch(key):
            raise BadInput(f"A label's name has up to 40 letters, digits and _ . -, unlike {key!r:.60}.")
        if not text or len(text) > _LONGEST_LABEL or not text.isprintable():
            raise BadInput(f"The label {key} is one line of 1 to {_LONGEST_LABEL} characters, not {text!r:.60}.")
        return value


class Prices(Kind):
    """Prices by name, such as c7i=0.0892,c7g=0.0725; a dictionary in Python."""

    name = "prices"
    whole = True

    def read(self, part: str) -> Sequence[tuple[str, float]]:
        """A name and its price."""
        name, equals, price = part.rpartition("=")
        try:
            amount = float(price)
        except ValueError:
            amount = 0.0
        if not (equals and name) or not 0 < amount < math.inf:
            raise ValueError(f"'{part}' is not a price per hour such as c7i=0.0892.")
        return [(name.strip(), amount)]

    def limited(self, name: str, value: Any) -> Any:
        """A price above nothing."""
        Number(0, above=True).limited(f"{name} of {value[0]}", value[1])
        return value

    def check(self, name: str, value: Any) -> tuple[tuple[str, float], ...]:
        """Prices above nothing."""
        if value is None:
            return ()
        if not isinstance(value, Mapping):
            raise refusal(name, "a dictionary such as {'c7i': 0.0892}", value)
        price = Number(0, above=True)
        return tuple((Word().check(name, key), price.check(f"{name}[{key!r}]", one)) for key, one in value.items())

    def text(self, value: Any) -> str:
        """NAME=PRICE."""
        return f"{value[0]}={Number().text(value[1])}"


WORD, NUMBER, WHOLE, FILE, FLAG = Word(), Number(), Whole(), File(), Flag()


def check_each(kind: Kind, name: str, value: Any, optional: bool = False) -> tuple[Any, ...]:
    """One value or several, each once."""
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    values = value if several else (value,)
    checked = dict.fromkeys(None if optional and one is None else kind.check(name, one) for one in values)
    if not checked:
        raise BadInput(f"{name} is an empty list: give at least one value.")
    return tuple(checked)
