"""Which of the cells that were measured to recommend, and why none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.measure.generation.stats import summarize_generation, worst_agreement
from inferlab.records.generation import (
    GenerationCell,
    GenerationOutcome,
    GenerationSummary,
    GenerationSweep,
    TokenLimit,
)
from inferlab.records.generation_results import Rejection


@dataclass(frozen=True, slots=True)
class Choice:
    """The cell of highest throughput that meets every limit, the next best, and why the others are not taken."""

    chosen: GenerationCell | None
    rival: GenerationCell | None
    #: The chosen cell's throughput over the rival's.
    rival_ratio: float
    rejections: tuple[Rejection, ...]

    def swapped(self) -> Choice:
        """The rival in place of the chosen, which pairs showed to be slower."""
        assert self.chosen is not None and self.rival is not None
        slower = Rejection(self.chosen.id, "slower", share=None)
        others = tuple(rejection for rejection in self.rejections if rejection.cell_id != self.rival.id)
        return Choice(self.rival, self.chosen, 1 / self.rival_ratio, (slower, *others))


def choose(sweep: GenerationSweep, slo: Sequence[TokenLimit]) -> Choice:
    """Take the most output tokens per second of the cells whose tokens are right and that meet every limit."""
    rejections: list[Rejection] = []
    fitting: list[tuple[float, GenerationCell]] = []
    for outcome in sweep.outcomes:
        summary = summarize_generation(outcome.runs)
        rejection = _rejection(outcome, summary, slo)
        if rejection is not None:
            rejections.append(rejection)
        elif summary is not None:
            fitting.append((summary.output_tokens_per_s.value, outcome.cell))
    fitting.sort(key=lambda one: -one[0])
    if not fitting:
        return Choice(None, None, 1.0, tuple(rejections))
    best = fitting[0][0]
    rejections += [Rejection(cell.id, "slower", share=rate / best) for rate, cell in fitting[1:]]
    rival = fitting[1] if len(fitting) > 1 else None
    return Choice(
        fitting[0][1],
        None if rival is None else rival[1],
        1.0 if rival is None else best / rival[0],
        tuple(rejections),
    )


def _rejection(
    outcome: GenerationOutcome, summary: GenerationSummary | None, slo: Sequence[TokenLimit]
) -> Rejection | None:
    cell_id = outcome.cell.id
    if summary is None or outcome.status != "done":
        return Rejection(cell_id, "failed")
    if worst_agreement(outcome.runs).status == "mismatch":
        return Rejection(cell_id, "wrong-tokens")
    shares = {limit.text: (value_ms(summary, limit) or 0.0) / 1e3 / limit.limit_s for limit in slo}
    worst = max(shares, key=lambda text: shares[text], default=None)
    if worst is not None and shares[worst] > 1:
        return Rejection(cell_id, "misses", worst, shares[worst])
    return None


def value_ms(summary: GenerationSummary, limit: TokenLimit) -> float | None:
    """What was measured of what is limited; None for a time that a single token does not have."""
    found = {"ttft": summary.ttft_ms, "tpot": summary.tpot_ms, "e2e": summary.end_to_end_ms}[limit.metric]
    return None if found is None else found.value
