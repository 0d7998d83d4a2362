"""What a recommendation takes of the cells that were measured, and why it does not take the others."""

from __future__ import annotations

from dataclasses import replace

from inferlab.lab import Lab
from inferlab.lab.generation import choose
from inferlab.records import Failure
from inferlab.records.generation import GenerationOutcome, GenerationPlan
from inferlab.records.recommendation import Rejection


def test_what_was_not_measured_before_an_interruption_is_not_called_failed() -> None:
    plan = GenerationPlan("demo:llama_tiny", engines=("fake",), batch_sizes=(1, 2, 4), num_cores=(1,))
    sweep = Lab().planned_generation(plan)
    first, second, third = (outcome.cell for outcome in sweep.outcomes)
    outcomes = (
        GenerationOutcome(first, "failed", failure=Failure("refused", "it broke")),
        GenerationOutcome(second, "cancelled"),
        GenerationOutcome(third, "pending"),
    )
    choice = choose(replace(sweep, outcomes=outcomes), ())
    assert choice.chosen is None
    assert choice.rejections == (
        Rejection(first.id, "failed"),
        Rejection(second.id, "not-measured"),
        Rejection(third.id, "not-measured"),
    )
