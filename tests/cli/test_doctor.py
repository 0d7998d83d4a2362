"""`inferlab doctor`, as a user sees it on this machine."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from inferlab.views.doctor import PROSE
from tests.cli.conftest import Run


def test_every_fact_has_a_line_that_begins_with_a_word_for_its_state(inferlab_here: Run) -> None:
    done = inferlab_here("doctor")
    assert done.returncode == 0, done.stderr
    *report, verdict = done.stdout.splitlines()
    found = [line for line in report if re.match(r"  (good|warn|unknown|info) +\S", line)]
    assert [line[11:].split("  ")[0] for line in found] == [entry.label for entry in PROSE.values()]
    assert re.match(r"(Nothing|1 thing|\d+ things) .*measurements here", verdict)
    assert "\033[" not in done.stdout


def test_the_facts_are_exported(inferlab_here: Run, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    done = inferlab_here("doctor", "--no-measure", "-x", file)
    assert (done.returncode, done.stderr) == (0, f"Saved to {file}\n")
    content = json.loads(file.read_text())
    assert content["format"] == "inferlab-doctor/1"
    assert [fact["code"] for fact in content["facts"]] == [code for code in PROSE if code != "smallest-difference"]
    assert all(fact["text"] in done.stdout for fact in content["facts"])
    assert done.stdout.endswith(content["verdict"] + "\n")


@pytest.mark.parametrize("ending", ["csv", "md", "html"])
def test_the_facts_are_exported_as_other_results_are(inferlab_here: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"machine.{ending}"
    done = inferlab_here("doctor", "--no-measure", "-x", file)
    assert (done.returncode, done.stderr) == (0, f"Saved to {file}\n")
    text = file.read_text()
    if ending == "csv":
        facts = list(csv.DictReader(io.StringIO(text)))
        assert [fact["code"] for fact in facts] == [code for code in PROSE if code != "smallest-difference"]
        assert list(facts[0]) == ["code", "group", "state", "text"]
        assert all(fact["text"].removeprefix("'") in done.stdout for fact in facts)
    elif ending == "md":
        assert text.startswith("## This machine\n") and "- huge pages: " in text
    else:
        assert "<h1>This machine</h1>" in text and "<dt>huge pages</dt>" in text


def test_a_path_that_cannot_be_written_is_refused_before_anything_is_read(
    inferlab_here: Run, tmp_path: Path
) -> None:
    done = inferlab_here("doctor", "-x", tmp_path / "nowhere" / "machine.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in done.stderr


def test_variables_that_move_threads_are_named(inferlab_here: Run) -> None:
    done = inferlab_here("doctor", "--no-measure", KMP_AFFINITY="compact")
    assert "KMP_AFFINITY=compact" in done.stdout
    assert "unset KMP_AFFINITY" in done.stdout
    assert "thread variables" in done.stdout.splitlines()[-1]
