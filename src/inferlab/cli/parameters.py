"""Kinds of values that several commands take."""

from __future__ import annotations

import click


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
