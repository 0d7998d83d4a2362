"""The report of a benchmark: what stands in the page, and what its selectors do in a real browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab import views
from inferlab.records import Benchmark, Failure, Outcome, OutputCheck
from inferlab.views import results
from inferlab.views.reports.benchmark import report
from tests.helpers.browser import BROWSER, found_in
from tests.helpers.report_pages import Page, drawn, options, own, titles
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples, steady_run
from tests.helpers.sweeps import HIGH, LOW, a_sweep, an_outcome

ONE = a_sweep(an_outcome(engine="onnxruntime", batch_size=2))
SWEEP = a_sweep(
    an_outcome(engine="onnxruntime", num_cores=1, batch_size=1),
    an_outcome(engine="onnxruntime", num_cores=2, batch_size=1, latencies_ms=(1.0, 1.0)),
    an_outcome(engine="onnxruntime", num_cores=2, batch_size=8, latencies_ms=(4.0, 4.0)),
    an_outcome(engine="openvino", num_cores=1, batch_size=1, latencies_ms=(3.0,)),
    an_outcome(engine="openvino", num_cores=2, batch_size=1, latencies_ms=(0.1,), wrong=True),
    an_outcome(engine="openvino", num_cores=2, batch_size=8, latencies_ms=()),
)
ALL = [
    "Summary",
    "Cells",
    "Throughput",
    "Core scaling",
    "Batch size scaling",
    "Batch iterations",
    "How it was measured",
]
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def text() -> str:
    return report(SWEEP)


def boxes(text: str) -> list[str]:
    """What stands above everything, each box as its text."""
    found = re.findall(r'<div class="(box[^"]*)" role="note">(.*?)</div>', own(text).partition("<nav>")[0])
    return [f"{kind}: {html.unescape(re.sub('<[^>]*>', ' ', inner)).strip()}" for kind, inner in found]


def rows(text: str) -> list[list[str]]:
    """The table of cells, its head first."""
    table = re.search(r'<table class="sortable" id="all-cells">(.*?)</table>', text, re.DOTALL)
    assert table
    return [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", table[1])
    ]


def tiles(text: str) -> dict[str, list[str]]:
    """Every tile's value and note by its label."""
    found = re.findall(r'<div class="tile ?[a-z]*">(.*?)</div></div>', text)
    parts = [[html.unescape(one) for one in re.findall(r">([^<]+)<", f"{inner}<")] for inner in found]
    return {label: values for label, *values in parts}


def test_a_report_has_the_sections_that_suit(text: str) -> None:
    assert titles(text) == ALL
    assert titles(report(ONE)) == ["Summary", "Batch iterations", "How it was measured"]
    engines = a_sweep(an_outcome(engine="a"), an_outcome(engine="b"))
    assert titles(report(engines)) == [*ALL[:3], *ALL[5:]]


def test_the_head_says_what_was_measured_where_and_with_which_versions(text: str) -> None:
    page = Page(text)
    cpu = SWEEP.outcomes[0].runs[0].machine.cpu
    assert page.texts[:3] == [
        "demo:mobilenet_v2: benchmark",
        "demo:mobilenet_v2",
        f"13.4 MiB · FP32 · 25 % zeros · digest 5f2a5f2a5f2a · {cpu} · onnxruntime 1.0 · openvino 1.0",
    ]


def test_one_cell_has_its_numbers_with_intervals() -> None:
    found = tiles(report(ONE))
    assert found["Engine"] == ["onnxruntime 1.0"]
    # The processes differ by a factor of four: an interval that is 31 times as wide as it begins says nothing.
    assert HIGH / LOW > 31
    assert found["Time per item (ms, median)"] == ["1.00", "too noisy for an interval"]
    assert found["Time per batch (ms, median)"] == ["2.00", "too noisy for an interval"]
    agreeing = tiles(report(a_sweep(an_outcome(latencies_ms=(1.9, 2.0, 2.1), batch_size=2))))
    assert agreeing["Time per batch (ms, median)"][1] == "1.76 to 2.26 (95 %)"
    assert found["Throughput (items/s, mean)"][0] == "1000"
    assert found["Iterations"] == ["30", "in 70 ms"]
    assert found["Output check"] == ["match", "error 0, tolerance 0.001, against a reference"]
    alone = tiles(report(a_sweep(an_outcome(latencies_ms=(2.0,)))))
    assert (
        alone["Time per batch (ms, median)"]
        == alone["Time per item (ms, median)"]
        == ["2.00", "no interval: one process"]
    )


def test_many_cells_have_the_best_that_is_right_and_a_table_with_intervals(text: str) -> None:
    found = tiles(text)
    assert found["Best time per item (ms, median)"] == ["0.500", "onnxruntime, sync, 2 cores, batch 8"]
    assert found["Its throughput (items/s, mean)"] == ["2000", "onnxruntime, sync, 2 cores, batch 8"]
    assert found["Cells"] == ["6", "5 done, 1 failed"]
    assert found["Output check"] == ["1 cell WRONG"]
    head, *body = rows(text)
    assert head == [
        *("#", "engine", "cores", "batch", "Time per item (ms, median)", "Time per batch (ms, median)"),
        *(
            "Time per batch, 95\u00a0%",
            "Throughput (items/s, mean)",
            "Throughput, 95\u00a0%",
            "p99 ms",
            "Speed-up over #1",
            "Peak MiB",
            "Outputs",
            "Remark",
        ),
    ]
    assert body[0][:7] == ["1", "onnxruntime", "1", "1", "2.000", "2.000", "too noisy for an interval"]
    assert body[2][2:6] == ["2", "8", "0.500", "4.000"] and body[2][-2:] == ["match", "best"]
    assert body[4][-2:] == ["WRONG", "outputs WRONG"]
    assert body[5][4:11] == ["–"] * 7 and body[5][-2:] == ["", "FAILED"]
    assert text.count('class="name wrong"') == 3


def test_wrong_outputs_failures_and_findings_stand_above_everything(text: str) -> None:
    wrong, failed, noted = boxes(text)
    assert wrong == (
        "box wrong: #5: Outputs WRONG (output 'y': largest error 0.5, tolerance 0.001, against a reference): "
        "this speed is meaningless."
    )
    assert failed == "box wrong: #6: Failed: It was killed (SIGSEGV)."
    assert noted.startswith("box: #4, #5: Only one process was measured, so there is no interval")


def test_what_is_true_of_all_cells_is_told_once_and_calm_ones_have_no_box() -> None:
    assert boxes(report(ONE)) == []
    interrupted = a_sweep(*(Outcome(a_cell(batch_size=n), "pending") for n in (1, 2)))
    assert boxes(report(interrupted)) == ["box: Nothing was measured: it was interrupted before."]


def test_selectors_offer_what_was_measured_and_each_has_its_chart(text: str) -> None:
    data = drawn(text)
    assert options(text, "cores") == [["1"]] and list(data["charts"]["cores"]) == ["1"]
    assert options(text, "batches") == [["2"]] and list(data["charts"]["batches"]) == ["2"]
    assert options(text, "iterations") == [["1", "2", "3", "4", "5"]]
    assert list(data["charts"]["iterations"]) == ["1", "2", "3", "4", "5"]
    assert list(data["charts"]["throughput"]) == [""]
    single = report(ONE)
    assert options(single, "iterations") == [] and list(drawn(single)["charts"]["iterations"]) == [""]


def test_the_line_in_colour_is_that_of_the_best_right_cell(text: str) -> None:
    data = drawn(text)
    named = [
        (data["pool"][trace["name"]], data["pool"][trace["line"]]["color"])
        for trace in data["charts"]["cores"]["1"]["traces"]
        if "line" in trace
    ]
    assert named == [("openvino (outputs WRONG)", "#777b80"), ("onnxruntime", "#2f7fd6")]


def test_many_cells_share_the_dots_that_a_page_can_hold() -> None:
    busy = Outcome(a_cell(), "done", (a_run(a_window(back_to_back(*[1.0] * 5000))),))
    sweep = a_sweep(*(replace(busy, cell=a_cell(batch_size=n)) for n in range(1, 101)))
    data = drawn(report(sweep))
    (trace,) = data["charts"]["iterations"]["1"]["traces"]
    assert len(data["pool"][trace["x"]]) <= 600


def test_how_it_was_measured_has_the_command_that_repeats_it(text: str) -> None:
    page = Page(text)
    facts = {name: page.texts[page.texts.index(name) + 1] for name in ("Model", "Command", "Digest", "Each cell")}
    assert facts["Command"] == "inferlab benchmark demo:mobilenet_v2"
    assert facts["Each cell"] == "10 s in all, in 1 to 3 fresh processes, each after a warm-up of 2 s at most"
    odd = replace(ONE, plan=replace(ONE.plan, batch_sizes=(None, 8)))
    assert "Command" not in Page(report(odd)).texts


def test_the_page_asks_no_host_for_anything(text: str) -> None:
    page = Page(text)
    assert not re.search(r"https?://", own(text))
    assert not any(
        {"src", "href"} & given.keys() and not given.get("href", "").startswith("#") for _, given in page.elements
    )
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert not page.all("link") and not page.all("img")


def test_every_name_in_a_page_is_of_one_thing(text: str) -> None:
    names = [given["id"] for _, given in Page(text).elements if "id" in given]
    assert sorted(set(names)) == sorted(names)


def odd() -> Benchmark:
    """Foreign text wherever there can be any."""
    wrong = OutputCheck("mismatch", 0.5, "max", 1e-3, EVIL, EVIL)
    run = replace(steady_run(1.0), check=wrong, versions={EVIL: EVIL}, settings={EVIL: EVIL}, started_at=EVIL)
    run = replace(run, machine=replace(run.machine, cpu=EVIL, node=EVIL, system=EVIL))
    cell = a_cell(engine=EVIL, shapes=((EVIL, (1, 2)),), engine_options=((EVIL, EVIL),))
    failed = Outcome(replace(cell, batch_size=2), "failed", (), Failure("died", EVIL))
    found = a_sweep(Outcome(cell, "done", (run,)), failed, model=EVIL, digest=EVIL, precision=EVIL)
    return replace(found, plan=replace(found.plan, model=EVIL, engine_options=((EVIL, EVIL),)), id=EVIL)


def test_foreign_text_does_not_run() -> None:
    text = report(odd())
    assert "<script>alert" not in own(text) and "<img" not in own(text)
    page = Page(text)
    assert len(page.all("script")) == 3 and not page.all("img")
    assert EVIL in page.texts[1] or page.texts[1] in EVIL


@pytest.mark.parametrize("name", ["failed", "pending", "interrupted", "server"])
def test_benchmarks_with_gaps_make_a_page_whose_data_can_be_read(name: str) -> None:
    served = a_run(a_window(samples((2, 3), (3, 4), due_ms=(1, 1.5))))
    cases = {
        "failed": a_sweep(an_outcome(latencies_ms=()), an_outcome(batch_size=2, latencies_ms=())),
        "pending": a_sweep(Outcome(a_cell(), "pending")),
        "interrupted": a_sweep(replace(an_outcome(), status="cancelled"), an_outcome(batch_size=8)),
        "server": a_sweep(Outcome(a_cell(scenario="server", rate=50.0, instances=2), "done", (served,))),
    }
    page = Page(report(cases[name]))
    drawn(report(cases[name]))
    assert not any(one in ("None", "nan", "inf") for one in page.texts)


def test_a_benchmark_is_exported_as_html_by_the_ending_of_the_name(tmp_path: Path) -> None:
    path = tmp_path / "result.HTML"
    results.check_writable(path)
    views.write(ONE, path)
    assert path.read_text(encoding="utf-8") == report(ONE)


SCRIPT = """
const seen = (name) => document.getElementById(`chart-${name}`).data;
const found = {charts: Array.from(document.querySelectorAll(".chart .main-svg")).length};
found.first = Array.from(seen("iterations")[0].y).slice(0, 1);
const select = document.querySelector('select[data-chart="iterations"]');
select.value = "3";
select.dispatchEvent(new Event("change"));
found.third = Array.from(seen("iterations")[0].y).slice(0, 1);
const table = document.getElementById("all-cells");
const heads = Array.from(table.querySelectorAll("th button"));
heads.find((one) => one.textContent === "Time per item (ms, median)").click();
found.slowest = Array.from(table.tBodies[0].rows, (row) => row.cells[0].textContent);
found.requests = performance.getEntriesByType("resource").length;
"""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_charts_selectors_and_sorting_work_in_a_browser(text: str, tmp_path: Path) -> None:
    found = found_in(text, SCRIPT, tmp_path)
    assert found["charts"] >= 4
    assert (found["first"], found["third"]) == ([1.0], [4.0])
    assert found["slowest"] == ["4", "1", "2", "3", "5", "6"]
    assert found["requests"] == 0
