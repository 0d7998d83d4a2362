"""What was measured, kept: in SQLite, or in PostgreSQL by URL; nothing heavy is imported before one is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inferlab.store.entries import CellEntry, Document, Entry, Heading, Stored

if TYPE_CHECKING:
    from inferlab.store.connection import Database
    from inferlab.store.store import Store

__all__ = ["CellEntry", "Document", "Entry", "Heading", "Stored", "open_store"]


def open_store(url: str | None = None, make: bool = True) -> Store:
    """Open the store that is named, else that of `INFERLAB_STORE`, else the user's own; it is made if missing.

    A path is an SQLite file; `postgresql://…` is a PostgreSQL database. Without `make` a file that is missing
    is told of by `NoStore`, and none is left behind.
    """
    from inferlab.store.database import open_database
    from inferlab.store.store import Store

    return Store(open_database(url or os.environ.get("INFERLAB_STORE") or None, make))


@contextmanager
def inspect_store(url: str | None = None) -> Iterator[Database]:
    """The database behind a store that is there, as it is: neither made nor migrated."""
    from inferlab.store.database import connect

    database = connect(url or os.environ.get("INFERLAB_STORE") or None, make=False)
    try:
        yield database
    finally:
        database.close()
