"""Every kind of result is written in every format, by the ending of the file's name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from inferlab import views
from inferlab.fleet.executor import fleet_recommendation
from inferlab.measure.queueing import parse_objective
from inferlab.records import ComparisonFailure, ComparisonSweep
from inferlab.records.optimization import Candidate, Front, Goal, Recipe
from inferlab.units import count
from inferlab.views import results, tables
from inferlab.views.fields import Field, half_width_of, interval_of
from inferlab.views.results import Result
from inferlab.views.tables import Note, Pair, Table
from tests.helpers.answers import a_capacity, a_recommendation
from tests.helpers.comparisons import MODEL
from tests.helpers.profiles import a_profile
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome

EVIL = "<b>|net\x1b[31m=1"


def a_front() -> Front:
    tried = (
        Candidate("FP16", Recipe(), 1.5, (1.4, 1.6), 0.001, 500_000, level=0.98),
        Candidate("INT8", Recipe(), None, None, None, None, reason="it broke"),
    )
    return Front(Goal(2.0), "openvino", tried, None, 0, 2_000_000, 61.0, model="m.onnx", num_cores=2, batch_size=4)


def machines() -> Result:
    return fleet_recommendation(
        MODEL, parse_objective("p95<20ms"), {"c7i": 0.5}, {"c7i": a_recommendation()}, False
    )


#: By kind: the result, the key of its rows in CSV, how many of them, and words of its report.
KINDS: dict[str, tuple[Callable[[], Result], str, int, str]] = {
    "benchmark": (
        lambda: a_sweep(an_outcome(), an_outcome(batch_size=2)),
        "items_per_sec",
        2,
        "Batch size scaling",
    ),
    "comparison": (lambda: a_comparison(1.25, 1.5), "ratio", 1, "Ratio of every pair"),
    "comparisons": (
        lambda: ComparisonSweep(
            (a_comparison(1.25, 1.5), a_comparison(1.0, 1.0)), (ComparisonFailure(4, 1, "It died."),)
        ),
        "verdict",
        2,
        "4 cores, batch 1: Failed: It died.",
    ),
    "capacity": (a_capacity, "response_p95_ms", 2, "Highest rate that meets p95"),
    "recommendation": (a_recommendation, "items_per_sec", 3, "The code that sets it"),
    "machines": (machines, "cost_per_million", 1, "Cost/million"),
    "profile": (a_profile, "ms", len(a_profile().performance.layers), "Layer results"),  # type: ignore[union-attr]
    "search": (a_front, "speed_up", 2, "FP16"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_written_by_the_ending_of_its_name(tmp_path: Path, kind: str) -> None:
    make, key, rows, words = KINDS[kind]
    record = make()
    for ending in ("json", "csv", "md", "html"):
        views.write(record, tmp_path / f"out.{ending}")
    assert json.loads((tmp_path / "out.json").read_text())
    table = list(csv.DictReader(StringIO((tmp_path / "out.csv").read_text())))
    assert len(table) == rows and key in table[0]
    markdown = (tmp_path / "out.md").read_text()
    assert markdown.startswith("## ") and "- " in markdown
    page = (tmp_path / "out.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>")
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert words in re.sub(r"&lt;", "<", own)


def test_numbers_in_files_keep_every_digit_and_both_ends(tmp_path: Path) -> None:
    (row,) = csv.DictReader(StringIO(results.render(machines(), ".csv")))
    assert (row["machine_type"], row["engine"], row["num_cores"]) == ("c7i", "fake", "1")
    rate = float(row["items_per_sec"])
    assert float(row["items_per_sec_low"]) <= rate <= float(row["items_per_sec_high"])
    assert float(row["cost_per_million"]) == pytest.approx(0.5 * 1e6 / (rate * 3600))
    (comparison,) = csv.DictReader(StringIO(results.render(a_comparison(1.25, 1.5, 1.75), ".csv")))
    assert [float(comparison[name]) for name in ("ratio", "low", "high")] == [1.5, 1.25, 1.75]


def test_code_in_markdown_is_code() -> None:
    blocks: list[tables.Block] = ["a < b", tables.Code("if a < b:\n    pass")]
    assert tables.markdown("T", blocks) == "## T\n\n- a &lt; b\n\n```python\nif a < b:\n    pass\n```\n"


def test_foreign_names_are_text_in_every_format() -> None:
    record = replace(a_comparison(1.25, 1.5), labels=(EVIL, "other"))
    page = results.render(record, ".html")
    assert "<b>|net" not in page and "&lt;b&gt;|net" in page
    markdown = results.render(record, ".md")
    assert "<b>" not in markdown and "\x1b" not in markdown
    (row,) = csv.DictReader(StringIO(results.render(replace(record, labels=("=1+1", "b")), ".csv")))
    assert row["a"] == "'=1+1"


RATE = Field("rate", "rate/s", lambda row: row[1], count, ends=lambda row: row[2])
WIDE = Table(
    [Field("name", "name", lambda row: row[0], left=True), RATE, interval_of(RATE), half_width_of(RATE)],
    [("モデル", 123.456, (120.0, 127.0)), ("net", 7.0, None), ("noisy", 5.0, (0.001, 90.0)), ("none", None, None)],
    "Rates",
    strong={0},
)


def test_columns_are_as_wide_as_what_a_terminal_shows_of_their_names() -> None:
    assert tables.text([WIDE]) == [
        "Rates:",
        "name    rate/s              95 % interval          ±",
        "モデル   123.5             120.0 to 127.0     2.88 %",
        "net          7                          -          -",
        "noisy        5  too noisy for an interval  too noisy",
        "none         -                          -          -",
    ]
    assert tables.to_csv(WIDE).splitlines()[:3] == [
        "name,rate,rate_low,rate_high",
        "モデル,123.456,120.0,127.0",
        "net,7.0,,",
    ]


def drawn(blocks: list[tables.Block], width: int) -> str:
    out = StringIO()
    tables.draw(blocks, Console(file=out, width=width, force_terminal=True, color_system="standard"))
    return out.getvalue()


def test_a_terminal_gets_the_same_table_with_what_matters_standing_out() -> None:
    shown = drawn([Pair("Engine", EVIL), WIDE, Note("beware", warning=True)], 80)
    plain = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()]
    assert plain[1:-1] == tables.text([WIDE])
    assert plain[-1] == "Warning: beware"
    assert "\\x1b[31m" in plain[0]
    assert "\x1b[1mモデル" in shown


def test_a_narrow_terminal_folds_names_and_never_cuts_a_number() -> None:
    long = Table(WIDE.fields[:2], [("a" * 40, 123456.0, None)])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", drawn([long], 30)).splitlines()
    assert "123456" in lines[1]
    assert max(map(len, lines)) <= 30 and "".join(line.split()[0] for line in lines[1:]) == "a" * 40
    assert "123456" in drawn([long], 10)


def test_a_notebook_has_named_values_tables_and_sentences() -> None:
    shown = tables.notebook([Pair("Verdict", "<i>", strong=True), WIDE, Note("beware")])
    assert "<strong>&lt;i&gt;</strong>" in shown
    assert shown.count("<tr>") == 1 + 1 + 4
    assert "<li>Note: beware</li>" in shown
