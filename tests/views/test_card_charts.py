"""Charts of cards: what is drawn where, exactly, from records made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.records import Outcome
from inferlab.views import benchmark_file
from inferlab.views.charts import cards, frame, sweeps
from inferlab.views.charts.points import Point, from_row
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples, steady_run
from tests.helpers.sweeps import HIGH, LOW, ONE_TWO_FOUR, a_sweep, an_outcome

EVIL = "<b>&name"


def points(*outcomes: Outcome) -> list[Point]:
    return [from_row(row) for row in benchmark_file.rows(a_sweep(*outcomes))]


def texts(figure: Any) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


def shapes(figure: Any, kind: str) -> list[Any]:
    return [shape for shape in figure.layout.shapes if shape.type == kind]


def calm() -> Outcome:
    """Two processes: 3 ms in two windows with a pause of 7 ms between, then 4 ms."""
    first = a_run(a_window(back_to_back(1.0, 2.0, begin_ms=500)), a_window(back_to_back(3.0, begin_ms=510)))
    return Outcome(a_cell(), "done", (first, a_run(a_window(back_to_back(2.0, 2.0, begin_ms=70)))))


def disturbed(*latencies_ms: float, **counters: float) -> Outcome:
    """A process, then one that is disturbed."""
    noisy = a_run(a_window(back_to_back(*latencies_ms), counters=counters))
    return Outcome(a_cell(), "done", (steady_run(latencies_ms[0], 1), noisy))


def test_one_arm_is_every_batch_over_time_in_colour() -> None:
    figure = cards.iterations([("onnxruntime", calm())])
    (dots,) = figure.data
    assert list(dots.x) == pytest.approx([0, 0.001, 0.010, 0.013, 0.015])
    assert list(dots.y) == pytest.approx([1, 2, 3, 2, 2])
    assert dots.marker.color == frame.ACCENT
    assert list(figure.layout.xaxis.range) == pytest.approx([0, 0.017])
    assert figure.layout.xaxis.title.text == "measuring time (s) · dotted: fresh processes"
    assert figure.layout.yaxis.title.text == "ms per batch"
    assert texts(figure) == ["median 2 ms"]
    wall, median = shapes(figure, "line")
    assert (wall.x0, wall.line.dash) == (pytest.approx(0.013), "dot")
    assert (median.y0, median.line.color) == (pytest.approx(2), frame.ACCENT)
    assert not figure.layout.showlegend


def test_a_card_has_no_title_and_little_room_around_its_chart() -> None:
    layout = cards.iterations([("a", calm())]).layout
    assert (layout.title.text, layout.height) == (None, 280)
    assert (layout.margin.t, layout.margin.b) == (14, 50)
    assert (layout.paper_bgcolor, layout.plot_bgcolor) == ("rgba(0,0,0,0)",) * 2


def test_the_first_of_two_arms_has_the_colour_and_lies_above_and_both_are_named() -> None:
    figure = cards.iterations([("openvino", calm()), ("onnxruntime", disturbed(4.0, 4.0))])
    other, chosen = figure.data
    assert (chosen.name, chosen.marker.color) == ("openvino", frame.ACCENT)
    assert (other.name, other.marker.color) == ("onnxruntime", frame.INK)
    assert figure.layout.showlegend and figure.layout.legend.traceorder == "reversed"
    assert texts(figure) == ["median 2 ms", "median 4 ms"]
    assert [annotation.font.color for annotation in figure.layout.annotations] == [frame.ACCENT, frame.INK]
    assert figure.layout.margin.t == 30


def test_processes_of_two_arms_begin_together_where_the_longer_one_before_ended() -> None:
    figure = cards.iterations([("a", disturbed(4.0, 4.0)), ("b", calm())])
    longer, shorter = figure.data
    assert list(longer.x) == pytest.approx([0, 0.001, 0.010, 0.013, 0.015])
    assert list(shorter.x) == pytest.approx([0, 0.013, 0.017])
    (wall,) = [shape for shape in shapes(figure, "line") if shape.line.dash == "dot"]
    assert wall.x0 == pytest.approx(0.013)
    assert list(figure.layout.xaxis.range) == pytest.approx([0, 0.021])


def test_medians_that_lie_together_have_labels_that_do_not_overlap() -> None:
    figure = cards.iterations([("a", disturbed(4.0, 4.0)), ("b", disturbed(4.1, 4.1))])
    lower, upper = (annotation.y for annotation in figure.layout.annotations)
    top = figure.layout.yaxis.range[1]
    assert (upper - lower) * (280 - 30 - 50) / top >= 18 - 1e-9
    assert [shape.y0 for shape in shapes(figure, "line")[-2:]] == pytest.approx([4.0, 4.1])


def test_what_disturbed_is_said_below_the_chart_and_at_each_dot() -> None:
    figure = cards.iterations([("a", disturbed(4.0, 4.0, run_queue_wait_s=1.0))])
    (shade,) = shapes(figure, "rect")
    assert (shade.x0, shade.x1) == (pytest.approx(0.004), pytest.approx(0.012))
    assert figure.layout.xaxis.title.text == (
        "measuring time (s) · dotted: fresh processes<br>shaded: disturbed by waits for a CPU"
    )
    (dots,) = figure.data
    assert list(dots.text) == ["", *["<br>disturbed by waits for a CPU"] * 2]


def test_of_two_arms_the_shade_has_the_colour_of_the_arm_that_was_disturbed() -> None:
    figure = cards.iterations(
        [("x", disturbed(4.0, run_queue_wait_s=1.0)), ("y", disturbed(5.0, 5.0, steal_s=1.0, throttled_s=1.0))]
    )
    blue, grey = shapes(figure, "rect")
    assert (blue.fillcolor, grey.fillcolor) == ("rgba(47,127,214,0.14)", "rgba(127,127,127,0.18)")
    assert figure.layout.xaxis.title.text.split("<br>") == [
        "measuring time (s) · dotted: fresh processes",
        "shaded blue: x disturbed by waits for a CPU",
        "shaded grey: y disturbed by throttling of the container and time",
        "taken by the hypervisor",
    ]
    assert figure.layout.margin.b == 50 + 3 * 18


def test_an_arm_without_a_measurement_leaves_its_colour_to_none() -> None:
    failed = Outcome(a_cell(), "failed")
    (dots,) = cards.iterations([("a", failed), ("b", calm())]).data
    assert (dots.name, dots.marker.color) == ("b", frame.INK)
    (dots,) = cards.iterations([("a", calm()), ("b", failed)]).data
    assert (dots.name, dots.marker.color) == ("a", frame.ACCENT)


def test_latencies_far_out_make_the_axis_logarithmic() -> None:
    figure = cards.iterations([("a", disturbed(1.0, 1.0, 11.0))])
    assert (figure.layout.yaxis.type, figure.layout.yaxis.title.text) == ("log", "ms per batch (logarithmic)")
    assert figure.layout.annotations[0].y == pytest.approx(0)


def test_a_server_has_requests() -> None:
    run = a_run(a_window(samples((2, 3), (3, 4), due_ms=(1, 1.5))))
    figure = cards.iterations([("a", Outcome(a_cell(scenario="server", rate=1.0), "done", (run,)))])
    assert figure.layout.yaxis.title.text == "ms per request"
    assert figure.layout.xaxis.title.text == "measuring time (s)"


def test_of_too_many_iterations_the_extremes_are_kept() -> None:
    latencies = [1.0] * 3_000
    latencies[1_234] = 9.0
    outcome = Outcome(a_cell(), "done", (a_run(a_window(back_to_back(*latencies))),))
    (dots,) = cards.iterations([("a", outcome)], most_dots=300).data
    assert len(dots.x) <= 300 and list(dots.y).count(9.0) == 1


def test_time_an_item_is_of_the_median_batch_or_at_full_throughput() -> None:
    (sync,) = points(an_outcome(batch_size=4))
    assert sync.scenario == "singlestream"
    assert sync.ms_per_item == pytest.approx(0.5)
    assert sync.ends("ms_per_item") == pytest.approx((LOW / 4, HIGH / 4))
    streams = [back_to_back(*[2.0] * 10)] * 2
    (busy,) = points(
        Outcome(a_cell(scenario="async", num_streams=2, num_cores=2), "done", (a_run(a_window(*streams)),))
    )
    assert [busy.median_ms, busy.items_per_sec, busy.ms_per_item] == pytest.approx([2, 1000, 1])
    assert busy.ends("ms_per_item") is None
    assert replace(busy, scenario="async").ms_per_item == pytest.approx(1)
    assert replace(busy, scenario="server", batch_size=4).ms_per_item == pytest.approx(0.5)
    assert replace(busy, items_per_sec=None).ms_per_item is None


CORES = points(
    an_outcome(num_cores=4, batch_size=2, latencies_ms=(1.0, 1.0)),
    an_outcome(num_cores=1, batch_size=2, latencies_ms=(4.0, 4.0)),
    an_outcome(num_cores=2, batch_size=2, latencies_ms=ONE_TWO_FOUR),
    an_outcome(num_cores=2, batch_size=8, latencies_ms=(2.0,)),
)


def test_core_scaling_is_ms_per_item_at_one_batch_size_with_intervals_and_the_best_marked() -> None:
    figure = cards.core_scaling([("onnxruntime", CORES)], 2)
    ring, line = figure.data
    assert list(line.x) == [1, 2, 4]
    assert list(line.y) == pytest.approx([2, 1, 0.5])
    assert list(line.error_y.array) == pytest.approx([0, HIGH / 2 - 1, 0])
    assert list(line.error_y.arrayminus) == pytest.approx([0, 1 - LOW / 2, 0])
    assert (line.line.color, line.name) == (frame.ACCENT, "onnxruntime")
    assert list(figure.layout.xaxis.tickvals) == [1, 2, 4]
    assert figure.layout.xaxis.title.text == "physical cores"
    assert figure.layout.yaxis.title.text == "ms per item"
    assert (list(ring.x), list(ring.y), ring.marker.symbol) == ([4], [pytest.approx(0.5)], "circle-open")
    assert [one.name for one in sorted(figure.data, key=lambda one: one.legendrank)] == ["onnxruntime", "best"]
    assert figure.layout.showlegend


def test_batch_scaling_is_ms_per_item_at_one_core_count() -> None:
    ring, line = cards.batch_scaling([("onnxruntime", CORES)], 2).data
    assert list(line.x) == [2, 8]
    assert list(line.y) == pytest.approx([1, 0.25])
    assert list(ring.x) == [8]
    alone = cards.batch_scaling([("onnxruntime", CORES)], 4)
    assert len(alone.data) == 1 and not alone.layout.showlegend


def test_arms_of_scaling_are_named_and_the_first_has_the_colour() -> None:
    other = [replace(core, engine="openvino") for core in CORES]
    figure = cards.core_scaling([("new", other), ("old", CORES)], 2)
    _, old, new = figure.data  # the last lies above the others
    assert [(one.name, one.line.color) for one in (new, old)] == [("new", frame.ACCENT), ("old", frame.INK)]
    assert (new.legendrank, old.legendrank) == (1, 2)
    (line,) = cards.core_scaling([("new", []), ("old", CORES)], 2).data
    assert line.line.color == frame.INK


def test_what_else_varies_in_an_arm_makes_lines_of_their_own() -> None:
    lengths = [replace(core, sequence_length=length) for length in (32, 128) for core in CORES]
    _, second, first = cards.core_scaling([("a", lengths)], 2).data
    assert (first.name, second.name) == ("a, sequence 32", "a, sequence 128")


def test_wrong_failed_and_cut_off_cells_are_never_the_best_nor_the_worst() -> None:
    found = points(
        an_outcome(num_cores=8, latencies_ms=(0.1,), wrong=True),
        an_outcome(num_cores=1, latencies_ms=(3.0,)),
        an_outcome(num_cores=2, latencies_ms=(2.0,)),
        an_outcome(num_cores=4, latencies_ms=()),
        replace(an_outcome(num_cores=3, latencies_ms=(9.0,)), status="cancelled"),
    )
    ends = cards.best_and_worst(found)
    assert ends is not None
    assert [end.num_cores for end in ends] == [2, 1]
    ring, line = cards.core_scaling([("a", found)], 1).data
    assert (line.name, list(ring.x)) == ("a (outputs WRONG)", [2])
    assert list(line.marker.symbol) == ["circle", "circle", "circle", "x"]
    assert cards.best_and_worst(found[:1]) is None and cards.best_and_worst([]) is None


def test_foreign_names_are_text_not_markup() -> None:
    noisy = disturbed(4.0, run_queue_wait_s=1.0)
    figure = cards.iterations([(EVIL, noisy), ("b", noisy)])
    assert figure.data[1].name == "&lt;b&gt;&amp;name"
    assert "&lt;b&gt;" in figure.layout.xaxis.title.text and "<b>" not in figure.layout.xaxis.title.text
    assert cards.core_scaling([(EVIL, CORES), ("b", CORES)], 2).data[-1].name == "&lt;b&gt;&amp;name"


def test_any_chart_can_be_made_compact_and_stays_as_it_was() -> None:
    figure = sweeps.bars(CORES)
    small = frame.compact(figure, 200)
    assert (small.layout.title.text, small.layout.height, small.layout.margin.t) == (None, 200, 14)
    assert small.layout.margin.r == figure.layout.margin.r
    assert figure.layout.title.text and figure.layout.height != 200


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: cards.iterations([("a", Outcome(a_cell(), "failed"))]), "no iteration of this cell was measured"),
        (lambda: cards.core_scaling([("a", CORES)], 3), "no cell of these was measured"),
        (lambda: cards.batch_scaling([("a", [])], 1), "no cell of these was measured"),
    ],
)
def test_what_cannot_be_drawn_gets_one_sentence(draw: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        draw()
