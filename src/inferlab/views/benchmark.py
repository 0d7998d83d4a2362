"""A benchmark as blocks: the lines of its only cell, or the table of all, what is best, and what is wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from inferlab.errors import BadInput
from inferlab.measure import intervals, stats
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all, find_in_all
from inferlab.measure.stats import items_per_sec, median_ms, peak_memory_bytes, summarize, with_samples
from inferlab.options.plan import COLUMNS, cell_texts
from inferlab.records import Benchmark, Cell, Estimate, Outcome, Run, Summary
from inferlab.units import count, decimal, duration, plural, share, size
from inferlab.views import fields
from inferlab.views.fields import (
    CELL,
    Field,
    advice,
    fits,
    half_width,
    half_width_of,
    in_brackets,
    money,
    rounded,
    useful,
)
from inferlab.views.results import View
from inferlab.views.tables import Block, Note, Pair, Table, notes, places_of
from inferlab.views.text import SCENARIO_NAMES, cell_label, finding, interval, output_check

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


def view_of(benchmark: Benchmark) -> View:
    """How it is shown and written."""
    from inferlab.views import benchmark_file  # late: the terminal needs neither files nor charts

    def html() -> str:
        from inferlab.views.reports.benchmark import report

        return report(benchmark)

    return View(
        heading(benchmark),
        lambda: table_blocks(benchmark),
        lambda: benchmark_file.table(benchmark_file.rows(benchmark)),
        lambda: benchmark_file.content(benchmark),
        html,
        lambda: benchmark_file.hidden(benchmark),
    )


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


def table(benchmark: Benchmark, baseline: Outcome | None = None) -> Table:
    """A row for each cell: what varies, how fast it is, how sure that is, and what to see at a glance."""
    outcomes = benchmark.outcomes
    base = baseline or find_baseline(benchmark, ())
    versus = "speed-up" if base is None else f"speed-up over #{outcomes.index(base) + 1}"
    rows = [
        Row(number, outcome, summarize(outcome.cell, outcome.runs), _speed_up(outcome, base), remark)
        for number, (outcome, remark) in enumerate(zip(outcomes, remarks(outcomes), strict=True), 1)
    ]
    columns = [
        Field("", "#", lambda row: row.number),
        *(trait.of(lambda row: row.cell) for trait in traits([outcome.cell for outcome in outcomes])),
        *(fields.THROUGHPUT, half_width_of(fields.THROUGHPUT), fields.MEDIAN, *_cluster_fields(benchmark)),
        Field("", versus, lambda row: row.speed_up),
        fields.PEAK_MEMORY,
        Field("", "", lambda row: row.remark, left=True),
    ]
    best = {index for index, row in enumerate(rows) if row.remark.startswith("best")}
    return Table(columns, rows, strong=best)


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
    return [trait for trait in CELL if trait.key in always or len({trait.get(cell) for cell in cells}) > 1]


def find_baseline(benchmark: Benchmark, pairs: Sequence[str]) -> Outcome | None:
    """The first cell that fits all of OPTION=VALUE; without any, the first that was measured."""
    measured = [outcome for outcome in benchmark.outcomes if with_samples(outcome.runs)]
    for outcome in measured:
        if all(fits(outcome.cell, pair) for pair in pairs):
            return outcome
    return None


def check_baseline(cells: Sequence[Cell], pairs: Sequence[str]) -> None:
    """Refuse a baseline that no cell fits, before anything is measured."""
    if not any(all(fits(cell, pair) for pair in pairs) for cell in cells):
        raise BadInput(f"No cell of this plan has {' and '.join(pairs)}, so it cannot be the baseline.")


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
        if stats.statistic(cell.scenario) == "mean"
        else median_ms(run) / cell.batch_size
        for run in with_samples(outcome.runs)
    ]


def remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """What to see of each cell at a glance: the best, the worst, what failed, what is wrong."""
    marks = _marks(outcomes)
    return [_remark(outcome, marks.get(number, "")) for number, outcome in enumerate(outcomes, 1)]


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
        (number, outcome)
        for number, outcome in enumerate(outcomes, 1)
        if outcome.status == "done"
        and with_samples(outcome.runs)
        and worst([run.check for run in outcome.runs]).status != "mismatch"
    ]


def ranked(outcomes: Sequence[Outcome]) -> list[tuple[int, Outcome]]:
    """The cells that count, with their numbers, the best first: that of the lowest time per item."""

    def time(pair: tuple[int, Outcome]) -> float:
        cell = pair[1].cell
        summary = summarize(cell, pair[1].runs)
        assert summary is not None, "what counts was measured"
        medians, rates = summary.median_ms.value, summary.items_per_sec.value
        return stats.ms_per_item(cell.scenario, cell.batch_size, medians, rates) or math.inf

    return sorted(right(outcomes), key=time)


def _marks(outcomes: Sequence[Outcome]) -> dict[int, str]:
    ranking = ranked(outcomes)
    return {ranking[-1][0]: "worst", ranking[0][0]: "best"} if len(ranking) > 1 else {}


def verdict(benchmark: Benchmark) -> list[str]:
    """What is best, and what may be as good as far as the intervals tell."""
    ranking = ranked(benchmark.outcomes)
    if len(ranking) < 2:
        return []
    number, best = ranking[0]
    rivals = [str(other) for other, outcome in ranking[1:] if _may_equal(outcome, best)]
    meaning = stats.best_is(outcome.cell.scenario for _, outcome in ranking)
    line = f"Best ({meaning}): #{number}, {cell_label(best.cell)}."
    more = _of_cluster(benchmark, right(benchmark.outcomes))
    if not rivals:
        return [line, *more]
    named = ", ".join(f"#{rival}" for rival in rivals)
    # Machines cannot take turns.
    sure = "" if _on_cluster(benchmark) else ": to be sure, compare them interleaved (inferlab compare)"
    return [f"{line} {named} may be as fast{sure}.", *more]


def _may_equal(outcome: Outcome, best: Outcome) -> bool:
    ratio = speed_up(outcome, best)
    return ratio.high is None or ratio.high >= 1.0


def _notes(benchmark: Benchmark) -> list[Block]:
    """Failures and findings; one that several cells share is told once."""
    sentences = []
    for outcome, findings in zip(benchmark.outcomes, find_in_all(benchmark.outcomes), strict=True):
        failed = [outcome.failure.message] if outcome.failure else []
        sentences.append([*failed, *map(finding, findings)])
    return [f"Note on {cells}: {text}" if cells else Note(text) for text, cells in shared(sentences).items()]


def shared(sentences_of_cells: Sequence[Sequence[str]]) -> dict[str, str]:
    """What is told of each cell: every sentence once, with the cells that it is about, or nothing for all."""
    return {
        text: "" if len(places) == len(sentences_of_cells) else ", ".join(f"#{place + 1}" for place in places)
        for text, places in places_of(sentences_of_cells).items()
    }


def cell_blocks(benchmark: Benchmark, outcome: Outcome) -> list[Block]:
    """The lines that DeepSparse's tool prints, then what it did not have."""
    cell, runs = outcome.cell, outcome.runs
    summary = summarize(cell, runs)
    lines: list[Block] = [Pair("Original Model Path", benchmark.model.source)]
    if not runs:
        return lines
    lines += [Pair("Batch Size", str(cell.batch_size)), Pair("Scenario", SCENARIO_NAMES[cell.scenario])]
    sentences = notes(map(finding, find_all(outcome)))
    if summary is None:
        return [*lines, Pair("Iterations", "0"), *sentences]
    lines += [
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
        lines += _percentiles("Service", summary.service_percentiles_ms)
        served = f"{cell.rate:g} due, {share(1 - summary.unserved_share)} served"
        lines.append(Pair("Rate (requests/sec)", served))
    return [*lines, *_around(outcome), *sentences]


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
    precision = outcome.cell.precision
    if precision is None or outcome.status != "done":
        return []
    reached = all(warning.code != "not-precise" for warning in find_all(outcome))
    return [Pair("Precision", f"±{share(precision)} {'reached' if reached else 'not reached within the time'}")]


def _percentiles(what: str, percentiles: Mapping[float, float | None]) -> list[Pair]:
    texts = [f"p{p:g} {decimal(ms)}" for p, ms in percentiles.items() if ms is not None and p > 50]
    return [Pair(f"{what} Percentiles (ms/batch)", ", ".join(texts))] if texts else []


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
    pairs = [
        Pair("Engine", f"{engine}, {plural(cell.num_cores, 'core')}, {streams}"),
        *(Pair(COLUMNS[name].column, text) for name, text in cell_texts(cell).items() if text is not None),
        Pair("Load Time", duration(statistics.median(process.load_s for process in runs))),
        Pair("First Inference", duration(statistics.median(process.first_inference_s for process in runs))),
    ]
    peak = peak_memory_bytes(runs)
    if peak is not None:
        before = run.baseline_memory_bytes
        also = "" if before is None else f" ({size(before)} before the model was loaded)"
        pairs.append(Pair("Peak Memory", f"{size(peak)}{also}"))
    return [*pairs, Pair("Output Check", output_check(worst([process.check for process in runs])))]


def _on_cluster(benchmark: Benchmark) -> bool:
    """Whether its cells were measured on the machine types of a cluster."""
    return any(outcome.cell.machine_type is not None for outcome in benchmark.outcomes)


def _cluster_fields(benchmark: Benchmark) -> list[Field]:
    """The columns that a table of a cluster has more than others."""
    if not _on_cluster(benchmark):
        return []
    cost = fields.cost(lambda row: _cost(benchmark, row.cell, row.summary))
    return [fields.P90, fields.P99, *([cost] if benchmark.plan.prices else [])]


def _cost(benchmark: Benchmark, cell: Cell, summary: Summary | None) -> Estimate | None:
    price = stats.price_of(benchmark, cell)
    return None if price is None or summary is None else stats.cost_per_million(summary.items_per_sec, price)


def _of_cluster(benchmark: Benchmark, counting: Sequence[tuple[int, Outcome]]) -> list[str]:
    """The cheapest of the cells that count, and what machines of one type say together."""
    return [*_cheapest(benchmark, counting), *_types(benchmark, [outcome for _, outcome in counting])]


def _cheapest(benchmark: Benchmark, counting: Sequence[tuple[int, Outcome]]) -> list[str]:
    costs = []
    for number, outcome in counting:
        cost = _cost(benchmark, outcome.cell, summarize(outcome.cell, outcome.runs))
        costs += [] if cost is None else [(cost, number, outcome)]
    if len(costs) < 2:
        return []
    least, number, best = min(costs, key=lambda cost: cost[0].value)
    sure = in_brackets(least.ends, money, len(with_samples(best.runs)))
    return [
        f"Cheapest: #{number}, {cell_label(best.cell)}: {money(least.value)} per million inferences{sure}.",
        *advice([least.ends]),
    ]


def _types(benchmark: Benchmark, counting: Sequence[Outcome]) -> list[str]:
    """One line for each cell that several machines of a type measured."""
    sentences = []
    for cell, members in _groups(counting).items():
        if len(members) < 2:
            continue
        rates = _across(members, lambda run, of_cell: items_per_sec(run, of_cell.batch_size, of_cell.rate))
        medians = _across(members, lambda run, of_cell: median_ms(run))
        price = stats.price_of(benchmark, cell)
        cost = (
            "" if price is None else f", {money(stats.cost_per_million(rates.typical, price).value)} per million"
        )
        sentences.append(
            f"{plural(rates.machines, 'machine')} of {cell_label(cell)}: {count(rates.typical.value)} items/s "
            f"{_half(rates)}, median {decimal(medians.typical.value, 3)} ms {_half(medians)}{cost}; the intervals "
            f"include what machines differ by ({share(rates.between)} in throughput; processes of one machine: "
            f"{share(rates.within)})."
        )
    return sentences


def _groups(outcomes: Sequence[Outcome]) -> dict[Cell, list[Outcome]]:
    """The outcomes of machines of one type together, by the cell that they measured."""
    groups: dict[Cell, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.cell.machine_number is not None:
            groups.setdefault(replace(outcome.cell, machine_number=None), []).append(outcome)
    return groups


def _across(members: Sequence[Outcome], value: Callable[[Run, Cell], float]) -> intervals.Across:
    return intervals.across([[value(run, member.cell) for run in with_samples(member.runs)] for member in members])


def _half(across: intervals.Across) -> str:
    ends = across.typical.ends
    return f"±{half_width(ends)}" if useful(ends) else in_brackets(ends).lstrip()
