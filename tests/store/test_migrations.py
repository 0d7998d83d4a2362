"""From one version of the tables to the next."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from inferlab.errors import BadInput
from inferlab.records import Benchmark, Outcome, OutputCheck
from inferlab.store import database, open_store
from inferlab.store.connection import Connection
from inferlab.store.schema import SCHEMA_VERSION, VERSION_TABLE
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, benchmark_of, save

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


def test_the_migrations_end_at_the_version_that_the_code_knows() -> None:
    assert ScriptDirectory(str(database.MIGRATIONS)).get_current_head() == f"{SCHEMA_VERSION:04}"


def test_an_older_store_is_migrated_and_keeps_its_data(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(url) as store:
        entry_id = save(store, a_benchmark())
    with monkeypatch.context() as patch:
        _next_version(patch, tmp_path)
        with open_store(url) as store:
            assert benchmark_of(store, entry_id) == a_benchmark()
            with store._database.reading() as connection:
                assert connection.rows("SELECT colour FROM entry") == [{"colour": "red"}]
            # What hangs on an entry is still removed with it.
            store.remove(entry_id)
            with store._database.reading() as connection:
                assert connection.rows("SELECT count(*) AS runs FROM run") == [{"runs": 0}]
    with pytest.raises(BadInput, match="has tables of version 4; this inferlab knows them up to version 3"):
        open_store(url)


def test_the_wrong_outputs_that_version_1_kept_only_in_its_runs_are_found(url: str) -> None:
    wrong = replace(steady_run(1.0), check=OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y"))
    right = replace(steady_run(1.0), settings={"said": '"check":{"status":"mismatch"'})
    runs = ((wrong, right), (right, wrong), (right,), ())
    outcomes = [Outcome(a_cell(seed=seed), "done", one) for seed, one in enumerate(runs)]
    with open_store(url) as store:
        save(store, Benchmark(PLAN, MODEL, (*outcomes, Outcome(a_cell(seed=9), "pending", (wrong,)))))
        before = store.history()
        assert [cell.wrong for cell in before[0].cells] == [True, True, False, False, False]
        with store._database.writing() as connection:
            _back_to_version_2(connection)
            connection.rows("ALTER TABLE cell DROP COLUMN cached_wrong")
            connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = '0001'")
    for _ in range(2):
        with open_store(url) as store:
            assert store.history() == before


def _back_to_version_2(connection: Connection) -> None:
    """Undo what version 3 added."""
    for index in ("entry_by_project", "entry_by_model"):
        connection.rows(f"DROP INDEX {index}")
    for column in ("project_id", "brief"):
        connection.rows(f"ALTER TABLE entry DROP COLUMN {column}")
    for table in ("project", "job"):
        connection.rows(f"DROP TABLE {table}")
    connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = '0002'")


def test_documents_of_version_2_get_the_digest_of_their_model_and_a_brief(url: str) -> None:
    arm = {"label": "A", "model": {"digest": "d1"}}
    comparison = {"a": arm, "b": {**arm, "label": "B"}, "verdict": "same", "ratio": 1.0, "interval": None}
    comparison |= {"paired": True, "outputs_match": True}
    with open_store(url) as store:
        store.add_document("comparison", "A / B", comparison)
        store.add_document("capacity", "m p99<1ms", {"model": {"digest": "d2"}})
        store.add_document("strange", "by hand", {})
        before = store.history()
        assert [one.model_digest for one in before] == ["", "d2", "d1"]
        assert before[2].brief["labels"] == ["A", "B"]
        with store._database.writing() as connection:
            connection.rows("UPDATE entry SET model_digest = ''")
            _back_to_version_2(connection)
    with open_store(url) as store:
        assert store.history() == before


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
