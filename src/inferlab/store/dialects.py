"""What differs between the databases of a store: SQLite, a file, and PostgreSQL, through psycopg."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, NotSaved
from inferlab.store.database import Connection, Database

# The log's index is memory that processes share, which those on other machines would not see.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")
# Any number that no other program is likely to lock by.
_LOCK = 0x1FE21AB
# A colon and a name, but not the two colons of a cast.
_NAME = re.compile(r"(?<!:):(\w+)")
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):.*@|(?<=[?&]password=)[^&]*")


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

    def __init__(self, path: Path, busy_s: float) -> None:
        super().__init__(str(path))
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
        with self.explained(), contextlib.closing(self._connect_to_read()) as connection:
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
            contextlib.closing(self._connect_to_read()) as connection,
            contextlib.closing(sqlite3.connect(path)) as target,
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
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self.open()) as connection:
            connection.execute("VACUUM")

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._busy_s, isolation_level=None, check_same_thread=False
        )
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


class PostgreSQL(Database):
    """A database on a server, by its URL."""

    dialect = "postgresql"
    shared = True
    row_lock = " FOR UPDATE"

    def __init__(self, url: str, busy_s: float) -> None:
        super().__init__(_without_password(url))
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise BadInput(
                f"The store {self.label} needs psycopg. Install it with: pip install 'inferlab[postgres]'"
            ) from error
        try:
            settings = conninfo_to_dict(url.replace("+psycopg", "", 1))
            if not all(port.isdigit() for port in str(settings.get("port", "0")).split(",")):
                raise ValueError("a port is a number")
        except (psycopg.Error, ValueError) as error:
            raise BadInput(
                "The URL of the store cannot be read. It looks like this: "
                "postgresql://user:password@host:5432/database (with %40 for an @ in the password, %2F for a /)"
            ) from error
        self._settings: dict[str, Any] = {"connect_timeout": 10, **settings}
        self._psycopg = psycopg
        self.errors = (psycopg.Error,)
        patience = f"SET LOCAL lock_timeout = '{busy_s:g}s'"
        # One picture for all queries of a reader, as SQLite gives it.
        self.begin_reading = (f"BEGIN ISOLATION LEVEL REPEATABLE READ; {patience}",)
        self.begin_writing = (f"BEGIN; {patience}",)
        self.begin_migrating = (*self.begin_writing, f"SELECT pg_advisory_xact_lock({_LOCK})")

    def open(self) -> Any:
        """A new connection; statements are not prepared, since another process may migrate the tables."""
        return self._psycopg.connect(**self._settings, autocommit=True, prepare_threshold=None)

    def placeholders(self, sql: str) -> str:
        """A statement with `%(name)s` for `:name`."""
        return _with_percents(sql)

    def is_lost(self, driver: Any) -> bool:
        """Whether the server closed the connection, or cannot be reached any more."""
        return bool(driver.broken)

    def is_unreachable(self, error: Exception) -> bool:
        """Whether an error means that there is no connection to the server."""
        return isinstance(error, self._psycopg.OperationalError)

    def tables(self, connection: Connection) -> set[str]:
        """The names of all tables that can be named without their schema."""
        tables = connection.rows(
            "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') "
            "AND relnamespace <> 'pg_catalog'::regnamespace AND pg_catalog.pg_table_is_visible(oid)"
        )
        return {row["relname"] for row in tables}

    def backup(self, path: Path) -> None:
        """Refused: PostgreSQL has a program for it."""
        raise BadInput(f"{self.label} is copied with PostgreSQL's own program: pg_dump --file {path} DATABASE")


def _without_password(url: str) -> str:
    return _PASSWORD.sub(lambda match: f"{match[1]}:***@" if match[0].endswith("@") else "***", url)


@lru_cache(maxsize=256)
def _with_percents(sql: str) -> str:
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%"))
