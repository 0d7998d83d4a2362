"""Comparisons as blocks, as a table, and as one HTML page that opens offline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from inferlab.measure.check import deviates
from inferlab.measure.findings import arm_findings, arm_runs
from inferlab.measure.stats import Resource, resource_of, resource_ratio
from inferlab.records import Estimate, engine_name
from inferlab.records.comparison import Comparison, ComparisonSweep, Spread
from inferlab.units import decimal, duration, plural, share, size
from inferlab.views import report as parts
from inferlab.views import tables
from inferlab.views.charts import pairs
from inferlab.views.fields import Field
from inferlab.views.intervals import between_at, interval_text, level_percent, rounded, would_settle
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import error_label, finding

_METRICS = {
    "median": "median latency per item",
    "throughput": "time per item at full throughput",
    "response": "median response time",
}


def blocks(comparison: Comparison) -> list[Block]:
    """The arms, then the verdict with all that qualifies it."""
    metric = _METRICS[comparison.metric]
    shown: list[Block] = [
        Pair(name, f"{label}: {decimal(statistics.median(times))} ms ({metric})")
        for name, label, times in zip("AB", comparison.labels, comparison.times_ms, strict=True)
    ]
    shown.append(Pair("Verdict", f"{comparison.verdict} ({said(comparison)})", strong=True))
    if comparison.tail_ratio is not None:
        shown.append(Pair("99th percentile", _tail(comparison.tail_ratio)))
    shown += _resources(comparison)
    shown.append(Pair("Measured", f"{_measured(comparison)}; {duration(comparison.seconds)}"))
    if comparison.spread is not None:
        shown.append(Pair("Spread", spread_text(comparison.spread)))
    if comparison.settle_s is not None:
        shown.append(would_settle(comparison.settle_s))
    return shown + list(tables.notes(notes(comparison)))


def said(comparison: Comparison) -> str:
    """The ratio with its interval, and whether the outputs match."""
    ratio = comparison.ratio
    parts = [f"B takes {rounded(ratio.value, ratio.ends)} of A's time", interval_text(ratio.ends, ratio.level)]
    parts.append(f"margin {share(comparison.margin)}")
    return ", ".join(parts) + "; " + outputs(comparison)


def _tail(ratio: Estimate) -> str:
    return f"B's is {rounded(ratio.value, ratio.ends)} of A's, {interval_text(ratio.ends, ratio.level)}"


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
        told = f"B takes {rounded(ratio.value, ratio.ends)} of A's, {interval_text(ratio.ends, ratio.level)}"
        found.append(Pair(name, f"A {a}, B {b} ({told})"))
    return found


_RESOURCES: tuple[tuple[Resource, str, Callable[[float], str]], ...] = (
    ("memory", "Peak memory", size),
    ("load", "Load time", duration),
)


def outputs(comparison: Comparison) -> str:
    """Whether both arms compute the same, in a few words."""
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
    for name, found_here in zip(names, arm_findings(comparison), strict=True):
        found += [f"{name}: {finding(one)}" for one in found_here]
    if comparison.interrupted:
        found.append("it was interrupted; the pairs that were complete are kept.")
    return found


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
    for failure in sweep.failures:
        where = f"{failure.num_cores or 'all'} cores, batch size {failure.batch_size or 'as it is'}"
        shown.append([Pair(f"Failure ({where})", failure.message)])
    return tables.spaced(*shown)


def _saved_sweep(sweep: ComparisonSweep) -> list[Block]:
    """Two sweeps that were measured before, in one table: a row for each cell that both have."""
    first, count = sweep.results[0], len(sweep.results)
    fields = [
        Field("cell", "Cell", lambda one: one.place, left=True),
        Field("a", "A (ms per item)", lambda one: statistics.median(one.times_ms[0]), decimal),
        Field("b", "B (ms per item)", lambda one: statistics.median(one.times_ms[1]), decimal),
        Field("ratio", "B's time over A's", lambda one: one.ratio.value, decimal),
        Field("interval", "Interval", lambda one: _interval(one).text),
        Field("verdict", "B is", lambda one: one.verdict, left=True),
    ]
    said = {result.place: notes(result) for result in sweep.results}
    common = [note for note in said[first.place] if all(note in others for others in said.values())]
    own = [f"{place}: {note}" for place, each in said.items() for note in each if note not in common]
    together = level_percent(1 - count * (1 - first.ratio.level))
    return [
        *map(Pair, "AB", first.labels),
        Table(fields, sweep.results),
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


def table(sweep: ComparisonSweep) -> Table:
    """A row for each comparison."""
    shown = [
        Field("a", "A", lambda one: one.labels[0], left=True),
        Field("b", "B", lambda one: one.labels[1], left=True),
        *(Field(name, name, _of_cell(name)) for name in ("num_cores", "batch_size", "scenario")),
        Field("ratio", "B's time over A's", lambda one: one.ratio.value, decimal),
        Field("low", "low", lambda one: one.ratio.low, decimal),
        Field("high", "high", lambda one: one.ratio.high, decimal),
        Field("level", "level", lambda one: one.ratio.level, share),
        Field("verdict", "B is", lambda one: one.verdict, left=True),
        Field("margin", "margin", lambda one: one.margin, share),
        Field("paired", "paired", lambda one: bool(one.pairs)),
        Field("pairs", "pairs", lambda one: len(one.pairs)),
        Field("seconds", "seconds", lambda one: one.seconds, duration),
        Field("outputs_match", "outputs match", lambda one: one.outputs_match),
    ]
    return Table(shown, sweep.results)


def _of_cell(name: str) -> Callable[[Comparison], Any]:
    return lambda one: getattr(one.cells[0], name) if one.cells else None


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


def _told(one: Comparison, text: str) -> str:
    """A sentence with the place that it is about."""
    return f"{place}: {text}" if (place := _place(one)) else text


def _differ(one: Comparison) -> str:
    error = output_error(one.output_error, one.output_metric)
    return f"The outputs of A and B DIFFER{error}: a speed-up of something else is meaningless."


def _failed(num_cores: int | None, batch_size: int | None, message: str) -> str:
    cores = plural(num_cores, "core") if num_cores else "all cores"
    return f"{cores}, batch {batch_size or 'as it is'}: Failed: {message}"


def _summary(results: Sequence[Comparison]) -> list[parts.Element]:
    columns: dict[str, Sequence[str | parts.Cell]] = {}
    for heading, name in (("Cores", "num_cores"), ("Batch size", "batch_size")):
        known = [_of_cell(name)(result) for result in results]
        if None not in known:
            columns[heading] = [parts.Cell(str(value), value) for value in known]
    for index, arm in enumerate("AB"):
        columns[f"{arm}, ms per item"] = parts.numbers(
            [statistics.median(result.times_ms[index]) for result in results]
        )
    told = {True: "match", False: "DIFFER", None: "not compared"}
    columns |= {
        "B's time over A's": parts.numbers([result.ratio.value for result in results]),
        "Interval": [_interval(result) for result in results],
        "B is": [result.verdict for result in results],
        "Outputs": [
            parts.Cell(told[result.outputs_match], wrong=result.outputs_match is False) for result in results
        ],
        "Pairs": [parts.Cell(str(len(result.pairs)), len(result.pairs)) for result in results],
    }
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    a, b = results[0].labels
    margin = share(results[0].margin)
    caption = f"A is {a}, B is {b}. Below 1, B takes less time; within {margin} both are the same."
    return [
        parts.caption(caption),
        parts.rows_table("comparisons", list(columns), rows, left=("B is", "Outputs")),
    ]


def _interval(one: Comparison) -> parts.Cell:
    ends = one.ratio.ends
    return parts.Cell("none") if ends is None else parts.Cell(between_at(ends, one.ratio.level), ends[0])


def _ratios(results: Sequence[Comparison], drawn: parts.Charts) -> list[parts.Element]:
    figures = {str(number): pairs.ratios(pairs.of_comparison(result)) for number, result in enumerate(results, 1)}
    if len(results) == 1:
        return [drawn.add("ratios", {"": figures["1"]})]
    names = {str(number): _place(result) or f"#{number}" for number, result in enumerate(results, 1)}
    return [parts.selectors("ratios", {"Cell": names}), drawn.add("ratios", figures)]


def _how(one: Comparison) -> dict[str, str]:
    taken = "fresh processes, interleaved" if one.pairs else "saved results, not interleaved"
    runs = [run for arm in arm_runs(one)[::-1] for run in arm[:1]]
    versions = {name: version for run in runs for name, version in run.versions.items()}
    machine = runs[-1].machine if runs else None
    return {
        "Measured": f"{taken}; {duration(one.seconds)} for each comparison",
        "99th percentile": _tail(one.tail_ratio) if one.tail_ratio else "",
        "Spread": spread_text(one.spread) if one.spread else "",
        "Model": one.models[0].source if one.models else "",
        "Scenario": one.cells[0].scenario if one.cells else "",
        "Versions": ", ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "Machine": ", ".join(filter(None, (machine.cpu, machine.system))) if machine else "",
    }
