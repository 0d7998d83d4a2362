"""What is said of a search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.optimizing import pareto as judging
from inferlab.records.optimization import Candidate, Front, Goal, Recipe
from inferlab.store.formats import content_of, record_of
from inferlab.views import optimization, results
from tests.helpers.stored import a_document

ORIGINAL = 2_000_000


def found(*ones: Candidate, goal: Goal | None = None) -> Front:
    goal = goal or Goal(2.0)
    judged = judging.mark_candidates(ones, goal, ORIGINAL)
    place, nearest = judging.chosen(judged), judging.nearest(judged, goal, ORIGINAL)
    return Front(
        *(goal, "openvino", judged, place, nearest, ORIGINAL, 61.0),
        model="model.onnx",
        num_cores=2,
        batch_size=4,
        items=8,
        versions={"openvino": "2026.4.1"},
        complete=True,
    )


def candidate(
    label: str, speed: float | None, loss: float | None, sure: bool = True, reason: str = ""
) -> Candidate:
    ends = (speed - 0.1, speed + 0.1) if speed is not None and sure else None
    size = None if loss is None else 500_000
    return Candidate(label, Recipe(), speed, ends, loss, size, level=0.98 if ends else None, reason=reason)


MISSED = found(
    candidate("FP16", 1.5, 0.001),
    candidate("INT8 dynamic", None, None, reason="it\nbroke"),
    candidate("INT8 static", 3.0, 0.2, reason="it loses more than allowed"),
)


def test_the_table_has_a_row_for_each_recipe_with_its_remark() -> None:
    assert results.lines(MISSED)[:6] == [
        "model.onnx (1.91 MiB) on openvino 2026.4.1, 2 cores, batch size 4: "
        "to be 2 times as fast within a loss of 1 %",
        "",
        "#  recipe        speed-up      interval   loss     size  smaller",
        "1  FP16              1.50  1.40 to 1.60  0.001  488 KiB     4.00  nearest, efficient",
        "2  INT8 dynamic         -             -      -        -        -  it broke",
        "3  INT8 static       3.00  2.90 to 3.10    0.2  488 KiB     4.00  efficient, it loses more than allowed",
    ]


def test_a_goal_that_is_missed_says_what_came_nearest_and_what_more_loss_would_give() -> None:
    assert optimization.goal_verdict(MISSED) == [
        "Not reached: no recipe is certainly 2 times as fast within a loss of 1 %; all candidates were tried.",
        "Nearest within the loss: #1, FP16: 1.50 times as fast (98% interval 1.40 to 1.60), loss 0.001, "
        "4.00 times smaller.",
        "With more loss: #3, INT8 static: 3.00 times as fast (98% interval 2.90 to 3.10), loss 0.2, "
        "4.00 times smaller.",
    ]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            candidate("a", 1.95, 0.0),
            "Its interval leaves open whether it reaches the goal: a longer search may show it.",
        ),
        (
            candidate("a", 2.5, 0.0, sure=False),
            "Too few pairs for an interval leave open whether it reaches the goal: a longer search may show it.",
        ),
        (candidate("a", 0.5, 0.0), "Nothing that was tried is nearer to it within the loss than the original is."),
    ],
)
def test_what_is_open_is_said(one: Candidate, said: str) -> None:
    assert said in optimization.goal_verdict(found(one))


CHOSEN = found(candidate("INT8 static", 3.0, 0.001))


def test_what_only_the_search_measured_is_not_said_to_reach_the_goal() -> None:
    (said,) = optimization.goal_verdict(CHOSEN)
    assert said.startswith("Reached in the search, not confirmed by a second measurement: #1, INT8 static: 3.00 ")
    assert judging.outcome(CHOSEN) == "open"


@pytest.mark.parametrize(
    ("again", "outcome", "said"),
    [
        (
            candidate("INT8 static", 2.5, 0.001),
            "reached",
            [
                "Reached: measured again, #1, INT8 static: 2.50 times as fast (98% interval 2.40 to 2.60), "
                "loss 0.001, 4.00 times smaller."
            ],
        ),
        (
            candidate("INT8 static", 1.5, 0.001),
            "missed",
            [
                "Missed: measured again, #1, INT8 static: 1.50 times as fast (98% interval 1.40 to 1.60), "
                "loss 0.001, 4.00 times smaller.",
                "In the search it had been: #1, INT8 static: 3.00 times as fast (98% interval 2.90 to 3.10), "
                "loss 0.001, 4.00 times smaller.",
            ],
        ),
        (
            candidate("INT8 static", 2.05, 0.001),
            "open",
            [
                "Not confirmed: measured again, #1, INT8 static: 2.05 times as fast (98% interval 1.95 to 2.15), "
                "loss 0.001, 4.00 times smaller.",
                "That leaves open whether it is 2 times as fast within a loss of 1 %: "
                "a longer search may show it.",
                "In the search it had been: #1, INT8 static: 3.00 times as fast (98% interval 2.90 to 3.10), "
                "loss 0.001, 4.00 times smaller.",
            ],
        ),
        (
            candidate("INT8 static", None, 0.001, reason=judging.WRONG_OUTPUTS),
            "missed",
            [
                "Missed: measured again, #1, INT8 static: loss 0.001, 4.00 times smaller.",
                "Its outputs on this engine are wrong.",
                "In the search it had been: #1, INT8 static: 3.00 times as fast (98% interval 2.90 to 3.10), "
                "loss 0.001, 4.00 times smaller.",
            ],
        ),
    ],
)
def test_the_second_measurement_decides(again: Candidate, outcome: str, said: list[str]) -> None:
    confirmed = replace(CHOSEN, confirmed=again)
    assert judging.outcome(confirmed) == outcome
    assert optimization.goal_verdict(confirmed) == said


def test_a_search_that_ended_early_says_why() -> None:
    assert "a longer search (--search-time)" in optimization.goal_verdict(replace(MISSED, complete=False))[-1]
    cut = optimization.goal_verdict(replace(MISSED, complete=False, interrupted=True))
    assert cut[-1] == "It was interrupted; what was known by then is kept."


def test_a_search_is_read_again_as_it_was_and_a_damaged_one_is_refused() -> None:
    content = content_of(MISSED)
    assert content["format"] == "inferlab-search/1"
    assert record_of(a_document("search", content)) == MISSED
    with pytest.raises(BadInput, match="The search abcdefghij is damaged"):
        record_of(a_document("search", {**content, "candidates": 3}))


def test_an_interval_that_says_nothing_is_words_and_one_note_says_what_to_do() -> None:
    wide = replace(candidate("FP16", 1.5, 0.001), speedup_interval=(0.0000010992, 103323.0))
    lines = results.lines(found(wide, candidate("INT8 static", 3.0, 0.2)))
    assert "1  FP16             1.50  too noisy for an interval  0.001" in "\n".join(lines)
    assert not any("103323" in line for line in lines)
    (note,) = [line for line in lines if "means that it would say nothing" in line]
    assert note.endswith("or search longer with --search-time.")
