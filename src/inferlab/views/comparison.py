"""Comparisons of both kinds of models: as blocks, tables, JSON values, a report, and for a gate's pipeline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

from inferlab.codec import plain
from inferlab.measure.check import deviates, worst
from inferlab.measure.findings import arm_findings, arm_runs
from inferlab.measure.stats import Resource, resource_of, resource_ratio, samples_needed
from inferlab.records import Finding, engine_name
from inferlab.records.comparison import (
    ComparedMetric,
    Comparison,
    ComparisonFailure,
    ComparisonSweep,
    GenerationComparison,
    GenerationComparisonSweep,
    Spread,
    TokenAgreement,
)
from inferlab.units import decimal, duration, plural, share, size
from inferlab.views import tables
from inferlab.views.fields import (
    GENERATION_CELL,
    MS,
    Field,
    between_at,
    level_percent,
    ratio_of,
    would_settle,
)
from inferlab.views.generation import short_labels
from inferlab.views.reports import page as parts
from inferlab.views.results import View, finding_values, json_values, picked, without_progress
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import agreement_text, error_label, finding, generation_label

COMPARISON = "inferlab-comparison/1"
#: Several in one: {"format": …, "results": [that object, …], "failures": [{"cell": …, "message": …}, …]}.
COMPARISONS = "inferlab-comparisons/1"
#: Of files; entries of the store have a format of their own.
GENERATION_COMPARISON = "inferlab-generation-comparison-file/1"
#: Several in one, as above.
GENERATION_COMPARISONS = "inferlab-generation-comparisons-file/1"
_METRICS = {
    "median": "median latency per item",
    "throughput": "time per item at full throughput",
    "response": "median response time",
    "ttft": "time to first token",
    "tpot": "time per output token",
    "prefill": "prefill time per prompt token",
    "decode": "decode time per token",
    "output": "time per generated token",
}
_INTERRUPTED = "it was interrupted; the pairs that were complete are kept."
# What the plan of a comparison sets for both arms.
_NOT_OF_ARMS = ("time_s", "warmup_s", "processes", "precision")


def view_of(record: Comparison | ComparisonSweep | GenerationComparison | GenerationComparisonSweep) -> View:
    """How comparisons are shown and written."""
    if isinstance(record, GenerationComparison):
        return View(
            " / ".join(record.labels),
            lambda: generation_blocks(record),
            lambda: _generation_table([record]),
            lambda: _generation_content(record),
        )
    if isinstance(record, GenerationComparisonSweep):
        return View(
            " / ".join(record.results[0].labels if record.results else ("A", "B")),
            lambda: _generation_sweep_blocks(record),
            lambda: _generation_table(record.results),
            lambda: _generation_sweep_content(record),
        )
    sweep = record if isinstance(record, ComparisonSweep) else ComparisonSweep((record,))
    title = " / ".join(sweep.results[0].labels if sweep.results else ("A", "B"))
    return View(
        title,
        lambda: sweep_blocks(sweep),
        lambda: table(sweep),
        lambda: content(record),
        lambda: report(title, sweep),
    )


def blocks(comparison: Comparison) -> list[Block]:
    """The arms, then the verdict with all that qualifies it."""
    shown = _arms(comparison, decimal)
    shown.append(Pair("Verdict", f"{comparison.verdict} ({said(comparison)})", strong=True))
    if tail := _tail(comparison):
        shown.append(Pair("99th percentile", tail))
    shown += _resources(comparison)
    shown.append(Pair("Measured", f"{_measured(comparison)}; {duration(comparison.seconds)}"))
    if comparison.spread is not None:
        shown.append(Pair("Spread", spread_text(comparison.spread)))
    saved = not comparison.pairs and not comparison.entries
    if comparison.settle_s is not None or (saved and comparison.verdict == "inconclusive"):
        shown.append(would_settle(comparison.settle_s))
    return shown + list(tables.notes(notes(comparison)))


def generation_blocks(comparison: GenerationComparison) -> list[Block]:
    """The same of arms that generate tokens, and whether these agree."""
    shown = _arms(comparison, MS)
    shown.append(Pair("Verdict", f"{comparison.verdict} ({_ratio_text(comparison)})", strong=True))
    shown.append(Pair("Tokens", token_text(comparison.tokens)))
    for name, agreement in zip("AB", comparison.agreements, strict=True):
        shown.append(Pair(f"Agreement of {name}", agreement_text(agreement)))
    shown.append(Pair("Cell", "; ".join(dict.fromkeys(map(generation_label, comparison.arms)))))
    count = plural(len(comparison.log_ratios), "pair")
    measured = f"{count} of fresh processes, generating interleaved; {duration(comparison.seconds)}"
    shown += [Pair("Measured", measured), Pair("Spread", spread_text(comparison.spread))]
    if comparison.settle_s is not None:
        shown.append(would_settle(comparison.settle_s))
    interrupted = [_INTERRUPTED] if comparison.interrupted else []
    return shown + list(tables.notes([*_arm_notes("AB", comparison.findings), *interrupted]))


def _arms(comparison: Comparison | GenerationComparison, form: Callable[[float], str]) -> list[Block]:
    metric = _METRICS[comparison.metric]
    return [
        Pair(name, f"{label}: {form(statistics.median(times))} ms ({metric})")
        for name, label, times in zip("AB", comparison.labels, comparison.times_ms, strict=True)
    ]


def _ratio_text(comparison: Comparison | GenerationComparison) -> str:
    return f"B takes {ratio_of(comparison.ratio)}, margin {share(comparison.margin)}"


def said(comparison: Comparison) -> str:
    """The ratio with its interval, and whether the outputs match."""
    return f"{_ratio_text(comparison)}; {outputs(comparison)}"


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


def _tail(comparison: Comparison) -> str:
    """The ratio of the tails, or why there is none yet; empty where no requests arrived by themselves."""
    if comparison.tail_ratio is not None:
        return "B's is " + ratio_of(comparison.tail_ratio, "A's")
    if comparison.metric != "response" or not comparison.pairs:
        return ""
    from inferlab.measure.paired import TAIL, requests_of  # late: few comparisons are of responses

    count, needed = requests_of(comparison.pairs), samples_needed(TAIL)
    return f"none yet: it needs {needed} requests, and {count} arrived for each arm; give more time with -t"


def _resources(comparison: Comparison) -> list[Block]:
    """What both arms take beside time, where releases of an engine were compared: their processes are all new."""
    engines = [cell.engine for cell in comparison.cells or ()]
    if not any(engine_name(engine) != engine for engine in engines):
        return []
    found: list[Block] = []
    for resource, name, form in _RESOURCES:
        ratio = resource_ratio(comparison.pairs, resource)
        if ratio is None:
            continue
        arms = [[resource_of(run, resource) or 0.0 for run in runs] for runs in arm_runs(comparison)]
        a, b = (form(statistics.median(values)) for values in arms)
        told = ratio_of(ratio, "A's")
        found.append(Pair(name, f"A {a}, B {b} (B takes {told})"))
    return found


_RESOURCES: tuple[tuple[Resource, str, Callable[[float], str]], ...] = (
    ("memory", "Peak memory", size),
    ("load", "Load time", duration),
)


def outputs(comparison: Comparison) -> str:
    """Whether both arms compute the same, in a few words."""
    if comparison.metric in get_args(ComparedMetric):
        if comparison.outputs_match is None:
            return "the tokens of one were not compared with the reference"
        told = f"of {comparison.output_detail} are WRONG"
        return f"the tokens {'of both match the reference' if comparison.outputs_match else told}"
    if comparison.outputs_match is None:
        return f"outputs not compared: {comparison.output_detail}"
    error = output_error(comparison.output_error, comparison.output_metric)
    if comparison.outputs_match:
        return f"outputs match{error}"
    return f"outputs DIFFER{error} in '{comparison.output_detail}'"


def output_error(error: float | None, metric: str) -> str:
    """How far the outputs of the arms are apart, in brackets; nothing where it is not known."""
    return "" if error is None else f" ({error_label(metric)} {error:.2g})"


def _measured(comparison: Comparison) -> str:
    if comparison.pairs:
        return f"{plural(len(comparison.pairs), 'pair')} of fresh processes, measured interleaved"
    if comparison.entries:
        return f"one benchmark against {comparison.entries} entries of the baseline's series"
    return f"unpaired, {len(comparison.times_ms[0])} and {len(comparison.times_ms[1])} processes of saved results"


def spread_text(spread: Spread) -> str:
    """How much pairs and turns differ, and how much was expected before."""
    prior = spread.prior
    source = f"from {prior.comparisons} comparisons on this machine" if prior.comparisons else "by default"
    between = f"by {share(spread.between)}" if spread.between else "no more than their turns explain"
    return (
        f"pairs differ {between}, the {spread.turns:.3g} double turns of a pair by {share(spread.within)} "
        f"(standard deviations); expected of pairs: {share(prior.sd)}, {source}"
    )


def notes(comparison: Comparison, names: Sequence[str] = "AB") -> list[str]:
    """What disturbed it and what else differs; `names` are what its arms are called."""
    found = [f"the results also differ in {difference}." for difference in comparison.differences]
    if comparison.entries:
        found.append(_OF_SERIES)
    elif not comparison.pairs:
        found.append(_OF_MACHINES if _of_machines(comparison) else _OF_MOMENTS)
    if comparison.outputs_match and deviates(comparison.output_error, comparison.output_metric):
        error = output_error(comparison.output_error, comparison.output_metric)
        found.append(
            f"the outputs of A and B deviate from each other{error}. "
            "That is within what rounding to few bits may change; check the accuracy on data before you use it."
        )
    found += _arm_notes(names, arm_findings(comparison))
    return [*found, _INTERRUPTED] if comparison.interrupted else found


def _arm_notes(names: Sequence[str], findings_of_arms: Iterable[Sequence[Finding]]) -> list[str]:
    return [
        f"{name}: {finding(warning)}"
        for name, findings in zip(names, findings_of_arms, strict=True)
        for warning in findings
    ]


_OF_MOMENTS = (
    "saved results were not measured interleaved, so a change of the machine between them counts as a difference. "
    "For a verdict that holds, compare the models themselves."
)
_OF_SERIES = (
    "the baseline was not measured beside it: the interval is as wide as the entries of its series differ, on "
    "machines of this kind and with this version of the engine. Models are measured interleaved where the "
    "baseline is a bundle (inferlab export)."
)
_OF_MACHINES = (
    "results of two machines cannot be measured interleaved, so that the verdict is about these two machines at "
    "those moments. Measure several machines of each type to see how much those differ."
)


def _of_machines(comparison: Comparison) -> bool:
    return any(difference.startswith(("machine: ", "machine type: ")) for difference in comparison.differences)


def sweep_blocks(sweep: ComparisonSweep) -> list[Block]:
    """Every comparison, where there are several below its core count and batch size."""
    if len(sweep.results) == 1 and not sweep.failures:
        return blocks(sweep.results[0])
    if any(result.place for result in sweep.results):
        return _saved_sweep(sweep)
    shown: list[list[Block]] = []
    for comparison in sweep.results:
        shown.append([_place(comparison, "batch size"), *blocks(comparison)])
    return tables.spaced(*shown, *([_failure(failure)] for failure in sweep.failures))


def _failure(failure: ComparisonFailure) -> Pair:
    where = f"{failure.num_cores or 'all'} cores, batch size {failure.batch_size or 'as it is'}"
    return Pair(f"Failure ({where})", failure.message)


def _saved_sweep(sweep: ComparisonSweep) -> list[Block]:
    """Two sweeps that were measured before, in one table: a row for each cell that both have."""
    first, count = sweep.results[0], len(sweep.results)
    tokens = first.metric in get_args(ComparedMetric)
    fields = [
        Field("cell", "Cell", lambda comparison: comparison.place, left=True),
        *((replace(_A_MS, label="A (ms)"), replace(_B_MS, label="B (ms)")) if tokens else (_A_MS, _B_MS)),
        _RATIO,
        Field("interval", "Interval", lambda comparison: _interval(comparison).text),
        _VERDICT,
    ]
    said = {result.place: notes(result) for result in sweep.results}
    common = [note for note in said[first.place] if all(note in others for others in said.values())]
    own = [f"{place}: {note}" for place, each in said.items() for note in each if note not in common]
    together = level_percent(1 - count * (1 - first.ratio.level))
    return [
        *map(Pair, "AB", first.labels),
        Table(fields, sweep.results),
        *([Pair("Compared", _METRICS[first.metric])] if tokens else []),
        Pair(
            "Intervals", f"they hold for all {count} cells together, at {together} %; margin {share(first.margin)}"
        ),
        *tables.notes([*common, *own, *(f"{failure.message}." for failure in sweep.failures)]),
    ]


def _place(comparison: Comparison, batch: str = "batch") -> str:
    """Where it was measured; empty where two saved results were compared."""
    if comparison.place:
        return comparison.place
    cell = comparison.cells[0] if comparison.cells else None
    return f"{plural(cell.num_cores, 'core')}, {batch} {cell.batch_size}" if cell else ""


_LABELS = (
    Field("a", "A", lambda comparison: comparison.labels[0], left=True),
    Field("b", "B", lambda comparison: comparison.labels[1], left=True),
)
_A_MS = Field("a_ms", "A (ms per item)", lambda comparison: statistics.median(comparison.times_ms[0]), decimal)
_B_MS = Field("b_ms", "B (ms per item)", lambda comparison: statistics.median(comparison.times_ms[1]), decimal)
_RATIO = Field("ratio", "B's time over A's", lambda comparison: comparison.ratio.value, decimal)
_VERDICT = Field("verdict", "B is", lambda comparison: comparison.verdict, left=True)


def table(sweep: ComparisonSweep) -> Table:
    """A row for each comparison."""
    shown = [
        *_LABELS,
        *(Field(name, name, _of_cell(name)) for name in ("num_cores", "batch_size", "scenario")),
        _RATIO,
        Field("low", "low", lambda comparison: comparison.ratio.low, decimal),
        Field("high", "high", lambda comparison: comparison.ratio.high, decimal),
        Field("level", "level", lambda comparison: comparison.ratio.level, share),
        _VERDICT,
        Field("margin", "margin", lambda comparison: comparison.margin, share),
        Field("paired", "paired", lambda comparison: bool(comparison.pairs)),
        Field("pairs", "pairs", lambda comparison: len(comparison.pairs)),
        Field("seconds", "seconds", lambda comparison: comparison.seconds, duration),
        Field("outputs_match", "outputs match", lambda comparison: comparison.outputs_match),
    ]
    return Table(shown, sweep.results)


def _generation_sweep_blocks(sweep: GenerationComparisonSweep) -> list[Block]:
    """Every comparison below what tells its cell from the others."""
    told = short_labels([comparison.arms[0] for comparison in sweep.results])
    shown = [
        [Pair("Cell of A", place), *generation_blocks(comparison)]
        for place, comparison in zip(told, sweep.results, strict=True)
    ]
    failures: list[Block] = [_failure(failure) for failure in sweep.failures]
    return tables.spaced(*shown, failures)


def _generation_table(comparisons: Sequence[GenerationComparison]) -> Table:
    several = len(comparisons) > 1
    shown = [
        *_LABELS,
        *(field.of(lambda comparison: comparison.arms[0]) for field in GENERATION_CELL[1:] if several),
        Field("metric", "metric", lambda comparison: comparison.metric, left=True),
        *(_A_MS, _B_MS, replace(_RATIO, ends=lambda comparison: comparison.ratio.ends)),
        _VERDICT,
        Field("pairs", "pairs", lambda comparison: len(comparison.log_ratios)),
    ]
    return Table(shown, comparisons)


def _of_cell(name: str) -> Callable[[Comparison], Any]:
    return lambda comparison: getattr(comparison.cells[0], name) if comparison.cells else None


def content(record: Comparison | ComparisonSweep) -> dict[str, Any]:
    """The values of a file; of a sweep with a single comparison, as if that were alone."""
    if isinstance(record, Comparison):
        return json_values(_content(record))
    values = [content(result) for result in record.results]
    if len(values) == 1 and not record.failures:
        return values[0]
    return json_values({"format": COMPARISONS, "results": values, "failures": record.failures})


def _content(comparison: Comparison) -> dict[str, Any]:
    ratio = comparison.ratio
    return {
        "format": COMPARISON,
        "verdict": comparison.verdict,
        "ratio": ratio.value,
        "interval": ratio.ends,
        **picked(ratio, "level", "method"),
        **picked(comparison, "margin", "metric"),
        "paired": bool(comparison.pairs),
        "pairs": len(comparison.pairs),
        "seconds": comparison.seconds,
        "settle_seconds": comparison.settle_s,
        **picked(comparison, "outputs_match", "output_error", "output_metric", "output_detail"),
        "log_ratios": [pair.log_ratio for pair in comparison.pairs],
        **picked(comparison, "differences", "interrupted", "spread", "tail_ratio"),
        "notes": notes(comparison),
        "a": _arm_content(comparison, 0),
        "b": _arm_content(comparison, 1),
    }


def _arm_content(comparison: Comparison, index: int) -> dict[str, Any]:
    known = {"label": comparison.labels[index], "times_ms": comparison.times_ms[index]}
    if comparison.cells is None or comparison.models is None:
        return known
    runs = arm_runs(comparison)[index]
    cell = {name: value for name, value in plain(comparison.cells[index]).items() if name not in _NOT_OF_ARMS}
    return known | {
        "model": picked(comparison.models[index], "source", "digest", "precision"),
        "cell": cell,
        "output_check": worst([run.check for run in runs]),
        "findings": finding_values(arm_findings(comparison)[index]),
        "started_at": [run.started_at for run in runs],
        **picked(runs[0], "versions"),
        "engine_settings": runs[0].settings,
        "machine": runs[0].machine,
    }


def _generation_content(comparison: GenerationComparison) -> dict[str, Any]:
    ratio = comparison.ratio
    return json_values(
        {
            "format": GENERATION_COMPARISON,
            **without_progress(comparison),
            "ratio": ratio.value,
            "interval": ratio.ends,
            "level": ratio.level,
        }
    )


def _generation_sweep_content(sweep: GenerationComparisonSweep) -> dict[str, Any]:
    results = [_generation_content(comparison) for comparison in sweep.results]
    return json_values({"format": GENERATION_COMPARISONS, "results": results, "failures": sweep.failures})


def report(title: str, sweep: ComparisonSweep) -> str:
    """The report of comparisons of the same two arms, one for each core count and batch size: one page."""
    drawn, results = parts.Charts(), sweep.results
    head = [
        parts.heading(title, _known(results)),
        parts.box(
            [_told(result, _differ(result)) for result in results if result.outputs_match is False], wrong=True
        ),
        parts.box(
            [_failed(failure.num_cores, failure.batch_size, failure.message) for failure in sweep.failures],
            wrong=True,
        ),
        parts.box(list(dict.fromkeys(_told(result, note) for result in results for note in notes(result)))),
    ]
    sections = {
        "Summary": _summary(results) if results else [],
        "Ratio of every pair": _ratios(results, drawn) if results else [],
        "How it was measured": [parts.facts(_how(results[0]))] if results else [],
    }
    return parts.page(title, head, sections, drawn)


def _known(results: Sequence[Comparison]) -> list[str]:
    began = min((pair.a.started_at for result in results for pair in result.pairs), default="")
    labels = zip("AB", results[0].labels, strict=True) if results else ()
    return [*(f"{name}: {label}" for name, label in labels), began[:16].replace("T", " ")]


def _told(comparison: Comparison, text: str) -> str:
    """A sentence with the place that it is about."""
    return f"{place}: {text}" if (place := _place(comparison)) else text


def _differ(comparison: Comparison) -> str:
    error = output_error(comparison.output_error, comparison.output_metric)
    return f"The outputs of A and B DIFFER{error}: a speed-up of something else is meaningless."


def _failed(num_cores: int | None, batch_size: int | None, message: str) -> str:
    cores = plural(num_cores, "core") if num_cores else "all cores"
    return f"{cores}, batch {batch_size or 'as it is'}: Failed: {message}"


_OUTPUTS = {True: "match", False: "DIFFER", None: "not compared"}
_SUMMARY = (
    *(_A_MS.aligned("A, ms per item"), _B_MS.aligned("B, ms per item"), _RATIO.aligned(_RATIO.label)),
    Field("", "Interval", lambda comparison: _interval(comparison)),
    _VERDICT,
    Field(
        "",
        "Outputs",
        lambda comparison: parts.Cell(_OUTPUTS[comparison.outputs_match], wrong=comparison.outputs_match is False),
        left=True,
    ),
    Field("", "Pairs", lambda comparison: len(comparison.pairs)),
)


def _summary(results: Sequence[Comparison]) -> list[parts.Element]:
    places = [Field("", "Cores", _of_cell("num_cores")), Field("", "Batch size", _of_cell("batch_size"))]
    known = [field for field in places if all(field.get(result) is not None for result in results)]
    a, b = results[0].labels
    margin, fields, what = share(results[0].margin), _SUMMARY, ""
    if results[0].metric in get_args(ComparedMetric):
        fields = (_A_MS.aligned("A, ms"), _B_MS.aligned("B, ms"), *_SUMMARY[2:])
        what = f", by the {_METRICS[results[0].metric]}"
    return [
        parts.caption(f"A is {a}, B is {b}{what}. Below 1, B takes less time; within {margin} both are the same."),
        parts.sortable("comparisons", Table((*known, *fields), results), parts.MISSING),
    ]


def _interval(comparison: Comparison) -> parts.Cell:
    ends = comparison.ratio.ends
    return parts.Cell("none") if ends is None else parts.Cell(between_at(ends, comparison.ratio.level), ends[0])


def _ratios(results: Sequence[Comparison], drawn: parts.Charts) -> list[parts.Element]:
    from inferlab.views.charts.comparisons import of_comparison, ratios  # late: only a report draws them

    figures = {str(number): ratios(of_comparison(result)) for number, result in enumerate(results, 1)}
    if len(results) == 1:
        return [drawn.add("ratios", {"": figures["1"]})]
    names = {str(number): _place(result) or f"#{number}" for number, result in enumerate(results, 1)}
    return [parts.selectors("ratios", {"Cell": names}), drawn.add("ratios", figures)]


def _how(comparison: Comparison) -> dict[str, str]:
    taken = "fresh processes, interleaved" if comparison.pairs else "saved results, not interleaved"
    runs = [run for arm in arm_runs(comparison)[::-1] for run in arm[:1]]
    versions = {name: version for run in runs for name, version in run.versions.items()}
    machine = runs[-1].machine if runs else None
    return {
        "Measured": f"{taken}; {duration(comparison.seconds)} for each comparison",
        "99th percentile": _tail(comparison),
        "Spread": spread_text(comparison.spread) if comparison.spread else "",
        "Model": comparison.models[0].source if comparison.models else "",
        "Scenario": comparison.cells[0].scenario if comparison.cells else "",
        "Versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "Machine": ", ".join(filter(None, (machine.cpu, machine.system))) if machine else "",
    }
