"""The database behind a store: transactions, statements, what its errors mean; SQLite, a file.

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

import contextlib
import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from inferlab.errors import BadInput, InferlabError, NotSaved

#: The tables, each with the column that tells its rows apart.
KEYS = {"entry": "id", "cell": "row", "run": "row", "project": "id", "job": "id"}
TABLES = frozenset(KEYS)
#: How long a writer waits for another before it gives up.
BUSY_S = 30.0
Row = dict[str, Any]
#: So many connections are kept open for the next transaction.
_MOST_IDLE = 8
# The log's index is memory that processes share, which those on other machines would not see.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")


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


class SQLite(Database):
    """An SQLite file, by its path."""

    dialect = "sqlite"
    shared = False
    #: None: writers have locked the file as a whole.
    row_lock = ""
    errors = (sqlite3.Error, UnicodeDecodeError)
    begin_reading = ("BEGIN",)
    # One that reads before it writes may not be able to wait for its lock: writers take it first.
    begin_writing = ("BEGIN IMMEDIATE",)
    # Copying a table, as migrations may, must not cascade; a transaction cannot switch this.
    begin_migrating = ("PRAGMA foreign_keys = OFF", "BEGIN IMMEDIATE")

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path = path.absolute()
        if path.is_dir():
            raise BadInput(f"The store {path} is a folder. Name a file in it, such as {path / 'lab.db'}.")
        if not path.parent.is_dir():
            raise BadInput(f"The folder of the store {path} does not exist. Make it first: mkdir -p {path.parent}")
        exists, folder = path.exists(), os.access(path.parent, os.W_OK | os.X_OK)
        if exists and not os.access(path, os.R_OK):
            raise BadInput(f"The store {path} may not be read. Change its permissions or name another store.")
        if not exists and not folder:
            raise BadInput(f"The folder {path.parent} cannot be written to. Name a store elsewhere with --store.")
        #: SQLite writes files beside the database too, so that it needs the folder.
        self.read_only = exists and not (folder and os.access(path, os.W_OK))

    def open(self) -> sqlite3.Connection:
        """A new connection: with the write-ahead log where that can be, to read alone where we may not write."""
        if self.read_only:
            return self._connect_to_read()
        connection = self._connect("rwc")
        try:
            self._use_log(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            # A run takes seconds to measure and a sync milliseconds: not even a power cut shall cost one.
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def checking(self) -> Iterator[Connection]:
        """A transaction that reads, in which text that is no UTF-8 has surrogates rather than to be an error."""
        with self.explained(), closing(self._connect_to_read()) as connection:
            connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            connection.execute("BEGIN")
            yield Connection(connection, self)

    def faults(self, connection: Connection) -> list[str]:
        """What SQLite finds wrong with its file and with references between tables."""
        messages = [row["integrity_check"] for row in connection.rows("PRAGMA integrity_check")]
        lost = connection.rows("PRAGMA foreign_key_check")
        return [
            *(f"the file is damaged: {message}" for message in messages if message != "ok"),
            *(f"{row['table']} {row['rowid']} refers to a missing {row['parent']}" for row in lost),
        ]

    def backup(self, path: Path) -> None:
        """Copy it into a new file, of one moment, while others may use it; refused where there is a file."""
        if path.exists() or path.is_symlink():
            raise BadInput(f"{path} is there already and is not overwritten. Name another file.")
        if not path.parent.is_dir():
            raise BadInput(f"The folder of {path} does not exist. Make it first: mkdir -p {path.parent}")
        import tempfile  # late: it takes longer than most of the history

        try:
            with self.explained(), tempfile.TemporaryDirectory(dir=path.parent, prefix=".inferlab-") as folder:
                copy = Path(folder) / "copy.db"
                self._copy(copy)
                with copy.open("rb") as file:
                    os.fsync(file.fileno())
                # Unlike a rename, a link does not replace what has come there meanwhile.
                path.hardlink_to(copy)
        except FileExistsError as error:
            raise BadInput(f"{path} is there already and is not overwritten. Name another file.") from error
        except OSError as error:
            raise NotSaved(f"The copy could not be written to {path}: {error.strerror or error}.") from error

    def _copy(self, path: Path) -> None:
        with (
            closing(self._connect_to_read()) as connection,
            closing(sqlite3.connect(path)) as target,
        ):
            connection.backup(target)
            # In one file: the copy of a store with a write-ahead log would want one too.
            target.execute("PRAGMA journal_mode = DELETE")

    def tables(self, connection: Connection) -> set[str]:
        """The names of all tables but SQLite's own; a file with statements of somebody else's is refused."""
        objects = connection.rows("SELECT type, name FROM sqlite_master WHERE type <> 'index'")
        for row in objects:
            if row["type"] != "table":
                raise BadInput(
                    f"{self.label} is not a store as inferlab makes it: it has the {row['type']} {row['name']!r}, "
                    "which could change or hide what is saved. Name another store."
                )
        return {row["name"] for row in objects if not row["name"].startswith("sqlite_")}

    def shrink(self) -> None:
        """Make the file smaller, if no other program is in the way."""
        with contextlib.suppress(sqlite3.Error), closing(self.open()) as connection:
            connection.execute("VACUUM")

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        # Tables of a file that somebody else made call no functions that do more than compute.
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        connection = self._connect("ro")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            # A log without its files cannot be opened where none can be made. Without a log beside it, the
            # file alone is all there is.
            connection.close()
            log = Path(f"{self._path}-wal")
            if log.exists() and log.stat().st_size:
                raise
            connection = self._connect("ro&immutable=1")
        return connection

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switch the write-ahead log on, where it is not yet and can be: it stays on for good."""
        if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal" or _on_network(self._path):
            return
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                # Where it cannot be, SQLite keeps its rollback journal, which is as safe but makes readers wait.
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Two processes that make a store at once: SQLite does not wait for this lock by itself.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether the file lies on another machine, as far as the system says."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return False
    target = path.resolve()
    # Of mount points above the file the deepest counts; of those on one spot, the last.
    kind = ""
    depth = 0
    for _, point, filesystem, *_ in lines:
        where = Path(point.replace("\\040", " "))
        if target.is_relative_to(where) and len(where.parts) >= depth:
            kind, depth = filesystem, len(where.parts)
    return kind.startswith(_NETWORK)
