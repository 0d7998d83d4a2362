"""Labels of entries; beside a cell's numbers the engine's version, the machine and the memory, for series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
    """Add the columns; those of cells are derived from their runs afterwards."""
    execute("ALTER TABLE entry ADD COLUMN labels TEXT DEFAULT '' NOT NULL")
    execute("ALTER TABLE cell ADD COLUMN cached_engine_version TEXT")
    execute("ALTER TABLE cell ADD COLUMN cached_machine TEXT")
    execute("ALTER TABLE cell ADD COLUMN cached_peak_memory_bytes FLOAT")
