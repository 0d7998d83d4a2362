"""`inferlab export`, `import`, `remove` and `prune`: entries that travel and entries that go."""

from __future__ import annotations

import gzip
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.runs import a_cell
from tests.helpers.stored import save_done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lab.db"


@pytest.fixture
def ids(path: Path) -> list[str]:
    """The entries of the store, newest first."""
    with open_store(str(path)) as store:
        return [save_done(store, a_cell(seed=seed)) for seed in range(3)][::-1]


def left(path: Path) -> list[str]:
    with open_store(str(path)) as store:
        return [entry.id for entry in store.history()]


def test_all_entries_or_some_travel_and_what_is_there_already_is_said(
    inferlab_here: Run, path: Path, ids: list[str], tmp_path: Path
) -> None:
    some, every, other = tmp_path / "some.jsonl", tmp_path / "all.jsonl.gz", tmp_path / "other.db"
    done = inferlab_here("export", ids[0][:6], ids[2], ids[0], "-o", some, "--store", path)
    assert done.returncode == 0 and done.stdout.startswith(f"Written: {some} (2 entries, ")
    assert done.stderr == f"Next: inferlab import {some}\n"
    done = inferlab_here("export", "-o", every, "-q", INFERLAB_STORE=str(path))
    assert (done.stdout, done.stderr) == (f"{every}\n", "")
    with open_store(str(path)) as store:
        assert gzip.decompress(every.read_bytes()) == b"".join(store.export())
    done = inferlab_here("import", some, "--store", other)
    assert done.stdout == f"Imported 2 new entries into {other}; 0 there already.\n"
    done = inferlab_here("import", every, "--store", other)
    assert done.stdout == f"Imported 1 new entry into {other}; 2 there already.\n"
    assert left(other) == ids


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ID", "-o", "FOLDER/x.onnx"], "There is no model 'ID'. If it is an entry of the store, give -o a name"),
        (
            ["model.pt2", "-o", "FOLDER/x.jsonl"],
            "'model.pt2' is not an id in the store (see: inferlab history). To",
        ),
        (["ID", "-o", "FOLDER/x.jsonl", "--opset", "17"], "The option --opset is for turning a model into ONNX"),
        (["m.pt2", "-o", "FOLDER/x.onnx", "--store", "y"], "The option --store is for exporting entries, to a"),
        (["zzzz", "-o", "FOLDER/x.jsonl"], "has nothing with the id 'zzzz'"),
        (["ID", "-o", "FOLDER/none/x.jsonl"], "does not exist. Make it first: mkdir -p"),
        (["ID", "-o", "FOLDER/dir.jsonl"], "is not an ordinary file. Give -o another name."),
        (["-o", "FOLDER/x.onnx"], "Missing argument 'MODEL'. For entries of the store, -o ends in .jsonl."),
        (["a.pt2", "b.pt2", "-o", "FOLDER/x.onnx"], "Got unexpected extra argument (b.pt2)"),
    ],
)
def test_the_two_uses_of_export_are_not_mixed_up(
    inferlab_here: Run, path: Path, ids: list[str], tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "dir.jsonl").mkdir()
    before = sorted(tmp_path.iterdir())
    given = [argument.replace("FOLDER", str(tmp_path)).replace("ID", ids[0]) for argument in arguments]
    done = inferlab_here("export", *given, INFERLAB_STORE=str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert said.replace("ID", ids[0]) in done.stderr and "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_not_whole_is_refused_and_no_store_is_made_for_it(
    inferlab_here: Run, path: Path, ids: list[str], tmp_path: Path
) -> None:
    out, other = tmp_path / "all.jsonl", tmp_path / "other.db"
    assert inferlab_here("export", "-o", out, "--store", path).returncode == 0
    out.write_bytes(out.read_bytes()[:-50])
    for file, said in ((out, "is not a complete file of inferlab export"), (tmp_path / "none", "No such file")):
        done = inferlab_here("import", file, "--store", other)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr and "Nothing was imported" in done.stderr
    assert not other.exists()


def test_what_is_removed_is_named_and_a_wrong_id_removes_nothing(
    inferlab_here: Run, path: Path, ids: list[str]
) -> None:
    done = inferlab_here("remove", ids[1][:5], "zzzzzz", "--yes", "--store", path)
    assert done.returncode == 2 and left(path) == ids
    done = inferlab_here("remove", ids[1][:5], ids[1], "--yes", "--store", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Removed {ids[1]} (benchmark, demo:mobilenet_v2, 20")
    assert len(done.stdout.splitlines()) == 1
    assert left(path) == [ids[0], ids[2]]


@pytest.mark.parametrize("arguments", [("remove", "ID"), ("prune", "--keep", "1")])
def test_without_a_terminal_nothing_goes_unless_it_was_agreed_to(
    inferlab_here: Run, path: Path, ids: list[str], arguments: tuple[str, ...]
) -> None:
    done = inferlab_here(*(ids[0] if argument == "ID" else argument for argument in arguments), "--store", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no terminal to ask on. Agree to it with: --yes" in done.stderr
    assert left(path) == ids


@pytest.mark.parametrize(("answer", "code", "remaining"), [("n", 2, 3), ("y", 0, 2)])
def test_on_a_terminal_one_is_asked(
    environment: dict[str, str], path: Path, ids: list[str], answer: str, code: int, remaining: int
) -> None:
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).parent / "inferlab"), "remove", ids[0], "--store", str(path)]
    with subprocess.Popen(
        command, stdin=theirs, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as running:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        printed, asked = running.communicate()
    os.close(ours)
    assert running.returncode == code, asked
    assert asked.startswith(f"{ids[0]} (benchmark, ") and f"Remove this from {path}? [y/N]: " in asked
    assert ("Nothing was removed." in asked) == (answer == "n") and bool(printed) == (answer == "y")
    assert len(left(path)) == remaining


def test_pruning_removes_what_neither_limit_protects(inferlab_here: Run, path: Path, ids: list[str]) -> None:
    done = inferlab_here("prune", "--keep", "1", "--dry-run", "--store", path)
    assert done.returncode == 0
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["Would", "remove", ids[1]],
        ["Would", "remove", ids[2]],
    ]
    assert left(path) == ids
    done = inferlab_here("prune", "--keep", "1", "--older-than", "1", "--yes", "--store", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Nothing to prune in {path}.\n"
    done = inferlab_here("prune", "--keep", "1", "--yes", "--store", path)
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["Removed", ids[1]], ["Removed", ids[2]]]
    assert left(path) == ids[:1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say what to prune, such as: inferlab prune --keep 100"),
        (["--keep", "-1"], "must be 0 or more"),
        (["--older-than", "nan"], "must be 0 or more"),
    ],
)
def test_pruning_without_sense_is_refused(
    inferlab_here: Run, path: Path, ids: list[str], arguments: list[str], said: str
) -> None:
    done = inferlab_here("prune", *arguments, "--yes", "--store", path)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
    assert left(path) == ids
