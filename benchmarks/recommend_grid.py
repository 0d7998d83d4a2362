"""Recommend against the exhaustive grid: throughput of the choice over that of the grid's best, and time."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from inferlab.lab import Lab
from inferlab.measure.exploration import label
from inferlab.measure.recommend import BATCH_SIZES
from inferlab.measure.stats import summarize
from inferlab.records import Candidate, Plan, Recommendation, Run

#: Models with the sequence length that they get.
MODELS: tuple[tuple[str, int | None], ...] = (
    ("demo:mobilenet_v2", None),
    ("demo:bert_3layer", 32),
    ("demo:digits", None),
)


def main(
    cell_s: float = 10.0,
    search_s: float = 120.0,
    pairs_s: float = 60.0,
    models: Sequence[tuple[str, int | None]] = MODELS,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
) -> None:
    """For each model: search, measure the whole grid, then compare the two choices side by side in pairs.

    The grid's best is the luckiest of many measurements, so both are measured again before they are judged.
    """
    for source, length in models:
        plan = Plan(source, sequence_lengths=(length,), batch_sizes=batch_sizes)
        began = time.monotonic()
        search = replace(plan, engines=(), num_cores=(), num_streams=())
        recommendation = Lab().recommend(search, time_s=search_s)
        search_took_s = time.monotonic() - began
        assert isinstance(recommendation, Recommendation)
        if recommendation.recommended is None:
            print(f"{source}: nothing was recommended")
            continue
        chosen = recommendation.recommended.candidate
        began = time.monotonic()
        best, rate = _grid_best(plan, [contender.candidate for contender in recommendation.contenders], cell_s)
        grid_took_s = time.monotonic() - began
        print(f"{source}: recommended {label(chosen)}; the grid's best {label(best)} ({rate:.4g} items/s)")
        print(
            f"{source}: {search_took_s:.0f} s over {grid_took_s:.0f} s of {len(recommendation.contenders)} cells: "
            f"{search_took_s / grid_took_s:.3f} (aim: at most 0.333)"
        )
        print(
            f"{source}: throughput of the choice over the grid's best {_side_by_side(plan, chosen, best, pairs_s)}"
        )
        sys.stdout.flush()


def _grid_best(plan: Plan, grid: Sequence[Candidate], cell_s: float) -> tuple[Candidate, float]:
    """Measure every cell as `inferlab benchmark -t` would; wrong outputs and failures do not count."""
    rates: dict[Candidate, float] = {}
    for candidate in grid:
        (outcome,) = Lab().benchmark(replace(_cell(plan, candidate), time_s=cell_s)).outcomes
        summary = summarize(outcome.cell, outcome.runs)
        if summary and outcome.status == "done" and _right(outcome.runs):
            rates[candidate] = summary.items_per_sec.value
    best = max(rates, key=lambda rate: rates[rate])
    return best, rates[best]


def _right(runs: Sequence[Run]) -> bool:
    return all(run.check.status != "mismatch" for run in runs)


def _side_by_side(plan: Plan, chosen: Candidate, best: Candidate, pairs_s: float) -> str:
    if chosen == best:
        return "1.000 (they are the same)"
    comparison = Lab().compare(
        _cell(plan, best), _cell(plan, chosen), pairs_s, labels=(label(best), label(chosen))
    )
    # The comparison is of times: throughput is the other way round.
    low, high = comparison.ratio.low, comparison.ratio.high
    ends = f"{1 / high:.3f} to {1 / low:.3f}, " if low and high else ""
    return f"{1 / comparison.ratio.value:.3f} ({ends}{len(comparison.pairs)} pairs; aim: at least 0.97)"


def _cell(plan: Plan, candidate: Candidate) -> Plan:
    return replace(
        plan,
        engines=(candidate.engine,),
        scenarios=(candidate.scenario,),
        num_cores=(candidate.num_cores,),
        num_streams=(candidate.num_streams,),
        batch_sizes=(candidate.batch_size,),
    )


if __name__ == "__main__":
    if "--quick" in sys.argv:  # only to see that it runs: the figures mean nothing
        main(0.3, 8.0, 4.0, (("demo:digits", None),), (1, 8))
    else:
        main()
