"""Comparisons as one HTML file that opens offline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from inferlab.records import ComparisonFailure, ComparisonSweep
from inferlab.units import duration, plural, share
from inferlab.views import comparison
from inferlab.views import report as parts
from inferlab.views.charts import pairs
from inferlab.views.intervals import between_at
from inferlab.views.report import Cell, numbers
from inferlab.views.text import ERRORS

#: A comparison as `inferlab compare -x` writes it.
Content = Mapping[str, Any]
_NAMES = ("B is", "Outputs")


def report(title: str, sweep: ComparisonSweep) -> str:
    """The report of comparisons of the same two arms, one for each core count and batch size: one page."""
    drawn = parts.Charts()
    results = [comparison.content(one) for one in sweep.results]
    labels = [results[0][arm]["label"] for arm in "ab"] if results else []
    head = [
        parts.heading(title, _known(results, labels)),
        parts.box([_differ(one) for one in results if one["outputs_match"] is False], wrong=True),
        parts.box([f"{_failed(one)}: {one.message}" for one in sweep.failures], wrong=True),
        parts.box(list(dict.fromkeys(f"{_named(one)}{note}" for one in results for note in one["notes"]))),
    ]
    sections = {
        "Summary": _summary(results, labels) if results else [],
        "Ratio of every pair": _ratios(results, drawn),
        "How it was measured": [parts.facts(_how(results[0]))] if results else [],
    }
    return parts.page(title, head, sections, drawn)


def _known(results: Sequence[Content], labels: Sequence[str]) -> list[str]:
    began = min((moment for one in results for moment in one["a"].get("started_at", ())), default="")
    named = [f"{name}: {label}" for name, label in zip("AB", labels, strict=False)]
    return [*named, *filter(None, [began[:16].replace("T", " ")])]


def _named(one: Content) -> str:
    """Where it was measured, before what is told of it."""
    cell = one.get("cell") or one.get("a", {}).get("cell")
    return f"{plural(cell['num_cores'], 'core')}, batch {cell['batch_size']}: " if cell else ""


def _failed(failure: ComparisonFailure) -> str:
    cores = plural(failure.num_cores, "core") if failure.num_cores else "all cores"
    place = f"{cores}, batch {failure.batch_size or 'as it is'}"
    return f"{place}: Failed"


def _differ(one: Content) -> str:
    # JSON has no infinity, so that one is stored as a word.
    found, metric = one["output_error"], ERRORS[one.get("output_metric", "max")]
    error = "" if found is None else f" ({metric} {float(found):.2g})"
    return f"{_named(one)}The outputs of A and B DIFFER{error}: a speed-up of something else is meaningless."


def _summary(results: Sequence[Content], labels: Sequence[str]) -> list[parts.Element]:
    cells = [one["a"].get("cell") or {} for one in results]
    columns: dict[str, Sequence[str | Cell]] = {}
    for title, field in (("Cores", "num_cores"), ("Batch Size", "batch_size")):
        if all(field in one for one in cells):
            columns[title] = [Cell(str(one[field]), one[field]) for one in cells]
    for arm in "ab":
        columns[f"{arm.upper()}, ms per item"] = numbers(
            [statistics.median(one[arm]["times_ms"]) for one in results]
        )
    columns |= {
        "B's time over A's": numbers([one["ratio"] for one in results]),
        "Interval": [_interval(one) for one in results],
        "B is": [one["verdict"] for one in results],
        "Outputs": [_outputs(one) for one in results],
        "Pairs": [Cell(str(one["pairs"]), one["pairs"]) for one in results],
    }
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    margin = share(results[0]["margin"])
    told = f"A is {labels[0]}, B is {labels[1]}. Below 1, B takes less time; within {margin} both are the same."
    return [parts.caption(told), parts.rows_table("comparisons", list(columns), rows, left=_NAMES)]


def _interval(one: Content) -> Cell:
    if one["interval"] is None:
        return Cell("none")
    return Cell(between_at(one["interval"], one["level"]), one["interval"][0])


def _outputs(one: Content) -> Cell:
    told = {True: "match", False: "DIFFER", None: "not compared"}[one["outputs_match"]]
    return Cell(told, wrong=one["outputs_match"] is False)


def _ratios(results: Sequence[Content], drawn: parts.Charts) -> list[parts.Element]:
    if not results:
        return []
    figures = {str(number): pairs.ratios(pairs.of_file(one)) for number, one in enumerate(results, 1)}
    if len(results) == 1:
        return [drawn.add("ratios", {"": figures["1"]})]
    names = {str(number): _named(one).rstrip(": ") or f"#{number}" for number, one in enumerate(results, 1)}
    return [parts.selectors("ratios", {"Cell": names}), drawn.add("ratios", figures)]


def _how(one: Content) -> dict[str, str]:
    cell, machine = one["a"].get("cell") or {}, one["a"].get("machine") or {}
    taken = "fresh processes, interleaved" if one["paired"] else "saved results, not interleaved"
    versions = {name: text for arm in "ba" for name, text in (one[arm].get("versions") or {}).items()}
    return {
        "Measured": f"{taken}; {duration(one['seconds'])} for each comparison",
        "Model": str((one["a"].get("model") or {}).get("source", "")),
        "Scenario": str(cell.get("scenario", "")),
        "Versions": ", ".join(f"{name} {text}" for name, text in sorted(versions.items())),
        "Machine": ", ".join(filter(None, (machine.get("cpu", ""), machine.get("system", "")))),
    }
