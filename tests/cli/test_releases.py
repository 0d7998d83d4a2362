"""Releases of an engine side by side, each in an environment of its own, by the commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

import inferlab
from inferlab.errors import BadInput
from inferlab.measure import paired
from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.releases import local_releases, save_two_layers, save_wheel

pytestmark = pytest.mark.new_processes
QUICK = ("-s", "sync", "-ncores", "1", "-t", "0.3", "--processes", "2", "-w", "0.05")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the releases 1.0, and 2.0, whose second layer takes ten times as long."""
    with local_releases(tmp_path_factory.mktemp("releases")) as folder:
        save_wheel(folder, "2.0", layers_us=(500, 5000), kernels=("gemm_a", "gemm_b"))
        save_wheel(folder, "0.5", tag="cp38-none-any")
        yield folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_two_layers(tmp_path_factory.mktemp("model") / "two.onnx")


@pytest.fixture
def run(inferlab_here: Run, wheels: Path) -> Run:
    """`inferlab …` with the cache and the packages of these tests."""

    def start(*arguments: object) -> subprocess.CompletedProcess[str]:
        ours = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "INFERLAB_CACHE"))}
        return inferlab_here(*arguments, **ours)

    return start


def environments(wheels: Path) -> list[str]:
    folder = wheels.parent / "cache" / "environments"
    return sorted(path.name for path in folder.glob("tempo*")) if folder.exists() else []


def test_a_release_is_installed_only_after_agreement(run: Run, wheels: Path, model: Path) -> None:
    done = run("benchmark", model, "-e", "tempo==1.0", *QUICK)
    assert (done.returncode, environments(wheels)) == (2, [])
    assert done.stderr == (
        "inferlab: Engine 'tempo==1.0' is not installed. Install it with: inferlab engines install tempo==1.0, or "
        "give --yes to install it on first use\n"
    )


def test_two_releases_are_two_engines_in_every_result(run: Run, wheels: Path, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = run("benchmark", model, "-e", "tempo==1.0,tempo==2.0", *QUICK, "--yes", "-x", file)
    assert done.returncode == 0, done.stderr
    assert "tempo==1.0: installing tempo-engine\n" in done.stderr
    assert environments(wheels) == ["tempo-1.0", "tempo-2.0"]
    results = json.loads(file.read_text())["results"]
    assert [result["engine"] for result in results] == ["tempo==1.0", "tempo==2.0"]
    assert [result["versions"]["tempo-engine"] for result in results] == ["1.0", "2.0"]
    assert [result["output_check"]["status"] for result in results] == ["match", "match"]
    assert "tempo==2.0" in done.stdout

    again = run("benchmark", model, "-e", "tempo==1.0", *QUICK, "--dry-run")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "1. tempo==1.0, sync, 1 core, batch 1")


def test_releases_are_compared_in_processes_that_start_from_nothing(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(*_: object, **__: object) -> AbstractContextManager[None]:
        raise AssertionError("processes would be forked")

    monkeypatch.setattr(paired, "kept_warm", forked)
    file = tmp_path / "compared.json"
    arms = ("-e", "tempo==1.0,tempo==2.0", "-s", "sync", "-ncores", "1", "-t", "1")
    done = run("compare", model, *arms, "--yes", "-x", file, "--layers")
    assert done.returncode == 0, done.stderr
    beginnings = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert beginnings[:5] == ["A", "B", "Verdict", "Peak memory", "Load time"]
    # The layers that differ most come first, with the kernels of before and after.
    words = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert [(line[1], line[-3], line[-2]) for line in words] == [
        ("y", "gemm_a", "gemm_b"),
        ("h", "gemm_a", "gemm_a"),
    ]
    compared = json.loads(file.read_text())
    assert (compared["outputs_match"], compared["a"]["label"], compared["b"]["label"]) == (
        True, "tempo==1.0", "tempo==2.0"
    )  # fmt: skip


def test_a_release_of_an_arm_alone_is_needed_too(run: Run, model: Path) -> None:
    done = run("compare", model, "-s", "sync", "--a", "engine=tempo==1.0", "--b", "engine=tempo==3.0")
    assert (done.returncode, done.stderr.split(". ")[0]) == (2, "inferlab: Engine 'tempo==3.0' is not installed")


def test_the_api_measures_a_release_and_names_the_command_that_installs_it(model: Path, wheels: Path) -> None:
    result = inferlab.benchmark(model, engine="tempo==1.0", scenario="sync", num_cores=1, time=0.2, processes=1)
    cell = result.record.outcomes[0].cell
    assert (result.status, cell.engine) == ("done", "tempo==1.0")
    assert replace(cell, engine="tempo==2.0").id != cell.id
    with pytest.raises(BadInput) as caught:
        inferlab.benchmark(model, engine="tempo==3.0")
    assert str(caught.value) == (
        "Engine 'tempo==3.0' is not installed. Install it with: inferlab engines install tempo==3.0"
    )


def test_a_gate_measures_the_baseline_with_the_release_that_it_was_measured_with(
    run: Run, wheels: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of the engine is a change like any other: its baseline is the release before it."""
    shutil.rmtree(wheels.parent / "cache" / "environments" / "tempo-1.0", ignore_errors=True)  # another test's
    store, site = tmp_path / "lab.db", wheels.parent / "site"
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert run("benchmark", model, "-e", "tempo", *QUICK, "--store", store).returncode == 0
    with open_store(str(store)) as opened:
        (entry,) = opened.history()
    site.rename(tmp_path / "before")
    with zipfile.ZipFile(wheels / "tempo_engine-2.0-py3-none-any.whl") as wheel:
        wheel.extractall(site)
    try:
        gate = ("gate", model, "--baseline", entry.id, "--store", store, "--margin", "20%", "-t", "20")
        summary = tmp_path / "summary.md"
        refused = run(*gate)
        done = run(*gate, "--yes", "--summary", summary)
    finally:
        shutil.rmtree(site)
        (tmp_path / "before").rename(site)
    assert (refused.returncode, "Engine 'tempo==1.0' is not installed." in refused.stderr) == (2, True)
    assert (done.returncode, "Verdict: slower" in done.stdout) == (1, True), (done.stdout, done.stderr)
    assert "| tempo==1.0 → tempo, sync, cores 1, batch 1 |" in summary.read_text()


def test_releases_are_listed_with_their_sizes_pruned_and_removed(run: Run, wheels: Path) -> None:
    there = json.loads(run("engines", "list", "--all", "--json").stdout)
    assert [one["version"] for one in there["engines"] if one["name"].startswith("tempo==")] == ["1.0", "2.0"]
    assert [one["engine"] for one in there["environments"]] == ["tempo==1.0", "tempo==2.0"]
    assert min(one["size_bytes"] for one in there["environments"]) > 1e6
    assert "tempo==" not in run("engines").stdout
    listed = run("engines", "list", "--all").stdout
    assert "tempo==1.0: " in listed and " MB in all.\n" in listed

    assert run("engines", "prune").stderr == "No release was unused for 30 days.\n"
    assert run("engines", "prune", "--unused-for", "0", "--dry-run").stdout.count("tempo==") == 2
    assert run("engines", "prune", "--unused-for", "0").returncode == 2
    assert environments(wheels) == ["tempo-1.0", "tempo-2.0"]
    assert run("engines", "remove", "tempo==2.0").stdout.endswith("/tempo-2.0.\n")
    assert environments(wheels) == ["tempo-1.0"]
    gone = run("engines", "remove", "tempo==2.0")
    assert (gone.returncode, gone.stderr) == (
        2, "inferlab: Engine 'tempo==2.0' is not installed, so there is nothing to remove.\n"
    )  # fmt: skip
    assert run("engines", "prune", "--unused-for", "0", "--yes").stdout.endswith("/tempo-1.0.\n")
    assert environments(wheels) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "tempo==9.9",
            "Engine 'tempo==9.9' cannot be installed: there is no release 9.9 of tempo-engine with a wheel for "
            "this kind of machine; the newest are 2.0, 1.0.",
        ),
        (
            "tempo==0.5",
            "Engine 'tempo==0.5' needs Python 3.8, and none was found. Give one with: inferlab engines install "
            "tempo==0.5 --python PATH",
        ),
        ("tempo==new", "Engine 'tempo==new' names no version. Write it as tempo==1.22.1."),
        (
            "tempu==1.0",
            "Engine 'tempu==1.0': versions can be chosen of onnxruntime, openvino, torch, mnn, tempo, "
            "not of 'tempu'.",
        ),
    ],
)
def test_a_release_that_cannot_be_had_is_refused_in_a_sentence(
    run: Run, wheels: Path, model: Path, monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    monkeypatch.setenv("PATH", str(wheels))  # no other Python there
    done = run("benchmark", model, "-e", name, *QUICK, "--yes")
    assert (done.returncode, done.stderr) == (2, f"inferlab: {sentence}\n")


def test_an_index_that_does_not_answer_is_told_as_such(
    run: Run, wheels: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    done = run("benchmark", model, "-e", "tempo==1.0", *QUICK, "--yes")
    assert (done.returncode, done.stderr) == (
        2,
        "inferlab: The package index did not answer, so that the releases of tempo-engine are unknown. Try again "
        "when the network is there, or give pip a folder of wheels: PIP_FIND_LINKS=FOLDER\n",
    )
