"""Open the database behind a store: which one it is, and whether its tables are ours and of our version."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from inferlab.errors import BadInput
from inferlab.store import sqlite
from inferlab.store.problems import NoStore, explained
from inferlab.store.schema import SCHEMA_VERSION, VERSION_TABLE, metadata

#: How long a writer waits for another before it gives up.
BUSY_S = 30.0
MIGRATIONS = Path(__file__).parent / "migrations"
# Any number that no other program is likely to lock by.
_PG_LOCK = 0x1FE21AB


@dataclass(frozen=True, slots=True)
class Database:
    """A database that is ready: connections that only read, connections that write, and its name for sentences."""

    reader: Engine
    writer: Engine
    label: str
    read_only: bool = False


def default_path() -> Path:
    """Where the user's own store lies."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "inferlab" / "lab.db"


def open_database(url: str | None, make: bool = True) -> Database:
    """Open a database by path or URL, migrated where that is needed, and made unless it only shall be read."""
    database = _connected(url, make)
    try:
        with explained(database.label):
            _prepare(database)
    except BaseException:
        database.reader.dispose()
        raise
    return database


def _connected(url: str | None, make: bool) -> Database:
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
        # As SQLAlchemy writes it: sqlite:///relative, sqlite:////absolute.
        return _sqlite(Path(rest.removeprefix("/")), make)
    if scheme in ("postgresql", "postgres", "postgresql+psycopg"):
        return _postgresql(url)
    raise BadInput(
        f"A store is a path (SQLite) or a URL that begins with postgresql://, not with {scheme}://. "
        "Change --store or INFERLAB_STORE."
    )


def _sqlite(path: Path, make: bool) -> Database:
    if not (make or path.exists()):
        raise NoStore(
            f"There is no store {path}. Name the right one with --store or INFERLAB_STORE; one is made when "
            "something is measured: inferlab benchmark demo:resnet50 -t 3"
        )
    file = sqlite.File(path, BUSY_S)
    engine = create_engine("sqlite://", creator=file.connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads before it writes may not be able to wait for its lock: writers take it first.
        write = connection.get_execution_options().get("inferlab_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return Database(engine, engine.execution_options(inferlab_write=True), str(path), file.read_only)


def _postgresql(address: str) -> Database:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        raise BadInput(
            "The URL of the store cannot be read. It looks like this: postgresql://user:password@host:5432/database"
        ) from error
    label = url.set(drivername="postgresql").render_as_string(hide_password=True)
    try:
        engine = create_engine(_with_driver(url), pool_pre_ping=True)
    except ImportError as error:
        raise BadInput(
            f"The store {label} needs psycopg. Install it with: pip install 'inferlab[postgres]'"
        ) from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_S:g}s'")

    # One picture for all queries of a reader, as SQLite gives it.
    reader = engine.execution_options(isolation_level="REPEATABLE READ")
    return Database(reader, engine, label)


def _with_driver(url: URL) -> URL:
    query = {"connect_timeout": "10", **url.query}
    return url.set(drivername="postgresql+psycopg", query=query)


def shrink(database: Database) -> None:
    """Give the disk back what was removed, where a file does not shrink by itself and can be made to now."""
    if database.writer.dialect.name == "sqlite":
        with database.writer.connect() as connection, contextlib.suppress(sqlite3.Error):
            raw = connection.connection.dbapi_connection
            assert raw is not None
            # Past SQLAlchemy, which would begin a transaction.
            raw.cursor().execute("VACUUM")


def _prepare(database: Database) -> None:
    """Make or migrate the tables where they are missing or old; refuse those that are not ours or newer."""
    with database.reader.connect() as connection:
        if _state(connection, database.label) == "current":
            return
    if database.read_only:
        raise BadInput(
            f"The store {database.label} cannot be written to, and its tables are missing or of an older "
            "inferlab. Copy it to a folder of yours and name the copy with --store."
        )
    with database.writer.connect() as connection:
        raw = connection.connection.dbapi_connection
        assert raw is not None
        if connection.dialect.name == "sqlite":
            # Copying a table, as SQLite's migrations do, must not cascade; a transaction cannot switch this.
            raw.cursor().execute("PRAGMA foreign_keys = OFF")
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_PG_LOCK})"))
            # Another process may have done it while we waited.
            if _state(connection, database.label) == "old":
                _upgrade(connection)
        connection.invalidate()


def _state(connection: Connection, label: str) -> Literal["current", "old"]:
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        # An SQLite file is ours alone; a PostgreSQL database may have other tables than those we need.
        foreign = tables if connection.dialect.name == "sqlite" else tables & set(metadata.tables)
        if foreign:
            raise BadInput(
                f"{label} is a database of another program: it has the table {min(foreign)!r} and is not "
                "marked as ours. Name another store."
            )
        return "old"
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608
    if found is None or not str(found).isdigit():
        raise BadInput(f"The version of the store {label} cannot be read ({found!r}). Name another store.")
    number = int(found)
    if number > SCHEMA_VERSION:
        raise BadInput(
            f"The store {label} has tables of version {number}; this inferlab knows them up to version "
            f"{SCHEMA_VERSION}. Use the newer inferlab that wrote it, or name another store."
        )
    return "current" if number == SCHEMA_VERSION else "old"


def _upgrade(connection: Connection) -> None:
    # Imported late: it takes a third of a second, and a migration is rare.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
