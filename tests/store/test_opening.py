"""Which store is opened, and which are refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.errors import BadInput, InferlabError
from inferlab.store import VERSION_TABLE, database, open_store
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, benchmark_of, save, save_done


def test_the_argument_goes_before_the_environment_before_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("INFERLAB_STORE", raising=False)
    assert open_store().name == str(tmp_path / "data" / "inferlab" / "lab.db")
    monkeypatch.setenv("INFERLAB_STORE", str(tmp_path / "env %20.db"))
    assert open_store().name == str(tmp_path / "env %20.db")
    assert open_store(f"sqlite:///{tmp_path}/argument.db").name == f"{tmp_path}/argument.db"
    assert {path.name for path in tmp_path.iterdir() if path.suffix == ".db"} == {"env %20.db", "argument.db"}


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("mysql://localhost/lab", "not with mysql://"),
        ("postgresql://me:secret@localhost:1/lab", r"postgresql://me:\*\*\*@localhost:1/lab cannot be reached"),
        (
            "postgresql://localhost:1/lab?user=me&password=secret",
            r"lab\?user=me&password=\*\*\* cannot be reached",
        ),
        ("postgresql://me:12/secret@localhost/lab", r"postgresql://me:\*\*\*@localhost/lab cannot be reached"),
        ("postgresql://localhost:port/lab", "URL of the store cannot be read"),
        ("postgresql://me:sec/ret@localhost/lab", "URL of the store cannot be read"),
        ("no/such/folder/lab.db", "folder of the store .* does not exist. Make it first: mkdir -p"),
        (".", "is a folder"),
    ],
)
def test_a_store_that_cannot_be_is_refused(
    url: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=reason) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BadInput, match=r"pip install 'inferlab\[postgres\]'"):
        open_store("postgresql://localhost/lab")


def test_a_connection_that_the_server_has_cut_is_replaced(postgresql_url: str) -> None:
    with open_store(postgresql_url) as store, open_store(postgresql_url) as other:
        entry_id = save_done(store, a_cell())
        with other._database.writing() as connection:
            cut = connection.rows(
                "SELECT pg_terminate_backend(pid) AS cut FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert cut == [{"cut": True}]
        assert store.get(entry_id).id == entry_id
        store.note(entry_id, "mine")
        assert store.get(entry_id).note == "mine"


def test_a_database_that_the_server_does_not_have_is_named(postgresql: str) -> None:
    with pytest.raises(BadInput, match='database "missing" does not exist'):
        open_store(f"postgresql://inferlab@/missing?host={postgresql}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a benchmark in it, closed."""
    path = tmp_path / "lab.db"
    with open_store(str(path)) as store:
        save(store, a_benchmark())
    return path


def test_the_file_has_a_log_and_nothing_lies_beside_it_when_it_is_closed(file: Path) -> None:
    assert [path.name for path in file.parent.iterdir()] == ["lab.db"]
    assert sqlite3.connect(file).execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("damage", ["truncated", "short", "foreign", "header"])
def test_a_damaged_file_is_reported_and_left_as_it_is(file: Path, damage: str) -> None:
    content = file.read_bytes()
    damaged = {
        "truncated": content[: len(content) // 2],
        "short": content[:60],
        "foreign": b"%PDF-1.7 and so on" * 100,
        "header": b"x" * 100 + content[100:],
    }[damage]
    file.write_bytes(damaged)
    with pytest.raises(BadInput, match=rf"{file} is damaged or not an SQLite database .*move it away"):
        open_store(str(file))
    assert file.read_bytes() == damaged


def test_damage_that_shows_only_later_is_reported_too(file: Path) -> None:
    content = bytearray(file.read_bytes())
    # All but the first page, which has the schema, and the last, whose absence would be noticed.
    content[2 * 4096 : -4096] = b"\xaa" * (len(content) - 3 * 4096)
    file.write_bytes(content)
    with pytest.raises(BadInput, match="is damaged"), open_store(str(file)) as store:
        store.get(store.history()[0].id)


def test_content_that_is_no_record_is_reported(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute("UPDATE run SET samples = x'01'")
    with open_store(str(file)) as store, pytest.raises(InferlabError, match="cannot be read: damaged samples"):
        store.get(store.history()[0].id)
    with open_store(str(file)) as store:
        assert store.rebuild() == 0


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE bookmarks (x)")
    before = path.read_bytes()
    with pytest.raises(BadInput, match="of another program: it has the table 'bookmarks'"):
        open_store(str(path))
    assert path.read_bytes()[100:] == before[100:]


def test_a_newer_store_is_refused(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0999'")
    with pytest.raises(BadInput, match="has tables of version 999; this inferlab knows them up to version 5"):
        open_store(str(file))


def test_a_store_whose_version_is_missing_or_no_number_is_refused(file: Path) -> None:
    for change, said in (("UPDATE {} SET version_num = 'x'", "'x'"), ("DELETE FROM {}", "None")):
        with sqlite3.connect(file) as raw:
            raw.execute(change.format(VERSION_TABLE))
        with pytest.raises(BadInput, match=rf"The version of the store {file} cannot be read \({said}\)"):
            open_store(str(file))


def test_a_full_disk_costs_only_what_did_not_fit(file: Path) -> None:
    with open_store(str(file)) as store:
        entry_id = store.begin(PLAN, MODEL, [a_cell()])
        store.add_run(entry_id, a_cell().id, steady_run(1.0))
        # The next to write gets this connection again.
        with store._database.writing() as connection:
            (pages,) = connection.rows("PRAGMA page_count")
            connection.rows(f"PRAGMA max_page_count = {pages['page_count']}")
        with pytest.raises(InferlabError, match=r"disk of the store .* is full"):
            store.note(entry_id, "x" * 1_000_000)
        assert len(benchmark_of(store, entry_id).outcomes[0].runs) == 1
    with open_store(str(file)) as store:
        store.add_run(entry_id, a_cell().id, steady_run(1.0))
        assert len(benchmark_of(store, entry_id).outcomes[0].runs) == 2


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others may read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder
        folder.chmod(0o755)


def test_a_store_in_a_folder_that_cannot_be_written_to_is_read(shared: Path) -> None:
    path = shared / "lab.db"
    with open_store(str(path)) as store:
        save_done(store, a_cell())
    path.chmod(0o444)
    shared.chmod(0o555)
    program = (
        "from inferlab.store import open_store\n"
        "from inferlab.errors import InferlabError\n"
        f"store = open_store({str(path)!r})\n"
        "found = store.history()[0].id\n"
        "print(len(store.get(found).benchmark.outcomes[0].runs))\n"
        "for refused in (lambda: store.note(found, 'x'), lambda: open_store(store.name + '2')):\n"
        "    try: refused()\n"
        "    except InferlabError as error: print(error)\n"
    )
    # Root may write everywhere, unless that power is taken away.
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    command = [*powerless, sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    runs, note, new = done.stdout.splitlines()
    assert runs == "1"
    assert "cannot be written to. Change its permissions or name another store" in note
    assert f"The folder {shared} cannot be written to" in new
    assert [one.name for one in shared.iterdir()] == ["lab.db"]


def test_a_network_file_system_gets_no_log_that_other_machines_would_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/vda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\ntmp {tmp_path}/local tmpfs rw 0 0\n"
    )
    assert database._on_network(tmp_path / "lab.db", mounts)
    assert not database._on_network(tmp_path / "local" / "lab.db", mounts)
    assert not database._on_network(Path("/home/lab.db"), mounts)
    monkeypatch.setattr(database, "_on_network", lambda path: True)
    path = tmp_path / "lab.db"
    with open_store(str(path)) as store:
        save_done(store, a_cell())
        assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("delete",)
