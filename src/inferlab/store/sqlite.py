"""How an SQLite file is opened: to write where we may, with a write-ahead log where the file system can."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from inferlab.errors import BadInput

# The log's index is memory that processes share, which those on other machines would not see.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.sshfs")


class File:
    """An SQLite file and how to connect to it."""

    def __init__(self, path: Path, busy_s: float) -> None:
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

    def connect(self) -> sqlite3.Connection:
        """A connection in autocommit mode: SQLAlchemy's events begin the transactions."""
        if self.read_only:
            return self._connect_to_read()
        connection = self._connect("rwc")
        self._use_log(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        # A run takes seconds to measure and a sync milliseconds: not even a power cut shall cost one.
        connection.execute("PRAGMA synchronous = FULL")
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
