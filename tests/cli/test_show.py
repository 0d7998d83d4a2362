"""`inferlab show` and `inferlab rerun`, of benchmarks that were really measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferlab.records import Failure, Outcome
from inferlab.store import Stored, open_store
from inferlab.version import __version__
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_cell
from tests.helpers.stored import MODEL, PLAN, a_benchmark, save

#: It sleeps, and so briefly that a whole sweep takes a second or two.
FAKE = ("-e", "fake", "-s", "sync", "--engine-option", "latency_us=500", "-w", "0", "--no-verify")


class Lab:
    """A store with what was measured into it, and what was printed then."""

    def __init__(self, inferlab_here: Run, folder: Path) -> None:
        self._inferlab = inferlab_here
        self.model = save_linear(folder / "linear.onnx", "batch")
        self.path = folder / "lab.db"
        one = self.run("benchmark", self.model, *FAKE, "-t", "0.2", "--processes", "2")
        two = self.run("benchmark", self.model, *FAKE, "-t", "0.1", "--processes", "1", "-b", "1,2")
        self.one, self.two = one.splitlines(), two.splitlines()
        with open_store(str(self.path)) as store:
            self.two_id, self.one_id = (entry.id for entry in store.history())

    def run(self, *arguments: object) -> str:
        done = self._inferlab(*arguments, "--store", self.path)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def lab(inferlab_here: Run, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(inferlab_here, tmp_path_factory.mktemp("lab"))


def result(shown: str) -> list[str]:
    """What stands below the head."""
    return shown.partition("\n\n")[2].splitlines()


def test_a_benchmark_is_shown_as_it_was_printed_with_where_and_by_what(lab: Lab) -> None:
    shown = lab.run("show", lab.one_id)
    assert result(shown) == lab.one
    head = shown.partition("\n\n")[0].splitlines()
    assert [line.partition(": ")[0] for line in head] == ["Entry", "Saved", "Machine", "Versions", "Status"]
    assert head[0] == f"Entry: {lab.one_id} (benchmark)" and head[-1] == "Status: done"
    assert f"inferlab {__version__}" in head[3]


def test_a_sweep_is_shown_as_its_table_and_may_have_another_baseline(lab: Lab) -> None:
    assert result(lab.run("show", lab.two_id[:5])) == lab.two
    assert "speed-up over #1" in lab.two[1]
    assert "speed-up over #2" in lab.run("show", lab.two_id, "--baseline", "batch_size=2")


def test_what_travelled_through_a_file_is_shown_with_the_same_lines(
    inferlab_here: Run, lab: Lab, tmp_path: Path
) -> None:
    done = inferlab_here("export", lab.two_id, "-o", tmp_path / "one.jsonl.gz", "--store", lab.path)
    assert done.stdout.startswith(f"Written: {tmp_path / 'one.jsonl.gz'} (1 entry, ")
    other = tmp_path / "other.db"
    done = inferlab_here("import", tmp_path / "one.jsonl.gz", "--store", other)
    assert done.stdout == f"Imported 1 new entry into {other}; 0 there already.\n"
    assert inferlab_here("show", lab.two_id, "--store", other).stdout == lab.run("show", lab.two_id)


def test_a_note_is_written_and_removed(inferlab_here: Run, lab: Lab) -> None:
    assert "\nYour note: with the old driver\n" in lab.run("show", lab.one_id, "--note", "with the old driver")
    assert lab.run("history").splitlines()[-1].endswith("  with the old driver")
    assert "Your note" not in lab.run("show", lab.one_id, "--note", "")


def test_a_shown_benchmark_is_written_by_the_ending_of_the_file(
    inferlab_here: Run, lab: Lab, tmp_path: Path
) -> None:
    out = {ending: tmp_path / f"out.{ending}" for ending in ("json", "csv", "md")}
    for path in out.values():
        done = inferlab_here("show", lab.two_id, "-x", path, "--store", lab.path)
        assert done.stderr == f"Saved to {path}\n"
    assert [one["batch_size"] for one in json.loads(out["json"].read_text())["results"]] == [1, 2]
    assert len(out["csv"].read_text().splitlines()) == 3
    assert out["md"].read_text().startswith(f"## {lab.model}")


def test_a_document_of_an_unknown_format_is_written_as_json_alone(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    with open_store(str(path)) as store:
        entry_id = store.add_document("comparison", "A / B", {"ratio": 1.5, "labels": ["A", "B"]})
    done = inferlab_here("show", entry_id, "-x", tmp_path / "out.json", "--store", path)
    assert done.returncode == 0 and "ratio: 1.5\n" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text()) == {"ratio": 1.5, "labels": ["A", "B"]}
    for arguments, said in (
        (["-x", tmp_path / "out.csv"], "This is exported as JSON, not as .csv"),
        (["-x", tmp_path / "none" / "out.json", "--note", "kept?"], "does not exist"),
        (["--baseline", "batch_size=1"], f"{entry_id} is a comparison: only the table of a benchmark"),
    ):
        done = inferlab_here("show", entry_id, *arguments, "--store", path)
        assert (done.returncode, done.stdout) == (2, "") and said in done.stderr
    with open_store(str(path)) as store:
        assert store.get(entry_id).note == ""


def test_failures_and_what_is_pending_are_part_of_what_is_shown(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    failed = Outcome(a_cell(), "failed", (), Failure("died", "Engine 'fake' died:\nkilled by SIGABRT."))
    with open_store(str(path)) as store:
        dead = save(store, type(a_benchmark())(PLAN, MODEL, (failed,)))
        waiting = store.begin(PLAN, MODEL, [a_cell()])
        mixed = save(store, a_benchmark())
    shown = inferlab_here("show", dead, "--store", path).stdout
    assert "\nStatus: failed\n" in shown
    assert result(shown) == [
        "Original Model Path: demo:mobilenet_v2",
        "Failure: Engine 'fake' died:",
        "killed by SIGABRT.",
    ]
    shown = inferlab_here("show", waiting, "--store", path).stdout
    assert "\nStatus: pending\n" in shown and result(shown) == ["Original Model Path: demo:mobilenet_v2"]
    done = inferlab_here("show", mixed, "--store", path)
    assert done.returncode == 0, done.stderr
    assert "\nStatus: failed 1, cancelled 1, pending 1 of 4\n" in done.stdout
    assert "Note on #2: It was killed (SIGSEGV): 😀" in done.stdout


def test_a_rerun_is_a_new_entry_of_the_same_cells(inferlab_here: Run, lab: Lab, tmp_path: Path) -> None:
    done = inferlab_here("rerun", lab.one_id, "--store", lab.path, "-x", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    with open_store(str(lab.path)) as store:
        new, *_ = store.history()
        first, second = store.get(lab.one_id), store.get(new.id)
    assert isinstance(first, Stored) and isinstance(second, Stored)
    assert first.id != second.id and first.benchmark.plan == second.benchmark.plan
    assert first.benchmark.outcomes[0].cell.id == second.benchmark.outcomes[0].cell.id
    assert first.benchmark.outcomes[0].runs != second.benchmark.outcomes[0].runs
    assert done.stdout.splitlines()[:3] == lab.one[:3]
    assert f"Saved as {new.id}: inferlab show {new.id}\n" in done.stderr
    assert "Starting 'sync' performance measurements" in done.stderr
    assert "Not all conditions" not in done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["cell"] == first.benchmark.outcomes[0].cell.id


def test_a_rerun_has_the_exit_codes_of_a_benchmark(inferlab_here: Run, lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    fails = ("--engine-option", "fail=abort", "--engine-option", "at=1")
    assert inferlab_here("benchmark", lab.model, *FAKE, *fails, "-t", "0.1", "--store", path).returncode == 3
    with open_store(str(path)) as store:
        (entry,) = store.history()
    done = inferlab_here("rerun", entry.id, "--store", path)
    assert done.returncode == 3 and "SIGABRT" in done.stderr
    with open_store(str(path)) as store:
        assert [one.status for one in store.history()] == ["failed", "failed"]


def test_a_model_that_has_changed_is_not_measured_again(inferlab_here: Run, lab: Lab, tmp_path: Path) -> None:
    path, model = tmp_path / "lab.db", save_linear(tmp_path / "m.onnx", "batch")
    inferlab_here("benchmark", model, *FAKE, "-t", "0.1", "--processes", "1", "--store", path)
    save_linear(model, "batch", width=5)
    with open_store(str(path)) as store:
        (entry,) = store.history()
    done = inferlab_here("rerun", entry.id, "--store", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"The model {model} has changed since it was measured" in done.stderr
