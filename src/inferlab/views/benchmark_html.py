"""A benchmark as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from inferlab.measure.check import worst
from inferlab.measure.findings import find_in_all
from inferlab.records import Benchmark, Finding, Outcome
from inferlab.views import charts, flat, table
from inferlab.views import report_parts as parts
from inferlab.views.benchmark_how import how
from inferlab.views.benchmark_summary import cells, summary
from inferlab.views.charts import cards, frame
from inferlab.views.charts.points import Point
from inferlab.views.charts.timeline import measured
from inferlab.views.text import cell_label, finding, output_check

# Dots of all cells together, and of one at least: a page of many cells must open too.
_MOST_DOTS = 60_000
_FEWEST_DOTS = 300
_DOTS_OF_ONE = 6_000


def report(benchmark: Benchmark) -> str:
    """The report of a benchmark: one self-contained page."""
    drawn = parts.Charts()
    points = [charts.from_row(row) for row in flat.rows(benchmark)]
    sections = {
        "Summary": summary(benchmark, points),
        "Cells": cells(benchmark, points) if len(points) > 1 else [],
        "Throughput": _throughput(points, drawn),
        "Core Scaling": _scaling(points, drawn, "cores"),
        "Batch Size Scaling": _scaling(points, drawn, "batches"),
        "Batch Iterations": _iterations(benchmark.outcomes, drawn),
        "How it was measured": how(benchmark),
    }
    name = PurePath(benchmark.model.source).name or benchmark.model.source
    return parts.document(f"{name}: benchmark", [*_head(benchmark, name, points)], sections, drawn)


def _head(benchmark: Benchmark, name: str, points: Sequence[Point]) -> Iterator[str]:
    outcomes = benchmark.outcomes
    runs = [run for one in outcomes for run in one.runs]
    began = min((run.started_at for run in runs), default="")
    known = [began[:16].replace("T", " "), *(run.machine.cpu for run in runs), *_engines(points)]
    yield parts.heading(name, benchmark.model, list(dict.fromkeys(known)))
    yield parts.box(_told([_wrong(one) for one in outcomes]), wrong=True)
    yield parts.box(_told([_failed(one) for one in outcomes]), wrong=True)
    yield parts.box(_told([_findings(*both) for both in zip(outcomes, find_in_all(outcomes), strict=True)]))


def _engines(points: Sequence[Point]) -> list[str]:
    """The engines with their versions, which those that only failed do not tell."""
    versions = {one.engine: one.version for one in sorted(points, key=lambda one: one.version)}
    return [f"{engine} {version}".rstrip() for engine, version in sorted(versions.items())]


def _told(sentences: Sequence[Sequence[str]]) -> list[str]:
    """What is told of the cells, each sentence once."""
    found = table.shared(sentences)
    return [f"{cells}: {text}" if cells else text for text, cells in found.items()]


def _wrong(outcome: Outcome) -> list[str]:
    check = worst([run.check for run in outcome.runs]) if outcome.runs else None
    if check is None or check.status != "mismatch":
        return []
    return [f"Outputs {output_check(check)}: this speed is worth nothing."]


def _failed(outcome: Outcome) -> list[str]:
    return [f"Failed: {outcome.failure.message}"] if outcome.failure else []


def _findings(outcome: Outcome, found: Sequence[Finding]) -> list[str]:
    told = [finding(one) for one in found if one.code != "output-mismatch"]
    if not outcome.runs and not outcome.failure:
        told.append("nothing was measured: it was interrupted before.")
    return [text[:1].upper() + text[1:] for text in told]


def _throughput(points: Sequence[Point], drawn: parts.Charts) -> list[str]:
    """All cells side by side."""
    if len(points) < 2 or all(one.items_per_sec is None for one in points):
        return []
    bars = charts.bars(points)
    return [
        parts.caption("Items a second; bars are 95 % intervals."),
        drawn.add("throughput", {"": frame.compact(bars, bars.layout.height - bars.layout.margin.t)}),
    ]


def _scaling(points: Sequence[Point], drawn: parts.Charts, name: str) -> list[str]:
    """The time an item along core counts or batch sizes, for each of the other that has more than one of these."""
    axis, fixed, draw, label = {
        "cores": ("num_cores", "batch_size", cards.core_scaling, "Batch Size"),
        "batches": ("batch_size", "num_cores", cards.batch_scaling, "Cores"),
    }[name]
    # The line that comes first has the colour: that of the best, which a wrong one never is.
    shown = [one for one in points if one.ms_per_item is not None]
    shown.sort(key=lambda one: (one.wrong, one.ms_per_item))
    choices: dict[int, set[int]] = {}
    for one in shown:
        choices.setdefault(getattr(one, fixed), set()).add(getattr(one, axis))
    figures = {str(choice): draw([("", shown)], choice) for choice in sorted(choices) if len(choices[choice]) > 1}
    if not figures:
        return []
    what = "core counts" if name == "cores" else "batch sizes"
    return [
        parts.caption(f"The time an item along {what}; bars are 95 % intervals, and the ring marks the best."),
        parts.selectors(name, {label: {choice: choice for choice in figures}}),
        drawn.add(name, figures),
    ]


def _iterations(outcomes: Sequence[Outcome], drawn: parts.Charts) -> list[str]:
    """Every batch of a cell over time."""
    shown = {str(number): one for number, one in enumerate(outcomes, 1) if measured(one)}
    if not shown:
        return []
    dots = min(_DOTS_OF_ONE, max(_FEWEST_DOTS, _MOST_DOTS // len(shown)))
    figures = {key: cards.iterations([(cell_label(one.cell), one)], dots) for key, one in shown.items()}
    if len(outcomes) == 1:
        return [drawn.add("iterations", {"": figures["1"]})]
    names = {key: f"#{key}: {cell_label(one.cell)}" for key, one in shown.items()}
    return [parts.selectors("iterations", {"Cell": names}), drawn.add("iterations", figures)]
