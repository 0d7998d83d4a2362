"""From one version of the tables to the next."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from inferlab.errors import BadInput
from inferlab.store import database, open_store
from inferlab.store.schema import SCHEMA_VERSION, VERSION_TABLE, metadata
from inferlab.store.store import Store
from tests.store.saved import a_benchmark, benchmark_of, save

_NEXT = '''
"""Another column, made by copying the table where it cannot be altered."""
import sqlalchemy as sa
from alembic import op

revision = "{new:04}"
down_revision = "{old:04}"


def upgrade():
    how = "always" if op.get_bind().dialect.name == "sqlite" else "auto"
    for table in ("entry", "cell"):
        with op.batch_alter_table(table, recreate=how) as batch:
            batch.add_column(sa.Column("colour", sa.Text, nullable=False, server_default="red"))
    {then}
'''


def _next_version(monkeypatch: pytest.MonkeyPatch, folder: Path, then: str = "") -> None:
    """Pretend that this inferlab is one version on."""
    scripts = folder / "100 % new"
    shutil.copytree(database.MIGRATIONS, scripts)
    code = _NEXT.format(new=SCHEMA_VERSION + 1, old=SCHEMA_VERSION, then=then)
    (scripts / "versions" / "next.py").write_text(code)
    monkeypatch.setattr(database, "MIGRATIONS", scripts)
    monkeypatch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION + 1)


def test_the_migrations_make_the_tables_that_the_code_knows(store: Store) -> None:
    assert ScriptDirectory(str(database.MIGRATIONS)).get_current_head() == f"{SCHEMA_VERSION:04}"
    with store._database.reader.connect() as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_an_older_store_is_migrated_and_keeps_its_data(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as store:
        entry_id = save(store, a_benchmark())
    with monkeypatch.context() as patch:
        _next_version(patch, tmp_path)
        with open_store(url) as store:
            assert benchmark_of(store, entry_id) == a_benchmark()
            with store._database.reader.connect() as connection:
                assert connection.execute(text("SELECT colour FROM entry")).scalar() == "red"
            # What hangs on an entry is still removed with it.
            store.remove(entry_id)
            with store._database.reader.connect() as connection:
                assert connection.execute(text("SELECT count(*) FROM run")).scalar() == 0
    with pytest.raises(BadInput, match="has tables of version 2; this inferlab knows them up to version 1"):
        open_store(url)


def test_a_migration_that_breaks_leaves_the_store_as_it_was(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as store:
        entry_id = save(store, a_benchmark())
    with monkeypatch.context() as patch:
        _next_version(patch, tmp_path, "raise RuntimeError('broken')")
        with pytest.raises(RuntimeError, match="broken"):
            open_store(url)
    with open_store(url) as store:
        assert benchmark_of(store, entry_id) == a_benchmark()
