"""From one version of the tables to the next."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferlab import store as stores
from inferlab.codec import dumps
from inferlab.errors import BadInput
from inferlab.measure.stats import machine_kind
from inferlab.records import Benchmark, Outcome, OutputCheck
from inferlab.records.optimization import FORMAT as VERSION_FORMAT
from inferlab.records.optimization import Measured, Optimization, Recipe
from inferlab.records.profile import Profile
from inferlab.store import SCHEMA_VERSION, VERSION_TABLE, connect, inspect_store, migrations, open_store
from inferlab.store.database import Connection, insert, update
from inferlab.store.entries import Document
from inferlab.store.exchange import problems
from inferlab.store.formats import PROFILES, VERSIONS, content_of, kind_of, record_of
from tests.helpers.profiles import a_profile
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, benchmark_of, save

_FOLDER = Path(__file__).parent


def _next_version(monkeypatch: pytest.MonkeyPatch, broken: bool = False) -> None:
    """Pretend that this inferlab is one version on: with another column, made by copying tables in SQLite."""

    def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
        for table in ("entry", "cell"):
            if dialect == "sqlite":
                _copy_table(execute, table)
            execute(f"ALTER TABLE {table} ADD COLUMN colour TEXT DEFAULT 'red' NOT NULL")
        if broken:
            raise RuntimeError("broken")

    monkeypatch.setattr(migrations, "next", upgrade, raising=False)
    monkeypatch.setattr(stores, "MIGRATIONS", (*stores.MIGRATIONS, "next"))
    monkeypatch.setattr(stores, "SCHEMA_VERSION", SCHEMA_VERSION + 1)


def _copy_table(execute: Callable[..., list[dict[str, Any]]], table: str) -> None:
    (made,) = execute("SELECT sql FROM sqlite_master WHERE name = :name", name=table)
    execute(made["sql"].replace(f"TABLE {table}", "TABLE copy", 1))
    execute(f"INSERT INTO copy SELECT * FROM {table}")
    execute(f"DROP TABLE {table}")
    execute(f"ALTER TABLE copy RENAME TO {table}")


def test_the_migrations_are_numbered_and_all_of_them_are_run() -> None:
    functions = [name for name in vars(migrations) if re.match(r"v\d", name)]
    assert list(stores.MIGRATIONS) == functions
    assert [int(name[1:5]) for name in functions] == list(range(1, SCHEMA_VERSION + 1))


def test_a_migration_imports_nothing_of_ours() -> None:
    code = Path(migrations.__file__).read_text()
    assert "inferlab" not in re.findall(r"^\s*(?:from|import) (\w+)", code, re.MULTILINE)


def test_an_older_store_is_migrated_and_keeps_its_data(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as store:
        entry_id = save(store, a_benchmark())
    with monkeypatch.context() as patch:
        _next_version(patch)
        with open_store(url) as store:
            assert benchmark_of(store, entry_id) == a_benchmark()
            with store._database.reading() as connection:
                assert connection.rows("SELECT colour FROM entry") == [{"colour": "red"}]
            # What hangs on an entry is still removed with it.
            store.remove(entry_id)
            with store._database.reading() as connection:
                assert connection.rows("SELECT count(*) AS runs FROM run") == [{"runs": 0}]
    with pytest.raises(BadInput, match="has tables of version 6; this inferlab knows them up to version 5"):
        open_store(url)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_that_alembic_made_is_opened(url: str, version: int, tmp_path: Path) -> None:
    _make_with_alembic(url, version)
    with open_store(url) as store, open_store(str(tmp_path / "new.db")) as new:
        new.import_file(_FOLDER / "version_1.jsonl")
        assert store.rebuild() == new.rebuild() == 2
        assert len(new.history()) == 2
        assert store.history() == new.history()
        for entry in new.history():
            assert store.get(entry.id) == new.get(entry.id)
        with store._database.reading() as connection:
            assert connection.rows(f"SELECT * FROM {VERSION_TABLE}") == [{"version_num": f"{SCHEMA_VERSION:04}"}]
        save(store, a_benchmark())
        assert store.jobs.alive() == []
        assert store.projects.lines() == []
    with inspect_store(url) as opened:
        assert list(problems(opened)) == []


def _make_with_alembic(url: str, version: int) -> None:
    """Fill a database as inferlab did when alembic made its tables."""
    dialect = "postgresql" if url.startswith("postgresql") else "sqlite"
    script = (_FOLDER / f"alembic_{dialect}.sql").read_text().split("\n", 1)[1]
    opened = connect(url, make=True)
    with opened.writing() as connection:
        for statement in script.split(";")[:-1]:
            connection.rows(statement)
            if f"'{version:04}'" in statement.split("WHERE")[0]:
                break
        lines = [json.loads(line) for line in (_FOLDER / "version_1.jsonl").read_text().splitlines()]
        for entry in lines[1:-1]:
            _insert_entry(connection, entry)
    opened.close()


def _insert_entry(connection: Connection, entry: dict[str, Any]) -> None:
    cells = entry.pop("cells")
    insert(connection, "entry", {**entry, "content": dumps(entry["content"])})
    for position, cell in enumerate(cells):
        runs = cell.pop("runs")
        texts = {name: cell[name] and dumps(cell[name]) for name in ("failure", "content")}
        insert(connection, "cell", {**cell, **texts, "entry_id": entry["id"], "position": position})
        (made,) = connection.rows("SELECT max(cell.row) AS number FROM cell")
        for index, run in enumerate(runs):
            blob = base64.b64decode(run["samples"])
            values = {**run, "content": dumps(run["content"]), "samples": blob, "cell_row": made["number"]}
            insert(connection, "run", {**values, "position": index})


def test_the_wrong_outputs_that_version_1_kept_only_in_its_runs_are_found(url: str) -> None:
    wrong = replace(steady_run(1.0), check=OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y"))
    right = replace(steady_run(1.0), settings={"said": '"check":{"status":"mismatch"'})
    runs = ((wrong, right), (right, wrong), (right,), ())
    outcomes = [Outcome(a_cell(seed=seed), "done", run) for seed, run in enumerate(runs)]
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


def _back_to_version_3(connection: Connection) -> None:
    """Undo what version 4 added."""
    connection.rows("ALTER TABLE entry DROP COLUMN labels")
    for column in ("cached_engine_version", "cached_machine", "cached_peak_memory_bytes"):
        connection.rows(f"ALTER TABLE cell DROP COLUMN {column}")
    connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = '0003'")


def test_what_series_need_of_cells_is_derived_from_the_runs_of_version_3(url: str) -> None:
    with open_store(url) as store:
        run = replace(steady_run(1.0), versions={"python": "3.11", "fake": "1.20"}, peak_memory_bytes=2**20)
        save(store, Benchmark(PLAN, MODEL, (Outcome(a_cell(), "done", (run, run)),)))
        (before,) = store.history()
        (cell,) = before.cells
        assert (cell.engine_version, cell.peak_memory_bytes) == ("1.20", 2**20)
        assert cell.machine == machine_kind(run.machine) != ""
        with store._database.writing() as connection:
            _back_to_version_3(connection)
    with open_store(url) as store:
        assert store.history() == [before]


def _back_to_version_2(connection: Connection) -> None:
    """Undo what version 3 added."""
    _back_to_version_3(connection)
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


def test_a_migration_that_breaks_leaves_the_store_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url) as store:
        entry_id = save(store, a_benchmark())
    with monkeypatch.context() as patch:
        _next_version(patch, broken=True)
        with pytest.raises(RuntimeError, match="broken"):
            open_store(url)
    with open_store(url) as store:
        assert benchmark_of(store, entry_id) == a_benchmark()


def _version() -> Optimization:
    run = steady_run(1.0)
    measured = Measured(
        "fake", 1, 1, 2.0, 1.0, 2.0, (1.9, 2.1), 0.95, "faster", 3.0, run.check, {}, run.machine, 2.5, -0.2
    )
    made = "2026-01-02T00:00:00+00:00"
    return Optimization(VERSION_FORMAT, "0.1.0", made, "v", MODEL, MODEL, Recipe(), (), None, (measured,))


def as_version_1(content: Any) -> Any:
    """A profile or an optimised version as they were written before their keys were renamed."""
    text = dumps(content)
    for now, before in {
        "unattributed_share": "unjoined_share",
        "predicted_speedup": "foretold_speedup",
        "predicted_error": "foretold_error",
        "inferlab-profile/2": "inferlab-profile/1",
        "inferlab-optimization/2": "inferlab-optimization/1",
    }.items():
        text = text.replace(f'"{now}"', f'"{before}"')
    return json.loads(text)


@pytest.mark.parametrize("record", [a_profile(), _version()], ids=["profile", "version"])
def test_profiles_and_versions_under_their_former_keys_are_read(
    url: str, tmp_path: Path, record: Profile | Optimization
) -> None:
    former = as_version_1(content_of(record))
    assert former != content_of(record)
    with open_store(url) as store:
        entry_id = store.add_document(kind_of(record), "t", content_of(record))
        (before,) = store.history()
        with store._database.writing() as connection:
            update(connection, "entry", entry_id, content=dumps(former), brief="")
        exported = tmp_path / "former.jsonl"
        exported.write_bytes(b"".join(store.export()))
        with store._database.writing() as connection:
            connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = '0004'")
    with open_store(url) as store, open_store(str(tmp_path / "new.db")) as new:
        new.import_file(exported)
        for each in (store, new):
            assert each.history() == [before]
            document = each.get(entry_id)
            assert isinstance(document, Document) and record_of(document) == replace(record, id=entry_id)
    files = PROFILES if isinstance(record, Profile) else VERSIONS
    path = tmp_path / "former.json"
    path.write_text(json.dumps(former))
    assert files.load(str(path)) == record
