"""A generation as blocks and as JSON: what the model is, a row for each cell, and all that qualifies it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from inferlab.codec import plain, restored
from inferlab.errors import BadInput
from inferlab.measure.findings import with_joint_noise
from inferlab.measure.generation.comparison import process_times_ms
from inferlab.measure.generation.stats import (
    generation_findings,
    summarize_generation,
    summarize_load,
    worst_agreement,
)
from inferlab.measure.stats import engine_version, seconds
from inferlab.measure.unpaired import SavedResult, generation_result
from inferlab.records import Estimate, Finding
from inferlab.records.comparison import ComparedMetric
from inferlab.records.generation import (
    FORMAT,
    Agreement,
    Encoder,
    GenerationCell,
    GenerationOutcome,
    GenerationSummary,
    GenerationSweep,
    GenerativeModel,
    LoadSummary,
    PromptSet,
    TokenLimit,
)
from inferlab.units import count, decimal, duration, plural, scaled, share, size
from inferlab.views import tables
from inferlab.views.fields import (
    GENERATION_CELL,
    MS,
    RATE,
    Field,
    estimate,
    half_width,
    half_width_of,
    rounded,
    useful,
)
from inferlab.views.results import View, finding_values, json_values, picked, short_name, with_intervals
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import agreement_text, finding, generation_label

_SHOWN = (50.0, 90.0, 99.0)
# Findings that make the numbers of a cell useless, or others than were asked for.
_WARNINGS = ("tokens-disagree", "ended-early", "prefix-cached")
# More cells than these are counted, not named.
_MOST_NAMED = 4
#: What requests met that arrive by themselves: keys, labels and percentiles.
LATENCIES = (
    *(("ttft", "TTFT", 50.0), ("ttft", "TTFT", 90.0), ("tpot", "TPOT", 50.0), ("tpot", "TPOT", 90.0)),
    ("end_to_end", "end to end", 50.0),
)


def percentile(key: str, label: str, p: float) -> Field:
    """The field of a percentile of a load, or of a point of a curve."""
    return Field(
        f"{key}_p{p:g}_ms",
        f"{label} p{p:g} ms",
        lambda load: getattr(load, f"{key}_percentiles_ms")[p],
        MS,
        title=f"{label} p{p:g}",
        unit="ms",
    )


def _of_load(key: str, label: str, form: Callable[[Any], str], **more: Any) -> Field:
    return Field(key, label, lambda load: getattr(load, key), form, **more)


def _rate_of_load(key: str, label: str, **more: Any) -> Field:
    return estimate(key, label, lambda load: getattr(load, key), form=MS, **more)


#: What is shown of a cell whose requests arrive by themselves.
LOAD_FIELDS = tuple(
    field.of(lambda row: row.load)
    for field in (
        _rate_of_load("served_per_s", "served/s"),
        *(percentile(*of) for of in (*LATENCIES[:2], ("ttft", "TTFT", 99.0), *LATENCIES[2:])),
        percentile("queue", "queue", 50.0),
        _of_load("attainment", "meet SLO", share),
        _rate_of_load("goodput_per_s", "goodput/s", title="Goodput", unit="requests/s"),
        _of_load("unserved_share", "unserved", share),
        _of_load("concurrency", "at once", MS),
    )
)


def load_blocks(load: LoadSummary, slo: str, serving: str) -> list[Pair]:
    """What requests met that arrived by themselves."""
    unserved = f", {share(load.unserved_share)} not served in time" if load.unserved_share else ""
    found = [
        Pair(
            "Requests",
            f"{load.requests} arrived{unserved}; served {_with_half_width(load.served_per_s)} requests/s",
        ),
        Pair("Serving", f"{serving}, {decimal(load.concurrency, 3)} at once on average while it works"),
    ]
    if load.goodput_per_s is not None and load.attainment is not None:
        met = f"{share(load.attainment)} of the requests meet {slo}"
        found.append(Pair("Goodput", f"{_with_half_width(load.goodput_per_s)} requests/s ({met})", True))
    for name, values in {
        "Time to first token": load.ttft_percentiles_ms,
        "Time per output token": load.tpot_percentiles_ms,
        "End to end": load.end_to_end_percentiles_ms,
        "Wait in the queue": load.queue_percentiles_ms,
    }.items():
        found.append(Pair(name, percentiles_text(values)))
    return found


def percentiles_text(values: Mapping[float, float | None]) -> str:
    """Those percentiles that the samples carry."""
    known = {p: values.get(p) for p in _SHOWN}
    return ", ".join(f"p{p:g} {MS(value)} ms" for p, value in known.items() if value is not None) or "unknown"


def _with_half_width(value: Estimate, unit: str = "", form: Callable[[float], str] = MS) -> str:
    width = half_width(value.ends)
    sure = f" (±{width})" if useful(value.ends) else f" ({width})" if width else ""
    return f"{rounded(value.value, value.ends, form)}{unit and f' {unit}'}{sure}"


def prompts_pair(prompts: PromptSet) -> Pair:
    """The prompts of the user's own, and what tokenising took."""
    lengths = f"{prompts.shortest_tokens} to {prompts.longest_tokens} tokens, median {prompts.median_tokens}"
    made = ""
    if prompts.texts:
        each = duration(prompts.tokenize_s / prompts.texts)
        made = f"; tokenised by {prompts.tokenizer} in {each} each, which no other time contains"
    return Pair("Prompts", f"{plural(prompts.count, 'prompt')} of {lengths}{made}")


@dataclass(frozen=True, slots=True)
class Row:
    """What is shown of a cell."""

    cell: GenerationCell
    outcome: GenerationOutcome
    summary: GenerationSummary | None
    agreement: Agreement | None
    findings: tuple[Finding, ...]
    #: Where requests arrive by themselves.
    load: LoadSummary | None = None


def view_of(sweep: GenerationSweep) -> View:
    """How it is shown and written."""

    def html() -> str:
        from inferlab.views.reports.generation import report  # late: it draws charts

        return report(sweep)

    title = f"{short_name(sweep.model.source)}: generation"
    return View(title, lambda: blocks(sweep), lambda: table(sweep), lambda: content(sweep), html)


def rows(sweep: GenerationSweep) -> list[Row]:
    """Every cell with what follows from its runs."""
    found = with_joint_noise([generation_findings(sweep.model, outcome) for outcome in sweep.outcomes])
    return [
        Row(
            outcome.cell,
            outcome,
            summarize_generation(outcome.runs),
            worst_agreement(outcome.runs) if outcome.runs else None,
            findings,
            summarize_load(outcome.cell, outcome.runs, sweep.plan.slo)
            if outcome.cell.rate is not None and outcome.runs
            else None,
        )
        for outcome, findings in zip(sweep.outcomes, found, strict=True)
    ]


def _of_summary(key: str, label: str, form: Callable[[float], str] = MS, **more: Any) -> Field:
    return estimate(key, label, lambda row: row.summary and getattr(row.summary, key), form=form, **more)


def _agreeing(row: Row) -> str | None:
    found = row.agreement
    if found is None:
        return None
    if found.top1 is None:
        return "unchecked"
    return f"{share(found.top1)}{' WRONG' if found.status == 'mismatch' else ''}"


def _first_cache(row: Row, name: str) -> float | None:
    runs = row.outcome.runs
    return getattr(runs[0].cache, name) if runs else None


def most(row: Row, name: str) -> int | None:
    """The largest value that a run of a cell has; None where it is unknown."""
    values = [getattr(run, name) for run in row.outcome.runs]
    return max((value for value in values if value is not None), default=None)


def _of_cell(field: Field) -> Field:
    return field.of(lambda row: row.cell)


TTFT = _of_summary("ttft_ms", "TTFT ms", title="Time to first token", unit="ms")
PREFILL = _of_summary(
    "prefill_tokens_per_s",
    "prefill tok/s",
    count,
    title="Prefill throughput",
    unit="tokens/s",
)
TPOT = _of_summary("tpot_ms", "TPOT ms", title="Time per output token", unit="ms")
DECODE = _of_summary("decode_tokens_per_s", "decode tok/s", count, title="Decode throughput", unit="tokens/s")
OUTPUT = _of_summary("output_tokens_per_s", "output tok/s", count, title="Output throughput", unit="tokens/s")
END_TO_END = _of_summary("end_to_end_ms", "end to end ms", title="End-to-end time", unit="ms")
#: Of models with an encoder, and of sound; shown only where they exist.
ENCODER = _of_summary("encoder_ms", "encoder ms", title="Encoder time", unit="ms")
REAL_TIME = _of_summary(
    "real_time_factor",
    "real-time factor",
    title="Real-time factor",
    unit="of the sound's length",
)
#: What a chart can have along its y axis.
CURVE_FIELDS = (TTFT, TPOT, PREFILL, DECODE, OUTPUT, END_TO_END)
_OUTCOME = (
    Field("", "agreement", _agreeing),
    Field("status", "status", lambda row: row.outcome.status, left=True),
)
#: What tells cells apart, and what was measured.
FIELDS: tuple[Field, ...] = (
    *map(_of_cell, GENERATION_CELL),
    *(TTFT, half_width_of(TTFT), PREFILL, TPOT, half_width_of(TPOT), DECODE, END_TO_END),
    Field("kv_bytes_per_token", "KV/token", lambda row: _first_cache(row, "engine_bytes"), size),
    Field("decoded_memory_bytes", "memory", lambda row: most(row, "decoded_memory_bytes"), size),
    *_OUTCOME,
)
#: The same where requests arrive by themselves.
SERVER_FIELDS = (*map(_of_cell, (*GENERATION_CELL, RATE)), *LOAD_FIELDS, OUTPUT, *_OUTCOME)
_TOP1 = Field("top1", "agreement", lambda row: row.agreement and row.agreement.top1)
_CHECK = Field("agreement", "check", lambda row: row.agreement and row.agreement.status)


def table(sweep: GenerationSweep) -> Table:
    """A row for each cell, as files have it."""
    shown = rows(sweep)
    served = any(row.cell.rate is not None for row in shown)
    return Table((*(SERVER_FIELDS if served else sync_fields(shown)), _TOP1, _CHECK), shown)


def sync_fields(shown: Sequence[Row]) -> tuple[Field, ...]:
    """The columns of batches that follow each other, with those of an encoder where there is one."""
    known = [row.summary for row in shown if row.summary is not None]
    more = [ENCODER] * any(one.encoder_ms for one in known) + [REAL_TIME] * any(
        one.real_time_factor for one in known
    )
    place = FIELDS.index(TTFT)
    return (*FIELDS[:place], *more, *FIELDS[place:])


def blocks(sweep: GenerationSweep) -> list[Block]:
    """The model, the table or the only cell, and what must be known about each."""
    shown = rows(sweep)
    parts: list[Block] = list(model_blocks(sweep.model))
    if sweep.prompts is not None:
        parts.append(prompts_pair(sweep.prompts))
    if len(shown) == 1:
        parts += ["", *_cell_blocks(sweep, shown[0])]
        return parts
    if any(row.cell.rate is not None for row in shown):
        if sweep.plan.slo:
            parts.append(Pair("SLO", slo_text(sweep.plan.slo)))
        return [*parts, "", Table(_with_slo(sweep), shown), *notes(shown)]
    return [*parts, "", Table(sync_fields(shown), shown), *notes(shown)]


def slo_text(slo: Sequence[TokenLimit]) -> str:
    """The limits of an objective."""
    return ", ".join(limit.text for limit in slo)


def _with_slo(sweep: GenerationSweep) -> list[Field]:
    """The columns of requests that arrive by themselves; without limits none is met or missed."""
    without = () if sweep.plan.slo else ("attainment", "goodput_per_s")
    return [field for field in SERVER_FIELDS if field.key not in without]


def model_blocks(model: GenerativeModel) -> list[Pair]:
    """What is known of a model before it is loaded."""
    types = ", ".join(
        f"{group.type} {scaled(group.parameters)} in {plural(group.tensors, 'tensor')}" for group in model.tensors
    )
    return [
        Pair("Model", model.source),
        Pair("Architecture", architecture_text(model)),
        *([] if model.encoder is None else [Pair("Encoder", encoder_text(model.encoder))]),
        Pair("Parameters", f"{scaled(model.parameters)} ({types}), {size(model.size_bytes)}"),
        Pair("Expected KV cache", f"{size(model.kv_bytes_per_token())} per token in 16 bits"),
    ]


def architecture_text(model: GenerativeModel) -> str:
    """How a model is built, in a line."""
    context = "no limit of context" if model.context is None else f"context {model.context}"
    return (
        f"{model.architecture}, {plural(model.layers, 'layer')}, {plural(model.heads, 'head')}, "
        f"{plural(model.kv_heads, 'KV head')}, {context}, vocabulary {model.vocabulary}"
    )


def encoder_text(encoder: Encoder) -> str:
    """What is known of an encoder before it is loaded."""
    takes = {
        "tokens": "takes tokens",
        "samples": f"takes sound, {encoder.sampling_rate} samples per second",
        "features": f"takes sound, {encoder.bands} bands of its spectrum",
    }
    layers = "" if encoder.layers is None else f", {plural(encoder.layers, 'layer')}"
    longest = "" if encoder.longest_s is None else f", at most {encoder.longest_s:g} s"
    return f"{takes[encoder.takes]}{longest}{layers}, {scaled(encoder.parameters)} parameters"


def _encoder_blocks(row: Row, summary: GenerationSummary) -> list[Pair]:
    found = []
    if summary.encoder_ms is not None:
        found.append(Pair("Encoder", _told(summary.encoder_ms, "ms"), True))
    if summary.real_time_factor is not None:
        sound = f"of {row.cell.audio_s:.3g} s of sound"
        found.append(Pair("Real-time factor", _told(summary.real_time_factor, sound, "{:.4f}".format), True))
    if row.outcome.runs[0].transcript:
        found.append(Pair("Transcript", row.outcome.runs[0].transcript))
    return found


def _cell_blocks(sweep: GenerationSweep, row: Row) -> list[Block]:
    found: list[Block] = [Pair("Cell", generation_label(row.cell)), Pair("Status", row.outcome.status)]
    summary = row.summary
    if summary is None:
        return [*found, *notes([row])]
    runs = row.outcome.runs
    if row.load is not None:
        found += load_blocks(row.load, slo_text(sweep.plan.slo), str(runs[0].settings.get("serving", "")))
        found += [
            *_encoder_blocks(row, summary),
            Pair("Inter-token latency", _percentiles(summary)),
            Pair("Output", _told(summary.output_tokens_per_s, "tokens/s", count)),
        ]
    else:
        found += [
            Pair("Time to first token", _told(summary.ttft_ms, "ms"), True),
            *_encoder_blocks(row, summary),
            *(
                [Pair("Prefill", _told(summary.prefill_tokens_per_s, "tokens/s", count))]
                if summary.prefill_tokens_per_s
                else []
            ),
            Pair("Time per output token", _told(summary.tpot_ms, "ms"), True),
            Pair("Decode", _told(summary.decode_tokens_per_s, "tokens/s", count)),
            Pair("Inter-token latency", _percentiles(summary)),
            Pair("End to end", _told(summary.end_to_end_ms, "ms")),
            Pair("CPU time per output token", _told(_in_ms(summary.cpu_s_per_token), "ms")),
        ]
    found += [
        Pair("Load", _told(summary.load_s, "s")),
        Pair("First generation", _told(summary.first_generation_ms, "ms")),
        Pair("Memory", _memory(row)),
        Pair("KV cache per token", _kv(row)),
        Pair("Agreement", agreement_text(row.agreement)),
        Pair(
            "Measured", f"{plural(summary.sequences, 'sequence')} in {plural(len(runs), 'process', 'processes')}"
        ),
    ]
    return [*found, *notes([row])]


def _told(value: Estimate | None, unit: str, form: Callable[[float], str] = MS) -> str:
    return "unknown: fewer than two tokens" if value is None else _with_half_width(value, unit, form)


def _in_ms(value: Estimate | None) -> Estimate | None:
    if value is None:
        return None
    low, high = (None if end is None else end * 1e3 for end in (value.low, value.high))
    return Estimate(value.value * 1e3, low, high, value.level, value.method)


def _percentiles(summary: GenerationSummary) -> str:
    values = summary.itl_percentiles_ms
    return (
        ", ".join(f"p{p:g} {MS(value)} ms" for p, value in values.items() if value is not None) or "too few tokens"
    )


#: What a process had in memory, and when.
MEMORY = {
    "loaded_memory_bytes": "after load",
    "prefilled_memory_bytes": "after prefill",
    "decoded_memory_bytes": "after decoding",
}


def _memory(row: Row) -> str:
    values = {label: most(row, name) for name, label in MEMORY.items()}
    return ", ".join(f"{size(value)} {label}" for label, value in values.items() if value is not None) or "unknown"


def _kv(row: Row) -> str:
    cache = row.outcome.runs[0].cache
    values = {
        "by formula": cache.formula_bytes,
        "by the engine": cache.engine_bytes,
        "measured": cache.measured_bytes,
    }
    told = [f"{size(value)} {label}" for label, value in values.items() if value is not None]
    return ", ".join(told) + (f" ({cache.dtype})" if cache.dtype else "") if told else "unknown"


def notes(shown: Sequence[Row]) -> list[tables.Note]:
    """Findings and failures; of several cells each sentence once, with the cells that it is about."""
    names = short_labels([row.cell for row in shown])
    found = []
    for note, places in tables.places_of([_notes_on(row) for row in shown]).items():
        about = ""
        if len(places) < len(shown):
            listed = "; ".join(names[place] for place in places)
            about = f"{listed if len(places) <= _MOST_NAMED else f'{len(places)} of {len(shown)} cells'}: "
        found.append(note._replace(text=f"{about}{note.text}"))
    return found


def _notes_on(row: Row) -> list[tables.Note]:
    failed = [] if row.outcome.failure is None else [tables.Note(row.outcome.failure.message, warning=True)]
    return [*failed, *(tables.Note(finding(one), one.code in _WARNINGS) for one in row.findings)]


def short_labels(cells: Sequence[GenerationCell]) -> list[str]:
    """What tells each cell from the others."""
    told = [field for field in (*GENERATION_CELL, RATE) if len({field.get(cell) for cell in cells}) > 1]
    return [", ".join(field.words(field.get(cell)) for field in told) for cell in cells]


_NUMBERS = (
    *("ttft_ms", "tpot_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s", "end_to_end_ms"),
    *("cpu_s_per_token", "load_s", "first_generation_ms", "encoder_ms", "real_time_factor"),
)


def content(sweep: GenerationSweep) -> dict[str, Any]:
    """All that is known of a sweep, as the values of its file; every number has its interval beside it."""
    model = plain(sweep.model)
    return json_values(
        {
            "format": FORMAT,
            "model": {**model, "kv_bytes_per_token_16_bits": sweep.model.kv_bytes_per_token()},
            "slo": [limit.text for limit in sweep.plan.slo],
            "prompts": sweep.prompts,
            "results": [_result(row) for row in rows(sweep)],
        }
    )


def _result(row: Row) -> dict[str, Any]:
    cell, runs, summary, agreement = row.cell, row.outcome.runs, row.summary, row.agreement
    run = runs[0] if runs else None
    return {
        "engine": cell.engine,
        "version": engine_version(run) if run else None,
        **picked(cell, "prompt_tokens", "new_tokens", "depth", "batch_size", "num_cores", "rate"),
        "load": None if row.load is None else _load_content(row.load),
        **picked(row.outcome, "status", "failure"),
        **with_intervals({name: None if summary is None else getattr(summary, name) for name in _NUMBERS}),
        "itl_ms": None if summary is None else _by_name(summary.itl_percentiles_ms),
        "kv_bytes_per_token": _first_cache(row, "engine_bytes"),
        "kv_bytes_per_token_formula": _first_cache(row, "formula_bytes"),
        "kv_bytes_per_token_measured": _first_cache(row, "measured_bytes"),
        "kv_dtype": _first_cache(row, "dtype"),
        "audio_s": cell.audio_s,
        "transcript": run.transcript if run else "",
        **{name: most(row, name) for name in ("baseline_memory_bytes", *MEMORY)},
        "agreement": None if agreement is None else {"top1": agreement.top1, **plain(agreement)},
        "sequences": 0 if summary is None else summary.sequences,
        "processes": len(runs),
        "seconds_ran": sum(seconds(window) for run in runs for window in run.windows),
        "process_times_ms": _process_times_ms(row),
        "cell": cell,
        **{name: getattr(run, name, None) for name in ("settings", "versions", "machine")},
        "findings": finding_values(row.findings),
    }


def _process_times_ms(row: Row) -> dict[str, list[float]]:
    """What each process took of all that can be compared of saved results."""
    found: dict[str, list[float]] = {}
    for metric in get_args(ComparedMetric):
        with suppress(BadInput):
            found[metric] = list(process_times_ms(row.cell, row.outcome.runs, metric))
    return found


def saved_generations(
    name: str, content: Mapping[str, Any], metric: ComparedMetric
) -> list[tuple[str, SavedResult | None]]:
    """The status of every cell in a file, and what is compared of it; refused where the file does not have it."""
    try:
        return [(str(one["status"]), _saved(name, content, one, metric)) for one in content["results"]]
    except BadInput:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise BadInput(f"{name} is damaged: its measurements cannot be read.") from None


def _saved(
    name: str, content: Mapping[str, Any], result: Mapping[str, Any], metric: ComparedMetric
) -> SavedResult | None:
    if not result["processes"]:
        return None
    if metric not in result.get("process_times_ms", ()):
        raise BadInput(
            f"{name} does not say what each process took by {metric}. Write it again with "
            "inferlab show ID -x, or compare another --metric."
        )
    times_ms = tuple(float(time) for time in result["process_times_ms"][metric])
    if not times_ms:
        return None
    if not all(0 < time < math.inf for time in (*times_ms, result["seconds_ran"])):
        raise ValueError("a time is not positive")
    ended = [one["data"]["ended"] for one in result["findings"] if one["code"] == "ended-early"]
    return generation_result(
        *(name, restored(GenerationCell, result["cell"]), times_ms, metric),
        seconds=float(result["seconds_ran"]),
        model_source=str(content["model"]["source"]),
        version=result["version"],
        ended_early=sum(ended),
        machine=result["machine"],
        agreement=str(result["agreement"]["status"]),
    )


def _load_content(load: LoadSummary) -> dict[str, Any]:
    return {
        **picked(load, "requests", "unserved_share"),
        **with_intervals({"served_per_s": load.served_per_s, "goodput_per_s": load.goodput_per_s}),
        "attainment": load.attainment,
        **{
            f"{name}_ms": _by_name(getattr(load, f"{name}_percentiles_ms"))
            for name in ("ttft", "tpot", "end_to_end", "queue")
        },
        **picked(load, "concurrency", "late_share", "latest_ms"),
    }


def _by_name(values: Mapping[float, float | None]) -> dict[str, float | None]:
    return {f"p{p:g}": value for p, value in values.items()}
