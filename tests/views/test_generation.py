"""What is told of the cells of a generation."""

from __future__ import annotations

import re
from dataclasses import replace

from inferlab.records import Failure
from inferlab.records.generation import (
    GenerationCell,
    GenerationOutcome,
    GenerationPlan,
    GenerationSweep,
    GenerativeModel,
)
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.views import results
from tests.helpers.generations import MATCH, MISMATCH, generation_run

MODEL = GenerativeModel(
    "gguf", "m.gguf", "/m.gguf", "d", 100, "llama", 50, 1, 1, 1, 8, None, 32, "F16", tensors=()
)
CELL = GenerationCell("d", "fake", 16, 8, 0, 1, 2, (), "core", (), 2.0, None, 0, False)
FAILURE = Failure("died", "it died.")


def test_a_note_on_one_of_several_rates_says_on_which() -> None:
    calm, busy = replace(CELL, rate=1.0), replace(CELL, rate=2.5)
    outcomes = (GenerationOutcome(calm, "done"), GenerationOutcome(busy, "failed", failure=FAILURE))
    sweep = GenerationSweep(GenerationPlan("m.gguf", scenario="server", rates=(1.0, 2.5)), MODEL, outcomes)
    assert results.lines(sweep)[-1] == "Warning: 2.5 requests/s: it died."


def test_a_recommendation_tells_agreements_and_that_an_engine_runs_another_precision() -> None:
    cells = [replace(CELL, engine=engine) for engine in ("llamacpp", "torch")]
    outcomes = tuple(
        GenerationOutcome(cell, "done", (generation_run(10, 12, agreement=agreement),) * 2)
        for cell, agreement in zip(cells, (MATCH, MISMATCH), strict=True)
    )
    sweep = GenerationSweep(GenerationPlan("m.gguf"), replace(MODEL, precision="Q4_0"), outcomes)
    lines = results.lines(GenerationRecommendation(sweep.model, (), sweep, cells[0].id, (), None, 1.0))
    found = {words[0]: words for line in lines if (words := re.split(r"  +", line)) and len(words) > 6}
    place = found["engine"].index("agreement")
    assert [found[engine][place] for engine in ("llamacpp", "torch")] == ["100 %", "12.5 % WRONG"]
    assert "Note: torch: torch runs the Q4_0 weights of this model as fp32: the same file, " in "\n".join(lines)
    (wrong,) = (line for line in lines if line.startswith("Warning: "))
    assert wrong.startswith("Warning: torch: ")
