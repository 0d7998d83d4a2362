"""`inferlab plot`, as a user sees it."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from inferlab import views
from inferlab.cli.plot import command
from inferlab.store import open_store
from inferlab.views import results
from tests.cli.conftest import Run
from tests.helpers.stored import save
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome

DOCUMENTATION = (Path(__file__).parent.parent.parent / "docs/plot.md").read_text()
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SWEEP = a_sweep(*(an_outcome(engine=engine, batch_size=n) for engine in ("one", "two") for n in (1, 2, 4)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep in every format, a comparison, and a store."""
    folder = tmp_path_factory.mktemp("saved")
    for ending in ("json", "csv", "md"):
        views.write(SWEEP, folder / f"sweep.{ending}")
    (folder / "comparison.json").write_text(results.render(a_comparison(1.25, 1.5), ".json"))
    (folder / "foreign.json").write_text('{"format": "somebody else"}')
    (folder / "foreign.csv").write_text("a,b\n1,2\n")
    return folder


def title(path: Path) -> str:
    """The first title in a page."""
    found = re.search(r'"title":\{[^{}]*(?:\{[^{}]*\}[^{}]*)*"text":"(.*?)\\u003cbr', path.read_text())
    assert found
    return found[1]


@pytest.mark.parametrize("ending", ["json", "csv", "md"])
def test_a_saved_sweep_becomes_a_page(inferlab_here: Run, saved: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / "chart.html"
    done = inferlab_here("plot", saved / f"sweep.{ending}", "-o", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Written: {out}\n", "")
    assert title(out) == "Median latency by batch size"
    assert list(tmp_path.iterdir()) == [out]


def test_axes_cells_and_comparisons_are_drawn_as_asked(inferlab_here: Run, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "chart.html"
    done = inferlab_here("plot", saved / "sweep.csv", "-o", out, "--x", "batch-size", "--y", "items-per-sec")
    assert done.returncode == 0, done.stderr
    assert title(out) == "Throughput by batch size"
    assert (
        inferlab_here("plot", saved / "sweep.csv#2", saved / "sweep.json#5", "-o", out, "--x", "cell").returncode
        == 0
    )
    assert title(out) == "Throughput of 2 cells"
    assert inferlab_here("plot", saved / "comparison.json", "-o", out).returncode == 0
    assert title(out) == "B takes 1.50 of A's time: slower"


def test_an_id_of_the_store_is_drawn_with_its_samples(inferlab_here: Run, tmp_path: Path) -> None:
    database, out = tmp_path / "lab.db", tmp_path / "chart.html"
    with open_store(str(database)) as store:
        entry = save(store, a_sweep(an_outcome()))
    done = inferlab_here("plot", entry[:6], "-o", out, "--store", database)
    assert done.returncode == 0, done.stderr
    assert title(out) == "Latency of every batch over time"


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no browser is installed")
def test_a_png_is_drawn_by_the_browser_of_the_machine(inferlab_here: Run, saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("kaleido")
    out, home = tmp_path / "chart.png", tmp_path / "home"
    home.mkdir()
    done = inferlab_here("plot", saved / "sweep.json", "-o", out, HOME=str(home))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Written: {out}\n", "")
    content = out.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (1920, 920)
    assert list(home.iterdir()) == []


def test_without_a_browser_a_png_is_refused_with_what_to_install(
    inferlab_here: Run, saved: Path, tmp_path: Path
) -> None:
    done = inferlab_here(
        "plot", saved / "sweep.json", "-o", tmp_path / "chart.png", BROWSER_PATH=str(tmp_path / "none")
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(r"inferlab: A PNG needs Chrome or Chromium, .* Install it \(Debian: apt-get", done.stderr)
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


BAD = [
    (["SAVED/sweep.json", "-o", "OUT/chart.pdf"], "A chart is written as .html or .png"),
    (["SAVED/sweep.json", "-o", "OUT/missing/chart.html"], "does not exist. Make it first"),
    (["SAVED/missing.json", "-o", "OUT/chart.html"], "cannot be read: No such file"),
    (["SAVED/foreign.json", "-o", "OUT/chart.html"], "was not written by inferlab"),
    (["SAVED/foreign.csv", "-o", "OUT/chart.html"], "was not written by inferlab"),
    (["SAVED/sweep.json#7", "-o", "OUT/chart.html"], "there is no result 7 among 6"),
    (["SAVED/sweep.json", "-o", "OUT/chart.html", "--x", "colour"], "'colour' is not one of"),
    (["SAVED/sweep.json", "-o", "OUT/chart.html", "--x", "sequence_length"], "do not say their sequence length"),
    (["SAVED/sweep.json", "-o", "OUT/chart.html", "--x", "time"], "here are 6 cells"),
    (["SAVED/comparison.json", "-o", "OUT/chart.html", "--y", "median_ms"], "x and y cannot be chosen"),
    (["SAVED/comparison.json", "SAVED/sweep.json", "-o", "OUT/chart.html"], "Plot it alone"),
    (["abcdefgh", "-o", "OUT/chart.html", "--store", "OUT/none.db"], "none.db"),
    (["SAVED/sweep.json"], "Missing option"),
    ([], "Missing argument"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_bad_input_gets_one_sentence(
    inferlab_here: Run, saved: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = inferlab_here(
        "plot", *[argument.replace("SAVED", str(saved)).replace("OUT", str(tmp_path)) for argument in arguments]
    )
    assert done.returncode == 2, done.stdout
    assert sentence in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == "" and list(tmp_path.iterdir()) == []


def test_every_option_of_plot_is_documented_and_no_other() -> None:
    real = {name for param in command.params if param.param_type_name == "option" for name in param.opts}
    assert (
        set(re.findall(r"`(-{1,2}[\w-]+)`", "\n".join(re.findall(r"^\| (`-.*?) \|", DOCUMENTATION, re.M)))) == real
    )
