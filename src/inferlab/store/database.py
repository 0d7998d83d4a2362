"""Open the database behind a store: which one it is, and whether its tables are ours and of our version."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from inferlab.errors import BadInput
from inferlab.store.connection import Connection, Database
from inferlab.store.problems import NoStore
from inferlab.store.schema import SCHEMA_VERSION, TABLES, VERSION_TABLE
from inferlab.store.sqlite import SQLite

#: How long a writer waits for another before it gives up.
BUSY_S = 30.0
MIGRATIONS = Path(__file__).parent / "migrations"


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
        # As SQLAlchemy writes it: sqlite:///relative, sqlite:////absolute.
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
        if _state(connection, database) == "current":
            return
    if database.read_only:
        raise BadInput(
            f"The store {database.label} cannot be written to, and its tables are missing or of an older "
            "inferlab. Copy it to a folder of yours and name the copy with --store."
        )
    # Imported late, as alembic is: together they take most of a second, and a migration is rare.
    from inferlab.store.alchemy import Statements, upgrade

    with database.migrating() as transaction:
        # Another process may have done it while we waited.
        if _state(Statements(transaction), database) == "old":
            upgrade(transaction, MIGRATIONS)


def _state(connection: Connection, database: Database) -> Literal["current", "old"]:
    label, tables = database.label, database.tables(connection)
    if VERSION_TABLE not in tables:
        # A file is ours alone; a database that is shared may have other tables than those we need.
        foreign = tables & TABLES if database.shared else tables
        if foreign:
            raise BadInput(
                f"{label} is a database of another program: it has the table {min(foreign)!r} and is not "
                "marked as ours. Name another store."
            )
        return "old"
    versions = connection.rows(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608
    found = versions[0]["version_num"] if versions else None
    if found is None or not str(found).isdigit():
        raise BadInput(f"The version of the store {label} cannot be read ({found!r}). Name another store.")
    number = int(found)
    if number > SCHEMA_VERSION:
        raise BadInput(
            f"The store {label} has tables of version {number}; this inferlab knows them up to version "
            f"{SCHEMA_VERSION}. Use the newer inferlab that wrote it, or name another store."
        )
    return "current" if number == SCHEMA_VERSION else "old"
