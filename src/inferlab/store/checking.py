"""Is a store sound: its file, its version, its references, and whether everything in it can be read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from inferlab.codec import parse_json, restored
from inferlab.errors import InferlabError
from inferlab.records import Cell, Failure, Model, Plan, Run
from inferlab.records.generation import GenerationSweep
from inferlab.store.database import SCHEMA_VERSION, TABLES, VERSION_TABLE, Connection, Database, Row
from inferlab.store.entries import BENCHMARK, PRECEDENCE
from inferlab.store.formats import GENERATION_RUNS
from inferlab.store.rows import moment, read_labels

_KEYS = {"entry": "id", "cell": "row", "run": "row", "project": "id", "job": "id"}
# Of a table the column that names what its rows belong to, and the table of that.
_OWNERS = (
    ("cell", "entry_id", "entry"),
    ("run", "cell_row", "cell"),
    ("entry", "project_id", "project"),
    ("job", "project_id", "project"),
)


def problems(database: Database) -> Iterator[str]:
    """What is wrong with a store, a line each; nothing is changed."""
    with database.checking() as connection:
        tables = database.tables(connection)
        yield from database.faults(connection)
        if VERSION_TABLE not in tables:
            yield f"it is not marked as a store of inferlab: the table {VERSION_TABLE} is missing"
            return
        stamps = connection.rows(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
        numbers = [row["version_num"] for row in stamps]
        if numbers != [f"{SCHEMA_VERSION:04}"]:
            versions = " and ".join(map(str, numbers)) or "none"
            yield f"its tables are of version {versions}, this inferlab reads version {SCHEMA_VERSION:04}"
            return
        if missing := TABLES - tables:
            yield f"tables are missing: {', '.join(sorted(missing))}"
            return
        yield from _orphans(connection)
        for table, check in _CHECKS.items():
            yield from _unreadable(connection, table, check)


def _orphans(connection: Connection) -> Iterator[str]:
    """What belongs to something that is not there."""
    for table, column, owner in _OWNERS:
        query = (
            f"SELECT {table}.{_KEYS[table]} AS name FROM {table} WHERE {column} IS NOT NULL "  # noqa: S608
            f"AND {column} NOT IN (SELECT {owner}.{_KEYS[owner]} FROM {owner})"
        )
        for row in connection.rows(query):
            yield f"{table} of a missing {owner}: {table} {row['name']}"


def _unreadable(connection: Connection, table: str, check: Callable[[Row], None]) -> Iterator[str]:
    key = _KEYS[table]
    for name in [row["name"] for row in connection.rows(f"SELECT {table}.{key} AS name FROM {table}")]:  # noqa: S608
        # One by one: the samples of all runs together may be more than the memory holds.
        try:
            _check_text(key, name)
            (row,) = connection.rows(f"SELECT * FROM {table} WHERE {table}.{key} = :name", name=name)  # noqa: S608
            for column, value in row.items():
                _check_text(column, value)
            check(row)
        except (ValueError, KeyError, TypeError, RecursionError, InferlabError) as error:
            yield f"{table} {name} cannot be read: {error or type(error).__name__}"


def _check_text(column: str, value: Any) -> None:
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"its {column} is not UTF-8") from None


def _entry(row: Row) -> None:
    moment(row["created_at"])
    content = _object(row["content"])
    if row["brief"]:
        _object(row["brief"])
    read_labels(row["labels"])
    if row["kind"] == BENCHMARK:
        restored(Plan, content["plan"])
        restored(Model, content["model"])
    if content.get("format") == GENERATION_RUNS:
        restored(GenerationSweep, content)


def _cell(row: Row) -> None:
    restored(Cell, parse_json(row["content"]))
    if row["failure"] is not None:
        restored(Failure, parse_json(row["failure"]))
    if row["status"] not in PRECEDENCE:
        raise ValueError(f"its status is {row['status']!r:.40}")


def _run(row: Row) -> None:
    from inferlab.store.samples import unpack

    restored(Run, parse_json(row["content"]), unpack(row["samples"]))


def _project(row: Row) -> None:
    moment(row["created_at"])
    moment(row["changed_at"])
    restored(Model, parse_json(row["content"]))


def _job(row: Row) -> None:
    for name in ("created_at", "queued_at", "started_at", "ended_at"):
        if row[name] is not None:
            moment(row[name])
    _object(row["content"])


def _object(text: str) -> dict[str, Any]:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("its content is not an object")
    return value


_CHECKS: dict[str, Callable[[Row], None]] = {
    "entry": _entry,
    "cell": _cell,
    "run": _run,
    "project": _project,
    "job": _job,
}
