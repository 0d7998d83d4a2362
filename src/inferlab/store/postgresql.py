"""A store in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from inferlab.errors import BadInput
from inferlab.store.alchemy import Statements, explained
from inferlab.store.connection import Connection

# Any number that no other program is likely to lock by.
_LOCK = 0x1FE21AB


class PostgreSQL:
    """A database on a server, by its URL."""

    read_only = False
    shared = True

    def __init__(self, address: str, busy_s: float) -> None:
        try:
            url = make_url(address)
        except (ArgumentError, ValueError) as error:
            raise BadInput(
                "The URL of the store cannot be read. It looks like this: "
                "postgresql://user:password@host:5432/database"
            ) from error
        self.label = url.set(drivername="postgresql").render_as_string(hide_password=True)
        query = {"connect_timeout": "10", **url.query}
        try:
            self._engine = create_engine(url.set(drivername="postgresql+psycopg", query=query), pool_pre_ping=True)
        except ImportError as error:
            raise BadInput(
                f"The store {self.label} needs psycopg. Install it with: pip install 'inferlab[postgres]'"
            ) from error

        @event.listens_for(self._engine, "begin")
        def begin(connection: sqlalchemy.Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{busy_s:g}s'")

        # One picture for all queries of a reader, as SQLite gives it.
        self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with explained(self.label), self._reader.connect() as connection:
            yield Statements(connection)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes."""
        with explained(self.label), self._engine.begin() as connection:
            yield Statements(connection)

    @contextmanager
    def migrating(self) -> Iterator[sqlalchemy.Connection]:
        """A transaction that may change the tables, while no other does."""
        with explained(self.label), self._engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            yield connection

    def checking(self) -> AbstractContextManager[Connection]:
        """A transaction that reads; text is always UTF-8 here."""
        return self.reading()

    def faults(self, connection: Connection) -> list[str]:
        """Nothing: PostgreSQL sees to its files and references itself."""
        return []

    def backup(self, path: Path) -> None:
        """Refused: PostgreSQL has a program for it."""
        raise BadInput(f"{self.label} is copied with PostgreSQL's own program: pg_dump --file {path} DATABASE")

    def tables(self, connection: Connection) -> set[str]:
        """The names of all tables that can be named without their schema."""
        found = connection.rows(
            "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') "
            "AND relnamespace <> 'pg_catalog'::regnamespace AND pg_catalog.pg_table_is_visible(oid)"
        )
        return {row["relname"] for row in found}

    def shrink(self) -> None:
        """Nothing: PostgreSQL vacuums by itself."""

    def close(self) -> None:
        """Close all connections; new ones are opened where they are needed."""
        self._engine.dispose()
