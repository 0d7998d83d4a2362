"""Several processes at once, and processes that are killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferlab.errors import InferlabError
from inferlab.store import database, open_store
from inferlab.store.store import Store
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, benchmark_of, save_done

_ROOT = Path(__file__).parents[2]


def _writer(url: str, entry_id: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.writer", url, entry_id, str(count)]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _go(writers: list[subprocess.Popen[str]]) -> None:
    for writer in writers:
        assert writer.stdout and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()


def _finish(writers: list[subprocess.Popen[str]]) -> None:
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0


def test_two_processes_that_write_at_once_lose_nothing(store: Store, url: str) -> None:
    entry_id = store.begin(PLAN, MODEL, [a_cell()])
    writers = [_writer(url, entry_id, 200) for _ in range(2)]
    _go(writers)
    _finish(writers)
    (outcome,) = benchmark_of(store, entry_id).outcomes
    firsts = Counter(run.windows[0].streams[0].ends_ns[0] for run in outcome.runs)
    assert firsts == Counter({(1 + index) * 1_000_000: 2 for index in range(200)})


def test_threads_may_share_a_store(store: Store) -> None:
    entry_id = store.begin(PLAN, MODEL, [a_cell()])

    def write_and_read(index: int) -> int:
        store.add_run(entry_id, a_cell().id, steady_run(1.0 + index))
        return store.history()[0].cells[0].runs

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(write_and_read, range(40)))
    assert min(seen) >= 1
    assert len(benchmark_of(store, entry_id).outcomes[0].runs) == max(seen) == 40


def test_processes_that_make_the_same_store_at_once_all_succeed(url: str) -> None:
    writers = [_writer(url, "", 1) for _ in range(3)]
    _go(writers)
    _finish(writers)
    with open_store(url) as store:
        assert [entry.cells[0].runs for entry in store.history()] == [1, 1, 1]


def test_a_killed_writer_costs_at_most_the_run_in_progress(url: str) -> None:
    for after in (0, 1, 10):
        with open_store(url) as store:
            entry_id = store.begin(PLAN, MODEL, [a_cell()])
        writer = _writer(url, entry_id, 100_000)
        _go([writer])
        assert writer.stdout
        said = [writer.stdout.readline() for _ in range(after)]
        writer.kill()
        # Not by `communicate`: it passes over what `readline` has read ahead.
        saved = len(said) + writer.stdout.read().count("\n")
        writer.communicate()
        with open_store(url) as store:
            runs = benchmark_of(store, entry_id).outcomes[0].runs
            assert saved <= len(runs) <= saved + 1
            assert store.unfinished(entry_id) == [a_cell().id]
    if not url.startswith("postgresql"):
        with sqlite3.connect(url) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_store_that_stays_locked_is_told_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    with open_store(url) as store, open_store(url) as other:
        entry_id = save_done(store, a_cell())
        with other._database.writing() as connection:
            connection.rows("UPDATE entry SET note = 'busy'")
            # A reader does not wait for a writer.
            assert store.get(entry_id).note == ""
            with pytest.raises(InferlabError, match="stayed locked by another program"):
                store.note(entry_id, "mine")
        store.note(entry_id, "mine")
        assert other.get(entry_id).note == "mine"
