"""SQLAlchemy's connections as the store wants them, for PostgreSQL and for migrations; it takes long to import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy.exc import DBAPIError, OperationalError

from inferlab.store.connection import Row
from inferlab.store.problems import sentence


class Statements:
    """A transaction of SQLAlchemy's as a `Connection`."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self._connection = connection
        self.lock = " FOR UPDATE" if connection.dialect.name == "postgresql" else ""

    def rows(self, sql: str, /, **values: Any) -> list[Row]:
        """Run a statement; the rows that it found, columns by name."""
        result = self._connection.execute(sqlalchemy.text(sql), values)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []


@contextmanager
def explained(label: str) -> Iterator[None]:
    """Turn the database's error into one that says what happened to which store and what to do."""
    try:
        yield
    except DBAPIError as error:
        away = error.connection_invalidated or isinstance(error, OperationalError)
        reached = not (away and label.startswith("postgresql:"))
        raise sentence(label, error.orig or error, reached) from error


def upgrade(connection: sqlalchemy.Connection, scripts: Path) -> None:
    """Run the migrations in this folder that the database has not seen."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
