"""What the cells of a cluster have beside other cells: percentiles, cost, and how alike machines of a type are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from inferlab.measure.headline import cost_per_million, price_of
from inferlab.measure.intervals import Across, across
from inferlab.measure.stats import items_per_sec, median_ms, summarize, with_samples
from inferlab.records import Benchmark, Cell, Outcome, Run
from inferlab.units import count, decimal, plural, share
from inferlab.views.fields import Field
from inferlab.views.intervals import advice, half_width, in_brackets, useful
from inferlab.views.text import cell_label

_PERCENTILES = (90.0, 99.0)


def on_cluster(benchmark: Benchmark) -> bool:
    """Whether its cells were measured on the machine types of a cluster."""
    return any(one.cell.machine_type is not None for one in benchmark.outcomes)


def fields(benchmark: Benchmark) -> list[Field]:
    """The columns that a table of a cluster has more than others."""
    if not on_cluster(benchmark):
        return []
    shown = [
        Field(f"p{p:g}_ms", f"p{p:g} ms", partial(_percentile, p), partial(decimal, places=3))
        for p in _PERCENTILES
    ]
    if benchmark.plan.prices:
        shown.append(Field("cost_per_million", "cost/million", partial(_cost, benchmark), money))
    return shown


def _percentile(p: float, row: Any) -> float | None:
    found: float | None = row.summary.percentiles_ms[p] if row.summary else None
    return found


def _cost(benchmark: Benchmark, row: Any) -> float | None:
    price = price_of(benchmark, row.cell)
    return None if price is None or not row.summary else cost_per_million(row.summary.items_per_sec, price).value


def lines(benchmark: Benchmark, counting: Sequence[tuple[int, Outcome]]) -> list[str]:
    """The cheapest of the cells that count, and what machines of one type say together."""
    return [*_cheapest(benchmark, counting), *_types(benchmark, [one for _, one in counting])]


def _cheapest(benchmark: Benchmark, counting: Sequence[tuple[int, Outcome]]) -> list[str]:
    costs = []
    for number, one in counting:
        summary, price = summarize(one.cell, one.runs), price_of(benchmark, one.cell)
        if summary is not None and price is not None:
            costs.append((cost_per_million(summary.items_per_sec, price), number, one))
    if len(costs) < 2:
        return []
    cost, number, best = min(costs, key=lambda one: one[0].value)
    sure = in_brackets(cost.ends, money, len(with_samples(best.runs)))
    return [
        f"Cheapest: #{number}, {cell_label(best.cell)}: {money(cost.value)} per million inferences{sure}.",
        *advice([cost.ends]),
    ]


def _types(benchmark: Benchmark, counting: Sequence[Outcome]) -> list[str]:
    """One line for each cell that several machines of a type measured."""
    told = []
    for cell, members in groups(counting).items():
        if len(members) < 2:
            continue
        rates = _across(members, lambda run, one: items_per_sec(run, one.batch_size, one.rate))
        medians = _across(members, lambda run, one: median_ms(run))
        price = price_of(benchmark, cell)
        cost = "" if price is None else f", {money(cost_per_million(rates.typical, price).value)} per million"
        told.append(
            f"{plural(rates.machines, 'machine')} of {cell_label(cell)}: {count(rates.typical.value)} items/s "
            f"{_half(rates)}, median {decimal(medians.typical.value, 3)} ms {_half(medians)}{cost}; the intervals "
            f"include what machines differ by ({share(rates.between)} in throughput; processes of one machine: "
            f"{share(rates.within)})."
        )
    return told


def groups(outcomes: Sequence[Outcome]) -> dict[Cell, list[Outcome]]:
    """The outcomes of machines of one type together, by the cell that they measured."""
    found: dict[Cell, list[Outcome]] = {}
    for one in outcomes:
        if one.cell.machine_number is not None:
            found.setdefault(replace(one.cell, machine_number=None), []).append(one)
    return found


def _across(members: Sequence[Outcome], value: Callable[[Run, Cell], float]) -> Across:
    return across([[value(run, one.cell) for run in with_samples(one.runs)] for one in members])


def _half(found: Across) -> str:
    ends = found.typical.ends
    return f"±{half_width(ends)}" if useful(ends) else in_brackets(ends).lstrip()


def money(amount: float) -> str:
    """An amount of whatever currency the prices have."""
    return f"{amount:.3g}"
