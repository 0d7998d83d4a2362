"""Rows of entries, cells and runs: inserted, found, what lists show of cells derived; pages of the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from inferlab.codec import dumps, parse_json, restored
from inferlab.errors import BadInput, InferlabError, NotThere
from inferlab.records import Cell, Estimate, Failure, Machine, Run, Status
from inferlab.store.database import Connection, Row, among, insert, update
from inferlab.store.entries import PRECEDENCE, CellEntry, Content, Entry, brief_of, digest_of
from inferlab.version import __version__

Labels = Sequence[tuple[str, str]]
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 10
_SHORTEST_PREFIX = 4
#: How the stored failure of a cell begins whose machine went away, so that it can be measured again.
LOST = '{"code":"lost"'
#: The columns of a cell that are derived are called so, then after their field of a `CellEntry`.
CACHED = "cached_"
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


def stamp(time: datetime) -> str:
    """A moment as it is stored."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(stored: str) -> datetime:
    """The moment that `stamp` wrote; without a time zone it is none."""
    time = datetime.fromisoformat(stored)
    if time.tzinfo is None:
        raise ValueError(f"{stored!r:.40} has no time zone")
    return time


def texts(row: Row, names: Iterable[str]) -> None:
    """Refuse a row that has something else where text is expected, which SQLite would store."""
    for name in names:
        if not isinstance(row[name], str):
            raise ValueError(f"{name} is {row[name]!r:.40}, not text")


def safe(value: str) -> str:
    """Text that every database takes: paths may have bytes that are no characters, PostgreSQL refuses NUL."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def new_id() -> str:
    """A name that nothing has yet."""
    import secrets  # late: whoever only reads does not need it

    # Random rather than ordered by time: what was measured on one day would share its first characters.
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def now() -> str:
    """This moment as it is stored."""
    return stamp(datetime.now(UTC))


def insert_entry(
    connection: Connection,
    kind: str,
    title: str,
    digest: str,
    content: Content,
    project_id: str | None = None,
    labels: Labels = (),
) -> str:
    """Insert an entry under a new id."""
    entry_id = new_id()
    values = {
        "id": entry_id,
        "created_at": now(),
        "kind": safe(kind),
        "title": safe(title),
        "model_digest": safe(digest),
        "inferlab_version": __version__,
        "node": own_name(),
        "note": "",
        "content": dumps(content),
        "project_id": project_id,
        "brief": brief_of(kind, content),
        "labels": labels_text(labels),
    }
    insert(connection, "entry", values)
    return entry_id


def labels_text(labels: Labels) -> str:
    """Labels as they are stored: by name, nothing where there are none."""
    return dumps({safe(name): safe(value) for name, value in sorted(dict(labels).items())}) if labels else ""


def read_labels(stored: Any) -> dict[str, str]:
    """What `labels_text` wrote; a ValueError where it is something else."""
    labels = parse_json(stored) if stored else {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError("labels are names with texts")
    return labels


def own_name() -> str:
    """What entries of this machine have as their node."""
    from inferlab.machine import host_name  # late: whoever only reads does not need it

    return safe(host_name())


def find_id(connection: Connection, prefix: str, name: str) -> str:
    """The one id that begins so."""
    if len(prefix) < _SHORTEST_PREFIX:
        raise BadInput(f"An id is given by at least its first {_SHORTEST_PREFIX} characters, not {prefix!r}.")
    possible = len(prefix) <= _ID_LENGTH and set(prefix) <= set(_ALPHABET)
    # What begins so lies in this range, which the index finds.
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    query = "SELECT id FROM entry WHERE id >= :prefix AND id < :end LIMIT 2"
    ids = [row["id"] for row in connection.rows(query, prefix=prefix, end=end)] if possible else []
    if not ids:
        raise NotThere(f"The store {name} has nothing with the id {prefix!r}. See: inferlab history")
    if len(ids) > 1:
        raise BadInput(f"Several ids begin with {prefix!r}, such as {ids[0]} and {ids[1]}. Give more characters.")
    return str(ids[0])


def entry(connection: Connection, entry_id: str) -> Row | None:
    """All of an entry, if it is there."""
    entries = connection.rows("SELECT * FROM entry WHERE id = :id", id=entry_id)
    return entries[0] if entries else None


def newest_first(connection: Connection) -> list[tuple[str, str]]:
    """The ids of all entries, each with when it was made."""
    query = "SELECT id, created_at FROM entry ORDER BY created_at DESC, id DESC"
    return [(row["id"], row["created_at"]) for row in connection.rows(query)]


def remove_entry(connection: Connection, entry_id: str) -> None:
    """Remove an entry; its cells and runs go with it."""
    connection.rows("DELETE FROM entry WHERE id = :id", id=entry_id)


def insert_cell(connection: Connection, entry_id: str, position: int, cell: Cell, status: Status) -> int:
    """Insert a cell of an entry; returns its row."""
    values = {
        "entry_id": entry_id,
        "position": position,
        "cell_id": cell.id,
        "engine": safe(cell.engine),
        "status": status,
        "content": dumps(cell),
    }
    insert(connection, "cell", values)
    query = "SELECT cell.row FROM cell WHERE entry_id = :entry_id AND position = :position"
    return int(connection.rows(query, entry_id=entry_id, position=position)[0]["row"])


def insert_run(connection: Connection, cell_row: int, position: int, measured: Run) -> None:
    """Insert what one process measured of a cell."""
    from inferlab.store.samples import pack_run

    content, samples = pack_run(measured)
    values = {
        "cell_row": cell_row,
        "position": position,
        "started_at": safe(measured.started_at),
        "content": content,
        "samples": samples,
    }
    insert(connection, "run", values)


def cells(connection: Connection, entry_id: str) -> list[Row]:
    """The cells of a benchmark, in the order of its plan."""
    return connection.rows("SELECT * FROM cell WHERE entry_id = :id ORDER BY position", id=entry_id)


def runs(connection: Connection, cell_row: int) -> list[Row]:
    """The runs of a cell, in the order in which they were saved."""
    return connection.rows("SELECT * FROM run WHERE cell_row = :cell_row ORDER BY position", cell_row=cell_row)


def cell_row(connection: Connection, benchmark_id: str, cell_id: str) -> int:
    """The cell's row, locked; of cells alike (a plan may name an engine twice), the first that is pending."""
    query = (
        "SELECT cell.row FROM cell WHERE entry_id = :entry_id AND cell_id = :cell_id "
        "ORDER BY CASE status WHEN 'pending' THEN 0 ELSE 1 END, position LIMIT 1"
    )
    alike = connection.rows(query + connection.lock, entry_id=benchmark_id, cell_id=cell_id)
    if not alike:
        raise InferlabError(f"The benchmark {benchmark_id} has no cell {cell_id}, or was removed meanwhile.")
    return int(alike[0]["row"])


def drop_cut_runs(connection: Connection, cell_row: int) -> None:
    """Remove the runs of a cell that the user cut short."""
    for run in runs(connection, cell_row):
        if parse_json(run["content"]).get("interrupted"):
            connection.rows("DELETE FROM run WHERE run.row = :row", row=run["row"])


# What lists show is derived, and kept beside what it is derived from, so that none need be opened.


def runs_of(connection: Connection, cell_row: int) -> Iterator[Run]:
    """The runs of a cell, in the order in which they were saved."""
    from inferlab.store.samples import unpack_run

    for row in runs(connection, cell_row):
        yield unpack_run(row["content"], row["samples"])


def refresh(connection: Connection, cell_row: int) -> bool:
    """Derive what is shown of a cell from its runs again; says whether there are numbers."""
    cell = connection.rows("SELECT content FROM cell WHERE cell.row = :row", row=cell_row)
    if not cell:
        return False
    try:
        measured = list(runs_of(connection, cell_row))
    except ValueError:
        # Damaged runs must not keep a cell from being finished; whoever opens it is told.
        measured = []
    return keep_numbers(connection, cell_row, restored(Cell, parse_json(cell[0]["content"])), measured)


def keep_numbers(connection: Connection, cell_row: int, cell: Cell, measured: Sequence[Run]) -> bool:
    """Keep beside a cell what lists show of its runs; says whether there are numbers."""
    from inferlab.measure.stats import peak_memory_bytes, summarize

    try:
        summary = summarize(cell, measured)
    except (ValueError, ArithmeticError):
        # Nor must runs that no statistics can be made of, as by a clock that stood still.
        summary = None
    values = {
        **_numbers("items_per_sec", None if summary is None else summary.items_per_sec),
        **_numbers("median_ms", None if summary is None else summary.median_ms),
        "wrong": any(run.check.status == "mismatch" for run in measured),
        "peak_memory_bytes": peak_memory_bytes(measured),
        **(_origin(measured[0].versions, measured[0].machine) if measured else {}),
    }
    _update_cached(connection, cell_row, values)
    return summary is not None


def _origin(versions: Mapping[str, str], machine: Machine) -> dict[str, str]:
    """The engine's version and the kind of machine that measured a cell."""
    from inferlab.measure.stats import machine_kind, version_among

    return {"engine_version": safe(version_among(versions)), "machine": safe(machine_kind(machine))}


def refresh_origins(connection: Connection) -> None:
    """Derive from the runs of cells what versions before the fourth did not keep beside them."""
    query = "SELECT content FROM run WHERE cell_row = :row ORDER BY position"
    for cell in connection.rows("SELECT cell.row FROM cell WHERE status <> 'pending'"):
        try:
            contents = [parse_json(run["content"]) for run in connection.rows(query, row=cell["row"])]
            if not contents:
                continue
            origin = _origin(contents[0]["versions"], restored(Machine, contents[0]["machine"]))
            peaks = [content["peak_memory_bytes"] for content in contents if content["peak_memory_bytes"]]
            values = {**origin, "peak_memory_bytes": max(peaks, default=None)}
        except (ValueError, LookupError, TypeError, AttributeError):
            continue  # damaged, or of another hand: whoever opens it is told
        _update_cached(connection, cell["row"], values)


def _update_cached(connection: Connection, cell_row: int, values: Mapping[str, Any]) -> None:
    update(connection, "cell", cell_row, **{f"{CACHED}{name}": value for name, value in values.items()})


def refresh_briefs(connection: Connection) -> None:
    """Derive what lists show of documents from their content again."""
    for row in connection.rows("SELECT id FROM entry WHERE kind <> 'benchmark'"):
        # One by one: all contents together may be more than the memory holds.
        (entry,) = connection.rows("SELECT kind, content, model_digest FROM entry WHERE id = :id", id=row["id"])
        try:
            content = parse_json(entry["content"])
        except (ValueError, TypeError, RecursionError):
            content = None
        if isinstance(content, dict):  # else it is damaged, and whoever opens it is told
            digest = entry["model_digest"] or digest_of(content)
            update(connection, "entry", row["id"], brief=brief_of(entry["kind"], content), model_digest=digest)


def _numbers(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


# The history, read without opening any run.


def history_page(
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


def history_line(connection: Connection, entry_id: str) -> Entry:
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
    for row in counted_cells(connection, "entry_id", entry_ids) if entry_ids else ():
        cells[row["entry_id"]].append(cell_entry(row))
    return cells


def counted_cells(connection: Connection, column: str, members: Sequence[Any]) -> list[Row]:
    """The cells with one of these in a column, each with the number of its runs, in the order of their plans."""
    condition, values = among(column, members)
    runs = "SELECT count(*) FROM run WHERE run.cell_row = cell.row"
    query = f"SELECT cell.*, ({runs}) AS runs FROM cell WHERE {condition} ORDER BY entry_id, position"  # noqa: S608
    return connection.rows(query, **values)


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
