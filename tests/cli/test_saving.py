"""Nothing is lost silently: what was measured and could not be saved is said, also when quiet: exit code 6."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import inferlab as library
from inferlab.store import database, open_store
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_cell
from tests.helpers.stored import save_done


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_linear(tmp_path_factory.mktemp("models") / "linear.onnx", "batch")


QUICK = ("-e", "fake", "-t", "0.1")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that may be waited for only shortly."""
    monkeypatch.setattr(database, "BUSY_S", 0.1)
    path = tmp_path / "lab.db"
    open_store(str(path)).close()
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes, and does not come to an end."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.close()


COMMANDS = {
    "benchmark": ("-w", "0", "--processes", "1", "--no-verify"),
    "compare": ("-s", "sync", "-t", "3", "--no-verify"),
    "profile": ("--no-loss", "--no-performance"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_locked_store_costs_the_saving_is_said_when_quiet_and_the_file_is_written(
    inferlab_here: Run, linear: Path, store: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out.json"
    with locked(store):
        done = inferlab_here(command, linear, "-q", "--store", store, "-x", out, *QUICK, *COMMANDS[command])
    reason = (
        f"The store {store} stayed locked by another program. Nothing was changed: end that program, or try again."
    )
    assert (done.returncode, done.stderr) == (6, f"inferlab: the result is not saved: {reason}\n")
    assert done.stdout and json.loads(out.read_text())["format"].startswith("inferlab-")
    with open_store(str(store)) as opened:
        assert opened.history() == []


def test_a_store_that_takes_the_result_leaves_exit_code_0_and_stderr_empty(
    inferlab_here: Run, linear: Path, store: Path
) -> None:
    done = inferlab_here("benchmark", linear, "-q", "--store", store, *COMMANDS["benchmark"], *QUICK)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_exit_code_goes_before_that_of_saving(inferlab_here: Run, linear: Path, store: Path) -> None:
    with locked(store):
        done = inferlab_here(
            "benchmark", linear, "-q", "--strict", "--store", store, *COMMANDS["benchmark"], *QUICK
        )
    assert done.returncode == 5
    assert "inferlab: the result is not saved: " in done.stderr and "inferlab: strict: " in done.stderr


def test_a_store_that_is_read_only_is_told_of(environment: dict[str, str], linear: Path, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    path = folder / "lab.db"
    open_store(str(path)).close()
    path.chmod(0o444)
    folder.chmod(0o555)
    # Root may write everywhere, unless that power is taken away.
    powerless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    command = [*powerless, sys.executable, "-m", "inferlab", "benchmark", str(linear), "-q", "--store", str(path)]
    done = subprocess.run(
        [*command, *COMMANDS["benchmark"], *QUICK], env=environment, capture_output=True, text=True
    )
    folder.chmod(0o755)
    assert done.returncode == 6 and "Throughput" in done.stdout
    said = f"The store {path} cannot be written to. Change its permissions or name another store."
    assert done.stderr == f"inferlab: the result is not saved: {said}\n"


def test_a_file_that_cannot_be_written_at_the_end_is_told_of_and_the_store_has_the_result(
    inferlab_here: Run, linear: Path, store: Path
) -> None:
    done = inferlab_here(
        "benchmark", linear, "-q", "--store", store, "-x", "/dev/full", *COMMANDS["benchmark"], *QUICK
    )
    assert done.returncode == 6
    assert done.stderr == "inferlab: The result could not be written to /dev/full: No space left on device.\n"
    with open_store(str(store)) as opened:
        assert [one.status for one in opened.history()] == ["done"]


def test_a_disk_that_is_full_during_an_import_is_exit_code_6_and_imports_nothing(
    environment: dict[str, str], inferlab_here: Run, store: Path, tmp_path: Path
) -> None:
    with open_store(str(store)) as opened:
        for _ in range(30):
            save_done(opened, a_cell())
    assert inferlab_here("export", "--store", store, "-o", tmp_path / "all.jsonl").returncode == 0
    target = tmp_path / "target.db"
    open_store(str(target)).close()
    limit = target.stat().st_size + 20_000
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    code += "from inferlab.start import main; main()"
    command = [sys.executable, "-c", code, "import", str(tmp_path / "all.jsonl"), "--store", str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 6, done.stderr
    assert done.stderr.startswith(f"inferlab: The disk of the store {target} ")
    with open_store(str(target)) as opened:
        assert opened.history() == []


def test_the_api_warns(linear: Path, store: Path) -> None:
    with locked(store), pytest.warns(UserWarning, match="^The result is not saved: The store .* stayed locked"):
        result = library.benchmark(
            linear, engine="fake", verify=False, time=0.1, warmup_time=0, processes=1, store=store
        )
    assert result.id == "" and result.status == "done"


def test_a_sound_store_is_called_so(inferlab_here: Run, store: Path) -> None:
    with open_store(str(store)) as opened:
        save_done(opened, a_cell())
    done = inferlab_here("store", "check", "--store", store)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"The store {store} is sound.\n", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE entry SET content = '{'", "entry {entry} cannot be read: Expecting property name"),
        ("UPDATE entry SET title = CAST(x'ff' AS TEXT)", "entry {entry} cannot be read: its title is not UTF-8"),
        ("UPDATE entry SET project_id = 'gone'", "entry of a missing project: entry {entry}"),
        ("UPDATE cell SET status = 'odd'", "cell 1 cannot be read: its status is 'odd'"),
        ("UPDATE cell SET failure = '[]'", "cell 1 cannot be read: a Failure is an object"),
        ("UPDATE run SET samples = x'00'", "run 1 cannot be read: samples of version 0"),
        ("UPDATE run SET content = '[' || content", "run 1 cannot be read: Expecting"),
        ("DELETE FROM cell", "run of a missing cell: run 1"),
        ("UPDATE inferlab_version SET version_num = '0009'", "its tables are of version 0009"),
        ("DROP TABLE job", "tables are missing: job"),
    ],
)
def test_what_is_wrong_with_a_store_is_listed_and_nothing_changed(
    inferlab_here: Run, store: Path, change: str, said: str
) -> None:
    with open_store(str(store)) as opened:
        entry = save_done(opened, a_cell())
    raw = sqlite3.connect(store)
    raw.execute(change)
    raw.commit()
    raw.close()
    before = store.read_bytes()
    done = inferlab_here("store", "check", "--store", store)
    assert done.returncode == 2
    assert any(line.startswith(said.format(entry=entry)) for line in done.stdout.splitlines()), done.stdout
    problems = len(done.stdout.splitlines())
    assert done.stderr == f"inferlab: the store {store} has {problems} problem{'s' if problems > 1 else ''}.\n"
    assert store.read_bytes() == before


def test_a_damaged_page_is_found(inferlab_here: Run, store: Path) -> None:
    with open_store(str(store)) as opened:
        for _ in range(20):
            save_done(opened, a_cell())
    content = bytearray(store.read_bytes())
    content[-4096 : -4096 + 8] = b"\xaa" * 8
    store.write_bytes(content)
    done = inferlab_here("store", "check", "--store", store)
    assert done.returncode == 2 and "damaged" in done.stdout + done.stderr


def test_a_backup_is_a_store_made_while_another_program_writes(
    inferlab_here: Run, store: Path, tmp_path: Path
) -> None:
    with open_store(str(store)) as opened:
        entry = save_done(opened, a_cell())
    copy = tmp_path / "copy.db"
    with locked(store):
        done = inferlab_here("store", "backup", copy, "--store", store)
    assert done.returncode == 0 and done.stdout.startswith(f"Copied {store} to {copy} (")
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith((".", "copy"))) == ["copy.db"]
    with open_store(str(copy)) as opened:
        assert [one.id for one in opened.history()] == [entry]


def test_a_backup_overwrites_nothing_and_leaves_nothing_half_written(
    inferlab_here: Run, environment: dict[str, str], store: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there.db"
    there.write_text("mine")
    done = inferlab_here("store", "backup", there, "--store", store)
    assert (done.returncode, there.read_text()) == (2, "mine")
    assert done.stderr == f"inferlab: {there} is there already and is not overwritten. Name another file.\n"
    small = tmp_path / "small"
    small.mkdir()
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
    code += "from inferlab.start import main; main()"
    command = [sys.executable, "-c", code, "store", "backup", str(small / "copy.db"), "--store", str(store)]
    failed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert failed.returncode == 6 and list(small.iterdir()) == [], failed.stderr


def test_neither_makes_a_store(inferlab_here: Run, tmp_path: Path) -> None:
    for arguments in (("check",), ("backup", tmp_path / "copy.db")):
        done = inferlab_here("store", *arguments, "--store", tmp_path / "missing.db")
        assert done.returncode == 2 and "There is no store" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_postgresql_store_is_copied_by_its_own_program(inferlab_here: Run, tmp_path: Path) -> None:
    done = inferlab_here("store", "backup", tmp_path / "copy.sql", "--store", "postgresql://user:secret@host/lab")
    assert done.returncode == 2 and "pg_dump" in done.stderr and "secret" not in done.stderr


def test_a_store_with_a_document_that_is_no_json_migrates(tmp_path: Path) -> None:
    """Version 3 fills in briefs by what it knew then, and leaves out what is damaged."""
    path = tmp_path / "old.db"
    with open_store(str(path)) as opened:
        opened.add_document("comparison", "a and b", {"a": 1})
    raw = sqlite3.connect(path)
    raw.executescript(
        "UPDATE entry SET content = '['; UPDATE inferlab_version SET version_num = '0002'; DROP TABLE project; "
        "DROP TABLE job; DROP INDEX entry_by_project; DROP INDEX entry_by_model; "
        "ALTER TABLE entry DROP COLUMN project_id; ALTER TABLE entry DROP COLUMN brief; "
        "ALTER TABLE entry DROP COLUMN labels; ALTER TABLE cell DROP COLUMN cached_engine_version; "
        "ALTER TABLE cell DROP COLUMN cached_machine; ALTER TABLE cell DROP COLUMN cached_peak_memory_bytes"
    )
    raw.close()
    with open_store(str(path)) as opened:
        assert [(one.title, one.brief) for one in opened.history()] == [("a and b", {})]
