"""`inferlab optimize --goal`, run as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inferlab.model.onnx_file import read_onnx
from tests.cli.conftest import Run

DIGITS = ("optimize", "demo:digits", "--data", "demo:digits", "-ncores", "1", "--measure", "none")


def test_a_goal_that_is_reached_gives_the_model_the_table_the_report_and_the_chart(
    inferlab_here: Run, tmp_path: Path
) -> None:
    done = inferlab_here(
        *(*DIGITS, "-o", tmp_path / "out.onnx", "--goal", "3x smaller", "--search-time", "100"),
        *("-x", tmp_path / "report.json", "--plot", tmp_path / "front.html", "--store", tmp_path / "lab.db"),
    )
    assert done.returncode == 0, done.stderr
    assert "to be 3 times smaller within a loss of 1 %" in done.stdout
    assert "Reached: measured again, #3, 4-bit weights: " in done.stdout
    assert "Recipe 3: 4-bit weights" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    chosen = report["search"]["candidates"][report["search"]["chosen"]]
    assert chosen["label"] == "4-bit weights"
    made = read_onnx(tmp_path / "out.onnx", "out.onnx")
    assert made.size_bytes == chosen["size_bytes"] < 118 * 1024 / 3
    assert report["optimized"]["digest"] == made.digest
    assert "Speed against loss on onnxruntime" in (tmp_path / "front.html").read_text()
    kept = inferlab_here("history", "--store", tmp_path / "lab.db").stdout
    entry = next(line.split()[0] for line in kept.splitlines() if "search" in line)
    shown = inferlab_here("show", entry, "--store", tmp_path / "lab.db").stdout
    assert "Reached: measured again, #3, 4-bit weights: " in shown


def test_a_goal_that_the_time_leaves_open_ends_with_4_and_writes_no_model(
    inferlab_here: Run, tmp_path: Path
) -> None:
    done = inferlab_here(
        *(*DIGITS, "-o", tmp_path / "out.onnx", "--goal", "99x faster", "--search-time", "0.5", "--no-save"),
        *("-x", tmp_path / "front.json", "-q"),
    )
    assert done.returncode == 4, done.stderr
    assert (
        "Not reached: no recipe is certainly 99 times as fast within a loss of 1 %; not all candidates were tried."
        in done.stdout
    )
    assert "Time ran out: a longer search (--search-time) tries more." in done.stdout
    content = json.loads((tmp_path / "front.json").read_text())
    assert content["format"] == "inferlab-search/1"
    assert content["chosen"] is None
    assert [one.name for one in tmp_path.iterdir()] == ["front.json"]


def test_ctrl_c_shows_what_was_tried_and_leaves_nothing_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [
        *(str(Path(sys.executable).parent / "inferlab"), *DIGITS, "-o", str(tmp_path / "out.onnx")),
        *("--goal", "99x faster", "--search-time", "300", "--no-save"),
    ]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Comparing interleaved" in line:
                process.send_signal(signal.SIGINT)
                break
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "FP16" in printed
    assert "It was interrupted; what was known by then is kept." in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--goal", "faster"), "The goal 'faster' cannot be read."),
        (("--goal", "2x faster", "--max-loss", "1"), "1 % is written as 1% or 0.01."),
        (("--goal", "2x faster", "--int8", "static"), "leave out what says how to prune or quantise"),
        (("--goal", "2x faster", "--search-time", "0"), "more than 0 seconds"),
        (("--goal", "2x faster", "--plot", "front.pdf"), "A chart is written as .html or .png"),
        (("--int8", "static", "--max-loss", "1%"), "max_loss belongs to a search"),
        (("--int8", "static", "--nearest"), "nearest belongs to a search"),
        (("--int8", "static", "--plot", "front.html"), "--plot belongs to a search"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(
    inferlab_here: Run, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = inferlab_here(*DIGITS, "-o", tmp_path / "out.onnx", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
