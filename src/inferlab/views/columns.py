"""Rows of text as columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inferlab.escaping import one_line
from inferlab.units import shortened as shortened


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """One line a row, columns two spaces apart and aligned to the right but for those named; no trailing space."""
    rows = [[one_line(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(row, widths, left)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> list[str]:
    pairs = enumerate(zip(row, widths, strict=True))
    return [text.ljust(width) if index in left else text.rjust(width) for index, (text, width) in pairs]


def markdown(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """The same as a Markdown table, the first row its head."""
    head, *body = [[_markdown_cell(text) for text in row] for row in rows]
    rule = [":---" if index in left else "---:" for index in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _markdown_cell(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")
