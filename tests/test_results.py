"""Result objects: the views of records made by hand, exactly."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab import BadInput, BenchmarkResult, ComparisonResult
from inferlab.records import Finding, Outcome
from inferlab.views import benchmark_file, results
from tests.helpers.runs import a_cell
from tests.helpers.sweeps import HIGH, LOW, a_comparison, a_sweep, an_outcome

ONE = a_sweep(an_outcome())
MANY = a_sweep(
    an_outcome(engine="onnxruntime"),
    an_outcome(engine="openvino", latencies_ms=(1.0, 1.0, 1.0)),
    an_outcome(engine="quick", latencies_ms=(0.1, 0.1, 0.1), wrong=True),
    an_outcome(engine="broken", latencies_ms=()),
)
EVIL = "<script>alert('x')</script>.onnx"


def test_one_cell_has_its_numbers_as_attributes() -> None:
    result = BenchmarkResult(ONE)
    assert result.median_ms == pytest.approx(2)
    assert result.median_ms_interval == pytest.approx((LOW, HIGH))
    assert result.items_per_sec == pytest.approx(500)
    assert result.items_per_sec_interval == pytest.approx((1000 / HIGH, 1000 / LOW))
    assert result.summary is not None and result.summary.iterations == 30
    assert (result.status, result.outputs_match, result.failures, result.id) == ("done", True, (), "")


def test_one_process_has_no_interval_and_a_finding_that_says_so() -> None:
    result = BenchmarkResult(a_sweep(an_outcome(latencies_ms=(2.0,), processes=1)))
    assert result.median_ms_interval is None and result.items_per_sec_interval is None
    assert result.findings == (Finding("one-process", {"why": "asked", "ready_s": 0.5}),)


def test_several_cells_have_no_single_number() -> None:
    with pytest.raises(BadInput, match=r"This result has 4 cells, so it has no single number. Take one of them"):
        _ = BenchmarkResult(MANY).median_ms


def test_the_cells_of_a_result_are_results() -> None:
    result = BenchmarkResult(MANY)
    assert len(result) == len(list(result)) == 4
    assert [one.status for one in result] == ["done", "done", "done", "failed"]
    assert result[1].items_per_sec == pytest.approx(1000)
    assert result[-1].median_ms is None
    assert result[1].record.outcomes == (MANY.outcomes[1],)
    with pytest.raises(IndexError):
        _ = result[4]


def test_the_best_is_the_fastest_whose_outputs_are_right() -> None:
    best = BenchmarkResult(MANY).best
    assert best is not None and best.record.outcomes == (MANY.outcomes[1],)
    assert BenchmarkResult(a_sweep(an_outcome(latencies_ms=()))).best is None


def test_a_failure_is_a_value() -> None:
    result = BenchmarkResult(MANY)
    assert (result.status, result.failures) == ("failed", ("It was killed (SIGSEGV).",))
    assert result[3].table().endswith("Failure: It was killed (SIGSEGV).")
    assert (result.outputs_match, result[1].outputs_match, result[3].outputs_match) == (False, True, None)


def test_the_table_is_what_the_command_line_prints() -> None:
    assert BenchmarkResult(ONE).table() == "\n".join(results.lines(ONE))
    assert str(BenchmarkResult(MANY)) == "\n".join(results.lines(MANY))
    based = BenchmarkResult(MANY).table("engine=openvino")
    assert based == "\n".join(results.lines(MANY, MANY.outcomes[1])) and "over #2" in based
    with pytest.raises(BadInput, match="No cell of this plan has engine=nonsense"):
        BenchmarkResult(MANY).table("engine=nonsense")


def test_a_result_says_in_one_line_what_it_is() -> None:
    assert (
        repr(BenchmarkResult(ONE)) == "<BenchmarkResult of demo:mobilenet_v2: fake, sync, 1 core, batch 1, done>"
    )
    assert repr(BenchmarkResult(MANY)) == "<BenchmarkResult of demo:mobilenet_v2: 4 cells, failed>"
    assert repr(ComparisonResult(a_comparison(1.5))) == (
        "<ComparisonResult: openvino takes 1.5000 of the time of onnxruntime, slower>"
    )


def test_json_is_the_text_of_the_command_line() -> None:
    assert BenchmarkResult(MANY).to_json() == results.render(MANY, ".json")
    made = a_comparison(1.5)
    assert ComparisonResult(made).to_json() == results.render(made, ".json")


def test_rows_and_frame_have_the_columns_of_a_csv() -> None:
    pandas = pytest.importorskip("pandas")
    frame = BenchmarkResult(MANY).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(benchmark_file.FIELDS)
    assert list(frame["engine"]) == ["onnxruntime", "openvino", "quick", "broken"]
    assert frame["median_ms"][:3].tolist() == pytest.approx([2, 1, 0.1])
    assert BenchmarkResult(MANY).rows() == benchmark_file.rows(MANY)
    pairs = ComparisonResult(a_comparison(1.25, 1.5)).to_frame()
    assert pairs[["pair", "a_ms", "b_ms"]].values.tolist() == [[1, 2.0, 2.5], [2, 2.0, 3.0]]


def test_without_pandas_a_frame_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r"to_frame\(\) needs pandas. Install it: pip install pandas"):
        BenchmarkResult(ONE).to_frame()


def test_a_comparison_of_files_has_as_many_rows_as_its_longer_arm() -> None:
    unpaired = a_comparison(pairs=(), times_ms=((1.0,), (2.0, 3.0)))
    assert ComparisonResult(unpaired).rows() == [
        {"pair": 1, "a_ms": 1.0, "b_ms": 2.0, "log_ratio": None},
        {"pair": 2, "a_ms": None, "b_ms": 3.0, "log_ratio": None},
    ]


def test_a_result_is_saved_by_the_ending_of_the_name(tmp_path: Path) -> None:
    result = BenchmarkResult(MANY)
    for ending in (".json", ".csv", ".md", ".html"):
        result.save(tmp_path / f"out{ending}")
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(result.to_json())
    assert [row["engine"] for row in csv.DictReader((tmp_path / "out.csv").open())] == [
        *("onnxruntime", "openvino", "quick", "broken")
    ]
    assert (tmp_path / "out.md").read_text().startswith("## demo:mobilenet_v2")
    assert "Throughput of 4 cells" in (tmp_path / "out.html").read_text()


def test_a_comparison_is_saved_as_its_numbers_or_as_its_chart(tmp_path: Path) -> None:
    result = ComparisonResult(a_comparison(1.25, 1.5))
    result.save(tmp_path / "out.json")
    result.save(str(tmp_path / "out.html"))
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "slower"
    result.save(tmp_path / "out.csv")
    head, row = (tmp_path / "out.csv").read_text().splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["verdict"] == "slower"
    with pytest.raises(BadInput, match=r"A result is saved as .json, .csv, .md, .html or .png, by the ending"):
        result.save(tmp_path / "out.xlsx")


def test_a_name_or_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"saved as .json, .csv, .md, .html or .png, by the ending"):
        BenchmarkResult(ONE).save("result.xlsx")
    with pytest.raises(BadInput, match=r"does not exist. Make it first"):
        BenchmarkResult(ONE).save(tmp_path / "missing" / "result.json")


def test_a_comparison_has_its_verdict_as_attributes() -> None:
    result = ComparisonResult(a_comparison(1.25, 1.75))
    assert (result.verdict, result.ratio, result.interval) == ("slower", 1.5, (1.25, 1.75))
    assert (result.outputs_match, result.findings) == (True, ())
    assert result.table().splitlines()[2].startswith("Verdict: slower (B takes 1.50 of A's time")
    unsure = replace(a_comparison(1.5), ratio=replace(result.record.ratio, low=None, high=None))
    assert ComparisonResult(unsure).interval is None


def test_a_notebook_shows_a_table_with_the_best_marked_and_findings_below() -> None:
    markup = BenchmarkResult(MANY)._repr_html_()
    rows = [line for line in markup.splitlines() if line.startswith("<tr>")]
    assert [("<strong>" in row) for row in rows] == [False, True, False, False]
    assert "<strong>best</strong>" in rows[1] and "outputs WRONG" in rows[2] and "FAILED" in rows[3]
    assert "<li>Note on #4: It was killed (SIGSEGV).</li>" in markup
    assert "<li>Note on #3: the outputs are WRONG" in markup


def test_a_notebook_shows_one_cell_and_a_comparison_line_by_line() -> None:
    one = BenchmarkResult(a_sweep(an_outcome(latencies_ms=(2.0,), processes=1)))._repr_html_()
    assert "<strong>Latency Median (ms/batch)</strong>" in one and "<strong>2.0000</strong>" in one
    assert "<li>Note: only one process was measured, so there is no interval.</li>" in one
    compared = ComparisonResult(a_comparison(1.5))._repr_html_()
    assert "<strong>Verdict</strong>" in compared and "<strong>slower (B takes 1.50" in compared


def test_foreign_text_is_escaped_in_notebooks() -> None:
    outcomes = (an_outcome(engine="<b>x</b>"), an_outcome(engine="y"))
    shown = [
        BenchmarkResult(a_sweep(*outcomes, model=EVIL))._repr_html_(),
        BenchmarkResult(a_sweep(outcomes[0], model=EVIL))._repr_html_(),
        ComparisonResult(a_comparison(1.5, labels=(EVIL, "b")))._repr_html_(),
    ]
    for markup in shown:
        assert "<script" not in markup and "<b>" not in markup
        assert "&lt;script&gt;alert(&#39;x&#39;)" in markup


def test_a_benchmark_that_was_cut_off_says_so() -> None:
    cut = a_sweep(an_outcome(), Outcome(a_cell(batch_size=2), "pending"))
    assert BenchmarkResult(cut).status == "pending"
    assert BenchmarkResult(cut)[1].median_ms is None
