"""Comparisons, capacities and recommendations of generation: as blocks, as tables, as values of a file."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from inferlab.codec import plain
from inferlab.measure.capacity import max_rate
from inferlab.measure.generation.recommendation import value_ms
from inferlab.measure.generation.stats import summarize_generation
from inferlab.records.generation import GenerationCell
from inferlab.records.generation_results import (
    GenerationCapacity,
    GenerationComparison,
    GenerationRecommendation,
    LoadPoint,
    Rejection,
    TokenAgreement,
)
from inferlab.units import count, decimal, duration, plural, share
from inferlab.views import generation, tables
from inferlab.views.fields import Field, estimate
from inferlab.views.generation_load import prompts_pair
from inferlab.views.intervals import interval_text, rounded, would_settle
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import finding, generation_label

# Of files; entries of the store have formats of their own.
CAPACITY = "inferlab-generation-capacity-file/1"
COMPARISON = "inferlab-generation-comparison-file/1"
RECOMMENDATION = "inferlab-generation-recommendation-file/1"
_MS = partial(decimal, places=3)
_METRICS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "prefill": "prefill time per prompt token",
    "decode": "decode time per token",
    "output": "time per generated token",
}


def comparison_blocks(comparison: GenerationComparison) -> list[Block]:
    """The arms, then the verdict with all that qualifies it."""
    metric, ratio = _METRICS[comparison.metric], comparison.ratio
    shown: list[Block] = [
        Pair(name, f"{label}: {_MS(statistics.median(times))} ms ({metric})")
        for name, label, times in zip("AB", comparison.labels, comparison.times_ms, strict=True)
    ]
    said = [f"B takes {rounded(ratio.value, ratio.ends)} of A's time", interval_text(ratio.ends, ratio.level)]
    said.append(f"margin {share(comparison.margin)}")
    shown.append(Pair("Verdict", f"{comparison.verdict} ({', '.join(said)})", strong=True))
    shown.append(Pair("Tokens", token_text(comparison.tokens)))
    for name, agreement in zip("AB", comparison.agreements, strict=True):
        shown.append(Pair(f"Agreement of {name}", generation.agreement_text(agreement)))
    first, second = comparison.arms
    cells = [generation_label(first)] if first == second else [generation_label(arm) for arm in comparison.arms]
    shown.append(Pair("Cell", "; ".join(dict.fromkeys(cells))))
    pairs = plural(len(comparison.log_ratios), "pair")
    shown.append(
        Pair("Measured", f"{pairs} of fresh processes, generating interleaved; {duration(comparison.seconds)}")
    )
    if comparison.settle_s is not None:
        shown.append(would_settle(comparison.settle_s))
    notes = [
        f"{name}: {finding(one)}" for name, found in zip("AB", comparison.findings, strict=True) for one in found
    ]
    if comparison.interrupted:
        notes.append("it was interrupted; the pairs that were complete are kept.")
    return shown + list(tables.notes(notes))


def token_text(tokens: TokenAgreement) -> str:
    """Whether both arms chose the same tokens."""
    if not tokens.generations:
        return "not compared: the arms generate other numbers of sequences"
    if tokens.alike == tokens.generations:
        return f"both arms chose the same {tokens.tokens} in {plural(tokens.generations, 'generation')}"
    return (
        f"{tokens.alike} of {plural(tokens.generations, 'generation')} are alike to their end; "
        f"{tokens.agreeing} of {tokens.tokens} tokens before the first that differs"
    )


def comparison_table(comparison: GenerationComparison) -> Table:
    """One row."""
    fields = [
        Field("a", "A", lambda one: one.labels[0], left=True),
        Field("b", "B", lambda one: one.labels[1], left=True),
        Field("metric", "metric", lambda one: one.metric, left=True),
        Field("a_ms", "A ms", lambda one: statistics.median(one.times_ms[0]), _MS),
        Field("b_ms", "B ms", lambda one: statistics.median(one.times_ms[1]), _MS),
        estimate("ratio", "B's time over A's", lambda one: one.ratio, form=decimal),
        Field("verdict", "B is", lambda one: one.verdict, left=True),
        Field("pairs", "pairs", lambda one: len(one.log_ratios)),
    ]
    return Table(fields, [comparison])


def comparison_content(comparison: GenerationComparison) -> dict[str, Any]:
    """The values of a file."""
    ratio = comparison.ratio
    return {
        "format": COMPARISON,
        **plain(comparison),
        "ratio": ratio.value,
        "interval": None if ratio.ends is None else list(ratio.ends),
        "level": ratio.level,
    }


def capacity_blocks(capacity: GenerationCapacity) -> list[Block]:
    """The answer, the curve, then all that qualifies them."""
    shown: list[Block] = [
        Pair("Model", capacity.model.source),
        Pair("Cell", generation_label(capacity.cell)),
        Pair("Serving", capacity.serving),
        _headline(capacity),
    ]
    lone = capacity.lone
    tpot = "" if lone.tpot_ms is None else f", TPOT {_MS(lone.tpot_ms)} ms"
    shown.append(Pair("Requests one by one", f"TTFT {_MS(lone.ttft_ms)} ms{tpot}"))
    saturation = statistics.median(process.saturation_rate for process in capacity.processes)
    shown.append(Pair("Served at most", f"{count(saturation)} requests/s, when requests always wait"))
    if capacity.prompts is not None:
        shown.append(prompts_pair(capacity.prompts))
    shown += [curve(capacity)] if capacity.curve else []
    shown.append(Pair("Agreement", generation.agreement_text(capacity.agreement)))
    return [*shown, *tables.notes(map(finding, capacity.findings))]


def _headline(capacity: GenerationCapacity) -> Pair:
    slo, rate = generation.slo_text(capacity.slo), max_rate(capacity)
    wanted = f"{share(capacity.wanted_attainment)} of the requests meet {slo}"
    if rate.value == 0:
        lone = share(capacity.lone.limit_share)
        return Pair(f"No rate at which {wanted}", f"even alone, a typical request takes {lone} of a limit.", True)
    sure = plural(len(capacity.processes), "process", "processes")
    if rate.ends is not None:
        sure = f"{interval_text(rate.ends, rate.level)}, {sure}"
    value = f"{rounded(rate.value, rate.ends, count)} requests/s ({sure})"
    return Pair(f"Highest rate at which {wanted}", value, True)


def curve(capacity: GenerationCapacity) -> Table:
    """What requests met at each rate, from the lowest up."""

    def percentile(key: str, label: str, name: str, p: float) -> Field:
        return Field(f"{key}_p{p:g}_ms", f"{label} p{p:g} ms", lambda point: getattr(point, name)[p], _MS)

    fields: list[Field] = [
        Field("rate", "requests/s", lambda point: point.rate, count),
        Field("load", "load", lambda point: point.load, share),
        Field("requests", "requests", lambda point: point.requests),
        Field("attainment", "meet SLO", lambda point: point.attainment, share),
        Field("goodput_per_s", "goodput/s", lambda point: point.goodput_per_s, count),
        percentile("ttft", "TTFT", "ttft_percentiles_ms", 50.0),
        percentile("ttft", "TTFT", "ttft_percentiles_ms", 90.0),
        percentile("tpot", "TPOT", "tpot_percentiles_ms", 50.0),
        percentile("tpot", "TPOT", "tpot_percentiles_ms", 90.0),
        percentile("end_to_end", "end to end", "end_to_end_percentiles_ms", 50.0),
        Field("unserved_share", "unserved", lambda point: point.unserved_share, share),
    ]
    points: tuple[LoadPoint, ...] = capacity.curve
    return Table(fields, points)


def capacity_content(capacity: GenerationCapacity) -> dict[str, Any]:
    """The values of a file."""
    rate = max_rate(capacity)
    return {
        "format": CAPACITY,
        "max_rate": rate.value,
        "max_rate_interval": None if rate.ends is None else list(rate.ends),
        **plain(capacity),
        "slo": [limit.text for limit in capacity.slo],
    }


def recommendation_blocks(found: GenerationRecommendation) -> list[Block]:
    """What to take and why, then all that was tried."""
    cells = {outcome.cell.id: outcome.cell for outcome in found.sweep.outcomes}
    slo = generation.slo_text(found.slo)
    shown: list[Block] = [Pair("Model", found.model.source)]
    if found.chosen_id:
        shown.append(Pair("Recommended", _options(cells[found.chosen_id]), True))
        shown.append(Pair("Because", _reason(found)))
    else:
        shown.append(Pair("Recommended", f"nothing: no configuration meets {slo}", True))
    if found.final is not None:
        ratio = found.final.ratio
        said = f"B takes {rounded(ratio.value, ratio.ends)} of A's time per generated token"
        interval = interval_text(ratio.ends, ratio.level)
        shown.append(
            Pair(
                "In pairs",
                f"A ({found.final.labels[0]}) and B ({found.final.labels[1]}): {said}, {interval}; B is "
                f"{found.final.verdict}",
            )
        )
    reasons = {rejection.cell_id: rejection for rejection in found.rejections}
    rows = [(row, reasons.get(row.cell.id)) for row in generation.rows(found.sweep)]
    ordered = sorted(rows, key=lambda row: (row[1] is not None, -_rate_of(row[0])))
    of_row = [field.of(lambda one: one[0]) for field in generation.FIELDS if field.key in _SHOWN]
    output = generation.OUTPUT.of(lambda one: one[0])
    why = Field("why_not", "why not", lambda one: _why_not(one[1]) if one[1] else "recommended", left=True)
    shown += ["", Table([*of_row, output, why], ordered)]
    shown += [
        "",
        Pair("Measured", f"{plural(len(rows), 'configuration')}, closed loop, in {duration(found.seconds)}"),
    ]
    if found.interrupted:
        shown += tables.notes(["it was interrupted; what was measured is kept."])
    return shown


_SHOWN = ("engine", "num_cores", "batch_size", "ttft_ms", "tpot_ms", "status")


def _rate_of(row: generation.Row) -> float:
    return 0.0 if row.summary is None else row.summary.output_tokens_per_s.value


def _options(cell: GenerationCell) -> str:
    return f"-e {cell.engine} -ncores {cell.num_cores} -b {cell.batch_size}"


def _reason(found: GenerationRecommendation) -> str:
    outcome = next(one for one in found.sweep.outcomes if one.cell.id == found.chosen_id)
    summary = summarize_generation(outcome.runs)
    assert summary is not None, "only what was measured is recommended"
    output = summary.output_tokens_per_s
    parts = [f"the most output tokens per second, {rounded(output.value, output.ends, count)}"]
    if found.slo:
        met = [
            f"{limit.text} by {_MS(value)} ms"
            for limit in found.slo
            if (value := value_ms(summary, limit)) is not None
        ]
        parts[0] += f", of those that meet {' and '.join(met) or generation.slo_text(found.slo)}"
    missed = sum(rejection.reason == "misses" for rejection in found.rejections)
    wrong = sum(rejection.reason == "wrong-tokens" for rejection in found.rejections)
    parts += [f"{missed} miss a limit"] if missed else []
    parts += [f"{wrong} have wrong tokens"] if wrong else []
    return "; ".join(parts)


def _why_not(rejection: Rejection) -> str:
    if rejection.reason == "misses":
        return f"{share(rejection.share or 0.0)} of {rejection.limit}"
    if rejection.reason == "slower":
        return "slower" if rejection.share is None else f"{share(rejection.share)} of its throughput"
    return {"failed": "failed", "wrong-tokens": "wrong tokens"}[rejection.reason]


def recommendation_table(found: GenerationRecommendation) -> Table:
    """All configurations that were tried, as files have them."""
    return generation.table(found.sweep)


def recommendation_content(found: GenerationRecommendation) -> dict[str, Any]:
    """The values of a file."""
    cells: Mapping[str, GenerationCell] = {outcome.cell.id: outcome.cell for outcome in found.sweep.outcomes}
    chosen = cells.get(found.chosen_id)
    return {
        "format": RECOMMENDATION,
        "slo": [limit.text for limit in found.slo],
        "recommended": None
        if chosen is None
        else {"engine": chosen.engine, "num_cores": chosen.num_cores, "batch_size": chosen.batch_size},
        "reason": _reason(found) if chosen else None,
        "rejections": [plain(rejection) for rejection in found.rejections],
        "final": found.final and plain(found.final),
        "seconds": found.seconds,
        "interrupted": found.interrupted,
        **{key: value for key, value in generation.content(found.sweep).items() if key in ("model", "results")},
    }
