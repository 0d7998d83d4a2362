"""Charts: what is drawn where, exactly, from records made by hand."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab import views
from inferlab.errors import BadInput
from inferlab.records import Benchmark, Outcome
from inferlab.views import benchmark_file, results
from inferlab.views.charts import comparisons, frame, sweeps, timeline
from inferlab.views.charts.points import Point, from_row, labels, series, short_names, telling
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples
from tests.helpers.sweeps import HIGH, LOW, a_comparison, a_sweep, an_outcome


def points(*benchmarks: Benchmark) -> list[Point]:
    return [
        from_row(row, f"file{number}")
        for number, benchmark in enumerate(benchmarks)
        for row in benchmark_file.rows(benchmark)
    ]


def a_point(**changes: Any) -> Point:
    (point,) = points(a_sweep(an_outcome()))
    return replace(point, **changes)


def texts(figure: Any) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


TWO_ENGINES = a_sweep(
    an_outcome(engine="onnxruntime", batch_size=8),
    an_outcome(engine="onnxruntime", batch_size=1),
    an_outcome(engine="openvino", batch_size=1, latencies_ms=(3.0,)),
    an_outcome(engine="openvino", batch_size=8, latencies_ms=()),
)


def test_a_point_has_the_numbers_of_its_cell_and_their_intervals() -> None:
    point = a_point()
    assert (point.model, point.engine, point.version, point.batch_size) == ("demo:mobilenet_v2", "fake", "1.0", 1)
    assert point.value("median_ms") == pytest.approx(2)
    assert point.ends("median_ms") == pytest.approx((LOW, HIGH))
    assert point.value("items_per_sec") == pytest.approx(500)
    assert point.ends("items_per_sec") == pytest.approx((1000 / HIGH, 1000 / LOW))


@pytest.mark.parametrize("ending", [".json", ".csv", ".md"])
def test_points_of_a_file_are_those_of_the_benchmark_that_was_saved(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"sweep{ending}"
    views.write(TWO_ENGINES, path)
    assert [from_row(row, "file0") for row in benchmark_file.read(path)] == points(TWO_ENGINES)


def test_scaling_has_a_line_for_each_engine_with_its_intervals() -> None:
    figure = sweeps.scaling(points(TWO_ENGINES))
    second, first = figure.data  # the best is drawn last, above the others
    assert (first.name, second.name) == ("onnxruntime", "openvino")
    assert (list(first.x), list(second.x)) == ([1, 8], [1])
    assert list(first.y) == pytest.approx([2, 2])
    assert list(first.error_y.array) == pytest.approx([HIGH - 2] * 2)
    assert list(first.error_y.arrayminus) == pytest.approx([2 - LOW] * 2)
    assert second.error_y.array is None
    assert texts(figure) == ["onnxruntime", "openvino"]
    assert figure.layout.xaxis.title.text == "batch size (items)"
    assert figure.layout.yaxis.title.text == "median latency (ms per batch)"
    assert "1 cell without a result" in figure.layout.title.text
    assert "bars: 95 % interval" in figure.layout.title.text


def test_the_line_with_the_highest_throughput_is_in_colour_and_no_other() -> None:
    figure = sweeps.scaling(points(TWO_ENGINES), y="items_per_sec")
    assert [one.line.color for one in figure.data] == [frame.INK, frame.ACCENT]
    assert list(figure.data[1].y) == pytest.approx([500, 4000])


def test_the_axis_is_what_varies_most_and_batch_size_of_equals() -> None:
    lengths = [a_point(batch_size=batch, sequence_length=n) for batch in (1, 2) for n in (16, 32, 64)]
    assert sweeps.scaling(lengths).layout.xaxis.title.text == "sequence length (tokens)"
    equal = [a_point(batch_size=batch, sequence_length=n) for batch in (1, 2) for n in (16, 32)]
    assert sweeps.scaling(equal).layout.xaxis.title.text == "batch size (items)"
    assert sweeps.scaling(equal, "sequence_length").layout.xaxis.title.text == "sequence length (tokens)"


def test_streams_that_follow_the_cores_make_no_lines_of_their_own() -> None:
    follow = [a_point(scenario="async", num_cores=n, num_streams=n) for n in (1, 2, 4)]
    (line,) = series(follow, "num_cores")
    assert (line.label, [point.num_cores for point in line.points]) == ("", [1, 2, 4])
    chosen = [*follow, a_point(scenario="async", num_cores=4, num_streams=1)]
    assert [one.label for one in series(chosen, "num_cores")] == ["1 stream", "2 streams", "4 streams"]


def test_points_of_different_machines_or_models_are_never_one_line() -> None:
    one = a_point(cpu="Xeon")
    assert [line.label for line in series([one, a_point(batch_size=8, cpu="Epyc")], "batch_size")] == [
        "Xeon",
        "Epyc",
    ]
    other = a_point(batch_size=8, digest="cafe" * 16)
    assert len(series([a_point(), other], "batch_size")) == 2


def test_where_a_point_comes_from_matters_only_if_nothing_else_tells_it_apart() -> None:
    monday, friday = a_point(origin="a/monday.csv"), a_point(origin="a/friday.csv")
    assert labels([monday, friday]) == ["monday.csv", "friday.csv"]
    assert telling([monday, replace(friday, batch_size=8)], "batch_size") == []


def test_a_version_that_is_unknown_because_the_cell_failed_is_no_difference() -> None:
    assert labels(points(TWO_ENGINES)) == [
        *("onnxruntime, batch 8", "onnxruntime, batch 1", "openvino, batch 1", "openvino, batch 8")
    ]


@given(st.lists(st.text("ab/\\", min_size=1, max_size=100), min_size=1, unique=True))
def test_two_models_never_look_the_same(names: list[str]) -> None:
    short = short_names(names)
    assert set(short) == set(names) and len(set(short.values())) == len(names)


def test_model_names_are_as_short_as_tells_them_apart() -> None:
    assert short_names(["a/x/m.onnx", "b/x/m.onnx", "c/n.onnx"]) == {
        "a/x/m.onnx": "a/x/m.onnx",
        "b/x/m.onnx": "b/x/m.onnx",
        "c/n.onnx": "n.onnx",
    }


def test_doubling_values_lie_on_a_logarithmic_axis_with_a_tick_at_each() -> None:
    axis = sweeps.scaling([a_point(batch_size=n) for n in (1, 2, 4, 8)]).layout.xaxis
    assert (axis.type, list(axis.tickvals), list(axis.ticktext)) == ("log", [1, 2, 4, 8], ["1", "2", "4", "8"])
    assert sweeps.scaling([a_point(batch_size=n) for n in (1, 2, 4)]).layout.xaxis.type == "linear"


def test_a_wide_range_of_times_is_logarithmic_and_says_so() -> None:
    bare = a_point(median_ms_low=None, median_ms_high=None)
    axis = sweeps.scaling([bare, replace(bare, batch_size=2, median_ms=100.0)]).layout.yaxis
    assert (axis.type, axis.title.text) == ("log", "median latency (ms per batch, logarithmic)")
    assert list(axis.ticktext) == ["2", "5", "10", "20", "50", "100"]
    axis = sweeps.scaling([bare, replace(bare, batch_size=2, median_ms=3.0)]).layout.yaxis
    assert axis.type == "linear" and list(axis.range) == pytest.approx([0, 3.24])


def test_wrong_outputs_are_crossed_called_wrong_and_never_in_colour() -> None:
    fast = a_sweep(
        an_outcome(engine="quick", batch_size=1, latencies_ms=(0.1,), wrong=True),
        an_outcome(engine="quick", batch_size=2, latencies_ms=(0.1,)),
        an_outcome(engine="right", batch_size=1),
    )
    figure = sweeps.scaling(points(fast))
    assert [one.name for one in figure.data] == ["quick (outputs WRONG)", "right"]
    assert list(figure.data[0].marker.symbol) == ["x", "circle"]
    assert [one.line.color for one in figure.data] == [frame.INK, frame.ACCENT]
    bars = sweeps.bars(points(fast))
    assert bars.layout.annotations[2].text == "10000, outputs WRONG"
    assert bars.data[0].marker.color[2] == "rgba(0,0,0,0)"


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_labels_are_moved_apart_and_stay_in_the_chart(places: list[float]) -> None:
    found = sorted(frame.spread(places, (0, 100), 400))
    gap = 100 * 18 / 400
    assert all(after - before >= gap - 1e-9 for before, after in itertools.pairwise(found))
    assert found[-1] <= 100


def test_labels_that_do_not_touch_stay_where_they_are() -> None:
    assert frame.spread([90, 10, 50], (0, 100), 400) == [90, 10, 50]


def test_bars_have_the_best_at_the_top_and_say_what_failed() -> None:
    figure = sweeps.bars(points(TWO_ENGINES))
    (bars,) = figure.data
    assert list(figure.layout.yaxis.ticktext) == [
        *("onnxruntime, batch 8", "onnxruntime, batch 1", "openvino, batch 1", "openvino, batch 8")
    ]
    assert list(bars.x) == [pytest.approx(4000), pytest.approx(500), pytest.approx(1000 / 3), None]
    assert texts(figure) == ["4000", "500", "333.3", "failed"]
    assert list(bars.error_x.array)[:2] == pytest.approx([8000 / LOW - 4000, 1000 / LOW - 500])
    assert list(bars.error_x.array)[2:] == [None, None]
    assert list(bars.marker.color) == [frame.ACCENT, frame.INK, frame.INK, frame.INK]
    assert list(figure.layout.yaxis.range) == [3.5, -0.5]


def test_bars_of_latency_have_the_shortest_at_the_top() -> None:
    figure = sweeps.bars(points(TWO_ENGINES), "median_ms")
    assert list(figure.data[0].x)[:3] == pytest.approx([2, 2, 3])


def disturbed() -> Outcome:
    calm = a_run(a_window(back_to_back(1.0, 2.0, begin_ms=500)), a_window(back_to_back(3.0, begin_ms=510)))
    noisy = a_window(back_to_back(4.0, 4.0, begin_ms=70), counters={"steal_s": 0.004})
    return Outcome(a_cell(), "done", (calm, a_run(noisy)))


def test_every_iteration_is_drawn_over_time_process_after_process() -> None:
    figure = timeline.iterations(disturbed())
    (dots,) = figure.data
    assert list(dots.x) == pytest.approx([0, 0.001, 0.010, 0.013, 0.017])
    assert list(dots.y) == pytest.approx([1, 2, 3, 4, 4])
    assert list(figure.layout.xaxis.range) == pytest.approx([0, 0.021])
    assert figure.layout.xaxis.title.text == "measuring time (s)"
    assert texts(figure) == ["median 2.828 ms", "process 1", "process 2"]


def test_disturbed_windows_are_shaded_and_the_cause_is_said() -> None:
    figure = timeline.iterations(disturbed())
    (shade,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (shade.x0, shade.x1) == (pytest.approx(0.013), pytest.approx(0.021))
    assert "disturbed by time taken by the hypervisor" in figure.layout.title.text


def test_requests_are_drawn_from_the_moment_they_were_due() -> None:
    run = a_run(a_window(samples((2, 3), (3, 4), due_ms=(1, 1.5))))
    (dots,) = timeline.iterations(Outcome(a_cell(scenario="server", rate=1.0), "done", (run,))).data
    assert list(dots.x) == pytest.approx([0, 0.0005])
    assert list(dots.y) == pytest.approx([2, 2.5])


def test_of_too_many_iterations_the_extremes_of_each_stretch_are_kept() -> None:
    latencies = [1.0] * 30_000
    latencies[12_345] = 9.0
    figure = timeline.iterations(Outcome(a_cell(), "done", (a_run(a_window(back_to_back(*latencies))),)))
    (dots,) = figure.data
    assert len(dots.x) < 20_001 and list(dots.y).count(9.0) == 1
    assert "30000 iterations" in figure.layout.title.text
    assert "the slowest are drawn" in figure.layout.title.text


def test_a_comparison_is_the_ratio_of_each_pair_with_interval_and_margin() -> None:
    figure = comparisons.ratios(comparisons.of_comparison(a_comparison(1.25, 1.5, 1.75)))
    (dots,) = figure.data
    assert list(dots.x) == [1, 2, 3]
    assert (list(figure.layout.xaxis.range), figure.layout.xaxis.dtick) == ([0.5, 3.5], 1)
    assert list(dots.y) == pytest.approx([1.25, 1.5, 1.75])
    margin, interval = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (margin.y0, margin.y1) == (pytest.approx(1 / 1.01), pytest.approx(1.01))
    assert (interval.y0, interval.y1) == (1.25, 1.75)
    assert texts(figure) == ["ratio 1.50", "1: no difference"]
    assert figure.layout.title.text.startswith("B takes 1.50 of A's time: slower<br>")


def test_an_interval_that_says_nothing_is_neither_drawn_nor_written() -> None:
    made = a_comparison(0.01, 1.5, 200.0)
    wide = replace(made, ratio=replace(made.ratio, value=1.5, low=0.0000010992, high=103323.0))
    figure = comparisons.ratios(comparisons.of_comparison(wide))
    (margin,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert margin.y1 == pytest.approx(1.01)
    title = figure.layout.title.text
    assert title.startswith("B takes 1.5000 of A's time")
    assert "too noisy for an interval (3 pairs): close other programs, or measure longer" in title
    assert "103323" not in title


def test_a_comparison_with_other_outputs_says_so_in_its_title() -> None:
    figure = comparisons.ratios(comparisons.of_comparison(a_comparison(1.5, outputs_match=False)))
    assert "but the outputs DIFFER" in figure.layout.title.text


def test_saved_results_have_no_pairs_so_the_times_of_their_processes_are_drawn() -> None:
    unpaired = a_comparison(pairs=(), times_ms=((1.0, 4.0), (3.0, 3.0, 4.0)))
    (dots,) = comparisons.ratios(comparisons.of_comparison(unpaired)).data
    assert list(dots.x) == ["A", "A", "B", "B", "B"]
    assert list(dots.y) == pytest.approx([0.5, 2, 1.5, 1.5, 2])


def test_a_comparison_in_a_file_has_the_same_chart() -> None:
    made = a_comparison(1.25, 1.5)
    assert comparisons.of_file(results.content_of(made)) == comparisons.of_comparison(made)


EVIL = "<script>alert(1)<b>m.onnx"


def test_foreign_names_are_text_not_markup() -> None:
    evil = points(a_sweep(an_outcome(engine="<i>x</i>"), an_outcome(engine="y"), model=EVIL))
    figure = sweeps.bars(evil)
    assert list(figure.layout.yaxis.ticktext) == ["&lt;i&gt;x&lt;/i&gt;", "y"]
    assert "&lt;b&gt;m" in figure.layout.title.text and "<b>" not in figure.layout.title.text
    page = frame.page(figure, EVIL)
    assert "<script>alert" not in page and "<i>x" not in page
    lines = sweeps.scaling([a_point(model=EVIL), a_point(model="m", batch_size=2)])
    assert all("<b>" not in text for one in lines.data for text in (one.name, *one.hovertext))


def test_a_page_holds_all_it_needs() -> None:
    page = frame.page(sweeps.bars(points(TWO_ENGINES)))
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=", page)
    assert "Plotly.newPlot" in page and page.startswith("<!DOCTYPE html>")


def test_no_button_of_a_chart_sends_its_data_away() -> None:
    assert "sendChartToCloud" in sweeps.bars(points(TWO_ENGINES)).layout.modebar.remove


def test_without_kaleido_a_picture_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"A PNG needs the package kaleido. Install it \(pip install 'inferlab"):
        frame.png(sweeps.bars(points(TWO_ENGINES)))


def test_the_chart_is_chosen_by_what_there_is() -> None:
    many = points(TWO_ENGINES)
    assert sweeps.chart(many).layout.title.text.startswith("Median latency by batch size")
    assert sweeps.chart(many, x="cell").layout.title.text.startswith("Throughput of 4 cells")
    engines = [a_point(engine="a"), a_point(engine="b")]
    assert sweeps.chart(engines).layout.title.text.startswith("Throughput of 2 cells")
    one = a_sweep(an_outcome())
    assert sweeps.chart(points(one), one.outcomes).layout.title.text.startswith("Latency of every batch")
    assert sweeps.chart(points(one)).layout.title.text.startswith("Throughput of 1 cell")


def refusals() -> dict[str, Any]:
    many = points(TWO_ENGINES)
    failed = points(a_sweep(an_outcome(latencies_ms=())))
    return {
        "x is one of batch_size, sequence_length, num_cores, cell, time, not 'colour'": lambda: sweeps.chart(
            many, x="colour"
        ),
        "y is one of median_ms, items_per_sec, p99_ms, cost_per_million, not 'p99'": lambda: sweeps.chart(
            many, y="p99"
        ),
        "no cell of these results was measured": lambda: sweeps.chart(failed),
        "do not say their sequence length": lambda: sweeps.chart(many, x="sequence_length"),
        "here are 4 cells and 0 of them with samples": lambda: sweeps.chart(many, x="time"),
        "Over time only latency is drawn": lambda: sweeps.chart(many[:1], x="time", y="items_per_sec"),
        "no iteration of this cell was measured": lambda: timeline.iterations(Outcome(a_cell(), "pending")),
        "there is nothing to scale": lambda: sweeps.scaling(many[:1]),
        "it has no column model": lambda: from_row({"engine": "x"}),
        "holds 'many', which is not a number": lambda: from_row({"num_cores": "many"}),
        "This comparison is damaged": lambda: comparisons.of_file({"ratio": 1}),
        "by the ending of its name, which chart.pdf": lambda: frame.check_ending(Path("chart.pdf")),
    }


@pytest.mark.parametrize("sentence", list(refusals()))
def test_what_cannot_be_drawn_gets_one_sentence(sentence: str) -> None:
    with pytest.raises(BadInput, match=re.escape(sentence)):
        refusals()[sentence]()


def test_nobody_pays_for_plotly_who_does_not_draw() -> None:
    code = (
        "import sys, inferlab.views.charts, inferlab.results, inferlab.api; inferlab.plot, inferlab.benchmark; "
        "print([one for one in ('plotly', 'pandas', 'sqlite3', 'kaleido') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_charts_of_all_kinds_are_finite_numbers() -> None:
    for figure in (sweeps.scaling(points(TWO_ENGINES)), sweeps.bars(points(TWO_ENGINES))):
        ranges = [*figure.layout.xaxis.range, *figure.layout.yaxis.range]
        assert all(math.isfinite(one) for one in ranges)
