"""`inferlab benchmark` with lists: plans, tables, a killed program that goes on."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inferlab.records import Benchmark
from inferlab.store import Stored, open_store
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear

QUICK = ("-t", "0.1", "-w", "0", "--processes", "2")
_ENGINES = """import os, time

class Quick:
    kinds = {"onnx"}
    def load(self, model, options):
        pass
    def bind(self, inputs, stream=0):
        return lambda: time.sleep(0.001)

class Aborts(Quick):
    def load(self, model, options):
        os.abort()

class HangsOnce(Quick):
    def load(self, model, options):
        while options.batch_size == 4 and options.threads == 2:
            time.sleep(1)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sweep")
    save_linear(made / "linear.onnx", "batch")
    (made / "engines.py").write_text(_ENGINES)
    return made


def stored(path: Path, entry_id: str) -> Benchmark:
    with open_store(str(path)) as store:
        found = store.get(entry_id)
    assert isinstance(found, Stored)
    return found.benchmark


def test_a_sweep_of_engines_that_abort_and_hang_survives_being_killed(
    inferlab_here: Run, environment: dict[str, str], folder: Path
) -> None:
    """3 engines × 2 core counts × 3 batch sizes; the program is killed in the middle and goes on."""
    path = folder / "killed.db"
    engines = ",".join(f"{folder / 'engines.py'}:{name}" for name in ("Quick", "Aborts", "HangsOnce"))
    given = [
        "benchmark",
        str(folder / "linear.onnx"),
        "-e",
        engines,
        "-ncores",
        "1,2",
        "-b",
        "1,2,4",
        "-s",
        "sync",
    ]
    command = [str(Path(sys.executable).parent / "inferlab"), *given, *QUICK, "--timeout", "10", "--no-verify"]
    with subprocess.Popen(
        [*command, "--store", str(path)], env=environment, stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stderr is not None
        for line in one.stderr:
            if line.startswith("Cell 7 of 18"):
                break
        one.send_signal(signal.SIGKILL)
    with open_store(str(path)) as store:
        (entry,) = store.history()
    cut = stored(path, entry.id)
    assert 6 <= sum(outcome.status in ("done", "failed") for outcome in cut.outcomes) < 18
    going_on = inferlab_here("benchmark", "--resume", "--store", path, "-x", folder / "all.csv")
    assert going_on.returncode == 3, going_on.stderr
    whole = stored(path, entry.id)
    codes = [outcome.failure.code if outcome.failure else outcome.status for outcome in whole.outcomes]
    assert codes.count("died") == 6 and codes.count("hung") == 1 and codes.count("done") == 11
    assert [len(outcome.runs) for outcome in whole.outcomes if outcome.status == "done"] == [2] * 11
    for before, after in zip(cut.outcomes, whole.outcomes, strict=True):
        assert after.runs[: len(before.runs)] == before.runs
    with (folder / "all.csv").open() as file:
        assert [line["status"] for line in csv.DictReader(file)].count("done") == 11
    assert "inferlab: 7 of 18 cells failed" in going_on.stderr
    assert going_on.stdout.count("FAILED") == 6 and going_on.stdout.count("HUNG") == 1


def test_ctrl_c_keeps_what_is_measured_and_says_how_to_go_on(
    inferlab_here: Run, environment: dict[str, str], folder: Path
) -> None:
    path = folder / "stopped.db"
    given = ["benchmark", folder / "linear.onnx", "-e", "fake", "-b", "1-6", "-s", "sync", *QUICK, "--store", path]
    command = [str(Path(sys.executable).parent / "inferlab"), *map(str, given)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stderr is not None
        for line in one.stderr:
            if line.startswith("Cell 3 of 6"):
                break
        time.sleep(0.2)
        os.kill(one.pid, signal.SIGINT)
        _, error = one.communicate()
    assert one.returncode == 130
    with open_store(str(path)) as store:
        (entry,) = store.history()
    finished = [outcome.status for outcome in stored(path, entry.id).outcomes].count("done")
    assert 2 <= finished < 6
    assert f"inferlab: interrupted after {finished} of 6 cells" in error
    assert "Next: inferlab benchmark --resume" in error
    done = inferlab_here("benchmark", "--resume", "--store", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fake") == 6 + 1


def test_the_plan_is_told_and_nothing_is_measured(inferlab_here: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    done = inferlab_here(
        "benchmark", folder / "linear.onnx", "-b", "1,8", "-ncores", "1,2", "-e", "onnxruntime,openvino", "-s",
        "sync", "--dry-run", "--store", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1. onnxruntime, sync, 1 core, batch 1"
    assert done.stdout.splitlines()[7] == "8. openvino, sync, 2 cores, batch 8"
    assert done.stdout.splitlines()[8] == "8 cells, about 1.3 minutes, plus loading and warm-up."
    assert not path.exists()


def test_a_plan_file_has_the_options_and_the_command_line_goes_before_it(
    inferlab_here: Run, folder: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"model: {folder / 'linear.onnx'}\n"
        "engine: fake\n"
        "batch_size: [1, 2-4*2]\n"
        "num-cores: 1\n"
        "scenario: sync\n"
        "time: 0.1\n"
        "warmup_time: 0\n"
        "processes: 1\n"
        "engine-option: {latency_us: 500}\n"
        "no_save: true\n"
        f"export_path: {tmp_path / 'out.json'}\n"
    )
    done = inferlab_here("benchmark", "--plan", plan, "--processes", "2")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [result["batch_size"] for result in results] == [1, 2, 4]
    assert {result["engine_options"]["latency_us"] for result in results} == {"500"}
    assert {len(result["processes"]) for result in results} == {2}
    assert "Saved as" not in done.stderr
    assert inferlab_here("benchmark", "--plan", plan, "-b", "8", "--dry-run").stdout.startswith(
        "1. fake, sync, 1 core, batch 8"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("batch_sise: 1", "has no option 'batch_sise'. Did you mean 'batch_size'?"),
        ("zzz: 1", "has no option 'zzz'. It takes baseline, batch_size, "),
        ("[1, 2]", "must be options with their values"),
        ("a: [", "is not valid YAML"),
        ("batch_size: {a: 1}", "'batch_size' is a value or a list of values"),
        ("batch_size:", "'batch_size' has no value"),
        ("batch_size: two", "'two' is not a whole number"),
        ("scenario: fast", "'fast' is not one of sync, async"),
    ],
)
def test_a_plan_file_that_cannot_be_used_is_refused(
    inferlab_here: Run, tmp_path: Path, content: str, said: str
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(content)
    done = inferlab_here("benchmark", "demo:digits", "--plan", plan)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "No model was named. Try: inferlab benchmark demo:resnet50"),
        (("--resume", "abcd", "-b", "1"), "--resume continues what was planned, so batch_size cannot be given"),
        (("--resume",), "Nothing is unfinished in the store"),
        (("--resume", "zzzz2222"), "has nothing with the id 'zzzz2222'"),
        (("demo:digits", "--baseline", "num_cores=64"), "No cell of this plan has num_cores=64"),
        (("demo:digits", "--plan", "/nowhere.yaml"), "The plan /nowhere.yaml cannot be read"),
        (("demo:digits", "-ncores", "1,64"), "64 cores were asked for"),
        (("demo:digits", "-b", "0,1"), "The batch size must be at least 1, not 0"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    inferlab_here: Run, tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    done = inferlab_here("benchmark", *given, "--store", tmp_path / "empty.db")
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
