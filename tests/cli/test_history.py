"""`inferlab history`, as a user sees it, and what all commands of the store have in common."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest

from inferlab.records import Benchmark, Outcome, OutputCheck
from inferlab.store import VERSION_TABLE, open_store
from tests.cli.conftest import Run
from tests.helpers.postgresql import postgresql, postgresql_url
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, a_benchmark, save, save_done

__all__ = ["postgresql", "postgresql_url"]
DOCUMENTATION = (Path(__file__).parent.parent.parent / "docs/store.md").read_text()
COMMANDS = ("history", "show", "rerun", "remove", "export", "import", "prune")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three entries, closed."""
    path = tmp_path_factory.mktemp("stores") / "lab.db"
    with open_store(str(path)) as store:
        save_done(store, a_cell(engine="openvino"))
        save(store, a_benchmark())
        store.note(store.add_document("comparison", "old.onnx / new.onnx", {"ratio": 1.5}), "after the fix")
    return path


def test_the_newest_comes_first_with_what_became_of_it(inferlab_here: Run, path: Path) -> None:
    done = inferlab_here("history", "--store", path)
    assert (done.returncode, done.stderr) == (0, "")
    head, comparison, mixed, single = (re.split(r"\s{2,}", line) for line in done.stdout.splitlines())
    assert head == ["Id", "When", "Kind", "Model", "Engines", "Cores", "Batch", "Best", "Status", "Note"]
    assert comparison[2:] == ["comparison", "old.onnx / new.onnx", "-", "-", "-", "-", "done", "after the fix"]
    assert mixed[2:7] == ["benchmark", "demo:mobilenet_v2", "fake", "1", "1"]
    assert mixed[8] == "failed 1, cancelled 1, pending 1 of 4"
    assert single[2:] == ["benchmark", "demo:mobilenet_v2", "openvino", "1", "1", "median 2 ms", "done"]
    assert all(re.fullmatch(r"\d+ (s|min) ago", row[1]) for row in (comparison, mixed, single))


def test_pages_follow_each_other_as_the_hint_says(inferlab_here: Run, path: Path) -> None:
    first = inferlab_here("history", "--store", path, "-n", "1", "--model", "mobilenet")
    (hint,) = first.stderr.splitlines()
    assert hint.startswith(f"Older ones: inferlab history -n 1 --model mobilenet --store {path} --before ")
    second = inferlab_here(*hint.removeprefix("Older ones: inferlab ").split())
    assert second.stderr == ""
    assert [done.stdout.splitlines()[1].split()[-1] for done in (first, second)] == ["4", "done"]


def test_the_history_is_filtered_and_says_so_where_nothing_fits(inferlab_here: Run, path: Path) -> None:
    done = inferlab_here("history", "--store", path, "--engine", "openvino", "--status", "done")
    assert len(done.stdout.splitlines()) == 2 and "openvino" in done.stdout
    done = inferlab_here("history", "--store", path, "--engine", "torch")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Nothing in the store {path} matches. See all with: inferlab history\n"


def test_the_history_as_json_has_the_cells_and_the_next_page(inferlab_here: Run, path: Path) -> None:
    page = json.loads(inferlab_here("history", "--store", path, "--json", "-n", "2").stdout)
    assert [one["kind"] for one in page["entries"]] == ["comparison", "benchmark"]
    assert [cell["status"] for cell in page["entries"][1]["cells"]] == ["done", "failed", "cancelled", "pending"]
    done = inferlab_here("history", "--store", path, "--json", "--before", page["before"])
    (last,) = json.loads(done.stdout)["entries"]
    assert last["cells"][0]["median_ms"] == pytest.approx(2.0)
    assert (json.loads(done.stdout)["before"], done.stderr) == (None, "")


def test_wrong_outputs_never_win_the_history(inferlab_here: Run, tmp_path: Path) -> None:
    wrong = replace(steady_run(1.0), check=OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y"))
    outcomes = (Outcome(a_cell(seed=1), "done", (wrong,)), Outcome(a_cell(), "done", (steady_run(4.0),)))
    with open_store(str(tmp_path / "lab.db")) as store:
        save(store, Benchmark(PLAN, MODEL, outcomes))
    line = inferlab_here("history", "--store", tmp_path / "lab.db").stdout.splitlines()[1]
    assert re.split(r"\s{2,}", line)[-2:] == ["median 4 ms", "wrong outputs 1 of 2"]


def test_on_a_terminal_no_line_is_wider_than_it(
    inferlab_here: Run, environment: dict[str, str], path: Path, tmp_path: Path
) -> None:
    with open_store(str(tmp_path / "lab.db")) as store:
        store.add_document("comparison", "/models/" + "x" * 100 + ".onnx", {})
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).parent / "inferlab"), "history", "--store", str(tmp_path / "lab.db")]
    with subprocess.Popen(command, stdout=theirs, env={**environment, "COLUMNS": "80"}) as running:
        os.close(theirs)
        running.wait()
        seen = os.read(ours, 10_000).decode()
    os.close(ours)
    assert len(seen.splitlines()) == 2 and max(map(len, seen.splitlines())) <= 80
    assert re.search(r"/models/x+…x+\.onnx  ", seen)


def test_where_nothing_was_saved_it_says_what_to_do_first_and_makes_nothing(
    inferlab_here: Run, tmp_path: Path
) -> None:
    done = inferlab_here("history", INFERLAB_STORE="", XDG_DATA_HOME=str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing is saved yet. Start with: inferlab benchmark demo:resnet50 -t 3\n"
    assert list(tmp_path.iterdir()) == []


def test_an_empty_store_says_what_to_do_first(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    open_store(str(path)).close()
    done = inferlab_here("history", "--store", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Nothing is saved yet in {path}. Start with: inferlab benchmark demo:resnet50 -t 3\n"


#: What each command is given beside the store.
GIVEN = {"history": [], "show": ["abcd"], "export": ["-o", "OUT/all.jsonl"], "prune": ["--keep", "0", "--yes"]}


@pytest.mark.parametrize("command", GIVEN)
def test_no_command_that_reads_makes_a_store(inferlab_here: Run, tmp_path: Path, command: str) -> None:
    given = [one.replace("OUT", str(tmp_path)) for one in GIVEN[command]]
    done = inferlab_here(command, *given, "--store", tmp_path / "typo.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"inferlab: There is no store {tmp_path / 'typo.db'}. Name the right one")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_is_reported_by_every_command_and_left_as_it_is(
    inferlab_here: Run, path: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "lab.db"
    content = path.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    before = damaged.read_bytes()
    (tmp_path / "all.jsonl").write_bytes(b"".join(_lines(path)))
    for command, given in {**GIVEN, "import": ["OUT/all.jsonl"]}.items():
        done = inferlab_here(command, *(one.replace("OUT", str(tmp_path)) for one in given), "--store", damaged)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert f"The store {damaged} is damaged" in done.stderr and "move it away" in done.stderr
    assert damaged.read_bytes() == before


def _lines(path: Path) -> list[bytes]:
    with open_store(str(path)) as store:
        return list(store.export())


def test_a_newer_store_is_refused(inferlab_here: Run, path: Path, tmp_path: Path) -> None:
    newer = tmp_path / "lab.db"
    newer.write_bytes(path.read_bytes())
    with sqlite3.connect(newer) as raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0999'")
    done = inferlab_here("history", "--store", newer)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has tables of version 999; this inferlab knows them up to version 5" in done.stderr


def test_bad_ids_are_named_and_ambiguous_ones_told_apart(inferlab_here: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "lab.db")
    with open_store(path) as store:
        made = [store.add_document("comparison", "A / B", {}) for _ in range(2)]
        with store._database.writing() as connection:
            for old, new in zip(made, ("abcdefghij", "abcdzzzzzz"), strict=True):
                connection.rows("UPDATE entry SET id = :new WHERE id = :old", old=old, new=new)
    for arguments, said in (
        (["show", "zzzz"], f"The store {path} has nothing with the id 'zzzz'. See: inferlab history"),
        (["show", "abc"], "An id is given by at least its first 4 characters, not 'abc'."),
        (["show", "abcd"], "Several ids begin with 'abcd', such as abcdefghij and abcdzzzzzz. Give more"),
        (["rerun", "abcde"], "abcdefghij is a comparison, not a benchmark. See it with: inferlab show abcdefghij"),
        (["history", "--before", "zzzz"], "has nothing with the id 'zzzz'"),
        (["history", "--status", "lost"], "'lost' is not one of"),
        (["show"], "Missing argument 'ID'"),
    ):
        done = inferlab_here(*arguments, "--store", path)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert said in done.stderr and "Traceback" not in done.stderr
    done = inferlab_here("show", "abcde", "--store", path)
    assert done.returncode == 0 and done.stdout.startswith("Entry: abcdefghij (comparison)\n")


def test_a_store_on_postgresql_is_listed_and_shown_by_its_url(inferlab_here: Run, postgresql_url: str) -> None:
    url = postgresql_url
    with open_store(url) as store:
        entry_id = save_done(store, a_cell())
    listed = inferlab_here("history", INFERLAB_STORE=url)
    assert listed.stdout.splitlines()[1].startswith(f"{entry_id}  ")
    shown = inferlab_here("show", entry_id[:6], "--store", url)
    assert shown.returncode == 0 and "Latency Median (ms/batch): 2.0000" in shown.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_the_store_is_documented_and_no_other(name: str) -> None:
    module = importlib.import_module(f"inferlab.cli.{'import_' if name == 'import' else name}")
    command: click.Command = module.command
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    (section,) = re.findall(rf"^## `inferlab {name}.*?\n(.*?)(?=^## |\Z)", DOCUMENTATION, re.M | re.S)
    rows = "\n".join(re.findall(r"^\| (`-.*?) \|", section, re.M))
    assert set(re.findall(r"`(-{1,2}[\w-]+)`", rows)) == real


def test_a_file_is_listed_and_its_benchmarks_shown_without_what_takes_long_to_import(tmp_path: Path) -> None:
    path = str(tmp_path / "lab.db")
    with open_store(path) as store:
        ids = [save(store, a_benchmark()), save_done(store, a_cell())]
    code = (
        "import sys\nfrom inferlab.cli import group\n"
        f"for command in (['history'], *(['show', one] for one in {ids!r})):\n"
        f"    group.main([*command, '--store', {path!r}], standalone_mode=False)\n"
        "heavy = {'inferlab.store.migrations', 'psycopg', 'scipy', 'numpy.ma', 'pandas', 'rich.console'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.count("Latency Median") == 1
    assert done.stdout.splitlines()[-1] == "[]"


def test_only_what_is_marked_so_is_listed(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    with open_store(str(path)) as store:
        for branch in ("main", "dev", "main"):
            store.add_document("capacity", branch, {}, labels=(("branch", branch), ("commit", "c" * 40)))
    done = inferlab_here("history", "--store", path, "--label", "branch=main", "-n", "1")
    (_, row) = done.stdout.splitlines()
    assert row.endswith("done    branch main, commit cccccccccc")
    again = inferlab_here(*done.stderr.strip().removeprefix("Older ones: inferlab ").split())
    assert [line.split()[5] for line in again.stdout.splitlines()[1:]] == ["main"]
    assert "matches" in inferlab_here("history", "--store", path, "--label", "branch=x").stderr
