"""The database behind a store: transactions, which database it is, and whether its tables are ours.

entry   A benchmark, or a document; both share their ids and the history. `created_at` is ISO 8601 in UTC with
        microseconds, so that its order is that of time. `content` is JSON: {"plan": …, "model": …}, or the
        document. Text, because JSON proper has no infinities and no NaN. `brief` is derived from it for lists.
        Without a `project_id` it belongs to every project of its model. `labels` is JSON, or empty.
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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from inferlab.errors import BadInput, InferlabError, NotSaved

#: The modules in `migrations/` that lead from one version to the next: plain SQL that never changes again. What
#: lists show of a document is derived from it by the code of today after the last of them.
#: 1: entries, cells, runs. 2: cell.cached_wrong. 3: projects, jobs, entry.project_id, entry.brief.
#: 4: entry.labels, cell.cached_engine_version, cell.cached_machine, cell.cached_peak_memory_bytes.
#: 5: keys of profiles and versions.
MIGRATIONS = ("v0001_entries", "v0002_wrong", "v0003_projects", "v0004_labels", "v0005_predicted")
SCHEMA_VERSION = len(MIGRATIONS)
#: As alembic wrote it, which made the first three versions: the number as text of four digits in `version_num`.
VERSION_TABLE = "inferlab_version"
#: The tables, each with the column that tells its rows apart.
KEYS = {"entry": "id", "cell": "row", "run": "row", "project": "id", "job": "id"}
TABLES = frozenset(KEYS)
#: How long a writer waits for another before it gives up.
BUSY_S = 30.0
Row = dict[str, Any]
#: So many connections are kept open for the next transaction.
_MOST_IDLE = 8


class Connection:
    """A transaction; what it reads is of one moment."""

    def __init__(self, driver: Any, database: Database) -> None:
        self._driver = driver
        self._database = database
        #: What a query ends with whose rows no other writer may touch until this transaction is over.
        self.lock = database.row_lock

    def rows(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement with `:name` for each value; the rows that it returns, columns by name."""
        cursor = self._driver.execute(self._database.placeholders(sql), values)
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


class Database(ABC):
    """A database behind a connection of DB-API 2; what differs between databases is here, declared by each."""

    #: As migrations distinguish them.
    dialect: ClassVar[str]
    #: Whether tables of other programs may lie beside ours.
    shared: ClassVar[bool]
    row_lock: ClassVar[str]
    #: What its driver raises.
    errors: tuple[type[Exception], ...]
    #: The statements that begin a transaction.
    begin_reading: tuple[str, ...]
    begin_writing: tuple[str, ...]
    #: While it lasts, no other process changes the tables.
    begin_migrating: tuple[str, ...]
    #: Whether it is known that nothing can be written.
    read_only: bool = False

    def __init__(self, label: str) -> None:
        #: Its path or URL, without its password.
        self.label = label
        # Connections that no thread uses now.
        self._idle: list[Any] = []

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads."""
        return self._transaction(self.begin_reading)

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that writes: done as a whole, or not at all."""
        return self._transaction(self.begin_writing)

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that may change the tables, while no other does."""
        with self.explained(), closing(self.open()) as driver:
            for statement in self.begin_migrating:
                driver.execute(statement)
            yield Connection(driver, self)
            driver.execute("COMMIT")

    def checking(self) -> AbstractContextManager[Connection]:
        """A transaction that reads, in which text that is no UTF-8 has surrogates rather than to be an error."""
        return self.reading()

    @abstractmethod
    def open(self) -> Any:
        """A new connection of the driver in autocommit mode: whoever takes it begins the transactions."""

    def placeholders(self, sql: str) -> str:
        """A statement with its `:name` spelled as the driver wants it."""
        return sql

    def is_lost(self, driver: Any) -> bool:
        """Whether a connection was cut by the other side, if there is one, so that a new one may work."""
        return False

    def is_unreachable(self, error: Exception) -> bool:
        """Whether an error means that there is no connection to the database."""
        return False

    @abstractmethod
    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables that it has."""

    def faults(self, connection: Connection) -> list[str]:
        """What the database itself finds wrong with its content, where it does not see to that by itself."""
        return []

    @abstractmethod
    def backup(self, path: Path) -> None:
        """Copy it into a new file, of one moment, while others may use it; refused where there is a file."""

    def shrink(self) -> None:  # noqa: B027
        """Give the disk back what was removed, where that does not happen by itself and is possible now."""

    def close(self) -> None:
        """Close all connections; new ones are opened where they are needed."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn the driver's errors into those that say what happened to which store and what to do."""
        try:
            yield
        except self.errors as error:
            raise store_error(self.label, error, self.is_unreachable(error)) from error

    @contextmanager
    def _transaction(self, begin: Sequence[str]) -> Iterator[Connection]:
        with self.explained():
            driver = self._begun(begin)
            try:
                yield Connection(driver, self)
                driver.execute("COMMIT")
            except BaseException:
                # This undoes the transaction, and what has failed once is not used again.
                driver.close()
                raise
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(driver)
            else:
                driver.close()

    def _begun(self, begin: Sequence[str]) -> Any:
        """A connection in a new transaction: an idle one if there is one whose server is still there."""
        while True:
            try:
                driver, was_idle = self._idle.pop(), True
            except IndexError:
                driver, was_idle = self.open(), False
            try:
                for statement in begin:
                    driver.execute(statement)
                return driver
            except BaseException:
                retry = was_idle and self.is_lost(driver)
                driver.close()
                if not retry:
                    raise


def insert(connection: Connection, table: str, values: Row) -> None:
    """Insert a row."""
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.rows(f"INSERT INTO {table} ({names}) VALUES ({marks})", **values)  # noqa: S608


def update(connection: Connection, table: str, key: str | int, /, **values: Any) -> None:
    """Change the row with this key, if it is there."""
    changes = ", ".join(f"{name} = :{name}" for name in values)
    query = f"UPDATE {table} SET {changes} WHERE {table}.{KEYS[table]} = :its_key"  # noqa: S608
    connection.rows(query, its_key=key, **values)


def among(name: str, members: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The condition that a column has one of these values, of which there is at least one; and the values."""
    values = {f"among{index}": value for index, value in enumerate(members)}
    return f"{name} IN ({', '.join(f':{mark}' for mark in values)})", values


_DAMAGED = ("not a database", "malformed", "unsupported file format", "file is encrypted", "could not decode")
_FOREIGN = ("no such table", "no such column", "has no column")


def store_error(label: str, error: Exception, unreachable: bool) -> InferlabError:
    """A driver's error as one that says what happened to which store and what to do."""
    reason = " ".join(str(error).split()) or type(error).__name__
    # PostgreSQL's own codes: lock not available, deadlock, disk full, read-only transaction or server.
    state = getattr(error, "sqlstate", None) or ""
    low = reason.lower()
    # SQLite's own message can hold what is no UTF-8, out of a damaged file.
    if any(word in low for word in _DAMAGED) or isinstance(error, UnicodeError):
        return BadInput(
            f"The store {label} is damaged or not an SQLite database ({reason}). It was left as it is: move it "
            "away, then begin a new one or import an export."
        )
    if any(word in low for word in _FOREIGN) or state in ("42P01", "42703"):
        return BadInput(
            f"The store {label} is marked as a store of inferlab, but its tables are not those that "
            f"inferlab makes ({reason}). Name another store."
        )
    if "is locked" in low or state in ("55P03", "40P01"):
        return NotSaved(
            f"The store {label} stayed locked by another program. Nothing was changed: end that program, "
            "or try again."
        )
    if "is full" in low or state == "53100":
        return NotSaved(
            f"The disk of the store {label} is full. What was saved before is intact; this was not saved. "
            "Free some space."
        )
    if "readonly" in low or state == "25006":
        return NotSaved(f"The store {label} cannot be written to. Change its permissions or name another store.")
    if "disk i/o error" in low:
        return NotSaved(f"The disk of the store {label} reports an error ({reason}). It may be full or failing.")
    if "unable to open" in low:
        return BadInput(
            f"The store {label} cannot be opened ({reason}). Check its permissions or name another store."
        )
    if state == "42501":
        return BadInput(f"The store {label} does not allow this ({reason}). Ask its owner for the permission.")
    if unreachable:
        return BadInput(
            f"The store {label} cannot be reached ({reason}). Check that the server runs, its address, "
            "user and password."
        )
    return InferlabError(f"The store {label} reports a fault: {reason}")


class NoStore(BadInput):
    """There is no such store, and whoever only wants to read must not make one."""


def default_path() -> Path:
    """Where the user's own store lies."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "inferlab" / "lab.db"


def connect(url: str | None, make: bool) -> Database:
    """Connect to a database by path or URL, whatever is in it."""
    if url is None:
        path = default_path()
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
        from inferlab.store.dialects import PostgreSQL

        return PostgreSQL(url, BUSY_S)
    raise BadInput(
        f"A store is a path (SQLite) or a URL that begins with postgresql://, not with {scheme}://. "
        "Change --store or INFERLAB_STORE."
    )


def _sqlite(path: Path, make: bool) -> Database:
    from inferlab.store.dialects import SQLite

    if not (make or path.exists()):
        raise NoStore(
            f"There is no store {path}. Name the right one with --store or INFERLAB_STORE; one is made when "
            "something is measured: inferlab benchmark demo:resnet50 -t 3"
        )
    return SQLite(path, BUSY_S)


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
    for name in MIGRATIONS[version:]:
        import_module(f"inferlab.store.migrations.{name}").upgrade(connection.rows, dialect)
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
