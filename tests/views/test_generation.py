"""What is told of the cells of a generation."""

from __future__ import annotations

from dataclasses import replace

from inferlab.records import Failure
from inferlab.records.generation import (
    GenerationCell,
    GenerationOutcome,
    GenerationPlan,
    GenerationSweep,
    GenerativeModel,
)
from inferlab.views import results

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
