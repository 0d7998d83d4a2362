"""A store in an SQLite file: written to where we may, with a write-ahead log where the file system can."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput, NotSaved
from inferlab.store.connection import Connection, Row
from inferlab.store.problems import sentence

if TYPE_CHECKING:
    import sqlalchemy

# The log's index is memory that processes share, which those on other machines would not see.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")


class SQLite:
    """An SQLite file, by the standard library alone: SQLAlchemy, which migrates it, takes long to import."""

    shared = False

    def __init__(self, path: Path, busy_s: float) -> None:
        self.label = str(path)
        # Connections that no thread uses now.
        self._idle: list[sqlite3.Connection] = []
        self._path = path = path.absolute()
        self._busy_s = busy_s
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

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes."""
        # One that reads before it writes may not be able to wait for its lock: writers take it first.
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[sqlalchemy.Connection]:
        """A transaction that may change the tables, while no other does."""
        from sqlalchemy import NullPool, create_engine

        from inferlab.store.alchemy import explained

        engine = create_engine("sqlite://", creator=self._opened, poolclass=NullPool)
        with explained(self.label), engine.connect() as connection:
            # Copying a table, as SQLite's migrations do, must not cascade; a transaction cannot switch this.
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()

    @contextmanager
    def checking(self) -> Iterator[Connection]:
        """A transaction that reads, in which text that is no UTF-8 has surrogates rather than to be an error."""
        try:
            with contextlib.closing(self._connect_to_read()) as connection:
                connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
                connection.execute("BEGIN")
                yield _Transaction(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise sentence(self.label, error) from error

    def faults(self, connection: Connection) -> list[str]:
        """What SQLite finds wrong with its file and with references between tables."""
        found = [row["integrity_check"] for row in connection.rows("PRAGMA integrity_check")]
        lost = connection.rows("PRAGMA foreign_key_check")
        return [
            *(f"the file is damaged: {one}" for one in found if one != "ok"),
            *(f"{row['table']} {row['rowid']} refers to a missing {row['parent']}" for row in lost),
        ]

    def backup(self, path: Path) -> None:
        """Copy it into a new file, of one moment, while others may use it; refused where there is a file."""
        if path.exists() or path.is_symlink():
            raise BadInput(f"{path} is there already and is not overwritten. Name another file.")
        if not path.parent.is_dir():
            raise BadInput(f"The folder of {path} does not exist. Make it first: mkdir -p {path.parent}")
        try:
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".inferlab-") as folder:
                copy = Path(folder) / "copy.db"
                self._copy(copy)
                with copy.open("rb") as made:
                    os.fsync(made.fileno())
                # Unlike a rename, a link does not replace what has come there meanwhile.
                path.hardlink_to(copy)
        except FileExistsError as error:
            raise BadInput(f"{path} is there already and is not overwritten. Name another file.") from error
        except OSError as error:
            raise NotSaved(f"The copy could not be written to {path}: {error.strerror or error}.") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise sentence(self.label, error) from error

    def _copy(self, path: Path) -> None:
        with (
            contextlib.closing(self._connect_to_read()) as connection,
            contextlib.closing(sqlite3.connect(path)) as made,
        ):
            connection.backup(made)
            # In one file: the copy of a store with a write-ahead log would want one too.
            made.execute("PRAGMA journal_mode = DELETE")

    def tables(self, connection: Connection) -> set[str]:
        """The names of all tables but SQLite's own."""
        found = connection.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {row["name"] for row in found if not row["name"].startswith("sqlite_")}

    def shrink(self) -> None:
        """Make the file smaller, if no other program is in the way."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._opened()) as connection:
            connection.execute("VACUUM")

    def close(self) -> None:
        """Close all connections; new ones are opened where they are needed."""
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        try:
            connection = self._taken()
            try:
                connection.execute(begin)
                yield _Transaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                # This undoes the transaction, and what has failed once is not used again.
                connection.close()
                raise
            self._idle.append(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise sentence(self.label, error) from error

    def _taken(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        """A new connection in autocommit mode: whoever takes it begins the transactions."""
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

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=self._busy_s, isolation_level=None, check_same_thread=False)

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
        deadline = time.monotonic() + self._busy_s
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


class _Transaction:
    """A transaction on a connection of the standard library's."""

    #: Writers have locked the file as a whole.
    lock = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; the rows that it found, columns by name."""
        cursor = self._connection.execute(sql, values)
        names = [column for column, *_ in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


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
