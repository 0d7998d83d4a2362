"""Results as HTML for notebooks: plain tables; all text is foreign and escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence

_CELL = "padding:0.2em 0.8em;text-align:{}"


def table(
    head: str,
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    left: Collection[int] = (),
    strong: Collection[int] = (),
) -> str:
    """A table under a heading, its first row the head; `left` columns align so, `strong` rows stand out."""
    title, *body = rows
    parts = [f"<p><strong>{html.escape(head)}</strong></p>", "<table>"]
    parts += [f"<thead>{_row(title, 'th', left)}</thead>", "<tbody>"]
    parts += [_row(row, "td", left, index in strong) for index, row in enumerate(body, 1)]
    return "\n".join([*parts, "</tbody>", "</table>", *_listed(notes)])


def lines(pairs: Sequence[tuple[str, str]], notes: Sequence[str] = (), strong: Collection[str] = ()) -> str:
    """A table of names and values."""
    body = [_row(pair, "td", (0, 1), pair[0] in strong) for pair in pairs]
    return "\n".join(["<table>", "<tbody>", *body, "</tbody>", "</table>", *_listed(notes)])


def split(found: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Lines of the form "name: value" as pairs, and those that are notes."""
    pairs, notes = [], []
    for line in found:
        name, colon, value = line.partition(": ")
        if colon and name != "Note":
            pairs.append((name, value))
        else:
            notes.append(line)
    return pairs, notes


def _row(cells: Sequence[str], tag: str, left: Collection[int], strong: bool = False) -> str:
    def marked(text: str) -> str:
        return f"<strong>{html.escape(text)}</strong>" if strong else html.escape(text)

    inner = "".join(
        f'<{tag} style="{_CELL.format("left" if index in left else "right")}">{marked(text)}</{tag}>'
        for index, text in enumerate(cells)
    )
    return f"<tr>{inner}</tr>"


def _listed(notes: Sequence[str]) -> list[str]:
    return ["<ul>", *(f"<li>{html.escape(note)}</li>" for note in notes), "</ul>"] if notes else []
