"""Open the database behind a store: which one it is, and whether its tables are ours and of our version.

entry   A benchmark, or a document; both share their ids and the history. `created_at` is ISO 8601 in UTC with
        microseconds, so that its order is that of time. `content` is JSON: {"plan": …, "model": …}, or the
        document. Text, because JSON proper has no infinities and no NaN. `brief` is derived from it for lists.
        Without a `project_id` it belongs to every project of its model.
cell    A cell of a benchmark. What begins with cached_ is derived from the runs and can be made again:
        `Store.rebuild`.
run     What one process measured. `content` is JSON of everything but the samples, which `samples.py` packs.
project A model with a name; `content` is the model as JSON, with the `input_shapes` of the project beside its
        fields.
job     What is to be measured, is measured or was; `content` is what was asked, as JSON. Only the runner of
        its `node` takes it out of the queue; `queued_at` is its place in it.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.store.connection import Connection, Database
from inferlab.store.sqlite import SQLite

#: The modules in `migrations/` that lead from one version to the next: plain SQL that never changes again. What
#: lists show of a document is derived from it by the code of today after the last of them.
#: 1: entries, cells, runs. 2: cell.cached_wrong. 3: projects, jobs, entry.project_id, entry.brief.
MIGRATIONS = ("v0001_entries", "v0002_wrong", "v0003_projects")
SCHEMA_VERSION = len(MIGRATIONS)
#: As alembic wrote it, which made the first three versions: the number as text of four digits in `version_num`.
VERSION_TABLE = "inferlab_version"
TABLES = frozenset({"entry", "cell", "run", "project", "job"})
#: How long a writer waits for another before it gives up.
BUSY_S = 30.0


class NoStore(BadInput):
    """There is no such store, and whoever only wants to read must not make one."""


def default_path() -> Path:
    """Where the user's own store lies."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "inferlab" / "lab.db"


def open_database(url: str | None, make: bool = True) -> Database:
    """Open a database by path or URL, migrated where that is needed, and made unless it only shall be read."""
    database = connect(url, make)
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def connect(url: str | None, make: bool) -> Database:
    """Connect to a database by path or URL, whatever is in it."""
    if url is None:
        path = default_path()
        if not make:
            return _sqlite(path, make)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"The folder {path.parent} of the store cannot be made: {error.strerror}. Name another store "
                "with --store or INFERLAB_STORE."
            ) from error
        return _sqlite(path, make)
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _sqlite(Path(url).expanduser(), make)
    if scheme == "sqlite":
        # Three slashes before a relative path, four before an absolute one.
        return _sqlite(Path(rest.removeprefix("/")), make)
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        from inferlab.store.postgresql import PostgreSQL

        return PostgreSQL(url, BUSY_S)
    raise BadInput(
        f"A store is a path (SQLite) or a URL that begins with postgresql://, not with {scheme}://. "
        "Change --store or INFERLAB_STORE."
    )


def _sqlite(path: Path, make: bool) -> SQLite:
    if not (make or path.exists()):
        raise NoStore(
            f"There is no store {path}. Name the right one with --store or INFERLAB_STORE; one is made when "
            "something is measured: inferlab benchmark demo:resnet50 -t 3"
        )
    return SQLite(path, BUSY_S)


def _prepare(database: Database) -> None:
    """Make or migrate the tables where they are missing or old; refuse those that are not ours or newer."""
    with database.reading() as connection:
        if _version(connection, database) == SCHEMA_VERSION:
            return
    if database.read_only:
        raise BadInput(
            f"The store {database.label} cannot be written to, and its tables are missing or of an older "
            "inferlab. Copy it to a folder of yours and name the copy with --store."
        )
    with database.migrating() as connection:
        # Another process may have done it while we waited.
        version = _version(connection, database)
        if version < SCHEMA_VERSION:
            _migrate(connection, database.dialect, version)


def _migrate(connection: Connection, dialect: str, version: int) -> None:
    for name in MIGRATIONS[version:]:
        import_module(f"inferlab.store.migrations.{name}").upgrade(connection.rows, dialect)
    if version:
        from inferlab.store.rows import refresh_briefs

        connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = :new", new=f"{SCHEMA_VERSION:04}")  # noqa: S608
        refresh_briefs(connection)
        return
    connection.rows(
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    connection.rows(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:new)", new=f"{SCHEMA_VERSION:04}")  # noqa: S608


def _version(connection: Connection, database: Database) -> int:
    """The version of the tables, 0 where there are none; those that are not ours or newer are refused."""
    label, tables = database.label, database.tables(connection)
    if VERSION_TABLE not in tables:
        # A file is ours alone; a database that is shared may have other tables than those we need.
        foreign = tables & TABLES if database.shared else tables
        if foreign:
            raise BadInput(
                f"{label} is a database of another program: it has the table {min(foreign)!r} and is not "
                "marked as ours. Name another store."
            )
        return 0
    versions = connection.rows(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
    stated = versions[0]["version_num"] if versions else None
    version = int(stated) if stated is not None and str(stated).isdecimal() else 0
    if not version:
        raise BadInput(f"The version of the store {label} cannot be read ({stated!r}). Name another store.")
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"The store {label} has tables of version {version}; this inferlab knows them up to version "
            f"{SCHEMA_VERSION}. Use the newer inferlab that wrote it, or name another store."
        )
    return version
