"""Generations that nobody measured: runs with chosen times, and what was compared of two cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inferlab import machine
from inferlab.records import Estimate
from inferlab.records.comparison import GenerationComparison, Spread, SpreadPrior, TokenAgreement, Verdict
from inferlab.records.generation import (
    Agreement,
    CacheSize,
    Generation,
    GenerationCell,
    GenerationRun,
    GenerativeModel,
    Repetition,
)

MATCH = Agreement("match", "torch", 64, 0, 64, 32, 32)
MISMATCH = Agreement("mismatch", "torch", 8, 0, 64, 1, 32)


def sequence(*token_ms: float, finish: str = "length", prompt_tokens: int = 10) -> Generation:
    """A sequence whose tokens were available at these times."""
    times = tuple(int(one * 1e6) for one in token_ms)
    return Generation("p", prompt_tokens, 0, times, tuple(range(len(times))), finish)  # type: ignore[arg-type]


def run(
    *batches: tuple[Generation, ...], repeated_ms: float | None = 10.0, agreement: Agreement = MATCH
) -> GenerationRun:
    """A process that generated these batches, one after the other."""
    return GenerationRun(
        cell_id="cell",
        started_at="2026-01-01T00:00:00+00:00",
        repetitions=tuple(Repetition(batch, 0, 4_000_000, {}, 50_000) for batch in batches),
        ready_s=0.5,
        load_s=0.25,
        first_generation_s=0.03,
        baseline_memory_bytes=1,
        loaded_memory_bytes=2,
        prefilled_memory_bytes=3,
        decoded_memory_bytes=4,
        cache=CacheSize(256.0, 256.0, None, "f16"),
        repeated_ttft_ns=None if repeated_ms is None else int(repeated_ms * 1e6),
        agreement=agreement,
        versions={"fake": "1"},
        settings={},
        machine=replace(machine.describe(), cpu_quota=None),
        pinned=True,
    )


def generation_run(
    *token_ms: float, agreement: Agreement = MATCH, finish: str = "length", prompt_tokens: int = 10
) -> GenerationRun:
    """A process that generated one sequence, whose tokens were available at these times."""
    only = sequence(*token_ms, finish=finish, prompt_tokens=prompt_tokens)
    return run((only,), repeated_ms=None, agreement=agreement)


def generation_comparison(
    model: GenerativeModel,
    arms: tuple[GenerationCell, GenerationCell],
    agreements: Sequence[Agreement],
    verdict: Verdict = "same",
) -> GenerationComparison:
    """Two cells that were compared in three pairs."""
    return GenerationComparison(
        labels=("A", "B"),
        metric="output",
        ratio=Estimate(1.0, 0.99, 1.01, 0.98, "student"),
        verdict=verdict,
        margin=0.01,
        seconds=1.0,
        settle_s=None,
        arms=arms,
        models=(model, model),
        log_ratios=(0.0, 0.0, 0.0),
        times_ms=((1.0,) * 3, (1.0,) * 3),
        spread=Spread(0.01, 0.01, 8.0, SpreadPrior(0.02)),
        agreements=(agreements[0], agreements[1]),
        tokens=TokenAgreement(3, 3, 1, 1),
        versions=({}, {}),
        machine=machine.describe(),
    )
