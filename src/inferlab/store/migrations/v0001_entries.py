"""The first tables: entries, cells, runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
    """Make the tables."""
    postgresql = dialect == "postgresql"
    # Byte order, in which ids and times are sorted and their beginnings found.
    ordered = ' COLLATE "C"' if postgresql else ""
    serial, blob = ("SERIAL", "BYTEA") if postgresql else ("INTEGER", "BLOB")
    execute(f"""
        CREATE TABLE entry (
            id VARCHAR(10){ordered} NOT NULL PRIMARY KEY,
            created_at VARCHAR(27){ordered} NOT NULL,
            kind TEXT NOT NULL,
            title TEXT NOT NULL,
            model_digest TEXT NOT NULL,
            inferlab_version TEXT NOT NULL,
            node TEXT NOT NULL,
            note TEXT NOT NULL,
            content TEXT NOT NULL
        )
    """)
    execute("CREATE INDEX entry_by_time ON entry (created_at, id)")
    execute(f"""
        CREATE TABLE cell (
            "row" {serial} NOT NULL PRIMARY KEY,
            entry_id VARCHAR(10){ordered} NOT NULL REFERENCES entry (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            cell_id TEXT NOT NULL,
            engine TEXT NOT NULL,
            status TEXT NOT NULL,
            failure TEXT,
            cached_items_per_sec FLOAT,
            cached_items_per_sec_low FLOAT,
            cached_items_per_sec_high FLOAT,
            cached_median_ms FLOAT,
            cached_median_ms_low FLOAT,
            cached_median_ms_high FLOAT,
            content TEXT NOT NULL
        )
    """)
    execute("CREATE UNIQUE INDEX cell_by_entry ON cell (entry_id, position)")
    execute(f"""
        CREATE TABLE run (
            "row" {serial} NOT NULL PRIMARY KEY,
            cell_row INTEGER NOT NULL REFERENCES cell ("row") ON DELETE CASCADE,
            position INTEGER NOT NULL,
            started_at TEXT NOT NULL,
            content TEXT NOT NULL,
            samples {blob} NOT NULL
        )
    """)
    execute("CREATE UNIQUE INDEX run_by_cell ON run (cell_row, position)")
