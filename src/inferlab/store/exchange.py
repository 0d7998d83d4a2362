"""Entries as a file that travels, JSON lines, whole or refused; and whether all that a store holds can be read.

First `{"format": "inferlab-store/1", …}`, then one object an entry with its cells and runs, samples in base64,
and last `{"end": …}` with the SHA-256 of all lines before it. The file may be compressed with gzip.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from inferlab.codec import dumps, parse_json, restored
from inferlab.errors import BadInput, InferlabError
from inferlab.records import Cell, Failure, Model, Plan, Run
from inferlab.records.generation import GenerationSweep
from inferlab.store import SCHEMA_VERSION, VERSION_TABLE, rows
from inferlab.store.database import KEYS, TABLES, Connection, Database, Row, insert
from inferlab.store.entries import BENCHMARK, PRECEDENCE, brief_of, digest_of
from inferlab.store.formats import GENERATION_RUNS, current
from inferlab.store.rows import moment, read_labels
from inferlab.store.samples import unpack, unpack_run
from inferlab.units import size
from inferlab.version import __version__

# Version 1: the first.
FORMAT = "inferlab-store/1"
_FAMILY = "inferlab-store/"
# The note is its reader's own; all else must agree for two entries to be the same.
_ENTRY = ("id", "created_at", "kind", "title", "model_digest", "inferlab_version", "node")
_CELL = ("cell_id", "engine", "status")
#: Of one entry, its samples included: what it stands for in memory is about four times as large.
MOST_LINE_BYTES = 256 << 20
# JSON shrinks to a tenth and samples hardly; what expands by more was made to.
_MOST_EXPANSION = 200
_ID = re.compile(r"[a-z2-7]{10}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# Of a table the column that names what its rows belong to, and the table of that.
_OWNERS = (
    ("cell", "entry_id", "entry"),
    ("run", "cell_row", "cell"),
    ("entry", "project_id", "project"),
    ("job", "project_id", "project"),
)


def give(connection: Connection, ids: Sequence[str]) -> Iterator[bytes]:
    """The lines of a file with these entries."""
    digest = hashlib.sha256()
    head = {"format": FORMAT, "inferlab_version": __version__, "entries": len(ids)}
    for value in chain([head], (_exported(connection, entry_id) for entry_id in ids)):
        line = dumps(value).encode() + b"\n"
        if len(line) > MOST_LINE_BYTES:
            raise BadInput(
                f"The entry {value['id']} takes {size(len(line))} in an export, and up to {size(MOST_LINE_BYTES)} "
                "are imported. Copy the whole store: inferlab store backup FILE"
            )
        digest.update(line)
        yield line
    yield dumps({"end": {"entries": len(ids), "sha256": digest.hexdigest()}}).encode() + b"\n"


def _exported(connection: Connection, entry_id: str) -> dict[str, Any]:
    entry = rows.entry(connection, entry_id)
    if entry is None:
        raise BadInput(f"The entry {entry_id} was removed while it was exported.")
    rows.texts(entry, (*_ENTRY, "note", "content"))
    return {
        **{name: entry[name] for name in _ENTRY},
        "note": entry["note"],
        "labels": rows.read_labels(entry["labels"]),
        "content": parse_json(entry["content"]),
        "cells": [_exported_cell(connection, cell) for cell in rows.cells(connection, entry_id)],
    }


def _exported_cell(connection: Connection, row: Row) -> dict[str, Any]:
    rows.texts(row, (*_CELL, "content"))
    return {
        **{name: row[name] for name in _CELL},
        "failure": None if row["failure"] is None else parse_json(row["failure"]),
        "content": parse_json(row["content"]),
        "runs": [
            {
                "started_at": run["started_at"],
                "content": parse_json(run["content"]),
                "samples": base64.b64encode(run["samples"]).decode(),
            }
            for run in rows.runs(connection, row["row"])
        ],
    }


@contextmanager
def opened(path: Path) -> Iterator[Iterator[bytes]]:
    """A file of ours, opened and checked to its end; refused with a sentence where it is none or not whole."""
    try:
        with path.open("rb") as plain:
            zipped = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            most = path.stat().st_size * _MOST_EXPANSION if zipped else sys.maxsize
            with gzip.open(plain) if zipped else plain as file:
                _check(_lines(file, most))
                file.seek(0)
                yield _lines(file, most)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"The file {path} is damaged ({error}). Nothing was imported.") from error
    except OSError as error:
        raise BadInput(
            f"The file {path} cannot be read: {error.strerror or error}. Nothing was imported."
        ) from error
    except BadInput:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        reason = str(error) or type(error).__name__
        raise BadInput(
            f"{path} is not a complete file of inferlab export ({reason}). Nothing was imported."
        ) from error


def _lines(file: Any, most_bytes: int) -> Iterator[bytes]:
    """The lines of a file; one that is too long, or too much altogether, is refused before it is read."""
    total = 0
    while line := file.readline(MOST_LINE_BYTES + 1):
        total += len(line)
        if len(line) > MOST_LINE_BYTES:
            raise ValueError(f"it has a line of more than {size(MOST_LINE_BYTES)}")
        if total > most_bytes:
            raise ValueError(f"it expands to more than {_MOST_EXPANSION} times its size")
        yield line


def announced(path: Path) -> int:
    """How many entries a file of ours has; refused where it is none or not whole."""
    with opened(path) as lines:
        count = parse_json(next(lines))["entries"]
        if type(count) is not int or count < 0:
            raise ValueError(f"it announces {count!r:.40} entries")
        return count


def _check(lines: Iterator[bytes]) -> None:
    head = next(lines, b"null")
    # The head of ours is short; other files may have a first line of any length.
    first = parse_json(head) if len(head) < 10_000 else None
    name = first.get("format") if isinstance(first, dict) else None
    if not str(name).startswith(_FAMILY):
        raise ValueError("it does not begin as one")
    if name != FORMAT:
        raise ValueError(f"its format is {name}, this inferlab reads {FORMAT}: use a newer one")
    digest = hashlib.sha256()
    last = head
    for line in lines:
        digest.update(last)
        last = line
    end = parse_json(last).get("end")
    if end is None:
        raise ValueError("its end is missing")
    if end["sha256"] != digest.hexdigest():
        raise ValueError("its content does not agree with its checksum")


def take(connection: Connection, lines: Iterator[bytes]) -> list[str]:
    """Insert the entries of a checked file; those there already are skipped, or refused if they differ."""
    added = []
    for line in lines:
        value = parse_json(line)
        if "format" in value or "end" in value:
            continue
        entry_id = value["id"]
        _check_entry(value)
        value["content"] = current(value["content"])
        # Older versions did not say which model a document is about.
        value["model_digest"] = value["model_digest"] or digest_of(value["content"])
        if rows.entry(connection, entry_id) is None:
            _add(connection, value)
            added.append(entry_id)
        elif _same(_exported(connection, entry_id)) != _same(value):
            raise BadInput(
                f"The store has other content under the id {entry_id}. Nothing was imported: remove the one in "
                f"the store first, or import into another store. See: inferlab remove {entry_id}"
            )
    return added


def _same(value: dict[str, Any]) -> str:
    # As text, because NaN does not equal itself. Files of versions before there were labels have none.
    return json.dumps({"labels": {}, **value, "note": ""}, sort_keys=True)


def _check_entry(value: dict[str, Any]) -> None:
    """Refuse what could not be read back later; a ValueError says why."""
    if not all(isinstance(value[name], str) for name in (*_ENTRY, "note")):
        raise ValueError("an entry has something else where it should have text")
    if not _ID.fullmatch(value["id"]) or not _TIME.fullmatch(value["created_at"]):
        raise ValueError(f"{value['id']!r:.40} of {value['created_at']!r:.40} is not an entry")
    rows.moment(value["created_at"])
    rows.read_labels(dumps(value.get("labels") or {}))
    if not isinstance(value["content"], dict):
        raise ValueError(f"the content of {value['id']} is not an object")
    _check_content(value["kind"], value["content"])
    for cell in value["cells"]:
        rows.texts(cell, _CELL)
        _check_cell(cell["content"], cell["failure"])
        if cell["status"] not in PRECEDENCE:
            raise ValueError(f"a cell cannot be {cell['status']!r:.40}")
        for measured in cell["runs"]:
            rows.texts(measured, ("started_at", "samples"))
            restored(Run, measured["content"], unpack(base64.b64decode(measured["samples"], validate=True)))


def _check_content(kind: str, content: dict[str, Any]) -> None:
    if kind == BENCHMARK:
        restored(Plan, content["plan"])
        restored(Model, content["model"])
    if content.get("format") == GENERATION_RUNS:
        restored(GenerationSweep, content)


def _check_cell(content: Any, failure: Any) -> None:
    restored(Cell, content)
    if failure is not None:
        restored(Failure, failure)


def _add(connection: Connection, value: dict[str, Any]) -> None:
    shared = {name: value[name] for name in (*_ENTRY, "note")}
    brief = brief_of(value["kind"], value["content"])
    labels = rows.labels_text(list((value.get("labels") or {}).items()))
    insert(connection, "entry", {**shared, "content": dumps(value["content"]), "brief": brief, "labels": labels})
    for position, fields in enumerate(value["cells"]):
        cell = {
            **{name: fields[name] for name in _CELL},
            "entry_id": value["id"],
            "position": position,
            "failure": None if fields["failure"] is None else dumps(fields["failure"]),
            "content": dumps(fields["content"]),
        }
        insert(connection, "cell", cell)
    for row, fields in zip(rows.cells(connection, value["id"]), value["cells"], strict=True):
        for index, measured in enumerate(fields["runs"]):
            run = {
                "cell_row": row["row"],
                "position": index,
                "started_at": measured["started_at"],
                "content": dumps(measured["content"]),
                "samples": base64.b64decode(measured["samples"]),
            }
            insert(connection, "run", run)
        if fields["status"] != "pending":
            rows.refresh(connection, row["row"])


# Whether a store is sound: its file, its version, its references, and whether all can be read back.


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
            f"SELECT {table}.{KEYS[table]} AS name FROM {table} WHERE {column} IS NOT NULL "  # noqa: S608
            f"AND {column} NOT IN (SELECT {owner}.{KEYS[owner]} FROM {owner})"
        )
        for row in connection.rows(query):
            yield f"{table} of a missing {owner}: {table} {row['name']}"


def _unreadable(connection: Connection, table: str, check: Callable[[Row], None]) -> Iterator[str]:
    key = KEYS[table]
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
    if row["brief"]:
        _object(row["brief"])
    read_labels(row["labels"])
    _check_content(row["kind"], _object(row["content"]))


def _cell(row: Row) -> None:
    failure = None if row["failure"] is None else parse_json(row["failure"])
    _check_cell(parse_json(row["content"]), failure)
    if row["status"] not in PRECEDENCE:
        raise ValueError(f"its status is {row['status']!r:.40}")


def _run(row: Row) -> None:
    unpack_run(row["content"], row["samples"])


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
