"""What follows from requests that arrive by themselves: distributions, goodput, queueing and lateness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from inferlab.measure.intervals import student
from inferlab.measure.stats import PERCENTILES, percentile
from inferlab.records import Estimate, Finding
from inferlab.records.generation import (
    Generation,
    GenerationCell,
    GenerationRun,
    LoadSummary,
    Repetition,
    TokenLimit,
    TokenMetric,
)

# A dispatcher is late by more than this, and this share of the time to the first token; and where more than this
# share of the requests was late, their times are not the engine's.
_LATE_NS = 2_000_000
_LATE_SHARE_OF_TTFT = 0.05
_LATE_REQUESTS = 0.05
# Fewer requests of a run say little of whether its queue grows.
_MANY = 50


def value_s(one: Generation, metric: TokenMetric) -> float | None:
    """What one request took, from its scheduled arrival; a single token has no time after the first."""
    if metric == "ttft":
        return one.token_ns[0] / 1e9
    if metric == "e2e":
        return one.token_ns[-1] / 1e9
    if len(one.token_ns) < 2:
        return None
    return (one.token_ns[-1] - one.token_ns[0]) / (len(one.token_ns) - 1) / 1e9


def limit_share(one: Generation, slo: Sequence[TokenLimit]) -> float:
    """The largest share of a limit that a request takes; up to 1 it meets the objective."""
    return max((value_s(one, limit.metric) or 0.0) / limit.limit_s for limit in slo)


def summarize_load(cell: GenerationCell, runs: Sequence[GenerationRun], slo: Sequence[TokenLimit]) -> LoadSummary:
    """The numbers of a cell whose requests arrive by themselves; there is at least one run."""
    assert cell.rate is not None, "requests arrive at a rate"
    rate = cell.rate
    served = [sequence for run in runs for each in run.repetitions for sequence in each.sequences]
    arrived = sum(run.arrivals or 0 for run in runs)
    unserved = arrived - len(served)
    good = [one for one in served if slo and limit_share(one, slo) <= 1]

    def percentiles(values: Callable[[Generation], float | None]) -> dict[float, float | None]:
        known = [value for one in served if (value := values(one)) is not None]
        times_ms = np.array([*(1e3 * value for value in known), *[math.inf] * unserved])
        return {p: percentile(times_ms, p) if len(times_ms) else None for p in PERCENTILES}

    def per_second(count: Callable[[GenerationRun], int]) -> Estimate:
        rates = [count(run) / span_s for run in runs if (span_s := _span_s(run, rate)) > 0]
        if rates and min(rates) > 0:
            return student(rates)
        return Estimate(float(np.mean(rates)) if rates else 0.0, None, None, 0.95, "student")

    late = [one for one in served if is_late(one)]
    return LoadSummary(
        requests=arrived,
        unserved_share=unserved / arrived if arrived else 0.0,
        served_per_s=per_second(lambda run: sum(len(each.sequences) for each in run.repetitions)),
        goodput_per_s=per_second(lambda run: _good(run, slo)) if slo else None,
        attainment=len(good) / arrived if slo and arrived else None,
        ttft_percentiles_ms=percentiles(lambda one: value_s(one, "ttft")),
        tpot_percentiles_ms=percentiles(lambda one: value_s(one, "tpot")),
        end_to_end_percentiles_ms=percentiles(lambda one: value_s(one, "e2e")),
        queue_percentiles_ms=percentiles(lambda one: one.submitted_ns / 1e9),
        concurrency=_concurrency(runs),
        late_share=len(late) / len(served) if served else 0.0,
        latest_ms=max((one.late_ns for one in served), default=0) / 1e6,
    )


def _good(run: GenerationRun, slo: Sequence[TokenLimit]) -> int:
    return sum(limit_share(sequence, slo) <= 1 for each in run.repetitions for sequence in each.sequences)


def _span_s(run: GenerationRun, rate: float) -> float:
    """From the first arrival to the last end, and one usual gap: as many gaps as requests belong to that time."""
    sequences = [sequence for each in run.repetitions for sequence in each.sequences]
    if not sequences:
        return 0.0
    begin = min(sequence.scheduled_ns or 0 for sequence in sequences)
    return (
        max((sequence.scheduled_ns or 0) + sequence.token_ns[-1] for sequence in sequences) - begin
    ) / 1e9 + 1 / rate


def is_late(one: Generation) -> bool:
    """Whether the dispatcher, not the engine, made a request wait for a time that matters."""
    return one.late_ns > max(_LATE_NS, _LATE_SHARE_OF_TTFT * one.token_ns[0])


def _concurrency(runs: Sequence[GenerationRun]) -> float:
    """The time that requests spent in the engine over the time in which there was one."""
    spent, busy = 0, 0
    for run in runs:
        for each in run.repetitions:
            spans = _spans(each)
            spent += int(np.sum(spans[:, 1] - spans[:, 0])) if len(spans) else 0
            busy += _union(spans)
    return spent / busy if busy else 0.0


def _spans(repetition: Repetition) -> NDArray[np.int64]:
    """When each request was begun and done."""
    return np.array(
        [
            (
                (sequence.scheduled_ns or 0) + sequence.submitted_ns,
                (sequence.scheduled_ns or 0) + sequence.token_ns[-1],
            )
            for sequence in repetition.sequences
        ],
        np.int64,
    ).reshape(-1, 2)


def _union(spans: NDArray[np.int64]) -> int:
    covered, end = 0, None
    for begin, until in sorted(map(tuple, spans.tolist())):
        covered += max(0, until - (begin if end is None else max(begin, end)))
        end = until if end is None else max(end, until)
    return covered


def load_findings(cell: GenerationCell, runs: Sequence[GenerationRun]) -> list[Finding]:
    """What of the requests themselves a reader must know."""
    if cell.rate is None:
        return []
    found = []
    idle = sum(not any(each.sequences for each in run.repetitions) for run in runs)
    if idle:
        found.append(Finding("no-requests", {"idle": idle, "processes": len(runs), "rate": cell.rate}))
    summary = summarize_load(cell, runs, ())
    busy = _busy_share(runs)
    if summary.unserved_share or (cell.batch_size == 1 and busy >= 1 and summary.requests >= _MANY):
        found.append(Finding("overloaded", {"share": summary.unserved_share, "load": busy, "rate": cell.rate}))
    if summary.late_share > _LATE_REQUESTS:
        found.append(Finding("late-dispatch", {"share": summary.late_share, "latest_ms": summary.latest_ms}))
    return found


def _busy_share(runs: Sequence[GenerationRun]) -> float:
    """The time that an engine works on requests over the time in which they arrive."""
    busy = sum(_union(_spans(each)) for run in runs for each in run.repetitions)
    spans = [_spans(each) for run in runs for each in run.repetitions if each.sequences]
    arrivals = [
        [sequence.scheduled_ns or 0 for sequence in each.sequences] for run in runs for each in run.repetitions
    ]
    wall = sum(max(times) - min(times) for times in arrivals if len(times) > 1)
    return busy / wall if spans and wall else 0.0
