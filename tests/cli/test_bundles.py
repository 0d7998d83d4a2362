"""`inferlab export ID -o FILE.zip` and `inferlab rerun FILE.zip`: a benchmark that is measured again elsewhere."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.model.reading import read_model
from inferlab.records import Benchmark, Outcome, Plan
from inferlab.store import Stored, open_store
from tests.cli.conftest import Run
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import save

FAKE = (
    "-e",
    "fake",
    "-s",
    "sync",
    "--engine-option",
    "latency_us=500",
    "-w",
    "0",
    "-t",
    "0.1",
    "--processes",
    "2",
)


class Home:
    """Where a benchmark was measured: its store, and the bundle of it."""

    def __init__(self, inferlab_here: Run, folder: Path) -> None:
        self.model, inputs = save_linear(folder / "linear.onnx", "batch"), folder / "data.npz"
        np.savez(inputs, x=np.ones((2, 4), np.float32))
        self.store, self.bundle = folder / "lab.db", folder / "bundle.zip"
        given = (self.model, "--input", inputs, "-b", "1,2", *FAKE, "--store", self.store)
        assert inferlab_here("benchmark", *given).returncode == 0
        with open_store(str(self.store)) as store:
            (entry,) = store.history()
            self.id = entry.id
        self.written = inferlab_here("export", self.id, "-o", self.bundle, "--store", self.store)


@pytest.fixture(scope="module")
def home(inferlab_here: Run, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(inferlab_here, tmp_path_factory.mktemp("home"))


@pytest.fixture
def elsewhere(inferlab_here: Run, tmp_path: Path) -> Callable[..., Any]:
    """Run a command on another machine: nothing is in its store or its cache."""

    def run(*arguments: object) -> Any:
        cache = str(tmp_path / "cache")
        return inferlab_here(*arguments, INFERLAB_CACHE=cache, INFERLAB_STORE=str(tmp_path / "lab.db"))

    return run


def test_a_bundle_has_all_that_measuring_again_needs(home: Home) -> None:
    assert home.written.returncode == 0, home.written.stderr
    assert home.written.stdout.startswith(f"Written: {home.bundle} (the benchmark {home.id} with its model, ")
    assert home.written.stderr.endswith(f"Next: inferlab rerun {home.bundle}\n")
    with zipfile.ZipFile(home.bundle) as archive:
        contents = json.loads(archive.read("bundle.json"))
        names = [one.filename for one in archive.infolist()]
        assert archive.read("model/linear.onnx") == home.model.read_bytes()
        listed = archive.read("environments/fake.txt").decode()
    assert names == ["bundle.json", "entry.jsonl", "environments/fake.txt", "model/linear.onnx", "inputs/data.npz"]
    assert contents["entry"] == home.id and contents["machines"][0]["physical_cores"] >= 1
    assert f"\nnumpy=={np.__version__}\n" in listed and "inferlab==" not in listed


def test_it_is_measured_again_elsewhere_and_compared(home: Home, elsewhere: Run, tmp_path: Path) -> None:
    done = elsewhere("rerun", home.bundle)
    assert done.returncode == 0, done.stderr
    with open_store(str(tmp_path / "lab.db")) as store:
        new, imported = store.history()
        before, after = store.get(imported.id), store.get(new.id)
    assert isinstance(before, Stored) and isinstance(after, Stored)
    assert imported.id == home.id and after.against == home.id
    # The model and the inputs are the same, at places of this machine.
    assert [outcome.cell.id for outcome in before.benchmark.outcomes] == [
        outcome.cell.id for outcome in after.benchmark.outcomes
    ]
    assert Path(after.benchmark.plan.model).is_relative_to(tmp_path / "cache")
    assert f"A: {home.id}\nB: {new.id}\n" in done.stdout
    assert "saved results were not measured interleaved" in done.stdout


def test_a_model_that_anybody_can_make_stays_at_home_and_releases_can_be_the_same(
    inferlab_here: Run, elsewhere: Run, tmp_path: Path
) -> None:
    store, bundle = tmp_path / "home.db", tmp_path / "demo.zip"
    quick = ("-s", "sync", "-w", "0", "-t", "0.1", "--processes", "1")
    assert inferlab_here("benchmark", "demo:digits", *quick, "--store", store).returncode == 0
    with open_store(str(store)) as opened:
        (entry,) = opened.history()
    done = inferlab_here("export", entry.id, "-o", bundle, "-q", "--store", store)
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n")
    with zipfile.ZipFile(bundle) as archive:
        assert not [one for one in archive.namelist() if one.startswith("model/")]
    # The release that it was measured with is the one that is here.
    assert elsewhere("rerun", bundle, "-q", "--same-releases").returncode == 0
    older = _rewritten(bundle, tmp_path / "older.zip", _with(("engines", "onnxruntime", "version"), "0.0.1"))
    done = elsewhere("rerun", older, "--same-releases")
    assert done.returncode == 2 and "Engine 'onnxruntime==0.0.1' is not installed." in done.stderr


def test_a_bundle_without_its_model_asks_for_it(
    home: Home, inferlab_here: Run, elsewhere: Run, tmp_path: Path
) -> None:
    bundle = tmp_path / "small.zip"
    assert inferlab_here("export", home.id, "-o", bundle, "--no-model", "--store", home.store).returncode == 0
    done = elsewhere("rerun", bundle)
    assert done.returncode == 2
    assert f"does not hold its model, {home.model}. Name it: inferlab rerun {bundle} --model MODEL" in done.stderr
    other = save_linear(tmp_path / "other.onnx", "batch", width=5)
    done = elsewhere("rerun", bundle, "--model", other)
    assert done.returncode == 2
    assert f"{other} is not the model that the bundle {bundle} was measured with" in done.stderr
    assert elsewhere("rerun", bundle, "--model", home.model, "-q").returncode == 0


def _rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def _with(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, bytes]], None]:
    """Change one value of what the bundle says of itself."""

    def change(members: dict[str, bytes]) -> None:
        content = json.loads(members["bundle.json"])
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        members["bundle.json"] = json.dumps(content).encode()

    return change


def _other_model(members: dict[str, bytes]) -> None:
    members["model/linear.onnx"] = members["model/linear.onnx"][:-1] + b"\x00"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda members: members.pop("bundle.json"), "is not a complete bundle of inferlab export"),
        (lambda members: members.pop("entry.jsonl"), "is not a complete bundle of inferlab export"),
        (lambda members: members.pop("model/linear.onnx"), "is not a complete bundle of inferlab export"),
        (_with(("format",), "inferlab-bundle/9"), "its format is inferlab-bundle/9"),
        (_with(("format",), "other"), "it does not say that it is one"),
        (_with(("entry",), 5), "is not a complete bundle of inferlab export"),
        (_with(("model", "main"), "../../evil.onnx"), "leads out of its folder"),
        (_with(("model", "files", 0, "name"), "../linear.onnx"), "is not a file within it"),
        (_with(("model", "files", 0, "size_bytes"), -1), "is not a file within it"),
        (_with(("model", "files", 0, "size_bytes"), 10**18), "are free. Make room."),
        (_with(("model_digest",), "0" * 64), "is not the model that the bundle"),
        (_other_model, "linear.onnx was damaged on its way: its digest differs"),
    ],
)
def test_what_is_not_whole_is_refused_and_leaves_nothing(
    home: Home,
    elsewhere: Run,
    tmp_path: Path,
    change: Callable[[dict[str, bytes]], None],
    said: str,
) -> None:
    done = elsewhere("rerun", _rewritten(home.bundle, tmp_path / "bad.zip", change))
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr and "Traceback" not in done.stderr
    with open_store(str(tmp_path / "lab.db")) as store:
        assert store.history() == []


@pytest.mark.parametrize("length", [0, 10, 900, -30])
def test_a_bundle_that_was_cut_off_is_refused(home: Home, elsewhere: Run, tmp_path: Path, length: int) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes(home.bundle.read_bytes()[:length])
    done = elsewhere("rerun", cut)
    assert done.returncode == 2 and f"{cut} is not a complete bundle of inferlab export" in done.stderr


def test_a_program_that_a_bundle_names_is_not_run(inferlab_here: Run, elsewhere: Run, tmp_path: Path) -> None:
    engine, ran, bundle = tmp_path / "mine.py", tmp_path / "ran", tmp_path / "own.zip"
    engine.write_text(f"open({str(ran)!r}, 'w')\n")
    plan = Plan(str(save_linear(tmp_path / "m.onnx", "batch")), engines=(f"{engine}:Mine",))
    with open_store(str(tmp_path / "home.db")) as store:
        entry = save(
            store, Benchmark(plan, read_model(plan.model), (Outcome(a_cell(), "done", (steady_run(2.0),)),))
        )
    done = inferlab_here("export", entry, "-o", bundle, "--store", tmp_path / "home.db")
    assert done.returncode == 0, done.stderr
    done = elsewhere("rerun", bundle)
    assert done.returncode == 2
    assert f"The bundle was measured with the program {engine}:Mine, which it does not hold." in done.stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "-o", "x.zip"), "A bundle holds one benchmark. Give one ID"),
        (("export", "ID", "-o", "x.jsonl", "--no-model"), "The option --no-model is for bundles"),
        (("export", "ID", "-o", "x.zip", "--opset", "17"), "The option --opset is for turning a model into ONNX"),
        (("rerun", "ID", "--model", "m.onnx"), "The option --model is for a bundle"),
        (("rerun", "ID", "--same-releases"), "The option --same-releases is for a bundle"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    home: Home, inferlab_here: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    words = [
        {"ID": home.id}.get(word, str(tmp_path / word) if word.startswith("x.") else word) for word in arguments
    ]
    done = inferlab_here(*words, "--store", home.store)
    assert done.returncode == 2 and said in done.stderr
    assert list(tmp_path.iterdir()) == []
