"""A benchmark as one HTML file that opens offline."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from inferlab import records
from inferlab.errors import BadInput
from inferlab.measure.check import worst
from inferlab.measure.findings import find_in_all
from inferlab.measure.stats import peak_memory_bytes, statistic, summarize
from inferlab.records import Benchmark, Finding, Outcome, Run, Summary
from inferlab.units import count, decimal, duration, plural, share, size, three_digits
from inferlab.version import __version__
from inferlab.views import benchmark as view
from inferlab.views import charts, command, flat
from inferlab.views import report as parts
from inferlab.views.charts import cards, frame
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import Point
from inferlab.views.charts.timeline import measured
from inferlab.views.fields import Field, between
from inferlab.views.report import Cell, Element, numbers
from inferlab.views.text import cell_label, finding, machine_line, output_check, shapes

# Dots of all cells together, and of one at least: a page of many cells must open too.
_MOST_DOTS = 60_000
_FEWEST_DOTS = 300
_DOTS_OF_ONE = 6_000


def report(benchmark: Benchmark) -> str:
    """The report of a benchmark: one self-contained page."""
    drawn = parts.Charts()
    points = [charts.from_row(row) for row in flat.rows(benchmark)]
    sections = {
        "Summary": _summary(benchmark, points),
        "Cells": _cells(benchmark, points) if len(points) > 1 else [],
        "Throughput": _throughput(points, drawn),
        "Core scaling": _scaling(points, drawn, "cores"),
        "Batch size scaling": _scaling(points, drawn, "batches"),
        "Batch iterations": _iterations(benchmark.outcomes, drawn),
        "How it was measured": _how(benchmark),
    }
    name = PurePath(benchmark.model.source).name or benchmark.model.source
    return parts.page(f"{name}: benchmark", [*_head(benchmark, name, points)], sections, drawn)


def _head(benchmark: Benchmark, name: str, points: Sequence[Point]) -> Iterator[Element | None]:
    outcomes = benchmark.outcomes
    runs = [run for outcome in outcomes for run in outcome.runs]
    began = min((run.started_at for run in runs), default="")
    facts = [began[:16].replace("T", " "), *(run.machine.cpu for run in runs), *_engines(points)]
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
    return [text[:1].upper() + text[1:] for text in sentences]


def _throughput(points: Sequence[Point], drawn: parts.Charts) -> list[Element]:
    """All cells side by side."""
    if len(points) < 2 or all(point.items_per_sec is None for point in points):
        return []
    bars = charts.bars(points)
    return [
        parts.caption("Items per second; bars are 95 % intervals."),
        drawn.add("throughput", {"": frame.compact(bars, bars.layout.height - bars.layout.margin.t)}),
    ]


def _scaling(points: Sequence[Point], drawn: parts.Charts, name: str) -> list[Element]:
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


def _iterations(outcomes: Sequence[Outcome], drawn: parts.Charts) -> list[Element]:
    """Every batch of a cell over time."""
    drawable = {str(number): outcome for number, outcome in enumerate(outcomes, 1) if measured(outcome)}
    if not drawable:
        return []
    dots = min(_DOTS_OF_ONE, max(_FEWEST_DOTS, _MOST_DOTS // len(drawable)))
    figures = {
        key: cards.iterations([(cell_label(outcome.cell), outcome)], dots) for key, outcome in drawable.items()
    }
    if len(outcomes) == 1:
        return [drawn.add("iterations", {"": figures["1"]})]
    names = {key: f"#{key}: {cell_label(outcome.cell)}" for key, outcome in drawable.items()}
    return [parts.selectors("iterations", {"Cell": names}), drawn.add("iterations", figures)]


_NAMES = ("machine", "engine", "scenario", "Outputs", "Remark")
_SHOWN = (90.0, 95.0, 99.0)


def _summary(benchmark: Benchmark, points: Sequence[Point]) -> list[Element]:
    """How fast the only cell is, or the best of many, and how far that can be believed."""
    if len(points) == 1:
        return _one_cell(benchmark.outcomes[0], points[0])
    states = Counter(outcome.status for outcome in benchmark.outcomes)
    done = ", ".join(f"{number} {state}" for state, number in states.items())
    wrong = sum(point.wrong for point in points)
    tiles = [
        parts.tile("Cells", str(len(points)), done),
        parts.tile("Output check", f"{plural(wrong, 'cell')} WRONG" if wrong else _checked(points), style="words"),
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


def _checked(points: Sequence[Point]) -> str:
    checks = {point.output_check for point in points if point.output_check}
    return "match" if checks == {"match"} else "unchecked"


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
    outcomes = benchmark.outcomes
    base = view.find_baseline(benchmark, ())
    summaries: list[Summary | None] = [summarize(outcome.cell, outcome.runs) for outcome in outcomes]
    columns: dict[str, Sequence[str | Cell]] = {"#": [Cell(str(n), n) for n in range(1, len(outcomes) + 1)]}
    for trait in view.traits([outcome.cell for outcome in outcomes]):
        columns[trait.label] = [_trait(trait, outcome.cell) for outcome in outcomes]
    statistics_shown = {statistic(outcome.cell.scenario) for outcome in outcomes}
    suffix = f", {statistics_shown.pop()}" if len(statistics_shown) == 1 else ""
    columns |= {
        f"Time per item (ms{suffix})": numbers([point.ms_per_item for point in points]),
        "Time per batch (ms, median)": numbers(
            [summary.median_ms.value if summary else None for summary in summaries]
        ),
        "Time per batch, 95\u00a0%": [
            Cell(_interval(summary.median_ms.ends) if summary else "–") for summary in summaries
        ],
        "Throughput (items/s, mean)": numbers(
            [summary.items_per_sec.value if summary else None for summary in summaries]
        ),
        "Throughput, 95\u00a0%": [
            Cell(_interval(summary.items_per_sec.ends) if summary else "–") for summary in summaries
        ],
        "p99 ms": numbers([summary.percentiles_ms[99.0] if summary else None for summary in summaries]),
    }
    if base is not None:
        columns[f"Speed-up over #{outcomes.index(base) + 1}"] = [
            _speed_up(outcome, base) if summary else Cell("–")
            for outcome, summary in zip(outcomes, summaries, strict=True)
        ]
    columns["Peak MiB"] = numbers([_mib(outcome.runs) for outcome in outcomes], 1)
    columns["Outputs"] = [
        Cell("WRONG" if point.wrong else point.output_check, wrong=point.wrong) for point in points
    ]
    columns["Remark"] = [
        Cell(text, wrong=bool(outcome.failure) or "WRONG" in text)
        for text, outcome in zip(view.remarks(outcomes), outcomes, strict=True)
    ]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return [parts.rows_table("all-cells", list(columns), rows, left=_NAMES)]


def _trait(trait: Field, cell: records.Cell) -> str | Cell:
    value = trait.get(cell)
    if trait.left:
        return str(value)
    return Cell(trait.text(cell), value)


def _speed_up(outcome: Outcome, base: Outcome) -> Cell:
    if outcome is base:
        return Cell("1", 1.0)
    ratio = view.speed_up(outcome, base)
    return Cell(view.ratio_text(ratio), ratio.value)


def _mib(runs: Sequence[Run]) -> float | None:
    peak = peak_memory_bytes(runs)
    return None if peak is None else peak / 2**20


def _interval(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else between(ends, _digits)


def _digits(value: float | None) -> str:
    """Three digits after the point, more where it is small, fewer where it is large."""
    return "–" if value is None else count(value) if value >= 100 else decimal(value, 3)


def _how(benchmark: Benchmark) -> list[Element]:
    """All that a reader needs to measure the same again."""
    plan, model = benchmark.plan, benchmark.model
    cells = [outcome.cell for outcome in benchmark.outcomes]
    runs = [run for outcome in benchmark.outcomes for run in outcome.runs]
    machines = list(dict.fromkeys(machine_line(run.machine) for run in runs))
    memory = (run.machine.memory_bytes for run in runs)
    times = sorted(run.started_at for run in runs)
    processes = _processes([len(outcome.runs) for outcome in benchmark.outcomes if outcome.runs])
    pairs = {
        "Model": model.source,
        "Digest": model.digest,
        "Opset": str(model.opset or ""),
        "Command": _command(benchmark),
        "Measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        "Each cell": f"{duration(plan.time_s)} in all"
        + (f", in {processes}" if processes else "")
        + f", each after a warm-up of {duration(plan.warmup_s)} at most",
        "Precision": "" if plan.precision is None else f"until the interval was ±{share(plan.precision)} narrow",
        "Numbers": "A cell's median and throughput are those of its typical process; an interval (95 %) is "
        "Student's on what its processes say.",
        "Speed-ups": "Not measured interleaved, hence less sure than inferlab compare." if len(cells) > 1 else "",
        "Inputs": _each(shapes(dict(cell.shapes)) for cell in cells),
        "Streams": _each(run.stream_mode for run in runs if run.stream_mode != "single"),
        "Pinning": _each(cell.thread_pinning for cell in cells),
        "Engine options": ", ".join(f"{name}={value}" for name, value in plan.engine_options),
        "Seed": str(plan.seed),
        "Machine": "; ".join(machines),
        "Memory": _each(size(peak) for peak in memory if peak is not None),
        "Versions": _each(f"{name} {version}" for run in runs for name, version in run.versions.items()),
        "Made by": f"inferlab {__version__} {benchmark.id}".strip(),
    }
    return [parts.facts(pairs)]


def _processes(counts: Sequence[int]) -> str:
    fewest, most = min(counts, default=0), max(counts, default=0)
    if fewest == most:
        return plural(most, "fresh process", "fresh processes") if most else ""
    return f"{fewest} to {most} fresh processes"


def _each(texts: Iterable[str]) -> str:
    """All of these, each once."""
    return ", ".join(dict.fromkeys(filter(None, texts)))


def _command(benchmark: Benchmark) -> str:
    try:
        return command.benchmark(benchmark.plan)
    except BadInput:  # Python can ask for what no single command says
        return ""
