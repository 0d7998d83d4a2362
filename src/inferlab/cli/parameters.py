"""Kinds of values that several commands take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from inferlab import kinds

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT])?(?:I?B)?")


class Share(click.ParamType[float]):
    """A share such as 1% or 0.01."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it as a fraction."""
        if isinstance(value, float):
            return value
        try:
            (share,) = kinds.Share().read(str(value).strip())
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return share


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
    """Values of a kind separated by commas, each once, in the order given; a list of them in a plan file."""

    def __init__(self, kind: kinds.Kind) -> None:
        self.kind, self.name = kind, kind.name

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
        values = [each for part in parts for each in self.kind.read(str(part).strip())]
        if len(values) > kinds.MOST_VALUES:
            raise ValueError(f"These are {len(values)} values; more than {kinds.MOST_VALUES} are not measured.")
        return tuple(dict.fromkeys(values))


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
