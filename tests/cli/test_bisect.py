"""A planted regression among releases of an engine is found by the command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.helpers.releases import local_releases, save_two_layers, save_wheel

pytestmark = pytest.mark.new_processes
# Another engine would take another time on a busy machine; this one waits for a deadline.
QUICK = ("-ncores", "1", "--yes")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The releases 1.0 to 1.5: from 1.3 on the second layer takes ten times as long, and 1.4 computes 5x."""
    with local_releases(tmp_path_factory.mktemp("bisect")) as folder:
        for minor in range(1, 6):
            slow = minor >= 3
            save_wheel(
                folder,
                f"1.{minor}",
                layers_us=(500, 5000 if slow else 500),
                kernels=("gemm_a", "gemm_b" if slow else "gemm_a"),
                factor=5.0 if minor == 4 else 4.0,
            )
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


def test_the_release_that_made_it_slower_is_found_with_its_layers_and_the_search_goes_on(
    run: Run, model: Path, tmp_path: Path
) -> None:
    file, again = tmp_path / "found.json", tmp_path / "again.json"
    # A wide margin is soon told apart from releases that are equal, on a busy machine too.
    search = (
        "bisect",
        model,
        "-e",
        "tempo",
        "--good",
        "1.0",
        "--bad",
        "1.5",
        "--margin",
        "50%",
        "-t",
        "20",
        *QUICK,
    )
    done = run(*search, "-x", file)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["format"] == "inferlab-bisection/1"
    assert found["versions"] == ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    assert (found["last_good"], found["first_bad"], found["untried"]) == ("1.2", "1.3", [])
    assert [(step["version"], step["verdict"]) for step in found["steps"]] == [
        ("1.5", "bad"), ("1.2", "good"), ("1.3", "bad")
    ]  # fmt: skip
    assert done.stdout.startswith("First bad release: tempo==1.3 (it takes ")
    assert "\nLast good release: tempo==1.2\n" in done.stdout
    # The layer behind it is the first of the table, with its kernels.
    layers = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert (layers[0][1], layers[0][-3], layers[0][-2]) == ("y", "gemm_a", "gemm_b")

    resumed = run(*search, "-x", again, "--resume", "--no-layers")
    assert resumed.returncode == 0, resumed.stderr
    assert all(step["saved"] for step in json.loads(again.read_text())["steps"])
    assert "Pair 1" not in resumed.stderr


def test_the_release_that_computes_something_else_is_found(run: Run, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    releases = ("-e", "tempo", "--good", "1.3", "--bad", "1.4")
    done = run("bisect", model, *releases, "--metric", "outputs", "-t", "2", *QUICK, "-x", file)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert (found["first_bad"], found["steps"][0]["detail"]) == ("1.4", "its outputs differ in 'y'")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--good", "1.0", "--bad", "1.0"), "--good and --bad are the same release, 1.0."),
        (("--good", "1.0", "--bad", "new"), "There is no version: 'new' of tempo."),
        (
            ("--good", "1.5", "--bad", "1.1", "-t", "20"),
            "There is nothing to search for: tempo==1.1 is not slower than tempo==1.5 by more than 3 % (",
        ),
        (
            ("--good", "1.0", "--bad", "1.5", "--metric", "outputs"),
            "There is nothing to search for: the outputs of tempo==1.5 match those of tempo==1.0.",
        ),
        (
            ("--good", "1.0", "--bad", "1.1", "-t", "0.1"),
            "It is not sure that tempo==1.1 is slower than tempo==1.0 by more than 3 % (",
        ),
        (("--good", "1.0", "--bad", "1.5", "--margin", "wide"), "--margin: 'wide' is not a share"),
        (
            ("--good", "1.0", "--bad", "9.9"),
            "Engine 'tempo==9.9' cannot be installed: there is no release 9.9 of tempo-engine",
        ),
    ],
)
def test_what_cannot_be_bisected_is_refused_in_a_sentence(
    run: Run, model: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = run("bisect", model, "-e", "tempo", "-t", "2", *arguments, *QUICK, "-q")
    assert (done.returncode, done.stderr.split(sentence)[0]) == (2, "inferlab: ")


def test_an_engine_with_a_version_is_not_bisected(run: Run, model: Path) -> None:
    done = run("bisect", model, "-e", "tempo==1.0", "--good", "1.0", "--bad", "1.5", *QUICK)
    assert done.returncode == 2
    assert "One engine is bisected, named without a version" in done.stderr
