"""`inferlab trend` and `history --series`: the same cell over time."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from inferlab.store import open_store
from tests.cli.conftest import Run
from tests.helpers.runs import a_cell
from tests.helpers.series import save_point, wobbling


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve entries of 2 ms, of which the last four take 10 % longer, and one of another cell."""
    file = tmp_path_factory.mktemp("trend") / "lab.db"
    with open_store(str(file), make=True) as store:
        for number, latency_ms in enumerate([*wobbling(2.0, 8), *wobbling(2.2, 4)]):
            save_point(store, latency_ms, [("commit", f"c{number}")], peak_memory_bytes=64 << 20)
        save_point(store, 1.0, cell=a_cell(num_cores=2))
    return file


def entry_of(path: Path, commit: str) -> str:
    with open_store(str(path)) as store:
        return store.history(labels=(("commit", commit),))[0].id


def test_the_level_before_and_after_a_change_is_shown_with_the_entries_around_it(
    inferlab_here: Run, path: Path
) -> None:
    done = inferlab_here("trend", "mobilenet", "--cell", "num_cores=1", "--store", path)
    assert done.returncode == 0, done.stderr
    first, entries, *chart = done.stdout.splitlines()
    assert first == "demo:mobilenet_v2: fake, sync, 1 core, batch 1, version 1.0"
    assert entries.startswith("Entries: 12, ") and entries.endswith(", on CPU A, 4 cores")
    # A point in each of twelve columns, and a mark below the change.
    assert sum(line.count("●") for line in chart) == 12
    mark = next(line for line in chart if "▲" in line)
    assert mark.index("▲") - chart[0].index("┤") - 1 == 8
    before, after = [line.split() for line in done.stdout.splitlines() if line.endswith((" c0", " c8"))]
    assert (before[2], after[2]) == ("8", "4")
    assert after[-4:] == [entry_of(path, "c7"), entry_of(path, "c8"), "commit", "c8"]
    assert "+10" in " ".join(after) and "99." in " ".join(after)


def test_it_is_written_as_every_kind_of_file(inferlab_here: Run, path: Path, tmp_path: Path) -> None:
    files = {ending: tmp_path / f"trend.{ending}" for ending in ("json", "csv", "md", "html")}
    for file in files.values():
        done = inferlab_here("trend", "--cell", "num_cores=1", "--store", path, "-x", file)
        assert done.returncode == 0, done.stderr
    written = json.loads(files["json"].read_text())
    (series,) = written["series"]
    assert (written["format"], series["points"][3]["labels"]) == ("inferlab-trend/1", {"commit": "c3"})
    (change,) = series["changes"]
    assert (change["index"], change["before_id"]) == (8, entry_of(path, "c7"))
    rows = list(csv.DictReader(files["csv"].open()))
    assert [row["labels"] for row in rows] == [f"commit c{number}" for number in range(12)]
    assert [bool(row["change"]) for row in rows] == [index == 8 for index in range(12)]
    assert "| Since " in files["md"].read_text()
    page = files["html"].read_text()
    assert "entries, oldest first" in page and r"12 entries \u00b7 1 change" in page


def test_memory_is_followed_alike(inferlab_here: Run, path: Path) -> None:
    done = inferlab_here("trend", "--cell", "num_cores=1", "--metric", "memory", "--store", path)
    assert done.returncode == 0, done.stderr
    assert "Median peak memory" in done.stdout and "64 MiB" in done.stdout


def test_series_are_listed_with_where_they_changed(inferlab_here: Run, path: Path) -> None:
    done = inferlab_here("history", "--series", "--store", path)
    assert done.returncode == 0, done.stderr
    as_json = inferlab_here("history", "--series", "--json", "--store", path)
    assert [len(series["points"]) for series in json.loads(as_json.stdout)["series"]] == [1, 12]
    _, newest, other = done.stdout.splitlines()
    assert newest.split("  ")[0] == "demo:mobilenet_v2" and newest.endswith("too few entries")
    assert other.split()[-2:] == ["+10.1", "%"] or other.split()[-1] == "%"


def test_too_few_entries_are_shown_and_refused_in_a_sentence(inferlab_here: Run, path: Path) -> None:
    done = inferlab_here("trend", "--cell", "num_cores=2", "--store", path)
    with open_store(str(path)) as store:
        newest = store.history(1)[0].id
    assert (done.returncode, done.stderr) == (
        2,
        "inferlab: No series has 6 entries yet, from which on a change is reported. Measure the same again: "
        f"inferlab rerun {newest}\n",
    )
    assert "Note: a change is told from 6 entries of the same cell, machine and version on" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing",), "has no finished benchmark that fits 'nothing'. See: inferlab history"),
        (("--label", "branch=main"), "has no finished benchmark that fits branch=main."),
        (("--cell", "cores"), "The cell 'cores' is not of the form OPTION=VALUE"),
        (("-x", "no/such/folder/trend.md"), "does not exist. Make it first"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(
    inferlab_here: Run, path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = inferlab_here("trend", *arguments, "--store", path)
    assert done.returncode == 2
    assert sentence in done.stderr and done.stderr.count("\n") == 1
