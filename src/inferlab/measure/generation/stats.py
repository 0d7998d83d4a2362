"""What follows from the runs of a generation: numbers with their intervals, and what is worth a warning.

Of requests that arrive by themselves also distributions, goodput, queueing and lateness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from inferlab.engines import registry
from inferlab.measure.findings import noise
from inferlab.measure.generation.cells import generation_processes, precision_findings
from inferlab.measure.intervals import student
from inferlab.measure.stats import PERCENTILES, percentile, processes_for
from inferlab.records import Estimate, Finding
from inferlab.records.generation import (
    Agreement,
    Generation,
    GenerationCell,
    GenerationOutcome,
    GenerationRun,
    GenerationSummary,
    GenerativeModel,
    LoadSummary,
    Repetition,
    TokenLimit,
    TokenMetric,
)

#: A first token that comes in less than this share of the time of a new prompt's was not computed.
CACHED_SHARE = 0.5


def summarize_generation(runs: Sequence[GenerationRun]) -> GenerationSummary | None:
    """The numbers of a cell; each estimate is the typical process's, with its interval between processes."""
    runs = [run for run in runs if _sequences(run)]
    if not runs:
        return None
    served = runs[0].arrivals is not None
    gaps = [np.diff(sequence.token_ns) for run in runs for sequence in _sequences(run)]
    itl_ms = np.concatenate(gaps) / 1e6
    decoded = all(_decoded_tokens(run) for run in runs)

    def estimate(value: Callable[[GenerationRun], float]) -> Estimate:
        return student([value(run) for run in runs])

    return GenerationSummary(
        ttft_ms=estimate(lambda run: median(sequence.token_ns[0] for sequence in _sequences(run)) / 1e6),
        prefill_tokens_per_s=None
        if any(sequence.audio_s is not None for sequence in _sequences(runs[0]))
        else estimate(
            (lambda run: median(map(_request_prefill_rate, _sequences(run))))
            if served
            else (lambda run: median(map(_prefill_rate, run.repetitions)))
        ),
        tpot_ms=estimate(_tpot_ms) if decoded else None,
        # Of requests that overlap, no time is that of decoding alone.
        decode_tokens_per_s=estimate(_decode_rate) if decoded and not served else None,
        output_tokens_per_s=estimate(_output_rate),
        end_to_end_ms=estimate(lambda run: median(sequence.token_ns[-1] for sequence in _sequences(run)) / 1e6),
        cpu_s_per_token=(
            estimate(_cpu_s_per_token) if decoded and not served and min(map(_cpu_s_per_token, runs)) > 0 else None
        ),
        load_s=estimate(lambda run: run.load_s),
        first_generation_ms=estimate(lambda run: run.first_generation_s * 1e3),
        itl_percentiles_ms={p: percentile(itl_ms, p) if len(itl_ms) else None for p in PERCENTILES},
        sequences=len(gaps),
        encoder_ms=_encoder_ms(runs),
        real_time_factor=_real_time_factor(runs),
    )


def _sequences(run: GenerationRun) -> list[Generation]:
    return [sequence for each in run.repetitions for sequence in each.sequences]


def _encoder_ms(runs: Sequence[GenerationRun]) -> Estimate | None:
    """What the encoder took, of models that have one; the wait in a queue before it not counted."""
    if any(sequence.encoder_ns is None for run in runs for sequence in _sequences(run)):
        return None
    return student(
        [
            median((sequence.encoder_ns or 0) - sequence.submitted_ns for sequence in _sequences(run)) / 1e6
            for run in runs
        ]
    )


def _real_time_factor(runs: Sequence[GenerationRun]) -> Estimate | None:
    """The time to the token that ends the text, or to the last, over the length of the sound."""
    if any(sequence.audio_s is None for run in runs for sequence in _sequences(run)):
        return None
    return student([median(map(_time_over_sound, _sequences(run))) for run in runs])


def _time_over_sound(one: Generation) -> float:
    end = len(one.token_ns) - 1 if one.end_position is None else one.end_position
    return one.token_ns[end] / 1e9 / (one.audio_s or 1.0)


def _prefill_rate(repetition: Repetition) -> float:
    """Prompt tokens that were not in the cache, of the whole batch, until all first tokens were there."""
    first_ns = max(sequence.token_ns[0] for sequence in repetition.sequences)
    return sum(sequence.prompt_tokens for sequence in repetition.sequences) / (first_ns / 1e9)


def _request_prefill_rate(one: Generation) -> float:
    """Prompt tokens until the first token of one request, from when the engine began with it."""
    return one.prompt_tokens / (max(1, one.token_ns[0] - one.submitted_ns) / 1e9)


def _tpot_ms(run: GenerationRun) -> float:
    """The median over sequences of the mean time of a token after the first."""
    each = [
        (sequence.token_ns[-1] - sequence.token_ns[0]) / (len(sequence.token_ns) - 1) / 1e6
        for sequence in _sequences(run)
        if len(sequence.token_ns) > 1
    ]
    return median(each)


def _decoded_tokens(run: GenerationRun) -> int:
    return sum(len(sequence.token_ns) - 1 for sequence in _sequences(run))


def _decode_rate(run: GenerationRun) -> float:
    """Tokens after the first over the time in which they were decoded."""
    spans_ns = (
        max(sequence.token_ns[-1] for sequence in each.sequences)
        - min(sequence.token_ns[0] for sequence in each.sequences)
        for each in run.repetitions
    )
    return _decoded_tokens(run) / (sum(spans_ns) / 1e9)


def _output_rate(run: GenerationRun) -> float:
    """Emitted tokens over the whole time from submission, or the first arrival, to the last."""
    spans_ns = (
        max((sequence.scheduled_ns or 0) + sequence.token_ns[-1] for sequence in each.sequences)
        - min(sequence.scheduled_ns or 0 for sequence in each.sequences)
        for each in run.repetitions
        if each.sequences
    )
    return sum(len(sequence.token_ns) for sequence in _sequences(run)) / (sum(spans_ns) / 1e9)


def _cpu_s_per_token(run: GenerationRun) -> float:
    return sum(each.decode_cpu_ns for each in run.repetitions) / 1e9 / _decoded_tokens(run)


def worst_agreement(runs: Sequence[GenerationRun]) -> Agreement:
    """The agreement that says most against the tokens: a mismatch, then one not made, then the lowest score."""
    severity = {"mismatch": 2, "unchecked": 1, "match": 0}
    return max((run.agreement for run in runs), key=lambda one: (severity[one.status], -(one.top1 or 0.0)))


def generation_findings(model: GenerativeModel, outcome: GenerationOutcome) -> tuple[Finding, ...]:
    """Everything about a cell's runs that their reader must know; derived from them, never stored."""
    cell, runs = outcome.cell, outcome.runs
    if not runs:
        return ()
    found = [*_of_tokens(cell, runs)]
    found += precision_findings(cell, model)
    held = [sequence.cached_tokens for run in runs for sequence in _sequences(run)]
    if held and min(held) < cell.depth:
        found.append(Finding("context-computed", {"depth": cell.depth}))
    server = registry.is_server(cell.engine)
    if server:
        found.append(Finding("remote-server", {"address": cell.engine}))
    if not server and cell.thread_pinning != "none" and not all(run.pinned for run in runs):
        found.append(Finding("not-pinned", {}))
    quota = runs[0].machine.cpu_quota
    if not server and quota is not None and quota < cell.num_cores:
        found.append(Finding("quota-below-cores", {"quota": quota, "num_cores": cell.num_cores}))
    if len(runs) == 1:
        ready_s = runs[0].ready_s
        few = generation_processes(cell, ready_s) < processes_for(cell, ready_s)
        alone = generation_processes(cell, ready_s) == 1
        why = "asked" if cell.processes == 1 else "interrupted" if not alone else "requests" if few else "loading"
        found.append(Finding("one-process", {"why": why, "ready_s": ready_s}))
    if outcome.status == "failed":
        found.append(Finding("failed-later", {"processes": len(runs)}))
    return (*found, *load_findings(cell, runs), *noise(runs, cell.num_cores))


def _of_tokens(cell: GenerationCell, runs: Sequence[GenerationRun]) -> list[Finding]:
    """Whether the tokens are right, all there, and each of them computed."""
    found = []
    agreement = worst_agreement(runs)
    if agreement.status == "mismatch":
        data = {
            name: getattr(agreement, name) for name in ("agreeing", "ties", "positions", "prefix", "prefix_of")
        }
        found.append(Finding("tokens-disagree", data))
    if agreement.status == "unchecked":
        found.append(Finding("unchecked", {"reason": agreement.detail}))
    if agreement.same_graph:
        found.append(Finding("same-graph-reference", {"reference": agreement.reference}))
    ended = [sequence for run in runs for sequence in _sequences(run) if sequence.finish_reason == "stop"]
    if ended:
        emitted = min(len(one.token_ids) for one in ended)
        found.append(
            Finding(
                "ended-early",
                {
                    "emitted": emitted,
                    "new_tokens": cell.new_tokens,
                    "ended": len(ended),
                    "sequences": sum(len(_sequences(run)) for run in runs),
                },
            )
        )
    shares = [
        run.repeated_ttft_ns / _unseen_ttft_ns(run)
        for run in runs
        if run.repeated_ttft_ns is not None and _sequences(run)
    ]
    if shares and median(shares) < CACHED_SHARE:
        # Prompts of the user's own come again.
        again = {"own_prompts": True} if cell.prompts_digest else {}
        found.append(Finding("prefix-cached", {"share": median(shares), **again}))
    return found


def _unseen_ttft_ns(run: GenerationRun) -> int:
    """Until the first token of a new prompt, as far as earlier versions tell: the soonest that was measured."""
    if run.unseen_ttft_ns is not None:
        return run.unseen_ttft_ns
    return min(sequence.token_ns[0] - sequence.submitted_ns for sequence in _sequences(run))


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


def percentiles_ms(
    served: Sequence[Generation], unserved: int, value: Callable[[Generation], float | None]
) -> dict[float, float | None]:
    """Of seconds that requests took; one that was not served is later than every one that was."""
    known = [taken_s for one in served if (taken_s := value(one)) is not None]
    times_ms = np.array([*(1e3 * taken_s for taken_s in known), *[math.inf] * unserved])
    return {p: percentile(times_ms, p) if len(times_ms) else None for p in PERCENTILES}


def summarize_load(cell: GenerationCell, runs: Sequence[GenerationRun], slo: Sequence[TokenLimit]) -> LoadSummary:
    """The numbers of a cell whose requests arrive by themselves; there is at least one run."""
    assert cell.rate is not None, "requests arrive at a rate"
    rate = cell.rate
    served = [sequence for run in runs for each in run.repetitions for sequence in each.sequences]
    arrived = sum(run.arrivals or 0 for run in runs)
    unserved = arrived - len(served)
    good = [one for one in served if slo and limit_share(one, slo) <= 1]

    def percentiles(value: Callable[[Generation], float | None]) -> dict[float, float | None]:
        return percentiles_ms(served, unserved, value)

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
