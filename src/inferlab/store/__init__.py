"""What was measured, saved at once: which store that is, whether its tables are ours, and who writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Cell, Event, Listener, Model, Outcome, Plan, Run
from inferlab.store.entries import CellEntry, Document, Entry, Heading, Stored

if TYPE_CHECKING:
    from inferlab.store.database import Connection, Database
    from inferlab.store.formats import Record
    from inferlab.store.store import Store

__all__ = [
    "CellEntry",
    "Document",
    "Entry",
    "Heading",
    "Saver",
    "Stored",
    "inspect_store",
    "open_store",
]


#: The functions in `migrations` that lead from one version to the next: plain SQL that never changes again. What
#: lists show of a document is derived from it by the code of today after the last of them.
#: 1: entries, cells, runs. 2: cell.cached_wrong. 3: projects, jobs, entry.project_id, entry.brief.
#: 4: entry.labels, cell.cached_engine_version, cell.cached_machine, cell.cached_peak_memory_bytes.
#: 5: keys of profiles and versions.
MIGRATIONS = ("v0001_entries", "v0002_wrong", "v0003_projects", "v0004_labels", "v0005_predicted")
SCHEMA_VERSION = len(MIGRATIONS)
#: As alembic wrote it, which made the first three versions: the number as text of four digits in `version_num`.
VERSION_TABLE = "inferlab_version"


def open_store(url: str | os.PathLike[str] | None = None, make: bool = True) -> Store:
    """Open the store that is named, else that of `INFERLAB_STORE`, else the user's own; it is made if missing.

    A path is an SQLite file; `postgresql://…` is a PostgreSQL database. Without `make` a file that is missing
    is told of by `NoStore`, and none is left behind.
    """
    from inferlab.store.store import Store

    database = connect(url, make)
    try:
        prepare(database)
    except BaseException:
        database.close()
        raise
    return Store(database)


@contextmanager
def inspect_store(url: str | None = None) -> Iterator[Database]:
    """The database behind a store that is there, as it is: neither made nor migrated."""
    database = connect(url, make=False)
    try:
        yield database
    finally:
        database.close()


class NoStore(BadInput):
    """There is no such store, and whoever only wants to read must not make one."""


def connect(url: str | os.PathLike[str] | None, make: bool) -> Database:
    """Connect to a database by path or URL, whatever is in it; by default to that of the user."""
    url = str(os.fspath(url or os.environ.get("INFERLAB_STORE") or ""))
    if not url:
        from inferlab.settings import store_file

        path = store_file()
        try:
            if make:
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

        return PostgreSQL(url)
    raise BadInput(
        f"A store is a path (SQLite) or a URL that begins with postgresql://, not with {scheme}://. "
        "Change --store or INFERLAB_STORE."
    )


def _sqlite(path: Path, make: bool) -> Database:
    from inferlab.store.database import SQLite

    if not (make or path.exists()):
        raise NoStore(
            f"There is no store {path}. Name the right one with --store or INFERLAB_STORE; one is made when "
            "something is measured: inferlab benchmark demo:resnet50 -t 3"
        )
    return SQLite(path)


def prepare(database: Database) -> None:
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
    from inferlab.store import migrations  # late: whoever only reads does not need them

    for name in MIGRATIONS[version:]:
        getattr(migrations, name)(connection.rows, dialect)
    if version:
        from inferlab.store.rows import refresh_briefs, refresh_origins

        connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = :new", new=f"{SCHEMA_VERSION:04}")  # noqa: S608
        refresh_briefs(connection)
        refresh_origins(connection)
        return
    connection.rows(
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    connection.rows(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:new)", new=f"{SCHEMA_VERSION:04}")  # noqa: S608


def _version(connection: Connection, database: Database) -> int:
    """The version of the tables, 0 where there are none; those that are not ours or newer are refused."""
    from inferlab.store.database import TABLES

    label, tables = database.label, database.tables(connection)
    if VERSION_TABLE not in tables:
        # A file is ours alone; a database that is shared may have other tables than those we need.
        foreign = tables & TABLES if database.shared else tables
        if foreign:
            raise BadInput(
                f"{label} is a database of another program: it has the table {min(foreign)!r} and is not "
                "marked as a store of inferlab. Name another store."
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


class Saver:
    """Saves one benchmark or other record, for as long as the store takes it; tells once why it does not."""

    def __init__(
        self,
        store: Store | None,
        listener: Listener,
        entry_id: str = "",
        project_id: str | None = None,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._store, self._listener, self._project_id, self._labels = store, listener, project_id, labels
        #: The entry's name in the store; empty where it is not saved.
        self.id = entry_id

    def begin(self, plan: Plan, model: Model, cells: Sequence[Cell], against: str | None = None) -> None:
        """Save what is about to be measured."""
        with self._saving():
            if self._store is not None:
                self.id = self._store.begin(plan, model, cells, self._project_id, against, self._labels)
        self._tell_id()

    def run(self, cell: Cell, run: Run) -> None:
        """Save what one process measured."""
        with self._saving():
            if self._store is not None:
                self._store.add_run(self.id, cell.id, run)

    def finish(self, outcome: Outcome) -> None:
        """Save what became of a cell."""
        with self._saving():
            if self._store is not None:
                self._store.finish_cell(self.id, outcome.cell.id, outcome.status, outcome.failure, outcome)

    def record(self, record: Record, title: str, saved: int = 0) -> None:
        """Save a result; called again, it is the same one that has grown.

        Of several comparisons, the cells of the first `saved` are in the store already.
        """
        if self._store is None:
            return
        from inferlab.store.formats import cells_since, content_of, kind_of  # late: benchmarks need none of it

        content, stored_id = content_of(record), self.id
        keep, outcomes = cells_since(record, saved)
        with self._saving():
            if stored_id:
                self._store.replace_document(stored_id, content, outcomes, keep)
            else:
                kind = kind_of(record)
                self.id = self._store.add_document(kind, title, content, outcomes, self._project_id, self._labels)
        if not stored_id:
            self._tell_id()

    def _tell_id(self) -> None:
        if self.id:
            self._listener(Event("saved", {"id": self.id}))

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """A store that fails costs the saving, never the measuring."""
        try:
            yield
        except InferlabError as error:
            self._store = None
            self._listener(Event("unsaved", {"reason": str(error)}))
