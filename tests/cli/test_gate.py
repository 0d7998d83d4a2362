"""`inferlab gate`: a candidate against a bundle, an entry, or a file; what a pipeline gets."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear

ROOT = Path(__file__).parents[2]
#: It waits so long for each call, which a busy machine can only lengthen.
PLAN = ("-e", "fake", "-s", "sync", "-ncores", "1", "-w", "0", "-t", "0.2", "--processes", "2")


_SLEEPY = """
import time


class Sleepy:
    kinds = ("onnx",)

    def load(self, model, options):
        return {}

    def bind(self, inputs, stream=0):
        return lambda: time.sleep(0.02)

    def outputs(self, call, returned):
        return None
"""


class Home:
    """A baseline of 2 ms a call, as a bundle, an entry and a file."""

    def __init__(self, inferlab_here: Run, folder: Path) -> None:
        self._run, self.folder = inferlab_here, folder
        self.model = save_linear(folder / "linear.onnx", "batch")
        self.store, self.file, self.bundle = folder / "lab.db", folder / "result.json", folder / "base.zip"
        slow = ("--engine-option", "latency_us=2000", "--no-verify")
        self.run("benchmark", self.model, *PLAN, *slow, "-x", self.file)
        with open_store(str(self.store)) as store:
            (entry,) = store.history()
            self.id = entry.id
        self.run("export", self.id, "-o", self.bundle)

    def run(self, *arguments: object, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = self._run(*arguments, "--store", self.store, **more)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done


@pytest.fixture(scope="module")
def home(inferlab_here: Run, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(inferlab_here, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An engine that takes 20 ms a call."""
    file = tmp_path_factory.mktemp("engine") / "sleepy.py"
    file.write_text(_SLEEPY)
    return f"{file}:Sleepy"


def test_a_slower_candidate_fails_and_is_told_in_every_way(home: Home, slower: str, tmp_path: Path) -> None:
    # Engine options are the baseline's, and another engine has none of them: a baseline without any.
    base = tmp_path / "base.zip"
    home.run("benchmark", home.model, *PLAN, "--no-verify")
    with open_store(str(home.store)) as store:
        newest = store.history()[0].id
    home.run("export", newest, "-o", base)
    summary, junit, step = tmp_path / "s.md", tmp_path / "j.xml", tmp_path / "step.md"
    step.write_text("before\n")
    given = ("gate", home.model, "--baseline", base, "-e", slower)
    done = home.run(*given, "--summary", summary, "--junit", junit, code=1, GITHUB_STEP_SUMMARY=str(step))
    assert "Verdict: slower" in done.stdout and "measured interleaved" in done.stdout
    text = summary.read_text()
    assert text.startswith(f"## inferlab: {home.model}\n\n| Cell | Baseline (ms per item) |")
    assert "❌ slower" in text and "<details><summary>How it was measured" in text
    assert step.read_text() == f"before\n{text}"
    suite = ET.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    (failure,) = suite.iter("failure")
    assert str(failure.get("message")).startswith("B is slower (B takes ")


def test_an_entry_whose_model_is_there_is_measured_again(home: Home) -> None:
    done = home.run("gate", home.model, "--baseline", home.id, "-t", "2", "--margin", "90%", "--fail-if", "never")
    assert "measured interleaved" in done.stdout and "is not measured again" not in done.stderr


def test_a_branch_is_the_newest_benchmark_of_the_model_that_is_labelled_so(
    home: Home, inferlab_here: Run, tmp_path: Path
) -> None:
    store, other = tmp_path / "lab.db", save_linear(tmp_path / "other.onnx", "batch")
    for branch in ("main", "main", "other"):
        done = inferlab_here(
            "benchmark", home.model, *PLAN, "--no-verify", "--store", store, "--label", f"branch={branch}"
        )
        assert done.returncode == 0, done.stderr
    with open_store(str(store)) as opened:
        newest = opened.history(labels=(("branch", "main"),))[0].id
    given = ("--baseline", "main", "-t", "2", "--fail-if", "never", "--store", store)
    done = inferlab_here("gate", home.model, *given)
    assert done.returncode == 0, done.stderr
    assert f"The baseline is {newest}, the newest benchmark of the branch main\n" in done.stderr
    assert "measured interleaved" in done.stdout
    done = inferlab_here("gate", other, *given)
    assert (done.returncode, done.stderr) == (
        2,
        f"inferlab: The branch main has no finished benchmark of {other}; it has those of {home.model}. Name one "
        "by its id: --baseline ID\n",
    )


_BY_SIZE = """
import os
import time


class BySize:
    kinds = ("onnx",)

    def load(self, model, options):
        self.seconds = 0.02 if os.path.getsize(model) > 5000 else 0.002
        return {}

    def bind(self, inputs, stream=0):
        return lambda: time.sleep(self.seconds)

    def outputs(self, call, returned):
        return None
"""


def test_a_model_that_was_overwritten_is_held_against_the_series_of_its_branch(
    inferlab_here: Run, tmp_path: Path
) -> None:
    """The file of the baseline is the candidate by now, as in a pipeline with one working folder."""
    engine, store = tmp_path / "engine.py", tmp_path / "lab.db"
    engine.write_text(_BY_SIZE)
    model = save_linear(tmp_path / "m.onnx", "batch")
    plan = ("-e", f"{engine}:BySize", "-s", "sync", "-ncores", "1", "-w", "0", "-t", "0.1", "--processes", "1")

    def measure(count: int) -> None:
        for _ in range(count):
            given = (*plan, "--no-verify", "--store", store, "--label", "branch=main")
            assert inferlab_here("benchmark", model, *given).returncode == 0

    def change(model: Path, letters: int) -> None:
        loaded = onnx.load(model)
        loaded.producer_name = letters * "x"
        onnx.save(loaded, model)

    def gate(*more: object) -> subprocess.CompletedProcess[str]:
        given = ("--baseline", "main", "--store", store, "--margin", "90%")
        return inferlab_here("gate", model, *given, *more, INFERLAB_LABELS="branch=topic")

    measure(5)
    change(model, 1)
    done = gate()
    assert "The baseline's series has 5 entries of this cell, machine and version" in done.stderr
    assert "saved results were not measured interleaved" in done.stdout
    measure(1)
    change(model, 2)
    done = gate()
    assert (done.returncode, "Verdict: same (" in done.stdout) == (0, True), (done.stdout, done.stderr)
    assert "\nMeasured: one benchmark against 6 entries of the baseline's series; " in done.stdout
    change(model, 9000)
    done = gate()
    assert (done.returncode, "Verdict: slower (" in done.stdout) == (1, True), done.stdout
    # Less time than the entries took makes another cell.
    assert "processes of saved results" in gate("-t", "0.05").stdout


def test_a_model_that_changed_leaves_the_saved_numbers(home: Home, inferlab_here: Run, tmp_path: Path) -> None:
    model, store = save_linear(tmp_path / "m.onnx", "batch"), tmp_path / "lab.db"
    assert inferlab_here("benchmark", model, *PLAN, "--no-verify", "--store", store).returncode == 0
    with open_store(str(store)) as opened:
        (entry,) = opened.history()
    save_linear(model, "batch", width=5)
    done = inferlab_here(
        "gate", model, "--baseline", entry.id, "-t", "0.3", "--fail-if", "never", "--store", store
    )
    assert done.returncode == 0, done.stderr
    assert f"The baseline is not measured again: The model {model} has changed" in done.stderr
    assert "saved results were not measured interleaved" in done.stdout


def test_a_file_has_only_numbers(home: Home) -> None:
    given = ("gate", home.model, "--baseline", home.file, "-t", "0.3", "--fail-if", "never")
    done = home.run(*given)
    assert f"The baseline is not measured again: {home.file} holds numbers, not the model." in done.stderr
    assert "saved results were not measured interleaved" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "nothing"), "There is no baseline 'nothing': give a bundle (.zip)"),
        (("--baseline", "nothing.zip"), "The bundle nothing.zip cannot be read"),
        (("--baseline", "ID", "--summary", "no/such/folder/s.md"), "does not exist. Make it first"),
        (("--baseline", "ID", "--margin", "much"), "much"),
    ],
)
def test_bad_input_is_one_sentence(home: Home, arguments: tuple[str, ...], said: str) -> None:
    words = [home.id if word == "ID" else word for word in arguments]
    done = home.run("gate", home.model, *words, code=2)
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_baseline_of_two_engines_is_refused(home: Home, inferlab_here: Run, tmp_path: Path) -> None:
    store = tmp_path / "lab.db"
    given = ("-e", "fake,onnxruntime", "-s", "sync", "-w", "0", "-t", "0.1", "--processes", "1", "--no-verify")
    assert inferlab_here("benchmark", home.model, *given, "--store", store).returncode == 0
    with open_store(str(store)) as opened:
        (entry,) = opened.history()
    done = inferlab_here("gate", home.model, "--baseline", entry.id, "--store", store)
    assert done.returncode == 2 and f"The baseline {entry.id} has several engines" in done.stderr


def _steps(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_the_steps_of_the_examples_run(home: Home, environment: dict[str, str], tmp_path: Path) -> None:
    """The action's and GitLab's last step, as their runners would start them."""
    action = _steps((ROOT / "action.yml").read_text())
    page = (ROOT / "docs/ci.md").read_text()
    gitlab = _steps(page.partition("## GitLab")[2].partition("```yaml\n")[2].partition("```")[0])
    *_, command = gitlab["performance"]["script"]
    here = command.replace("build/model.onnx", shlex.quote(str(home.model)))
    here = here.replace("baseline.zip", shlex.quote(str(home.bundle)))
    inputs = {
        "model": str(home.model),
        "baseline": str(home.bundle),
        "margin": action["inputs"]["margin"]["default"],
        "time": "2",
    }
    step = action["runs"]["steps"][-1]
    given = {name: inputs[text.split("inputs.")[1].split(" ")[0]] for name, text in step["env"].items()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for script in (step["run"], f"{here} -t 2"):
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            env={**environment, **given, "PATH": path, "INFERLAB_STORE": str(tmp_path / "lab.db")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        # The same model twice: the same, or not settled in two seconds.
        assert done.returncode in (0, 4), done.stderr
        assert ET.parse(tmp_path / "inferlab.xml").getroot().get("tests") == "1"
    assert (tmp_path / "summary.md").read_text().startswith("## inferlab: ")
