"""A page of the history, read without opening any run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from inferlab.codec import dumps, parse_json, restored
from inferlab.records import Cell, Failure, Status
from inferlab.store.database import Connection, Row, among
from inferlab.store.entries import PRECEDENCE, CellEntry, Entry
from inferlab.store.rows import CACHED, Labels, labels_text, moment, read_labels, texts

# All but the content, which may be large.
_TEXTS = ("id", "created_at", "kind", "title", "model_digest", "inferlab_version", "node", "note", "brief",
           "labels")  # fmt: skip
_COLUMNS = ", ".join((*_TEXTS, "project_id"))
# What is text among what is derived of a cell.
_ORIGIN = ("engine_version", "machine")
_HAS = "EXISTS (SELECT 1 FROM cell WHERE cell.entry_id = entry.id AND cell.{} = :{})"
# A generation, or what was made of some, has no rows of cells; its brief lists engines and states, as JSON.
_SAYS = "(substr(kind, 1, 10) = 'generation' AND brief LIKE :{} ESCAPE '/')"


#: An entry belongs to the project that it was made in, or, made elsewhere, to every project of its model.
OF_PROJECT = (
    "(project_id = :project OR (project_id IS NULL AND model_digest = "
    "(SELECT project.model_digest FROM project WHERE project.id = :project)))"
)


def page(
    connection: Connection,
    limit: int,
    before: str | None,
    model: str | None,
    engine: str | None,
    status: Status | None,
    project_id: str | None = None,
    kinds: Sequence[str] = (),
    labels: Labels = (),
) -> list[Entry]:
    """The newest entries that fit, of those older than `before`."""
    conditions, values = list[str](), dict[str, str]()
    if before is not None:
        conditions.append("(created_at, id) < (SELECT created_at, id FROM entry WHERE id = :before)")
        values["before"] = before
    if model is not None:
        conditions.append("(lower(title) LIKE lower(:part) ESCAPE '/' OR model_digest LIKE :beginning ESCAPE '/')")
        values |= {"part": f"%{_literal(model)}%", "beginning": f"{_literal(model)}%"}
    if engine is not None:
        conditions.append(f"({_HAS.format('engine', 'engine')} OR {_SAYS.format('engines')})")
        values |= {"engine": engine, "engines": f'{{"engine":[%{_literal(dumps(engine))}%],"num_cores":%'}
    if status is not None:
        # As `Entry.status`: no cell has a status that goes before; what has no cells is done.
        sooner = PRECEDENCE[: PRECEDENCE.index(status)]
        names = (*sooner, status)
        has = {name: f"({_HAS.format('status', name)} OR {_SAYS.format(f'{name}_said')})" for name in names}
        conditions += [f"NOT {has[state]}" for state in sooner]
        conditions += [] if status == "done" else [has[status]]
        values |= {name: name for name in names} | {f"{name}_said": f'%"statuses":[%"{name}"%]%' for name in names}
    if kinds:
        chosen, named = among("kind", kinds)
        conditions.append(chosen)
        values |= named
    for index, label in enumerate(labels):
        # Within a text the quotes would be escaped.
        conditions.append(f"labels LIKE :label{index} ESCAPE '/'")
        values[f"label{index}"] = f"%{_literal(labels_text([label])[1:-1])}%"
    if project_id is not None:
        conditions.append(OF_PROJECT)
        values["project"] = project_id
    condition = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.rows(
        f"SELECT {_COLUMNS} FROM entry {condition} ORDER BY created_at DESC, id DESC LIMIT :limit",  # noqa: S608
        limit=limit,
        **values,
    )
    return _entries(connection, rows)


def one(connection: Connection, entry_id: str) -> Entry:
    """The entry with this id, which is there."""
    query = f"SELECT {_COLUMNS} FROM entry WHERE id = :id"  # noqa: S608
    return _entries(connection, connection.rows(query, id=entry_id))[0]


def _entries(connection: Connection, rows: list[Row]) -> list[Entry]:
    for row in rows:
        texts(row, _TEXTS)
    cells = _cells(connection, [row["id"] for row in rows])
    return [
        Entry(
            **{
                **row,
                "created_at": moment(row["created_at"]),
                "brief": parse_json(row["brief"]) if row["brief"] else {},
                "labels": read_labels(row["labels"]),
            },
            cells=tuple(cells[row["id"]]),
        )
        for row in rows
    ]


def _literal(text: str) -> str:
    """Text that stands for itself in a pattern whose escape is the slash."""
    return text.replace("/", "//").replace("%", "/%").replace("_", "/_")


def _cells(connection: Connection, entry_ids: list[str]) -> dict[str, list[CellEntry]]:
    cells: dict[str, list[CellEntry]] = defaultdict(list)
    if not entry_ids:
        return cells
    condition, values = among("entry_id", entry_ids)
    runs = "SELECT count(*) FROM run WHERE run.cell_row = cell.row"
    query = f"SELECT cell.*, ({runs}) AS runs FROM cell WHERE {condition} ORDER BY entry_id, position"  # noqa: S608
    for row in connection.rows(query, **values):
        cells[row["entry_id"]].append(cell_entry(row))
    return cells


def cell_entry(row: Row) -> CellEntry:
    """A cell with its cached numbers."""
    cached: dict[str, Any] = {
        name.removeprefix(CACHED): value for name, value in row.items() if name.startswith(CACHED)
    }
    texts(row, ("cell_id", "status"))
    if row["status"] not in PRECEDENCE:
        raise ValueError(f"a cell cannot be {row['status']!r:.40}")
    for name, value in cached.items():
        if value is not None and not isinstance(value, str if name in _ORIGIN else float | int):
            raise ValueError(f"the {name} of a cell is {value!r:.40}")
    return CellEntry(
        cell_id=row["cell_id"],
        cell=restored(Cell, parse_json(row["content"])),
        status=row["status"],
        failure=None if row["failure"] is None else restored(Failure, parse_json(row["failure"])),
        runs=row["runs"],
        **{**cached, "wrong": bool(cached["wrong"])},
    )
