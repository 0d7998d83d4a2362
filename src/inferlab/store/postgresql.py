"""A store in PostgreSQL, through psycopg."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.store import database
from inferlab.store.database import Connection, Database

# Any number that no other program is likely to lock by.
_LOCK = 0x1FE21AB
# A colon and a name, but not the two colons of a cast.
_NAME = re.compile(r"(?<!:):(\w+)")
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):.*@|(?<=[?&]password=)[^&]*")


class PostgreSQL(Database):
    """A database on a server, by its URL."""

    dialect = "postgresql"
    shared = True
    row_lock = " FOR UPDATE"

    def __init__(self, url: str) -> None:
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
        patience = f"SET LOCAL lock_timeout = '{database.BUSY_S:g}s'"
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
