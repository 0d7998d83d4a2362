"""The chart of what a search found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.optimizing import pareto as judging
from inferlab.records.optimization import Candidate, Front, Goal, Recipe
from inferlab.views.charts.fronts import front

ORIGINAL = 1_000_000


def candidate(label: str, speedup: float | None, loss: float | None, size: int = 250_000) -> Candidate:
    ends = None if speedup is None else (speedup - 0.25, speedup + 0.5)
    return Candidate(label, Recipe(), speedup, ends, loss, size)


def found(*ones: Candidate, goal: Goal | None = None) -> Front:
    goal = goal or Goal(2.0)
    judged = judging.mark_candidates(ones, goal, ORIGINAL)
    place, nearest = judging.chosen(judged), judging.nearest(judged, goal, ORIGINAL)
    return Front(goal, "openvino", judged, place, nearest, ORIGINAL, 9.0, model="a <b>model</b>")


SOME = found(
    candidate("FP16", 0.75, 1e-6, 500_000),
    candidate("not run", None, 0.002),
    candidate("INT8 static", 3.0, 0.004),
    candidate("90% pruned", 1.5, 0.3, 1_000_000),
)


def traces(figure: Any) -> Any:
    line, original, *marks, numbers = figure.data[:7]
    return line, original, marks, numbers, figure.data[7:]


def test_marks_have_the_area_of_their_size_and_the_interval_of_their_speed() -> None:
    _, original, (grey_ends, grey, ends, marks), _, _ = traces(front(SOME))
    assert (list(grey.y), list(marks.y)) == ([1.5], [0.75, 3.0])
    assert (list(grey_ends.y), list(ends.y)) == ([1.5], [0.75, 3.0])
    assert list(ends.error_y.array) == [0.5, 0.5]
    assert list(ends.error_y.arrayminus) == [0.25, 0.25]
    assert (list(original.y), original.marker.size) == ([1.0], 30)
    # Half the diameter is a quarter of the area.
    assert list(marks.marker.size) == pytest.approx([30 * 0.5**0.5, 15])


def test_numbers_are_those_of_the_table_and_stand_in_a_row_where_marks_lie_on_each_other() -> None:
    *_, numbers, _ = traces(front(SOME))
    assert [one.strip() for one in numbers.text] == ["1", "3", "4"]
    close = candidate("4-bit", 3.01, 0.0041)
    *_, numbers, _ = traces(front(found(*SOME.candidates, close)))
    assert [one.strip() for one in numbers.text] == ["1", "3, 5", "4"]


def test_a_speed_without_an_interval_has_no_bar() -> None:
    bare = replace(candidate("one pair", 1.5, 0.001), speedup_interval=None)
    _, _, (_, _, ends, marks), _, _ = traces(front(found(bare)))
    assert (len(ends.y), len(marks.y)) == (0, 1)


def test_the_best_speed_for_each_loss_is_joined_from_the_original_on() -> None:
    line = front(SOME).data[0]
    assert list(line.y) == [1.0, 3.0]


def test_what_loses_nothing_has_a_place_on_a_logarithmic_axis() -> None:
    figure = front(SOME)
    assert figure.layout.xaxis.ticktext[0] == "0"
    line = figure.data[0]
    assert line.x[0] == figure.layout.xaxis.tickvals[0] < -6 < line.x[1]


def test_the_goal_is_a_region_and_the_chosen_one_has_a_ring() -> None:
    figure = front(SOME)
    region = figure.layout.shapes[0]
    assert (region.y0, region.x1) == (2.0, pytest.approx(-2.0))
    (ring,) = traces(figure)[-1]
    assert list(ring.y) == [3.0]
    assert [annotation.text for annotation in figure.layout.annotations] == [
        "1  FP16",
        "3  INT8 static, chosen",
        "4  90% pruned",
    ]


def test_where_nothing_reaches_the_goal_there_is_no_ring_and_the_subtitle_says_so() -> None:
    figure = front(found(*SOME.candidates, goal=Goal(9.0)))
    assert len(traces(figure)[-1]) == 0
    assert "not reached" in figure.layout.title.text
    assert figure.layout.yaxis.range[1] > 9


def test_losses_of_accuracy_are_percent_and_may_be_gains() -> None:
    near = found(candidate("better", 1.5, -0.01), candidate("worse", 2.5, 0.02), goal=Goal(2.0, None, 0.01))
    figure = front(replace(near, metric="accuracy"))
    assert figure.layout.xaxis.range[0] < -0.01
    assert figure.layout.xaxis.tickformat == ".2~%"


def test_names_are_text_and_not_markup() -> None:
    figure = front(found(candidate("<i>odd</i>", 1.5, 0.001)))
    assert "<b>model</b>" not in figure.layout.title.text
    assert figure.layout.annotations[0].text == "1  &lt;i&gt;odd&lt;/i&gt;"


def test_a_search_that_measured_nothing_has_no_chart() -> None:
    with pytest.raises(BadInput, match="no recipe was measured"):
        front(found(candidate("not run", None, 0.1)))
