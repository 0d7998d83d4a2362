"""A benchmark as blocks: the lines of its only cell, or the table of all, what is best, and what is wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure import headline, intervals
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all, find_in_all
from inferlab.measure.stats import items_per_sec, median_ms, peak_memory_bytes, summarize, with_samples
from inferlab.records import Benchmark, Cell, Estimate, Outcome, Summary
from inferlab.units import count, decimal, duration, plural, share, size
from inferlab.views import fleet, tables
from inferlab.views.fields import Field, half_width_of
from inferlab.views.intervals import in_brackets, rounded
from inferlab.views.tables import Block, Note, Pair, Table, notes
from inferlab.views.text import SCENARIO_NAMES, cell_label, finding, interval, output_check

#: How a cell is told from others; the key is the option that sets it.
TRAITS = (
    Field("machine_type", "machine", lambda cell: cell.machine_type or "here", left=True),
    Field("machine_number", "number", lambda cell: cell.machine_number),
    Field("engine", "engine", lambda cell: cell.engine, left=True, longest=28),
    Field("scenario", "scenario", lambda cell: cell.scenario, left=True),
    Field("num_cores", "cores", lambda cell: cell.num_cores),
    Field("instances", "instances", lambda cell: cell.instances),
    Field("num_streams", "streams", lambda cell: cell.num_streams),
    Field("rate", "rate/s", lambda cell: cell.rate, "{:g}".format),
    Field("batch_size", "batch", lambda cell: cell.batch_size),
    Field("sequence_length", "sequence", lambda cell: cell.sequence_length),
)
_ALWAYS = ("engine", "num_cores", "batch_size")


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of a benchmark beside the others."""

    number: int
    outcome: Outcome
    summary: Summary | None
    #: The speed-up over the baseline, in words; None where one of them has no numbers.
    speed_up: str | None
    remark: str

    @property
    def cell(self) -> Cell:
        """The cell that was measured."""
        return self.outcome.cell

    @property
    def peak_memory_bytes(self) -> int | None:
        """The largest peak of its processes, where it has numbers."""
        return peak_memory_bytes(self.outcome.runs) if self.summary else None


def _estimate(name: str) -> dict[str, Any]:
    """Where a field of a row gets an estimate and its ends."""
    return {
        "get": lambda row: getattr(row.summary, name).value if row.summary else None,
        "ends": lambda row: getattr(row.summary, name).ends if row.summary else None,
    }


THROUGHPUT = Field("items_per_sec", "mean items/s", form=count, **_estimate("items_per_sec"))
MEDIAN = Field("median_ms", "median ms", form=partial(decimal, places=3), **_estimate("median_ms"))
PEAK_MEMORY = Field("peak_memory_bytes", "peak memory", lambda row: row.peak_memory_bytes, size)


def blocks(benchmark: Benchmark, baseline: Outcome | None = None) -> list[Block]:
    """The lines of one cell, or the table, what is best, and everything to know about single cells."""
    if len(benchmark.outcomes) == 1:
        (only,) = benchmark.outcomes
        failed = [Pair("Failure", only.failure.message, strong=True)] if only.failure else []
        return [*cell_blocks(benchmark, only), *failed]
    return [heading(benchmark), *table_blocks(benchmark, baseline)]


def table_blocks(benchmark: Benchmark, baseline: Outcome | None = None) -> list[Block]:
    """The table of all cells, also of a single one, and what is to be known of it."""
    return [table(benchmark, baseline), *verdict(benchmark), *_notes(benchmark)]


def lines(benchmark: Benchmark, baseline: Outcome | None = None) -> list[str]:
    """The same as text."""
    return tables.text(blocks(benchmark, baseline))


def table(benchmark: Benchmark, baseline: Outcome | None = None) -> Table:
    """A row for each cell: what varies, how fast it is, how sure that is, and what to see at a glance."""
    outcomes = benchmark.outcomes
    base = baseline or find_baseline(benchmark, ())
    versus = "speed-up" if base is None else f"speed-up over #{outcomes.index(base) + 1}"
    rows = [
        Row(number, outcome, summarize(outcome.cell, outcome.runs), _speed_up(outcome, base), remark)
        for number, (outcome, remark) in enumerate(zip(outcomes, remarks(outcomes), strict=True), 1)
    ]
    shown = [
        Field("", "#", lambda row: row.number),
        *(trait.of(lambda row: row.cell) for trait in traits([outcome.cell for outcome in outcomes])),
        *(THROUGHPUT, half_width_of(THROUGHPUT), MEDIAN, *fleet.fields(benchmark)),
        Field("", versus, lambda row: row.speed_up),
        PEAK_MEMORY,
        Field("", "", lambda row: row.remark, left=True),
    ]
    best = {index for index, row in enumerate(rows) if row.remark.startswith("best")}
    return Table(shown, rows, strong=best)


def _speed_up(outcome: Outcome, base: Outcome | None) -> str | None:
    if base is None or not with_samples(outcome.runs):
        return None
    return "1" if base is outcome else ratio_text(speed_up(outcome, base))


def ratio_text(ratio: Estimate) -> str:
    """A speed-up with its interval."""
    return f"{rounded(ratio.value, ratio.ends, '{:.2f}'.format)}{in_brackets(ratio.ends)}"


def traits(cells: Sequence[Cell]) -> list[Field]:
    """What is shown of cells: engine, cores and batch, and all else in which they differ."""
    always = ("machine_type", *_ALWAYS) if any(cell.machine_type for cell in cells) else _ALWAYS
    return [one for one in TRAITS if one.key in always or len({one.get(cell) for cell in cells}) > 1]


def find_baseline(benchmark: Benchmark, wanted: Sequence[str]) -> Outcome | None:
    """The first cell that fits all of OPTION=VALUE; without any, the first that was measured."""
    measured = [one for one in benchmark.outcomes if with_samples(one.runs)]
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
    trait = next((one for one in TRAITS if name in (one.key, one.label)), None)
    if not equals or trait is None:
        known = ", ".join(sorted(one.key for one in TRAITS if not one.key.startswith("machine")))
        raise BadInput(f"The baseline '{pair}' is not of the form OPTION=VALUE; the options are {known}.")
    known_value = trait.get(cell)
    return ("-" if known_value is None else trait.form(known_value)) == value.strip()


def heading(benchmark: Benchmark) -> str:
    """The model in a line."""
    model = benchmark.model
    parameters = "" if model.parameters is None else f", {model.parameters:,} parameters"
    return f"{model.source} ({size(model.size_bytes)}{parameters}, {model.precision})"


def speed_up(outcome: Outcome, base: Outcome) -> Estimate:
    """The baseline's time per item over its own; they were not measured interleaved."""
    return intervals.welch(_times(outcome), _times(base), level=0.95)


def _times(outcome: Outcome) -> list[float]:
    cell = outcome.cell
    return [
        1e3 / items_per_sec(run, cell.batch_size, cell.rate)
        if headline.statistic(cell.scenario) == "mean"
        else median_ms(run) / cell.batch_size
        for run in with_samples(outcome.runs)
    ]


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
    sure = "" if fleet.on_cluster(benchmark) else ": to be sure, compare them interleaved (inferlab compare)"
    return [f"{line} {named} may be as fast{sure}.", *more]


def _may_equal(one: Outcome, best: Outcome) -> bool:
    ratio = speed_up(one, best)
    return ratio.high is None or ratio.high >= 1.0


def _notes(benchmark: Benchmark) -> list[Block]:
    """Failures and findings; one that several cells share is told once."""
    told = []
    for outcome, found in zip(benchmark.outcomes, find_in_all(benchmark.outcomes), strict=True):
        failed = [outcome.failure.message] if outcome.failure else []
        told.append([*failed, *map(finding, found)])
    return [f"Note on {cells}: {text}" if cells else Note(text) for text, cells in shared(told).items()]


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


def cell_blocks(benchmark: Benchmark, outcome: Outcome) -> list[Block]:
    """The lines that DeepSparse's tool prints, then what it did not have."""
    cell, runs = outcome.cell, outcome.runs
    summary = summarize(cell, runs)
    shown: list[Block] = [Pair("Original Model Path", benchmark.model.source)]
    if not runs:
        return shown
    shown += [Pair("Batch Size", str(cell.batch_size)), Pair("Scenario", SCENARIO_NAMES[cell.scenario])]
    found = notes(map(finding, find_all(outcome)))
    if summary is None:
        return [*shown, Pair("Iterations", "0"), *found]
    shown += [
        Pair("Throughput (items/sec)", decimal(summary.items_per_sec.value), strong=True),
        Pair("Latency Mean (ms/batch)", decimal(summary.mean_ms)),
        Pair("Latency Median (ms/batch)", decimal(summary.median_ms.value), strong=True),
        Pair("Latency Std (ms/batch)", decimal(summary.std_ms)),
        Pair("Iterations", str(summary.iterations)),
        *_sureness(summary, len(with_samples(runs))),
        *_precision(outcome),
        *_percentiles("Latency", summary.percentiles_ms),
    ]
    if summary.service_percentiles_ms is not None:
        shown += _percentiles("Service", summary.service_percentiles_ms)
        served = f"{cell.rate:g} due, {share(1 - summary.unserved_share)} served"
        shown.append(Pair("Rate (requests/sec)", served))
    return [*shown, *_around(outcome), *found]


def _sureness(summary: Summary, processes: int) -> list[Pair]:
    if summary.median_ms.low is None:
        return []
    level = f"{100 * summary.median_ms.level:g}%"
    return [
        Pair(f"Throughput {level} Interval (items/sec)", interval(summary.items_per_sec, processes)),
        Pair(f"Latency Median {level} Interval (ms/batch)", interval(summary.median_ms, processes)),
    ]


def _precision(outcome: Outcome) -> list[Pair]:
    """Which of the two ended it, the wanted precision or the time."""
    wanted = outcome.cell.precision
    if wanted is None or outcome.status != "done":
        return []
    reached = all(one.code != "not-precise" for one in find_all(outcome))
    return [Pair("Precision", f"±{share(wanted)} {'reached' if reached else 'not reached within the time'}")]


def _percentiles(what: str, percentiles: Mapping[float, float | None]) -> list[Pair]:
    shown = [f"p{p:g} {decimal(ms)}" for p, ms in percentiles.items() if ms is not None and p > 50]
    return [Pair(f"{what} Percentiles (ms/batch)", ", ".join(shown))] if shown else []


def _around(outcome: Outcome) -> list[Pair]:
    cell, runs = outcome.cell, outcome.runs
    run = runs[0]
    engine = f"{cell.engine} {run.versions.get(cell.engine, '')}".rstrip()
    streams = plural(cell.num_streams, "stream")
    if cell.num_streams > 1:
        streams += {
            "processes": " in processes of their own",
            "threads": " in threads, each with its own loaded model",
            "native": " on one loaded model",
        }[run.stream_mode]
    if cell.instances > 1:
        streams = f"{cell.instances} instances of {streams}"
    shown = [
        Pair("Engine", f"{engine}, {plural(cell.num_cores, 'core')}, {streams}"),
        Pair("Load Time", duration(statistics.median(one.load_s for one in runs))),
        Pair("First Inference", duration(statistics.median(one.first_inference_s for one in runs))),
    ]
    peak = peak_memory_bytes(runs)
    if peak is not None:
        before = run.baseline_memory_bytes
        also = "" if before is None else f" ({size(before)} before the model was loaded)"
        shown.append(Pair("Peak Memory", f"{size(peak)}{also}"))
    return [*shown, Pair("Output Check", output_check(worst([one.check for one in runs])))]
