"""What a recommendation takes of the cells that were measured, and why it does not take the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inferlab.cli.compare import exit_code
from inferlab.errors import BadInput, EngineFailed
from inferlab.lab import Lab, generation
from inferlab.lab.generation import PlannedGeneration, choose
from inferlab.records import Failure
from inferlab.records.comparison import ComparisonFailure, GenerationComparison
from inferlab.records.generation import Agreement, GenerationOutcome, GenerationPlan, GenerationSweep
from inferlab.records.recommendation import GenerationRecommendation, Rejection
from inferlab.views import results
from tests.helpers.generations import MATCH, MISMATCH, generation_comparison, generation_run

SEARCH = GenerationPlan(
    "demo:llama_tiny",
    engines=("fake",),
    prompt_tokens=(8,),
    new_tokens=(3,),
    batch_sizes=(1, 2, 4),
    num_cores=(1,),
    verify=False,
)


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


def test_a_cell_that_ended_early_is_not_taken_for_fast() -> None:
    sweep = Lab().planned_generation(replace(SEARCH, batch_sizes=(1, 2)))
    first, second = (outcome.cell for outcome in sweep.outcomes)
    outcomes = (
        GenerationOutcome(first, "done", (generation_run(10, 12, 14),)),
        GenerationOutcome(second, "done", (generation_run(1, finish="stop"),)),
    )
    choice = choose(replace(sweep, outcomes=outcomes), ())
    assert choice.chosen == first
    assert choice.rejections == (Rejection(second.id, "ended-early"),)


@pytest.fixture
def recommended(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GenerationRecommendation]:
    """Recommends where batches of 1, 2 and 4 take 10, 10.1 and 20 ms, and the pairs of the first two end so."""

    def measured(planned: PlannedGeneration, save: Any, listener: object) -> GenerationSweep:
        times = {1: (10.0, 12.0, 14.0), 2: (10.1, 12.1, 14.1), 4: (20.0, 22.0, 24.0)}
        outcomes = tuple(
            GenerationOutcome(one.cell, "done", (generation_run(*times[one.cell.batch_size]),))
            for one in planned.sweep.outcomes
        )
        found: GenerationSweep = save(replace(planned.sweep, outcomes=outcomes))
        return found

    def search(
        agreements: tuple[Agreement, Agreement] | None = (MATCH, MATCH), **changes: Any
    ) -> GenerationRecommendation:
        def in_pairs(job: Any, *_: object) -> GenerationComparison:
            if agreements is None:
                raise EngineFailed("fake died.")
            return generation_comparison(job.a.model, (job.a.cell, job.b.cell), agreements, "faster")

        monkeypatch.setattr(generation, "run_generation", measured)
        monkeypatch.setattr(generation, "compare_generations", in_pairs)
        return Lab().recommend_generation(replace(SEARCH, **changes), 100.0)

    return search


def _batches(found: GenerationRecommendation) -> tuple[int, dict[int, str]]:
    cells = {outcome.cell.id: outcome.cell.batch_size for outcome in found.sweep.outcomes}
    return cells[found.chosen_id], {cells[one.cell_id]: one.reason for one in found.rejections}


def test_who_is_faster_in_pairs_wins_unless_its_tokens_are_wrong_there(
    recommended: Callable[..., GenerationRecommendation],
) -> None:
    assert _batches(recommended()) == (2, {1: "slower", 4: "slower"})
    assert _batches(recommended((MATCH, MISMATCH))) == (1, {2: "wrong-tokens", 4: "slower"})
    assert _batches(recommended((MISMATCH, MATCH))) == (2, {1: "wrong-tokens", 4: "slower"})
    assert _batches(recommended((MISMATCH, MISMATCH))) == (4, {1: "wrong-tokens", 2: "wrong-tokens"})


def test_pairs_that_an_engine_failed_in_are_said(recommended: Callable[..., GenerationRecommendation]) -> None:
    found = recommended(None)
    assert (found.final, found.final_failure, found.interrupted) == (None, "fake died.", False)
    assert _batches(found)[0] == 1
    assert "Warning: the best two were not compared in pairs: fake died." in results.lines(found)


def test_engines_that_cannot_run_the_model_are_named(
    recommended: Callable[..., GenerationRecommendation],
) -> None:
    (refusal,) = recommended(engines=("fake", "deepsparse"), batch_sizes=(1,)).refusals
    assert refusal.startswith("Engine 'deepsparse' ")
    lines = results.lines(recommended(engines=("fake", "deepsparse"), batch_sizes=(1,)))
    assert f"Note: left out: {refusal}" in lines


def test_a_cell_whose_comparison_fails_does_not_touch_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_pairs(job: Any, *_: object) -> GenerationComparison:
        if job.a.cell.batch_size == 2:
            raise EngineFailed("fake died.")
        return generation_comparison(job.a.model, (job.a.cell, job.b.cell), (MATCH, MATCH))

    monkeypatch.setattr(generation, "compare_generations", in_pairs)
    a, b = (replace(SEARCH, engine_options=(("latency_us", value),)) for value in ("1", "2"))
    found = Lab().compare_all_generations(a, b)
    assert [[cell.batch_size for cell in one.arms] for one in found.results] == [[1, 1], [4, 4]]
    assert found.failures == (ComparisonFailure(1, 2, "fake died."),)
    assert exit_code(found, None, False) == 3 and exit_code(found, "slower", False) == 3
    lines = results.lines(found)
    assert [line for line in lines if line.startswith(("Cell of A: ", "Failure "))] == [
        *("Cell of A: batch 1", "Cell of A: batch 4"),
        "Failure (1 cores, batch size 2): fake died.",
    ]
    head = results.render(found, ".csv").splitlines()[0]
    assert head.startswith("a,b,num_cores,batch_size,prompt_tokens,new_tokens,depth,metric,")
    assert results.content_of(found)["format"] == "inferlab-generation-comparisons-file/1"


def test_arms_with_unlike_lists_make_no_sweep() -> None:
    with pytest.raises(
        BadInput, match="equally many core counts, batch sizes, prompt lengths, numbers of new tokens"
    ):
        Lab().compare_all_generations(SEARCH, replace(SEARCH, batch_sizes=(1, 2)))
