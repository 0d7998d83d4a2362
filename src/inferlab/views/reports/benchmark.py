"""A benchmark as one HTML page that opens offline, and what its report has in common with a generation's."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure.check import worst
from inferlab.measure.findings import find_in_all
from inferlab.measure.stats import peak_memory_bytes, statistic, summarize
from inferlab.records import Benchmark, Finding, Outcome, Run, Summary
from inferlab.records.generation import GenerationSweep
from inferlab.units import capitalized, count, decimal, duration, plural, share, size, three_digits
from inferlab.version import __version__
from inferlab.views import benchmark as view
from inferlab.views import benchmark_file, command, fields
from inferlab.views.charts import cards, frame, sweeps
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import Point, from_row
from inferlab.views.charts.timeline import measured
from inferlab.views.fields import Field, interval_of
from inferlab.views.reports import page as parts
from inferlab.views.reports.page import Element
from inferlab.views.results import short_name
from inferlab.views.tables import Table
from inferlab.views.text import cell_label, finding, machine_line, output_check, shapes

# Dots of all cells together, and of one at least: a page of many cells must open too.
_MOST_DOTS = 60_000
_FEWEST_DOTS = 300
_DOTS_OF_ONE = 6_000
_NUMBERS = (
    "A cell's median and throughput are those of its typical process; an interval (95 %) is Student's on what its "
    "processes say."
)

Drawn = parts.Charts


def report(benchmark: Benchmark) -> str:
    """The report of a benchmark: one self-contained page."""
    drawn = Drawn()
    points = [from_row(row) for row in benchmark_file.rows(benchmark)]
    sections = {
        "Summary": _summary(benchmark, points),
        "Cells": _cells(benchmark, points) if len(points) > 1 else [],
        "Throughput": _throughput(points, drawn),
        "Core scaling": _scaling(points, drawn, "cores"),
        "Batch size scaling": _scaling(points, drawn, "batches"),
        "Batch iterations": _iterations(benchmark.outcomes, drawn),
        "How it was measured": _how(benchmark),
    }
    name = short_name(benchmark.model.source)
    return parts.page(f"{name}: benchmark", [*_head(benchmark, name, points)], sections, drawn)


def _head(benchmark: Benchmark, name: str, points: Sequence[Point]) -> Iterator[Element | None]:
    outcomes = benchmark.outcomes
    runs = [run for outcome in outcomes for run in outcome.runs]
    facts = [began(runs), *(run.machine.cpu for run in runs), *_engines(points)]
    yield parts.model_heading(name, benchmark.model, list(dict.fromkeys(facts)))
    yield parts.box(_by_sentence([_wrong(outcome) for outcome in outcomes]), wrong=True)
    yield parts.box(_by_sentence([_failed(outcome) for outcome in outcomes]), wrong=True)
    yield parts.box(_by_sentence([_findings(*both) for both in zip(outcomes, find_in_all(outcomes), strict=True)]))


def _engines(points: Sequence[Point]) -> list[str]:
    """The engines with their versions, which those that only failed do not tell."""
    versions = {point.engine: point.version for point in sorted(points, key=lambda point: point.version)}
    return [f"{engine} {version}".rstrip() for engine, version in sorted(versions.items())]


def _by_sentence(sentences: Sequence[Sequence[str]]) -> list[str]:
    """What is told of the cells, each sentence once."""
    cells_of = view.shared(sentences)
    return [f"{cells}: {text}" if cells else text for text, cells in cells_of.items()]


def _wrong(outcome: Outcome) -> list[str]:
    check = worst([run.check for run in outcome.runs]) if outcome.runs else None
    if check is None or check.status != "mismatch":
        return []
    return [f"Outputs {output_check(check)}: this speed is meaningless."]


def _failed(outcome: Outcome) -> list[str]:
    return [f"Failed: {outcome.failure.message}"] if outcome.failure else []


def _findings(outcome: Outcome, findings: Sequence[Finding]) -> list[str]:
    sentences = [finding(note) for note in findings if note.code != "output-mismatch"]
    if not outcome.runs and not outcome.failure:
        sentences.append("nothing was measured: it was interrupted before.")
    return list(map(capitalized, sentences))


def _throughput(points: Sequence[Point], drawn: Drawn) -> list[Element]:
    """All cells side by side."""
    if len(points) < 2 or all(point.items_per_sec is None for point in points):
        return []
    bars = sweeps.bars(points)
    return [
        parts.caption("Items per second; bars are 95 % intervals."),
        drawn.add("throughput", {"": frame.compact(bars, bars.layout.height - bars.layout.margin.t)}),
    ]


def _scaling(points: Sequence[Point], drawn: Drawn, name: str) -> list[Element]:
    """The time per item along core counts or batch sizes, for each of the other that has several of these."""
    axis, fixed, draw, label = {
        "cores": ("num_cores", "batch_size", cards.core_scaling, "Batch size"),
        "batches": ("batch_size", "num_cores", cards.batch_scaling, "Cores"),
    }[name]
    # The line that comes first has the colour: that of the best, which a wrong one never is.
    placed = [point for point in points if point.ms_per_item is not None]
    placed.sort(key=lambda point: (point.wrong, point.ms_per_item))
    choices: dict[int, set[int]] = {}
    for point in placed:
        choices.setdefault(getattr(point, fixed), set()).add(getattr(point, axis))
    figures = {str(choice): draw([("", placed)], choice) for choice in sorted(choices) if len(choices[choice]) > 1}
    if not figures:
        return []
    what = "core counts" if name == "cores" else "batch sizes"
    return [
        parts.caption(f"The time per item along {what}; bars are 95 % intervals, and the ring marks the best."),
        parts.selectors(name, {label: {choice: choice for choice in figures}}),
        drawn.add(name, figures),
    ]


def _iterations(outcomes: Sequence[Outcome], drawn: Drawn) -> list[Element]:
    """Every batch of a cell over time."""
    drawable = {str(number): outcome for number, outcome in enumerate(outcomes, 1) if measured(outcome)}
    if not drawable:
        return []
    dots = min(_DOTS_OF_ONE, max(_FEWEST_DOTS, _MOST_DOTS // len(drawable)))
    figures = {
        key: cards.iterations([(cell_label(outcome.cell), outcome)], dots) for key, outcome in drawable.items()
    }
    return of_each("iterations", figures, [cell_label(outcome.cell) for outcome in outcomes], drawn)


_SHOWN = (90.0, 95.0, 99.0)


def _summary(benchmark: Benchmark, points: Sequence[Point]) -> list[Element]:
    """How fast the only cell is, or the best of many, and how far that can be believed."""
    if len(points) == 1:
        return _one_cell(benchmark.outcomes[0], points[0])
    checks = [point.output_check for point in points if point.output_check]
    tiles = [
        cells_tile([outcome.status for outcome in benchmark.outcomes]),
        parts.tile("Output check", verdict(sum(point.wrong for point in points), checks), style="words"),
    ]
    ends = best_and_worst(points)
    if ends is None:
        return [parts.tiles(*tiles), parts.caption("No cell was measured to its end with outputs that are right.")]
    best = ends[0]
    label = cell_label(benchmark.outcomes[points.index(best)].cell)
    return [
        parts.tiles(
            parts.tile(
                f"Best time per item (ms, {statistic(best.scenario)})",
                three_digits(best.ms_per_item or 0.0),
                label,
                "main",
            ),
            parts.tile("Its throughput (items/s, mean)", count(best.items_per_sec or 0.0), label, "main"),
            *tiles,
        ),
        *map(parts.caption, view.verdict(benchmark)),
    ]


def _one_cell(outcome: Outcome, point: Point) -> list[Element]:
    cell = outcome.cell
    summary = summarize(cell, outcome.runs)
    streams = None if cell.scenario == "sync" else parts.tile("Streams", str(cell.num_streams))
    what = parts.tiles(
        parts.tile("Engine", f"{cell.engine} {point.version}".rstrip(), style="words"),
        parts.tile("Scenario", cell.scenario, _rate(cell.rate), style="words"),
        parts.tile("Batch size", str(cell.batch_size)),
        parts.tile("Core count", str(cell.num_cores)),
        streams,
        parts.tile("Instances", str(cell.instances)) if cell.instances > 1 else None,
    )
    if summary is None:
        return [what, parts.caption("Nothing was measured.")]
    return [
        what,
        parts.tiles(
            parts.measured_tile(
                f"Time per item (ms, {statistic(cell.scenario)})",
                point.ms_per_item,
                point.ends("ms_per_item"),
            ),
            parts.measured_tile("Time per batch (ms, median)", summary.median_ms.value, summary.median_ms.ends),
            parts.measured_tile(
                "Throughput (items/s, mean)", summary.items_per_sec.value, summary.items_per_sec.ends, count
            ),
        ),
        parts.tiles(*_details(summary), *_around(outcome.runs)),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:g} requests/s"


def _details(summary: Summary) -> Iterator[Element]:
    yield parts.tile(
        "Mean", f"{decimal(summary.mean_ms, 3)} ms", f"standard deviation {decimal(summary.std_ms, 3)} ms"
    )
    for p in _SHOWN:
        if (value := summary.percentiles_ms[p]) is not None:
            yield parts.tile(f"p{p:g}", f"{decimal(value, 3)} ms")
    yield parts.tile("Iterations", str(summary.iterations), f"in {duration(summary.seconds_ran)}")


def _around(runs: Sequence[Run]) -> Iterator[Element]:
    first = duration(statistics.median(run.first_inference_s for run in runs))
    yield parts.tile(
        "Load time", duration(statistics.median(run.load_s for run in runs)), f"first inference {first}"
    )
    if (peak := peak_memory_bytes(runs)) is not None:
        yield parts.tile("Peak memory", size(peak))
    yield parts.check_tile(worst([run.check for run in runs]))


def _cells(benchmark: Benchmark, points: Sequence[Point]) -> list[Element]:
    """The table of all cells, with both ends of every interval."""
    outcomes, base = benchmark.outcomes, view.find_baseline(benchmark, ())
    statistics_shown = {statistic(outcome.cell.scenario) for outcome in outcomes}
    suffix = f", {statistics_shown.pop()}" if len(statistics_shown) == 1 else ""
    median, throughput, p99 = (
        field.of(lambda row: row[0]) for field in (fields.MEDIAN, fields.THROUGHPUT, fields.P99)
    )
    shown = [
        Field("", "#", lambda row: row[0].number),
        *(
            replace(trait.of(lambda row: row[0].cell), longest=None)
            for trait in view.traits([outcome.cell for outcome in outcomes])
        ),
        Field("", f"Time per item (ms{suffix})", lambda row: row[1].ms_per_item, digits=3),
        median.aligned("Time per batch (ms, median)"),
        interval_of(median, "Time per batch, 95\u00a0%", _digits),
        throughput.aligned("Throughput (items/s, mean)"),
        interval_of(throughput, "Throughput, 95\u00a0%", _digits),
        p99.aligned("p99 ms"),
    ]
    if base is not None:
        shown.append(Field("", f"Speed-up over #{outcomes.index(base) + 1}", lambda row: _speed_up(row[0], base)))
    shown += [
        Field("", "Peak MiB", lambda row: _mib(row[0].outcome.runs), digits=1),
        Field("", "Outputs", _outputs, left=True),
        Field("", "Remark", lambda row: _remark(row[0]), left=True),
    ]
    rows = list(zip(view.table(benchmark).rows, points, strict=True))
    return [parts.sortable("all-cells", Table(shown, rows), parts.MISSING)]


def _outputs(row: Any) -> parts.Cell:
    point: Point = row[1]
    return parts.Cell("WRONG" if point.wrong else point.output_check, wrong=point.wrong)


def _remark(row: view.Row) -> parts.Cell:
    return parts.Cell(row.remark, wrong=bool(row.outcome.failure) or "WRONG" in row.remark)


def _speed_up(row: view.Row, base: Outcome) -> parts.Cell | None:
    if row.summary is None:
        return None
    if row.outcome is base:
        return parts.Cell("1", 1.0)
    ratio = view.speed_up(row.outcome, base)
    return parts.Cell(view.ratio_text(ratio), ratio.value)


def _mib(runs: Sequence[Run]) -> float | None:
    peak = peak_memory_bytes(runs)
    return None if peak is None else peak / 2**20


def _digits(value: float) -> str:
    """Three digits after the point, more where it is small, fewer where it is large."""
    return count(value) if value >= 100 else decimal(value, 3)


def _how(benchmark: Benchmark) -> list[Element]:
    plan = benchmark.plan
    cells = [outcome.cell for outcome in benchmark.outcomes]
    runs = [run for outcome in benchmark.outcomes for run in outcome.runs]
    memory = (run.machine.memory_bytes for run in runs)
    processes = process_text(benchmark.outcomes)
    own = {
        "Opset": str(benchmark.model.opset or ""),
        "Each cell": f"{duration(plan.time_s)} in all{processes and f', in {processes}'}, each after a warm-up of "
        f"{duration(plan.warmup_s)} at most",
        "Precision": "" if plan.precision is None else f"until the interval was ±{share(plan.precision)} narrow",
        "Numbers": _NUMBERS,
        "Speed-ups": "Not measured interleaved, hence less sure than inferlab compare." if len(cells) > 1 else "",
        "Inputs": each(shapes(dict(cell.shapes)) for cell in cells),
        "Streams": each(run.stream_mode for run in runs if run.stream_mode != "single"),
        "Pinning": each(cell.thread_pinning for cell in cells),
        "Memory": each(size(peak) for peak in memory if peak is not None),
    }
    return facts(benchmark, command.benchmark, own)


def began(runs: Iterable[Any]) -> str:
    """When the first of these runs began."""
    return min((str(run.started_at) for run in runs), default="")[:16].replace("T", " ")


def verdict(wrong: int, checks: Iterable[str]) -> str:
    """Whether all cells are right, in a word or two."""
    return f"{plural(wrong, 'cell')} WRONG" if wrong else "match" if set(checks) == {"match"} else "unchecked"


def cells_tile(statuses: Sequence[str]) -> Element:
    """How many cells there are, and what became of them."""
    states = ", ".join(f"{number} {state}" for state, number in Counter(statuses).items())
    return parts.tile("Cells", str(len(statuses)), states)


def of_each(name: str, figures: Mapping[str, Any], labels: Sequence[str], drawn: Drawn) -> list[Element]:
    """A chart of one cell after the other, by their numbers; of a single cell without a selector."""
    if len(labels) == 1:
        return [drawn.add(name, {"": figures["1"]})]
    names = {key: f"#{key}: {labels[int(key) - 1]}" for key in figures}
    return [parts.selectors(name, {"Cell": names}), drawn.add(name, figures)]


def process_text(outcomes: Iterable[Any]) -> str:
    """How many processes measured a cell, or the fewest and the most."""
    counts = sorted({len(outcome.runs) for outcome in outcomes if outcome.runs})
    if not counts:
        return ""
    if len(counts) == 1:
        return plural(counts[0], "fresh process", "fresh processes")
    return f"{counts[0]} to {counts[-1]} fresh processes"


def each(texts: Iterable[str], separator: str = ", ") -> str:
    """All of these, each once."""
    return separator.join(dict.fromkeys(filter(None, texts)))


#: What a reader needs to measure the same again, in this order.
_FACTS = (
    *("Model", "Digest", "Opset", "Architecture", "Parameters", "Command", "Measured", "Each cell", "Precision"),
    *("Tokens", "Numbers", "Speed-ups", "Inputs", "Streams", "Pinning", "Engine options", "Settings", "Seed"),
    *("Machine", "Memory", "Versions", "Made by"),
)


def facts(
    sweep: Benchmark | GenerationSweep, command_of: Callable[[Any], str], own: Mapping[str, str]
) -> list[Element]:
    """How a sweep was measured: what both kinds have, and what is this one's own."""
    runs: list[Any] = [run for outcome in sweep.outcomes for run in outcome.runs]
    times = sorted(run.started_at for run in runs)
    try:
        line = command_of(sweep.plan)
    except BadInput:  # Python can ask for what no single command says
        line = ""
    facts = {
        "Model": sweep.model.source,
        "Digest": sweep.model.digest,
        "Command": line,
        "Measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        "Engine options": ", ".join(f"{name}={value}" for name, value in sweep.plan.engine_options),
        "Seed": str(sweep.plan.seed),
        "Machine": each((machine_line(run.machine) for run in runs), "; "),
        "Versions": each(f"{name} {version}" for run in runs for name, version in run.versions.items()),
        "Made by": f"inferlab {__version__} {sweep.id}".strip(),
        **own,
    }
    return [parts.facts({name: facts.get(name, "") for name in _FACTS})]
