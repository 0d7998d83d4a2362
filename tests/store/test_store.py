"""What a store promises, on both databases."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Benchmark, Outcome
from inferlab.store import Document, Stored, open_store, rows
from inferlab.store.store import Store
from inferlab.version import __version__
from tests.helpers.runs import a_cell, a_run, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, benchmark_of, save, save_done


def test_a_benchmark_comes_back_as_it_was_saved(store: Store) -> None:
    before = datetime.now(UTC)
    entry_id = save(store, a_benchmark())
    stored = store.get(entry_id)
    assert isinstance(stored, Stored)
    assert stored.benchmark == replace(a_benchmark(), id=entry_id)
    assert list(stored.benchmark.outcomes[0].runs[2].versions) == ["onnxruntime", "alpha"]
    assert (stored.id, stored.note, stored.inferlab_version) == (entry_id, "", __version__)
    assert before <= stored.created_at <= datetime.now(UTC)


def test_every_run_is_there_as_soon_as_it_was_added(store: Store, url: str) -> None:
    cell = a_cell()
    entry_id = store.begin(PLAN, MODEL, [cell])
    with open_store(url) as reader:
        assert benchmark_of(reader, entry_id).outcomes == (Outcome(cell, "pending"),)
        for count in (1, 2):
            store.add_run(entry_id, cell.id, steady_run(count))
            assert len(benchmark_of(reader, entry_id).outcomes[0].runs) == count


def test_a_plan_may_have_the_same_cell_twice(store: Store) -> None:
    first, second = (Outcome(a_cell(), "done", (steady_run(ms),)) for ms in (1.0, 2.0))
    benchmark = Benchmark(PLAN, MODEL, (first, second))
    assert benchmark_of(store, save(store, benchmark)) == benchmark


def test_a_document_comes_back_as_it_was_saved(store: Store) -> None:
    content = {"ratio": 1.5, "labels": ["A", "B"], "none": None}
    entry_id = store.add_document("comparison", "A against B", content)
    found = store.get(entry_id)
    assert isinstance(found, Document)
    assert (found.kind, found.title, found.content) == ("comparison", "A against B", content)
    assert [(entry.kind, entry.title, entry.status) for entry in store.history()] == [
        ("comparison", "A against B", "done")
    ]


def test_the_history_shows_what_became_of_every_cell(store: Store) -> None:
    save(store, a_benchmark())
    (entry,) = store.history()
    assert (entry.title, entry.model_digest, entry.status) == (MODEL.source, MODEL.digest, "failed")
    assert [(cell.status, cell.runs) for cell in entry.cells] == [
        ("done", 3),
        ("failed", 0),
        ("cancelled", 1),
        ("pending", 1),
    ]
    done, failed, cancelled, pending = entry.cells
    assert done.items_per_sec_low and done.items_per_sec and done.items_per_sec_high
    assert done.items_per_sec_low < done.items_per_sec < done.items_per_sec_high
    assert failed.failure == a_benchmark().outcomes[1].failure
    assert cancelled.items_per_sec == pytest.approx(1000.0)
    assert cancelled.median_ms == pytest.approx(1.0)
    assert cancelled.median_ms_low is None
    assert pending.items_per_sec is None


def test_the_history_is_read_page_by_page_newest_first(store: Store) -> None:
    ids = [save_done(store, a_cell()) for _ in range(5)][::-1]
    first = store.history(limit=2)
    assert [entry.id for entry in first] == ids[:2]
    assert [entry.id for entry in store.history(limit=10, before=first[-1].id)] == ids[2:]


def test_the_history_is_searched_by_model_engine_and_status(store: Store) -> None:
    fake = save_done(store, a_cell(engine="fake"))
    other = save_done(store, a_cell(engine="openvino"))
    mixed = save(store, a_benchmark())
    pending = store.begin(PLAN, MODEL, [a_cell()])
    paper = store.add_document("comparison", "100% of it", {})

    def ids(**wanted: str) -> set[str]:
        return {entry.id for entry in store.history(**wanted)}  # type: ignore[arg-type]

    assert ids(model="MobileNet") == {fake, other, mixed, pending}
    assert ids(model=MODEL.digest[:8]) == {fake, other, mixed, pending}
    assert ids(model="%") == {paper}
    assert ids(engine="openvino") == {other}
    assert ids(status="done") == {fake, other, paper}
    assert ids(status="failed") == {mixed}
    assert ids(status="pending") == {pending}
    assert ids(status="cancelled") == set()
    assert ids(engine="fake", status="done") == {fake}


def test_an_id_may_be_shortened_as_long_as_it_is_the_only_one(store: Store) -> None:
    first, second = (save_done(store, a_cell()) for _ in range(2))
    with store._database.writing() as connection:
        connection.rows("DELETE FROM cell")
        for old, new in ((first, "abcdefghij"), (second, "abcdzzzzzz")):
            connection.rows("UPDATE entry SET id = :new WHERE id = :old", old=old, new=new)
    assert store.get("abcde").id == "abcdefghij"
    assert store.get("abcdz").id == "abcdzzzzzz"
    with pytest.raises(BadInput, match="Several ids begin with 'abcd', such as abcdefghij and abcdzzzzzz"):
        store.get("abcd")
    with pytest.raises(BadInput, match="at least its first 4 characters"):
        store.get("abc")
    for unknown in ("zzzz", "ABCDE", "abcdefghijk", "%%%%", "é" * 5):
        with pytest.raises(BadInput, match="has nothing with the id"):
            store.get(unknown)


def test_notes_are_kept(store: Store) -> None:
    entry_id = save_done(store, a_cell())
    store.note(entry_id, "first")
    store.note(entry_id[:6], "on the new machine: 3 % \0")
    assert store.get(entry_id).note == "on the new machine: 3 % \\0"
    assert store.history()[0].note == "on the new machine: 3 % \\0"


def test_what_is_removed_is_gone_with_its_runs(store: Store) -> None:
    gone, kept = save(store, a_benchmark()), save(store, a_benchmark())
    assert store.remove(gone[:7]) == gone
    with pytest.raises(BadInput, match="has nothing"):
        store.get(gone)
    assert benchmark_of(store, kept) == a_benchmark()
    with store._database.reading() as connection:
        assert connection.rows("SELECT count(*) AS runs FROM run") == [{"runs": 5}]
    with pytest.raises(InferlabError, match="was removed meanwhile"):
        store.add_run(gone, a_cell().id, a_run())


def test_prune_keeps_the_newest_and_the_young(store: Store) -> None:
    ids = [save_done(store, a_cell()) for _ in range(4)][::-1]
    old = (datetime.now(UTC) - timedelta(days=3)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    with store._database.writing() as connection:
        connection.rows("UPDATE entry SET created_at = :old WHERE id = :id", old=old, id=ids[3])
    assert store.prune(older_than_days=5) == []
    assert store.prune(keep=2, older_than_days=2, dry_run=True) == ids[3:]
    assert store.prune(keep=2, dry_run=True) == ids[2:]
    assert len(store.history()) == 4
    assert store.prune(older_than_days=2) == ids[3:]
    assert store.prune(keep=1) == ids[1:3]
    assert [entry.id for entry in store.history()] == ids[:1]
    for nonsense in ({}, {"keep": -1}, {"older_than_days": -1.0}, {"older_than_days": float("nan")}):
        with pytest.raises(BadInput):
            store.prune(**nonsense)


def test_the_cached_numbers_can_be_made_again(store: Store) -> None:
    save(store, a_benchmark())
    before = store.history()
    with store._database.writing() as connection:
        connection.rows("UPDATE cell SET cached_items_per_sec = 7, cached_median_ms = NULL")
    assert store.history() != before
    assert store.rebuild() == 2
    assert [cell for cell in store.history()[0].cells if cell.status != "pending"] == [
        cell for cell in before[0].cells if cell.status != "pending"
    ]


def test_samples_without_statistics_are_saved_all_the_same(store: Store) -> None:
    entry_id = save_done(store, a_cell(), latency_ms=0.0)
    assert store.history()[0].cells[0].items_per_sec is None
    assert benchmark_of(store, entry_id).outcomes[0].runs == (steady_run(0.0),)


def test_what_was_left_can_be_taken_up_again(store: Store) -> None:
    entry_id = save(store, a_benchmark())
    cells = [outcome.cell for outcome in a_benchmark().outcomes]
    assert store.unfinished(entry_id) == [cells[3].id]
    store.finish_cell(entry_id, cells[3].id, "done")
    assert store.unfinished(entry_id) == []


def test_reading_the_history_imports_neither_statistics_nor_migrations(store: Store, url: str) -> None:
    save(store, a_benchmark())
    program = (
        "import sys, inferlab.store\n"
        "assert not {'sqlite3', 'psycopg'} & sys.modules.keys()\n"
        f"assert len(inferlab.store.open_store({url!r}).history()) == 1\n"
        "assert not {'inferlab.store.migrations', 'numpy', 'scipy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_store_is_read_and_written_without_statistics(store: Store, url: str) -> None:
    entry_id = save(store, a_benchmark())
    program = (
        "import sys\n"
        "from inferlab.store import open_store\n"
        f"with open_store({url!r}) as store:\n"
        f"    assert store.has({entry_id!r}) and len(store.get({entry_id!r}).benchmark.outcomes) == 4\n"
        f"    assert [one.id for one in store.headings([{entry_id!r}])] == [{entry_id!r}]\n"
        f"    store.note({entry_id!r}, 'mine')\n"
        "    assert store.history()[0].note == 'mine'\n"
        "assert not {'inferlab.store.migrations', 'scipy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_both_databases_answer_alike(store: Store, other_url: str, tmp_path: Path) -> None:
    for outcomes in ({}, {"engine": "openvino"}):
        save(store, a_benchmark(**outcomes))
    newest, oldest = store.history()
    export = tmp_path / "export.jsonl"
    export.write_bytes(b"".join(store.export()))
    pages: list[dict[str, Any]] = [
        {},
        {"limit": 1},
        {"before": newest.id},
        {"model": "MobileNet", "engine": "fake", "status": "failed"},
    ]
    with open_store(other_url) as other:
        assert set(other.import_file(export)) == {newest.id, oldest.id}
        for wanted in pages:
            assert other.history(**wanted) == store.history(**wanted)
        for entry_id in (newest.id, oldest.id):
            assert other.get(entry_id) == store.get(entry_id)
            with store._database.reading() as connection, other._database.reading() as connection_2:
                assert rows.entry(connection_2, entry_id) == rows.entry(connection, entry_id)
