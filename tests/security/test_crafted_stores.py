"""Database files that somebody else made: other programs' tables, triggers and views that act on what is saved."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.runs import a_cell
from tests.helpers.stored import save_done


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, str]:
    """A genuine store and the id of what is in it."""
    path = tmp_path / "lab.db"
    with open_store(str(path)) as opened:
        return path, save_done(opened, a_cell())


def change(path: Path, *statements: str) -> None:
    raw = sqlite3.connect(path)
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


def dump(path: Path) -> list[str]:
    """All that is in a database, as statements."""
    raw = sqlite3.connect(path)
    raw.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    statements = list(raw.iterdump())
    raw.close()
    return statements


def test_a_genuine_store_shows_what_was_saved(store: tuple[Path, str], inferlab_here: Run) -> None:
    path, entry = store
    shown = inferlab_here("show", entry, "--store", path)
    assert shown.returncode == 0
    assert entry in inferlab_here("history", "--store", path).stdout


def test_a_time_without_a_zone_is_damage(store: tuple[Path, str], inferlab_here: Run) -> None:
    path, entry = store
    change(path, "UPDATE entry SET created_at = '2026-11-17T00:41:00'")
    for command in (["history"], ["show", entry]):
        done = inferlab_here(*command, "--store", path)
        said = f"The store {path} holds something that cannot be read: '2026-11-17T00:41:00' has no time zone."
        assert said in done.stderr and done.returncode == 2


ATTACKS = {
    "trigger that empties a table": (
        "trigger",
        "CREATE TRIGGER evil AFTER INSERT ON run BEGIN DELETE FROM entry; END",
    ),
    "trigger that rewrites what is saved": (
        "trigger",
        "CREATE TRIGGER evil AFTER INSERT ON entry BEGIN UPDATE entry SET content = '{}'; END",
    ),
    "trigger without an end": (
        "trigger",
        "CREATE TRIGGER evil AFTER UPDATE ON entry BEGIN UPDATE entry SET title = title || 'x'; END",
    ),
    "view of everything": ("view", "CREATE VIEW evil AS SELECT * FROM entry, entry AS b, entry AS c"),
    "view without an end": (
        "view",
        "CREATE VIEW evil AS WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    ),
    "view that loads a library": ("view", "CREATE VIEW evil AS SELECT load_extension('/tmp/evil.so')"),
    "view in the place of a table": ("view", "CREATE VIEW evil AS SELECT * FROM entry"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_store_with_statements_of_its_own_is_refused(
    attack: str, store: tuple[Path, str], inferlab_here: Run
) -> None:
    path, entry = store
    kind, statement = ATTACKS[attack]
    change(path, statement)
    if attack == "view in the place of a table":
        change(path, "ALTER TABLE job RENAME TO other", "CREATE VIEW job AS SELECT * FROM other")
    before = dump(path)
    for command in (("history",), ("show", entry), ("remove", entry), ("benchmark", "demo:digits", "-t", "0.1")):
        done = inferlab_here(*command, "--store", path)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"it has the {kind} '" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert dump(path) == before


FOREIGN = {
    "another program's": ("CREATE TABLE moz_places (id INTEGER PRIMARY KEY, url TEXT)",),
    "the same names, other columns": ("CREATE TABLE entry (a)", "CREATE TABLE cell (b)", "CREATE TABLE run (c)"),
    "our mark, no tables": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES ('0003')",
    ),
    "our mark, other columns": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES ('0003')",
        "CREATE TABLE entry (a)",
    ),
    "our mark, of the future": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES ('9999')",
    ),
    "our mark, a word": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES ('DROP')",
    ),
    "our mark, in Arabic digits": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES ('²')",
    ),
    "our mark, no text": (
        "CREATE TABLE inferlab_version (version_num)",
        "INSERT INTO inferlab_version VALUES (CAST(x'ff' AS TEXT))",
    ),
    "our mark, no column": ("CREATE TABLE inferlab_version (other)",),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_database_of_another_program_is_one_sentence_and_stays_as_it_is(
    kind: str, inferlab_here: Run, tmp_path: Path
) -> None:
    path = tmp_path / "other.db"
    change(path, *FOREIGN[kind])
    before = dump(path)
    for command in (("history",), ("store", "check"), ("show", "last")):
        done = inferlab_here(*command, "--store", path)
        assert done.returncode == 2, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1
    with pytest.raises(BadInput), open_store(str(path)) as opened:
        save_done(opened, a_cell())
    assert dump(path) == before
