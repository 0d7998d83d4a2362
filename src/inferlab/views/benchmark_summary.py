"""The numbers of a benchmark's report: tiles of one cell or of the best, and the table of all."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from inferlab.measure.check import worst
from inferlab.measure.headline import statistic
from inferlab.measure.stats import peak_memory_bytes, summarize
from inferlab.records import Benchmark, Outcome, Run, Summary
from inferlab.units import count, decimal, duration, plural, size
from inferlab.views import report_parts as parts
from inferlab.views import table
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import Point
from inferlab.views.intervals import between, between_at, in_brackets, rounded
from inferlab.views.report_parts import Cell, numbers
from inferlab.views.text import cell_label

_NAMES = ("engine", "scenario", "Outputs", "Remark")
_SHOWN = (90.0, 95.0, 99.0)


def summary(benchmark: Benchmark, points: Sequence[Point]) -> list[str]:
    """How fast the only cell is, or the best of many, and how far that can be believed."""
    if len(points) == 1:
        return _one(benchmark.outcomes[0], points[0])
    states = Counter(one.status for one in benchmark.outcomes)
    done = ", ".join(f"{number} {state}" for state, number in states.items())
    wrong = sum(one.wrong for one in points)
    tiles = [
        parts.tile("Cells", str(len(points)), done),
        parts.tile("Output Check", f"{plural(wrong, 'cell')} WRONG" if wrong else _checked(points), kind="words"),
    ]
    ends = best_and_worst(points)
    if ends is None:
        return [parts.tiles(*tiles), parts.caption("No cell was measured to its end with outputs that are right.")]
    best = ends[0]
    label = cell_label(benchmark.outcomes[points.index(best)].cell)
    return [
        parts.tiles(
            parts.tile(f"Best MS per Item ({statistic(best.scenario)})", _digits(best.ms_per_item), label, "main"),
            parts.tile("Its Items per Second (mean)", count(best.items_per_sec or 0.0), label, "main"),
            *tiles,
        ),
        *map(parts.caption, table.verdict(benchmark)),
    ]


def _checked(points: Sequence[Point]) -> str:
    found = {one.output_check for one in points if one.output_check}
    return "match" if found == {"match"} else "unchecked"


def _one(outcome: Outcome, point: Point) -> list[str]:
    cell = outcome.cell
    found = summarize(cell, outcome.runs)
    streams = "" if cell.scenario == "sync" else parts.tile("Streams", str(cell.num_streams))
    what = parts.tiles(
        parts.tile("Engine", f"{cell.engine} {point.version}".rstrip(), kind="words"),
        parts.tile("Scenario", cell.scenario, _rate(cell.rate), kind="words"),
        parts.tile("Batch Size", str(cell.batch_size)),
        parts.tile("Core Count", str(cell.num_cores)),
        streams,
        parts.tile("Instances", str(cell.instances)) if cell.instances > 1 else "",
    )
    if found is None:
        return [what, parts.caption("Nothing was measured.")]
    return [
        what,
        parts.tiles(
            parts.tile(
                f"MS per Item ({statistic(cell.scenario)})",
                _digits(point.ms_per_item),
                _ends(point.ends("ms_per_item")),
                "main",
            ),
            parts.tile(
                "MS per Batch (median)", decimal(found.median_ms.value, 3), _ends(found.median_ms.ends), "main"
            ),
            parts.tile(
                "Items per Second (mean)",
                count(found.items_per_sec.value),
                _ends(found.items_per_sec.ends),
                "main",
            ),
        ),
        parts.tiles(*_details(found), *_around(outcome.runs)),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:g} requests/s"


def _details(found: Summary) -> Iterator[str]:
    yield parts.tile(
        "Mean", f"{decimal(found.mean_ms, 3)} ms", f"standard deviation {decimal(found.std_ms, 3)} ms"
    )
    for p in _SHOWN:
        if (value := found.percentiles_ms[p]) is not None:
            yield parts.tile(f"p{p:g}", f"{decimal(value, 3)} ms")
    yield parts.tile("Iterations", str(found.iterations), f"in {duration(found.seconds_ran)}")


def _around(runs: Sequence[Run]) -> Iterator[str]:
    first = duration(statistics.median(run.first_inference_s for run in runs))
    yield parts.tile(
        "Load Time", duration(statistics.median(run.load_s for run in runs)), f"first inference {first}"
    )
    if (peak := peak_memory_bytes(runs)) is not None:
        yield parts.tile("Peak Memory", size(peak))
    yield parts.check_tile(worst([run.check for run in runs]))


def cells(benchmark: Benchmark, points: Sequence[Point]) -> list[str]:
    """The table of all cells, with both ends of every interval."""
    outcomes = benchmark.outcomes
    base = table.find_baseline(benchmark, ())
    found: list[Summary | None] = [summarize(one.cell, one.runs) for one in outcomes]
    columns: dict[str, Sequence[str | Cell]] = {"#": [Cell(str(n), n) for n in range(1, len(outcomes) + 1)]}
    for name in table.traits([one.cell for one in outcomes]):
        columns[name] = [_trait(table.trait(one.cell, name), name) for one in outcomes]
    statistics_shown = {statistic(one.cell.scenario) for one in outcomes}
    told = f" ({statistics_shown.pop()})" if len(statistics_shown) == 1 else ""
    columns |= {
        f"MS per item{told}": numbers([one.ms_per_item for one in points]),
        "MS per batch (median)": numbers([one.median_ms.value if one else None for one in found]),
        "MS per batch, 95\u00a0%": [Cell(_interval(one.median_ms.ends) if one else "–") for one in found],
        "Items/s (mean)": numbers([one.items_per_sec.value if one else None for one in found]),
        "Items/s, 95\u00a0%": [Cell(_interval(one.items_per_sec.ends) if one else "–") for one in found],
        "p99 ms": numbers([one.percentiles_ms[99.0] if one else None for one in found]),
    }
    if base is not None:
        columns[f"Speed-up over #{outcomes.index(base) + 1}"] = [
            _speed_up(one, base) if known else Cell("–") for one, known in zip(outcomes, found, strict=True)
        ]
    columns["Peak MiB"] = numbers([_mib(one.runs) for one in outcomes], 1)
    columns["Outputs"] = [Cell("WRONG" if one.wrong else one.output_check, wrong=one.wrong) for one in points]
    columns["Remark"] = [
        Cell(text, wrong=bool(one.failure) or "WRONG" in text)
        for text, one in zip(table.remarks(outcomes), outcomes, strict=True)
    ]
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return [parts.table("all-cells", list(columns), rows, left=_NAMES)]


def _trait(text: str, name: str) -> str | Cell:
    if name in _NAMES:
        return text
    return Cell(text, None if text == "-" else float(text))


def _speed_up(outcome: Outcome, base: Outcome) -> Cell:
    if outcome is base:
        return Cell("1", 1.0)
    ratio = table.speed_up(outcome, base)
    return Cell(f"{rounded(ratio.value, ratio.ends, '{:.2f}'.format)}{in_brackets(ratio.ends)}", ratio.value)


def _mib(runs: Sequence[Run]) -> float | None:
    peak = peak_memory_bytes(runs)
    return None if peak is None else peak / 2**20


def _ends(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return "no interval: one process"
    return between_at(ends, 0.95, _digits)


def _interval(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else between(ends, _digits)


def _digits(value: float | None) -> str:
    """Three digits after the point, more where it is small, fewer where it is large."""
    return "–" if value is None else count(value) if value >= 100 else decimal(value, 3)
