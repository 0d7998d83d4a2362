"""A table of layers that sorts, filters and searches in the browser, which draws only the rows in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nicegui import json
from nicegui.element import Element

from inferlab.views.profile_tables import NAMES, Columns
from inferlab.views.report_parts import Cell

#: Names are cut to this many characters, in their middle.
_LONGEST = 30
# Of the usual character and around a text, in pixels; a title needs room for the arrow that tells the order too.
_CHARACTER, _PADDING, _ARROW = 8.6, 26, 20


class LayerTable(Element, component="layer_table.js"):
    """Rows of layers; `noun` is what the count calls them."""

    def __init__(self, name: str, noun: str = "layers", searched: str = "id, weight, kernel") -> None:
        super().__init__()
        self._props["content"] = "[]"
        self._props["name"] = name
        self._props["noun"] = noun
        self._props["searched"] = searched
        self._props["longest"] = _LONGEST

    def fill(self, text: str) -> None:
        """Show other rows, as `content` makes them of columns."""
        self._props["content"] = text
        self.update()


def content(columns: Columns) -> str:
    """Columns as the browser gets them: titles, texts, and the numbers that they are sorted by."""
    # One text: NiceGUI wraps every item of a list to observe it, which takes longer than all the rest.
    return json.dumps([_column(title, cells) for title, cells in columns.items()])


def _column(title: str, cells: Sequence[str | Cell]) -> dict[str, Any]:
    texts = [one if isinstance(one, str) else one.text for one in cells]
    longest = min(max(map(len, texts), default=0), _LONGEST)
    return {
        "title": title,
        "texts": texts,
        "numbers": None if title in NAMES else [one.number for one in cells if isinstance(one, Cell)],
        "width": round(_PADDING + max(_CHARACTER * longest, _CHARACTER * len(title) + _ARROW)),
    }
