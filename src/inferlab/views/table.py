"""The cells of a benchmark as a table: what varies, how fast each is, how sure that is, and what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from html import escape

from inferlab.errors import BadInput
from inferlab.escaping import one_line
from inferlab.measure import headline, intervals
from inferlab.measure.check import worst
from inferlab.measure.findings import find_in_all
from inferlab.measure.stats import items_per_sec, median_ms, peak_memory_bytes, summarize, with_samples
from inferlab.records import Benchmark, Cell, Estimate, Outcome
from inferlab.units import count, decimal, size
from inferlab.views import columns, fleet, html
from inferlab.views.intervals import half_width, in_brackets, rounded
from inferlab.views.text import cell_label, finding

#: How a cell is told from others: the heading, and its value.
_TRAITS: dict[str, Callable[[Cell], str]] = {
    "machine": lambda cell: cell.machine_type or "here",
    "number": lambda cell: "-" if cell.machine_number is None else str(cell.machine_number),
    "engine": lambda cell: cell.engine,
    "scenario": lambda cell: cell.scenario,
    "cores": lambda cell: str(cell.num_cores),
    "instances": lambda cell: str(cell.instances),
    "streams": lambda cell: str(cell.num_streams),
    "rate/s": lambda cell: "-" if cell.rate is None else f"{cell.rate:g}",
    "batch": lambda cell: str(cell.batch_size),
    "sequence": lambda cell: "-" if cell.sequence_length is None else str(cell.sequence_length),
}
_ALWAYS = ("engine", "cores", "batch")
_LEFT = ("machine", "engine", "scenario")
#: The option that names each trait, for choosing a baseline.
_OPTIONS = {"num_cores": "cores", "num_streams": "streams", "rate": "rate/s", "batch_size": "batch",
            "sequence_length": "sequence"}  # fmt: skip
_ENGINE_WIDTH = 28


def lines(benchmark: Benchmark, baseline: Outcome | None = None) -> list[str]:
    """The table, what is best, and everything that the reader must know about single cells."""
    names = traits([outcome.cell for outcome in benchmark.outcomes])
    left = {index for index, name in enumerate(["#", *names]) if name in _LEFT}
    rows = _rows(benchmark, names, baseline)
    left.add(len(rows[0]) - 1)
    return [_head(benchmark), *columns.aligned(rows, left), *verdict(benchmark), *_notes(benchmark)]


def markdown(benchmark: Benchmark, baseline: Outcome | None = None) -> str:
    """The same as Markdown."""
    names = traits([outcome.cell for outcome in benchmark.outcomes])
    rows = _rows(benchmark, names, baseline)
    notes = [f"- {one_line(line)}" for line in (*verdict(benchmark), *_notes(benchmark))]
    parts = [f"## {one_line(_head(benchmark))}", "", *columns.markdown(rows, {len(rows[0]) - 1}), "", *notes, ""]
    # Names and messages are foreign text: they must not become tags or comments.
    return escape("\n".join(parts), quote=False)


def markup(benchmark: Benchmark, baseline: Outcome | None = None) -> str:
    """The same as HTML, the best cell standing out."""
    names = traits([outcome.cell for outcome in benchmark.outcomes])
    rows = _rows(benchmark, names, baseline)
    left = {index for index, name in enumerate(rows[0]) if name in (*_LEFT, "")}
    best = {index for index, row in enumerate(rows) if row[-1].startswith("best")}
    return html.table(_head(benchmark), rows, [*verdict(benchmark), *_notes(benchmark)], left, best)


def traits(cells: Sequence[Cell]) -> list[str]:
    """What is shown of cells: engine, cores and batch, and all else in which they differ."""
    always = ("machine", *_ALWAYS) if any(cell.machine_type for cell in cells) else _ALWAYS
    return [name for name, value in _TRAITS.items() if name in always or len({value(cell) for cell in cells}) > 1]


def trait(cell: Cell, name: str) -> str:
    """One of the things that are shown of a cell."""
    return _TRAITS[name](cell)


def find_baseline(benchmark: Benchmark, wanted: Sequence[str]) -> Outcome | None:
    """The first cell that fits all of OPTION=VALUE; without any, the first that was measured."""
    measured = [one for one in benchmark.outcomes if summarize(one.cell, one.runs) is not None]
    for outcome in measured:
        if all(_fits(outcome.cell, pair) for pair in wanted):
            return outcome
    return None


def check_baseline(cells: Sequence[Cell], wanted: Sequence[str]) -> None:
    """Refuse a baseline that no cell fits, before anything is measured."""
    if not any(all(_fits(cell, pair) for pair in wanted) for cell in cells):
        raise BadInput(f"No cell of this plan has {' and '.join(wanted)}, so it cannot be the baseline.")


def _fits(cell: Cell, pair: str) -> bool:
    name, equals, value = pair.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    heading = _OPTIONS.get(name, name)
    if not equals or heading not in _TRAITS:
        known = ", ".join(sorted({*_OPTIONS, "engine", "scenario", "instances"}))
        raise BadInput(f"The baseline '{pair}' is not of the form OPTION=VALUE; the options are {known}.")
    return _TRAITS[heading](cell) == value.strip()


def _head(benchmark: Benchmark) -> str:
    model = benchmark.model
    parameters = "" if model.parameters is None else f", {model.parameters:,} parameters"
    return f"{model.source} ({size(model.size_bytes)}{parameters}, {model.precision})"


def _rows(benchmark: Benchmark, names: Sequence[str], baseline: Outcome | None) -> list[list[str]]:
    outcomes = benchmark.outcomes
    base = baseline or find_baseline(benchmark, ())
    versus = "speed-up" if base is None else f"speed-up over #{outcomes.index(base) + 1}"
    head = ["#", *names, "mean items/s", "±", "median ms", *fleet.heads(benchmark), versus, "peak memory", ""]
    rows = [head]
    for number, (outcome, remark) in enumerate(zip(outcomes, remarks(outcomes), strict=True), 1):
        engine = columns.shortened(outcome.cell.engine, _ENGINE_WIDTH)
        told = [engine if name == "engine" else trait(outcome.cell, name) for name in names]
        rows.append([str(number), *told, *_figures(benchmark, outcome, base), remark])
    return rows


def _figures(benchmark: Benchmark, outcome: Outcome, base: Outcome | None) -> list[str]:
    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        return ["-"] * (5 + len(fleet.heads(benchmark)))
    peak = peak_memory_bytes(outcome.runs)
    return [
        rounded(summary.items_per_sec.value, summary.items_per_sec.ends, count),
        half_width(summary.items_per_sec.ends) or "-",
        rounded(summary.median_ms.value, summary.median_ms.ends, partial(decimal, places=3)),
        *fleet.figures(benchmark, outcome),
        "-" if base is None else "1" if base is outcome else _ratio(speed_up(outcome, base)),
        "-" if peak is None else size(peak),
    ]


def speed_up(outcome: Outcome, base: Outcome) -> Estimate:
    """The baseline's time per item over its own; they were not measured in turns."""
    return intervals.welch(_times(outcome), _times(base), level=0.95)


def _times(outcome: Outcome) -> list[float]:
    cell = outcome.cell
    return [
        1e3 / items_per_sec(run, cell.batch_size, cell.rate)
        if headline.statistic(cell.scenario) == "mean"
        else median_ms(run) / cell.batch_size
        for run in with_samples(outcome.runs)
    ]


def _ratio(ratio: Estimate) -> str:
    return f"{rounded(ratio.value, ratio.ends, '{:.2f}'.format)}{in_brackets(ratio.ends)}"


def remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """What to see of each cell at a glance: the best, the worst, what failed, what is wrong."""
    marks = _marks(outcomes)
    return [_remark(one, marks.get(number, "")) for number, one in enumerate(outcomes, 1)]


def _remark(outcome: Outcome, mark: str) -> str:
    """The one thing to see at a glance: wrong outputs before anything else."""
    if outcome.failure:
        return {"refused": "REFUSED", "died": "FAILED", "hung": "HUNG", "lost": "LOST"}[outcome.failure.code]
    if not outcome.runs:
        return outcome.status
    words = [mark] if mark else []
    check = worst([run.check for run in outcome.runs])
    words += ["outputs WRONG"] if check.status == "mismatch" else []
    words += ["interrupted"] if outcome.status == "cancelled" else []
    return ", ".join(words)


def right(outcomes: Sequence[Outcome]) -> list[tuple[int, Outcome]]:
    """The cells that count, with their numbers: measured to their end, and not wrong."""
    return [
        (number, one)
        for number, one in enumerate(outcomes, 1)
        if one.status == "done"
        and with_samples(one.runs)
        and worst([run.check for run in one.runs]).status != "mismatch"
    ]


def ranked(outcomes: Sequence[Outcome]) -> list[tuple[int, Outcome]]:
    """The cells that count, with their numbers, the best first: that of the lowest time per item."""

    def time(pair: tuple[int, Outcome]) -> float:
        cell = pair[1].cell
        summary = summarize(cell, pair[1].runs)
        assert summary is not None, "what counts was measured"
        medians, rates = summary.median_ms.value, summary.items_per_sec.value
        return headline.ms_per_item(cell.scenario, cell.batch_size, medians, rates) or math.inf

    return sorted(right(outcomes), key=time)


def _marks(outcomes: Sequence[Outcome]) -> dict[int, str]:
    found = ranked(outcomes)
    return {found[-1][0]: "worst", found[0][0]: "best"} if len(found) > 1 else {}


def verdict(benchmark: Benchmark) -> list[str]:
    """What is best, and what may be as good as far as the intervals tell."""
    found = ranked(benchmark.outcomes)
    if len(found) < 2:
        return []
    number, best = found[0]
    rivals = [str(other) for other, one in found[1:] if _may_equal(one, best)]
    meaning = headline.best_is(one.cell.scenario for _, one in found)
    line = f"Best ({meaning}): #{number}, {cell_label(best.cell)}."
    more = fleet.lines(benchmark, right(benchmark.outcomes))
    if not rivals:
        return [line, *more]
    named = ", ".join(f"#{one}" for one in rivals)
    # Machines cannot take turns.
    sure = "" if fleet.on_cluster(benchmark) else ": to be sure, compare them in turns (inferlab compare)"
    return [f"{line} {named} may be as fast{sure}.", *more]


def _may_equal(one: Outcome, best: Outcome) -> bool:
    ratio = speed_up(one, best)
    return ratio.high is None or ratio.high >= 1.0


def _notes(benchmark: Benchmark) -> list[str]:
    """Failures and findings; one that several cells share is told once."""
    told = []
    for outcome, found in zip(benchmark.outcomes, find_in_all(benchmark.outcomes), strict=True):
        failed = [outcome.failure.message] if outcome.failure else []
        told.append([*failed, *map(finding, found)])
    return [f"Note on {cells}: {text}" if cells else f"Note: {text}" for text, cells in shared(told).items()]


def shared(told: Sequence[Sequence[str]]) -> dict[str, str]:
    """What is told of each cell: every sentence once, with the cells that it is about, or nothing for all."""
    numbers: dict[str, list[int]] = {}
    for number, sentences in enumerate(told, 1):
        for text in sentences:
            numbers.setdefault(text, []).append(number)
    return {
        text: "" if len(found) == len(told) else ", ".join(f"#{number}" for number in found)
        for text, found in numbers.items()
    }
