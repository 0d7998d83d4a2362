"""Kinds of values that several commands take."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import click

_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*x])(\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])?(?:I?B)?")
_MOST = 1000


class Share(click.ParamType[float]):
    """A share such as 1% or 0.01."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it as a fraction."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            return float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            self.fail(f"'{value}' is not a share such as 1% or 0.01.", param, ctx)


class Bytes(click.ParamType[int]):
    """A size such as 500M or 4G, in binary units, or a number of bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it as a number of bytes."""
        found = _SIZE.fullmatch(str(value).strip().upper())
        if not found or not float(found[1]):
            self.fail(f"'{value}' is not a size such as 500M or 4G.", param, ctx)
        return round(float(found[1]) * (1 << 10 * "BKMGT".index(found[2] or "B")))


class Listed(click.ParamType[tuple[Any, ...]]):
    """Values separated by commas, each once, in the order given; a list of them in a plan file."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """Read them all."""
        if isinstance(value, tuple):
            return value
        try:
            return self.parse(value if isinstance(value, list) else str(value).split(","))
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, parts: Sequence[object]) -> tuple[Any, ...]:
        """The values that all parts stand for; a ValueError says what is wrong with them."""
        found = [each for part in parts for each in self.read(str(part).strip())]
        if len(found) > _MOST:
            raise ValueError(f"These are {len(found)} values; more than {_MOST} are not measured.")
        return tuple(dict.fromkeys(found))

    def read(self, part: str) -> Sequence[Any]:
        """The values that one part stands for; a ValueError says what is wrong with it."""
        raise NotImplementedError


class Numbers(Listed):
    """Whole numbers: 1,8,32 or ranges 1-4, 2-10+4, 1-64*2; where `most` is, also max, which is None."""

    name = "numbers"

    def __init__(self, most: bool = False) -> None:
        self._most = most

    def read(self, part: str) -> Sequence[int | None]:
        """A number, a range, or max."""
        if part == "max" and self._most:
            return [None]
        if part.lstrip("-").isdigit():
            return [int(part)]
        found = _RANGE.fullmatch(part)
        if not found:
            raise ValueError(f"'{part}' is not a whole number such as 8, nor a range such as 1-4 or 1-64*2.")
        first, last, sign, step = int(found[1]), int(found[2]), found[3], int(found[4] or 1)
        if first > last or (sign and step < (2 if sign in "*x" else 1)) or (sign in ("*", "x") and first < 1):
            raise ValueError(f"The range '{part}' does not lead from its first to its last number.")
        if sign in ("*", "x"):
            values = [first]
            while values[-1] * step <= last:
                values.append(values[-1] * step)
            return values
        if (last - first) // step >= _MOST:
            raise ValueError(f"The range '{part}' has more than {_MOST} numbers.")
        return range(first, last + 1, step)


class Rates(Listed):
    """Numbers such as 50,100.5."""

    name = "rates"

    def read(self, part: str) -> Sequence[float]:
        """A number."""
        try:
            return [float(part)]
        except ValueError:
            raise ValueError(f"'{part}' is not a number.") from None


class Prices(Listed):
    """Prices by name, such as c7i=0.0892,c7g=0.0725."""

    name = "prices"

    def read(self, part: str) -> Sequence[tuple[str, float]]:
        """A name and its price."""
        name, equals, price = part.rpartition("=")
        try:
            found = float(price)
        except ValueError:
            found = 0.0
        if not (equals and name) or not 0 < found < math.inf:
            raise ValueError(f"'{part}' is not a price an hour such as c7i=0.0892.")
        return [(name.strip(), found)]


class Levels(Rates):
    """Shares of zeros such as 0.5,0.9; all stands for those that profiles have, none for no level."""

    name = "levels"

    def read(self, part: str) -> Sequence[float]:
        """A number, all of them, or none."""
        if part == "none":
            return ()
        if part == "all":
            from inferlab.records.profile import LEVELS

            return LEVELS
        return super().read(part)


class Words(Listed):
    """Words separated by commas, of some or of any."""

    name = "words"

    def __init__(self, *choices: str) -> None:
        self._choices = choices

    def read(self, part: str) -> Sequence[str]:
        """A word."""
        if not part:
            raise ValueError("a name is missing between commas.")
        if self._choices and part not in self._choices:
            raise ValueError(f"'{part}' is not one of {', '.join(self._choices)}.")
        return [part]


class Levelled(click.ParamType[tuple[str, float]]):
    """A name and its level, such as conv1.weight=0.9; of several equals signs the last counts."""

    name = "levelled"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read both."""
        if isinstance(value, tuple):
            return value
        name, equals, level = str(value).rpartition("=")
        try:
            if not equals or not name:
                raise ValueError
            return name, float(level)
        except ValueError:
            self.fail(f"'{value}' is not of the form NAME=LEVEL, such as conv1.weight=0.9.", param, ctx)
