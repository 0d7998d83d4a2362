"""A page of the history, read without opening any run."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, exists, func, or_, select, tuple_

from inferlab.records import Cell, Failure, Status
from inferlab.store.cache import COLUMNS
from inferlab.store.entries import PRECEDENCE, CellEntry, Entry
from inferlab.store.schema import cell, entry, run
from inferlab.store.serialize import restored

# As `serialize.dumps` writes it, and as it cannot stand within any text: there the quotes would be escaped.
_WRONG = '"check":{"status":"mismatch"'


def page(
    connection: Connection,
    limit: int,
    before: str | None,
    model: str | None,
    engine: str | None,
    status: Status | None,
) -> list[Entry]:
    """The newest entries that fit, of those older than `before`."""
    # All but the content, which may be large.
    query = select(*[column for column in entry.c if column is not entry.c.content])
    if before is not None:
        last = select(entry.c.created_at, entry.c.id).where(entry.c.id == before)
        created_at, entry_id = connection.execute(last).one()
        query = query.where(tuple_(entry.c.created_at, entry.c.id) < tuple_(created_at, entry_id))
    if model is not None:
        query = query.where(
            or_(
                entry.c.title.icontains(model, autoescape=True),
                entry.c.model_digest.startswith(model, autoescape=True),
            )
        )
    if engine is not None:
        query = query.where(_has(cell.c.engine == engine))
    if status is not None:
        query = query.where(*_status(status))
    query = query.order_by(entry.c.created_at.desc(), entry.c.id.desc()).limit(limit)
    rows = connection.execute(query).mappings().all()
    cells = _cells(connection, [row["id"] for row in rows])
    return [
        Entry(**{**row, "created_at": datetime.fromisoformat(row["created_at"])}, cells=tuple(cells[row["id"]]))
        for row in rows
    ]


def _has(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(cell.c.entry_id == entry.c.id, condition)


def _status(status: Status) -> list[ColumnElement[bool]]:
    """As `Entry.status`: no cell has a status that goes before; what has no cells is done."""
    sooner = PRECEDENCE[: PRECEDENCE.index(status)]
    wanted = [~_has(cell.c.status.in_(sooner))]
    if status != "done":
        wanted.append(_has(cell.c.status == status))
    return wanted


def _cells(connection: Connection, entry_ids: list[str]) -> dict[str, list[CellEntry]]:
    runs = select(func.count()).select_from(run).where(run.c.cell_row == cell.c.row).scalar_subquery()
    wrong = exists().where(run.c.cell_row == cell.c.row, run.c.content.contains(_WRONG, autoescape=True))
    query = (
        select(cell, runs.label("runs"), wrong.label("wrong"))
        .where(cell.c.entry_id.in_(entry_ids))
        .order_by(cell.c.entry_id, cell.c.position)
    )
    found: dict[str, list[CellEntry]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        found[row["entry_id"]].append(_cell(row))
    return found


def _cell(row: RowMapping) -> CellEntry:
    cached: dict[str, Any] = {column.name.removeprefix("cached_"): row[column.name] for column in COLUMNS}
    return CellEntry(
        cell_id=row["cell_id"],
        cell=restored(Cell, json.loads(row["content"])),
        status=row["status"],
        failure=None if row["failure"] is None else restored(Failure, json.loads(row["failure"])),
        runs=row["runs"],
        wrong=bool(row["wrong"]),
        **cached,
    )
