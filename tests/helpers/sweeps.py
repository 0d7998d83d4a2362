"""Benchmarks of many cells and comparisons, made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferlab.measure.paired import ComparisonJob
from inferlab.records import Benchmark, Comparison, Estimate, Failure, Outcome, OutputCheck, Pair, Plan
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL

WRONG = OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y")
#: Geometric mean 2; the 95 % interval from Student's t with 2 degrees of freedom.
ONE_TWO_FOUR = (1.0, 2.0, 4.0)
HALF = 4.302652729749464 * math.log(2) / math.sqrt(3)
LOW, HIGH = 2 * math.exp(-HALF), 2 * math.exp(HALF)


def an_outcome(latencies_ms: Sequence[float] = ONE_TWO_FOUR, wrong: bool = False, **cell: Any) -> Outcome:
    """A cell whose processes had these latencies; without any it failed."""
    made = a_cell(**cell)
    if not latencies_ms:
        return Outcome(made, "failed", (), Failure("died", "It was killed (SIGSEGV)."))
    runs = [replace(steady_run(one), versions={made.engine: "1.0"}) for one in latencies_ms]
    if wrong:
        runs = [replace(run, check=WRONG) for run in runs]
    return Outcome(made, "done", tuple(runs))


def a_sweep(*outcomes: Outcome, model: str = MODEL.source, **more: Any) -> Benchmark:
    """A benchmark of these cells."""
    return Benchmark(Plan(model), replace(MODEL, source=model, **more), outcomes)


def a_comparison(*ratios: float, labels: tuple[str, str] = ("onnxruntime", "openvino"), **more: Any) -> Comparison:
    """A comparison with a pair for each ratio; A takes 2 ms."""
    pairs = tuple(Pair(steady_run(2.0), steady_run(2.0 * ratio), math.log(ratio)) for ratio in ratios)
    found = Comparison(
        labels=labels,
        ratio=Estimate(1.5, 1.25, 1.75, 0.98, "signed-rank"),
        verdict="slower",
        margin=0.01,
        metric="median",
        seconds=12.0,
        outputs_match=True,
        output_error=0.0,
        output_detail="y",
        settle_s=None,
        cells=(a_cell(), a_cell()),
        models=(MODEL, MODEL),
        pairs=pairs,
        times_ms=(tuple(2.0 for _ in ratios), tuple(2.0 * ratio for ratio in ratios)),
    )
    return replace(found, **more)


def compared(contest: ComparisonJob, ratio: float, spread: float = 1.1, **more: Any) -> Comparison:
    """What a contest comes to where B takes this share of A's time, sure within a factor of `spread`."""
    return a_comparison(
        ratio,
        labels=contest.labels,
        ratio=Estimate(ratio, ratio / spread, ratio * spread, 0.98, "signed-rank"),
        margin=contest.margin,
        seconds=1.5,
        output_detail="",
        cells=(contest.a.cell, contest.b.cell),
        models=(contest.a.model, contest.b.model),
        **more,
    )
