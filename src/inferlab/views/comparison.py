"""A comparison as text and as a file."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from inferlab.measure.check import deviates, worst
from inferlab.measure.findings import arm_findings, arm_runs
from inferlab.records import Cell, Comparison, ComparisonSweep
from inferlab.units import decimal, duration, plural, share
from inferlab.views import files, tables
from inferlab.views.fields import Field
from inferlab.views.intervals import interval_text, rounded, would_settle
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import ERRORS, finding

# Version 1: the first.
FORMAT = "inferlab-comparison/1"
#: Several in one: {"format": …, "results": [that object, …], "failures": [{"cell": …, "message": …}, …]}.
SEVERAL = "inferlab-comparisons/1"

_METRICS = {"median": "median latency per item", "throughput": "time per item at full throughput"}


def blocks(comparison: Comparison) -> list[Block]:
    """The arms, then the verdict with all that qualifies it."""
    metric = _METRICS[comparison.metric]
    shown: list[Block] = [
        Pair(name, f"{label}: {decimal(statistics.median(times))} ms ({metric})")
        for name, label, times in zip("AB", comparison.labels, comparison.times_ms, strict=True)
    ]
    shown.append(Pair("Verdict", f"{comparison.verdict} ({_said(comparison)})", strong=True))
    shown.append(Pair("Measured", f"{_measured(comparison)}; {duration(comparison.seconds)}"))
    if comparison.settle_s is not None:
        shown.append(would_settle(comparison.settle_s))
    return shown + list(tables.notes(notes(comparison)))


def lines(comparison: Comparison) -> list[str]:
    """The same as text."""
    return tables.text(blocks(comparison))


def _said(comparison: Comparison) -> str:
    ratio = comparison.ratio
    parts = [f"B takes {rounded(ratio.value, ratio.ends)} of A's time", interval_text(ratio.ends, ratio.level)]
    parts.append(f"margin {share(comparison.margin)}")
    return ", ".join(parts) + "; " + outputs(comparison)


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
    return "" if error is None else f" ({ERRORS[metric]} {error:.2g})"


def _measured(comparison: Comparison) -> str:
    if comparison.pairs:
        return f"{len(comparison.pairs)} pairs of fresh processes, measured interleaved"
    return f"unpaired, {len(comparison.times_ms[0])} and {len(comparison.times_ms[1])} processes of saved results"


def notes(comparison: Comparison, names: Sequence[str] = "AB") -> list[str]:
    """What disturbed it and what else differs; `names` are what its arms are called."""
    found = [f"the results also differ in {one}." for one in comparison.differences]
    if not comparison.pairs:
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
_OF_MACHINES = (
    "results of two machines cannot be measured interleaved, so that the verdict is about these two machines at "
    "those moments. Measure several machines of each type to see how much those differ."
)


def _of_machines(comparison: Comparison) -> bool:
    return any(one.startswith(("machine: ", "machine type: ")) for one in comparison.differences)


def to_json(comparison: Comparison) -> str:
    """The text that `inferlab compare -x result.json` writes."""
    return json.dumps(content(comparison), indent=2, allow_nan=False) + "\n"


def content(comparison: Comparison) -> dict[str, Any]:
    """The verdict and all that it rests on, as JSON values."""
    ratio = comparison.ratio
    ends = None if ratio.low is None or ratio.high is None else [ratio.low, ratio.high]
    return {
        "format": FORMAT,
        "verdict": comparison.verdict,
        "ratio": ratio.value,
        "interval": ends,
        "level": ratio.level,
        "method": ratio.method,
        "margin": comparison.margin,
        "metric": comparison.metric,
        "paired": bool(comparison.pairs),
        "pairs": len(comparison.pairs),
        "seconds": comparison.seconds,
        "settle_seconds": comparison.settle_s,
        "outputs_match": comparison.outputs_match,
        "output_error": files.plain(comparison.output_error),
        "output_metric": comparison.output_metric,
        "output_detail": comparison.output_detail,
        "log_ratios": [pair.log_ratio for pair in comparison.pairs],
        "differences": list(comparison.differences),
        "interrupted": comparison.interrupted,
        "notes": notes(comparison),
        "a": _arm(comparison, 0),
        "b": _arm(comparison, 1),
    }


def sweep_content(sweep: ComparisonSweep) -> dict[str, Any]:
    """Comparisons of the same two arms in several cells, as JSON values; a single one is as if it were alone."""
    if len(sweep.results) == 1 and not sweep.failures:
        return content(sweep.results[0])
    failures = [dataclasses.asdict(one) for one in sweep.failures]
    return {"format": SEVERAL, "results": [content(one) for one in sweep.results], "failures": failures}


def sweep_blocks(sweep: ComparisonSweep) -> list[Block]:
    """Every comparison, where there are several below its core count and batch size."""
    if len(sweep.results) == 1 and not sweep.failures:
        return blocks(sweep.results[0])
    shown: list[list[Block]] = []
    for comparison in sweep.results:
        place = ""
        if comparison.cells:
            cell = comparison.cells[0]
            place = f"{plural(cell.num_cores, 'core')}, batch size {cell.batch_size}"
        shown.append([place, *blocks(comparison)])
    for failure in sweep.failures:
        where = f"{failure.num_cores or 'all'} cores, batch size {failure.batch_size or 'as it is'}"
        shown.append([Pair(f"Failure ({where})", failure.message)])
    return tables.spaced(*shown)


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


def _arm(comparison: Comparison, index: int) -> dict[str, Any]:
    known: dict[str, Any] = {
        "label": comparison.labels[index],
        "times_ms": list(comparison.times_ms[index]),
    }
    if comparison.cells is None or comparison.models is None:
        return known
    runs = arm_runs(comparison)[index]
    model = comparison.models[index]
    return known | {
        "model": {"source": model.source, "digest": model.digest, "precision": model.precision},
        "cell": _settings(comparison.cells[index]),
        "output_check": files.output_check(worst([run.check for run in runs])),
        "findings": files.findings(arm_findings(comparison)[index]),
        "started_at": [run.started_at for run in runs],
        "versions": dict(runs[0].versions),
        "engine_settings": dict(runs[0].settings),
        "machine": dataclasses.asdict(runs[0].machine),
    }


def _settings(cell: Cell) -> dict[str, Any]:
    settings = dataclasses.asdict(cell)
    return {name: settings[name] for name in settings if name not in _BENCHMARK_ONLY}


_BENCHMARK_ONLY = ("time_s", "warmup_s", "processes", "precision")
