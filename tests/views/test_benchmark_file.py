"""A result as a flat row: CSV and Markdown that can be read again, and compared."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab import views
from inferlab.errors import BadInput
from inferlab.measure.unpaired import compare_sweeps
from inferlab.records import Benchmark, Failure, Model, Outcome, Plan
from inferlab.views import benchmark_file, results, tables
from tests.helpers.runs import a_cell, steady_run

MODEL = Model("onnx", "a --> b.onnx", "/m/a.onnx", "d1", (), (), 4096, parameters=7)
CELL = a_cell(
    batch_size=2, sequence_length=32, shapes=(("x", (2, 32)),), engine_options=(("spinning", "0"),), precision=None
)
RUNS = tuple(steady_run(ms, calls=1000) for ms in (2.0, 2.1, 2.2))
DONE = Outcome(CELL, "done", RUNS)
FAILED = Outcome(replace(CELL, batch_size=4), "failed", (), Failure("died", "It died & said <!-- no -->."))
ONE = Benchmark(Plan("m"), MODEL, (DONE,))
BOTH = Benchmark(Plan("m"), MODEL, (DONE, FAILED))


def test_a_row_has_the_numbers_and_the_medians_of_every_process() -> None:
    (row,) = benchmark_file.rows(ONE)
    assert list(row) == list(benchmark_file.FIELDS)
    assert row["model"] == "a --> b.onnx" and row["model_size_bytes"] == 4096
    assert row["median_ms"] == pytest.approx((2.0 * 2.1 * 2.2) ** (1 / 3))
    assert row["median_ms_low"] < 2.0 < 2.2 < row["median_ms_high"]
    assert row["process_medians_ms"] == "2.0;2.1;2.2"
    assert [float(one) for one in row["process_items_per_sec"].split(";")] == pytest.approx(
        [1000, 2000 / 2.1, 2000 / 2.2]
    )
    assert (row["processes"], row["iterations"], row["status"]) == (3, 3000, "done")
    assert (row["sequence_length"], row["inputs"], row["engine_options"]) == (32, "x=2x32", "spinning=0")


def test_a_failed_cell_is_a_row_with_its_cause() -> None:
    _, row = benchmark_file.rows(BOTH)
    assert (row["status"], row["failure"]) == ("failed", "It died & said <!-- no -->.")
    assert row["median_ms"] is None and row["processes"] is None


@pytest.mark.parametrize("ending", ["json", "csv", "md"])
def test_what_was_written_is_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"result.{ending}"
    views.write(BOTH, path)
    assert benchmark_file.read(path) == benchmark_file.rows(BOTH)


@pytest.mark.parametrize("ending", ["csv", "md"])
@pytest.mark.parametrize(
    "name",
    ["=1+1", "+x", "-x", "@x", "'=x", "''@x", "'x", "\t=x", "\r=x", "a;b=c%3D", 'a"b\n=x,\r\n|', "-1.5", "-->"],
)
def test_text_that_a_spreadsheet_would_run_is_quoted_and_read_back_as_it_was(
    tmp_path: Path, ending: str, name: str
) -> None:
    cell = replace(CELL, shapes=((name, (2, 32)),), engine_options=((name, name),))
    failed = Outcome(cell, "failed", (), Failure("died", name))
    benchmark = Benchmark(Plan("m"), replace(MODEL, source=name), (failed,))
    path = tmp_path / f"result.{ending}"
    views.write(benchmark, path)
    assert benchmark_file.read(path) == benchmark_file.rows(benchmark)
    (result,) = benchmark_file.results(path)
    assert (result["engine_options"], result["inputs"]) == ({name: name}, {name: [2, 32]})
    if ending == "csv":
        with path.open(newline="") as file:
            (line,) = csv.DictReader(file)
        runs = line["model"][0] in "=+-@\t\r"
        assert not runs or name == "-1.5"


def test_numbers_below_zero_stay_numbers() -> None:
    assert [tables.spreadsheet_cell(one) for one in (-1.5, "-1.5", "-1e-3", 7, None)] == [
        -1.5,
        "-1.5",
        "-1e-3",
        7,
        None,
    ]
    assert [tables.spreadsheet_cell(one) for one in ("-inf", "=1", "x")] == ["'-inf", "'=1", "x"]


def test_one_cell_as_json_is_one_object_and_several_are_a_list(tmp_path: Path) -> None:
    views.write(ONE, tmp_path / "one.json")
    views.write(BOTH, tmp_path / "both.json")
    one, both = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "both.json"))
    assert one["cell"] == CELL.id and one["format"] == both["format"] == benchmark_file.BENCHMARK
    assert both["results"][0] == one


def test_csv_has_a_head_and_a_line_a_cell(tmp_path: Path) -> None:
    views.write(BOTH, tmp_path / "both.csv")
    lines = list(csv.DictReader(io.StringIO((tmp_path / "both.csv").read_text())))
    assert [line["batch_size"] for line in lines] == ["2", "4"]
    assert lines[1]["median_ms"] == ""


def test_markdown_shows_a_table_and_hides_the_rest(tmp_path: Path) -> None:
    views.write(BOTH, tmp_path / "both.md")
    shown = (tmp_path / "both.md").read_text().partition("<!--")[0]
    assert "| # | engine | cores | batch |" in shown and "FAILED" in shown
    assert (tmp_path / "both.md").read_text().count("-->") == 1


@pytest.mark.parametrize(("first", "second"), [("json", "csv"), ("csv", "md"), ("md", "json")])
def test_results_in_files_of_any_kind_can_be_compared(tmp_path: Path, first: str, second: str) -> None:
    slower = Benchmark(
        Plan("m"), MODEL, (replace(DONE, runs=tuple(steady_run(ms, 1000) for ms in (3.0, 3.1, 3.2))),)
    )
    views.write(ONE, tmp_path / f"a.{first}")
    views.write(slower, tmp_path / f"b.{second}")
    a, b = (benchmark_file.load_all(str(tmp_path / name)) for name in (f"a.{first}", f"b.{second}"))
    (found,) = compare_sweeps(a, b).results
    assert found.verdict == "slower"
    assert found.ratio.value == pytest.approx(((3.0 * 3.1 * 3.2) / (2.0 * 2.1 * 2.2)) ** (1 / 3))
    assert found.differences == () and found.outputs_match is True


def test_of_several_results_one_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    views.write(BOTH, path)
    (found,) = compare_sweeps(benchmark_file.load_all(f"{path}#1"), benchmark_file.load_all(f"{path}#1")).results
    assert found.ratio.value == 1.0
    with pytest.raises(BadInput, match=r"has 2 results. Name one of them: .*both.csv#1 to .*both.csv#2"):
        benchmark_file.load(str(path))
    with pytest.raises(BadInput, match="there is no result 3 among 2"):
        benchmark_file.load(f"{path}#3")
    with pytest.raises(BadInput, match="has no measurement: its status is failed"):
        benchmark_file.load(f"{path}#2")


def sweep(engine: str, *cells: tuple[int, float]) -> Benchmark:
    """A sweep on an engine over these batch sizes, with the milliseconds that a batch takes in three processes."""
    outcomes = [
        Outcome(
            replace(DONE.cell, engine=engine, batch_size=batch_size),
            "done",
            tuple(steady_run(ms * spread, 1000) for spread in (1.0, 1.001, 1.002)),
        )
        for batch_size, ms in cells
    ]
    return Benchmark(Plan("m"), MODEL, tuple(outcomes))


def test_of_two_sweeps_all_cells_that_both_have_are_compared_in_one_table(tmp_path: Path) -> None:
    views.write(sweep("onnxruntime", (1, 2.0), (8, 16.0), (32, 64.0)), tmp_path / "a.csv")
    views.write(sweep("openvino", (8, 16.0), (1, 1.0), (64, 128.0)), tmp_path / "b.json")
    a, b = (benchmark_file.load_all(str(tmp_path / name)) for name in ("a.csv", "b.json"))
    found = compare_sweeps(a, b)
    # Each of two intervals has half of the error.
    assert [result.ratio.level for result in found.results] == [0.99, 0.99]
    told = [(result.place, str(result.verdict)) for result in found.results]
    assert told == [("batch size 1", "faster"), ("batch size 8", "same")]
    assert [failure.batch_size for failure in found.failures] == [32, 64]
    lines = results.lines(found)
    assert lines[:2] == [f"A: {tmp_path}/a.csv", f"B: {tmp_path}/b.json"]
    assert [line.split()[2] for line in lines if line.startswith("batch size")] == ["1", "8"]
    assert "Note: the results also differ in engine: onnxruntime and openvino." in lines
    assert f"Note: only {tmp_path}/a.csv has batch size 32." in lines
    assert "Intervals: they hold for all 2 cells together, at 98 %; margin 1 %" in lines


def test_sweeps_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    views.write(sweep("onnxruntime", (1, 2.0), (2, 2.0)), tmp_path / "a.json")
    views.write(sweep("onnxruntime", (4, 2.0), (8, 2.0)), tmp_path / "b.json")
    a, b = (benchmark_file.load_all(str(tmp_path / name)) for name in ("a.json", "b.json"))
    with pytest.raises(
        BadInput, match=r"a\.json and .*b\.json have no cell in common. Name one of each: .*json#1"
    ):
        compare_sweeps(a, b)


def test_a_sweep_without_a_measured_cell_is_refused(tmp_path: Path) -> None:
    views.write(Benchmark(Plan("m"), MODEL, (FAILED, FAILED)), tmp_path / "a.json")
    failed = benchmark_file.load_all(str(tmp_path / "a.json"))
    with pytest.raises(BadInput, match="One of the two has no cell that was measured"):
        compare_sweeps(failed, failed)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "a,b\n1,2\n", "was not written by inferlab"),
        ("a.csv", "", "was not written by inferlab"),
        ("a.md", "# Hello\n", "was not written by inferlab"),
        ("a.json", '{"format": "inferlab-benchmark/99"}', "or by a newer inferlab"),
        ("a.json", "[1]", "was not written by inferlab"),
        ("a.json", '{"format": "inferlab-benchmark/2"}', "is damaged"),
        ("a.json", '{"results": []}', "has no results"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=said):
        benchmark_file.read(tmp_path / name)


def test_a_csv_with_a_number_that_is_none_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    views.write(ONE, path)
    path.write_text(path.read_text().replace("2.0;2.1;2.2", "2.0;x"))
    with pytest.raises(BadInput, match="is damaged"):
        benchmark_file.read(path)
