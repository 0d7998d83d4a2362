"""Single rows: how entries are named, found and inserted, and how a cell is found."""

from __future__ import annotations

import json
import platform
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, case, delete, select
from sqlalchemy import insert as sql_insert

from inferlab.errors import BadInput, InferlabError
from inferlab.store.schema import cell, entry, run
from inferlab.store.serialize import dumps
from inferlab.version import __version__

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 10
_SHORTEST_PREFIX = 4


def stamp(time: datetime) -> str:
    """A moment as it is stored."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(stored: str) -> datetime:
    """The moment that `stamp` wrote."""
    return datetime.fromisoformat(stored)


def safe(value: str) -> str:
    """Text that every database takes: paths may have bytes that are no characters, PostgreSQL refuses NUL."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def insert(connection: Connection, kind: str, title: str, digest: str, content: Mapping[str, Any]) -> str:
    """Insert an entry under a new id."""
    # Random rather than ordered by time: what was measured on one day would share its first characters.
    entry_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    connection.execute(
        sql_insert(entry).values(
            id=entry_id,
            created_at=stamp(datetime.now(UTC)),
            kind=safe(kind),
            title=safe(title),
            model_digest=safe(digest),
            inferlab_version=__version__,
            node=safe(platform.node()),
            note="",
            content=dumps(content),
        )
    )
    return entry_id


def found(connection: Connection, prefix: str, name: str) -> str:
    """The one id that begins so."""
    if len(prefix) < _SHORTEST_PREFIX:
        raise BadInput(f"An id is given by at least its first {_SHORTEST_PREFIX} characters, not {prefix!r}.")
    possible = len(prefix) <= _ID_LENGTH and set(prefix) <= set(_ALPHABET)
    # What begins so lies in this range, which the index finds.
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    query = select(entry.c.id).where(entry.c.id >= prefix, entry.c.id < end).limit(2)
    ids = list(connection.execute(query).scalars()) if possible else []
    if not ids:
        raise BadInput(f"The store {name} has nothing with the id {prefix!r}. See: inferlab history")
    if len(ids) > 1:
        raise BadInput(f"Several ids begin with {prefix!r}, such as {ids[0]} and {ids[1]}. Give more characters.")
    return str(ids[0])


def cell_row(connection: Connection, benchmark_id: str, cell_id: str) -> int:
    """The cell's row, locked; of cells alike (a plan may name an engine twice), the first that is pending."""
    row = connection.execute(
        select(cell.c.row)
        .where(cell.c.entry_id == benchmark_id, cell.c.cell_id == cell_id)
        .order_by(case((cell.c.status == "pending", 0), else_=1), cell.c.position)
        .limit(1)
        .with_for_update()
    ).scalar()
    if row is None:
        raise InferlabError(f"The benchmark {benchmark_id} has no cell {cell_id}, or was removed meanwhile.")
    return int(row)


def drop_cut_runs(connection: Connection, cell_row: int) -> None:
    """Remove the runs of a cell that the user cut short."""
    for row, content in connection.execute(
        select(run.c.row, run.c.content).where(run.c.cell_row == cell_row)
    ).all():
        if json.loads(content).get("interrupted"):
            connection.execute(delete(run).where(run.c.row == row))
