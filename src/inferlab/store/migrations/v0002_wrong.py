"""Beside a cell's numbers, whether its outputs were wrong: the history had to search the text of all its runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# As version 1 wrote it, and as it cannot stand within any text: there the quotes would be escaped.
_WRONG = '%"check":{"status":"mismatch"%'


def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
    """Add the column, and fill it for cells that are finished."""
    execute("ALTER TABLE cell ADD COLUMN cached_wrong BOOLEAN")
    wrong_runs = "SELECT 1 FROM run WHERE run.cell_row = cell.row AND run.content LIKE :wrong"
    execute(f"UPDATE cell SET cached_wrong = EXISTS ({wrong_runs}) WHERE status <> 'pending'", wrong=_WRONG)  # noqa: S608
