"""Stores to test with: an SQLite file, and a database on a PostgreSQL server that the tests start themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.store import open_store
from inferlab.store.store import Store
from tests.helpers.postgresql import postgresql, postgresql_url

__all__ = ["postgresql", "postgresql_url"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of a store that does not exist yet, on either database."""
    if request.param == "sqlite":
        return str(tmp_path / "lab.db")
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def other_url(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of another store, on the other database."""
    if url.startswith("postgresql"):
        return str(tmp_path / "other.db")
    return str(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A new store."""
    with open_store(url) as opened:
        yield opened
