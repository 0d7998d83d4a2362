"""What the store asks of a database: plain SQL that both SQLite and PostgreSQL take, values by name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import sqlalchemy

Row = dict[str, Any]


class Connection(Protocol):
    """A transaction; what it reads is of one moment."""

    @property
    def lock(self) -> str:
        """What a query ends with whose rows no other writer may touch until this transaction is over."""

    def rows(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; the rows that it found, columns by name."""


class Database(Protocol):
    """A database that can be reached; its errors are sentences."""

    @property
    def label(self) -> str:
        """Its path or URL, without its password."""

    @property
    def read_only(self) -> bool:
        """Whether it is known that nothing can be written."""

    @property
    def shared(self) -> bool:
        """Whether tables of other programs may lie beside ours."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that writes: done as a whole, or not at all."""

    def migrating(self) -> AbstractContextManager[sqlalchemy.Connection]:
        """A transaction that may change the tables, while no other does."""

    def checking(self) -> AbstractContextManager[Connection]:
        """A transaction that reads, in which text that is no UTF-8 has surrogates rather than to be an error."""

    def faults(self, connection: Connection) -> list[str]:
        """What the database itself finds wrong with its content."""

    def backup(self, path: Path) -> None:
        """Copy it into a new file, of one moment, while others may use it; refused where there is a file."""

    def tables(self, connection: Connection) -> set[str]:
        """The names of the tables that it has."""

    def shrink(self) -> None:
        """Give the disk back what was removed, where that does not happen by itself and is possible now."""

    def close(self) -> None:
        """Close all connections; new ones are opened where they are needed."""


def insert(connection: Connection, table: str, values: Row) -> None:
    """Insert a row."""
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.rows(f"INSERT INTO {table} ({names}) VALUES ({marks})", **values)  # noqa: S608


def among(name: str, wanted: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The condition that a column has one of these values, of which there is at least one; and the values."""
    values = {f"among{index}": value for index, value in enumerate(wanted)}
    return f"{name} IN ({', '.join(f':{mark}' for mark in values)})", values
