"""The one number by which cells are compared everywhere, the time per item, and what a million items cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from inferlab.records import Benchmark, Cell, Estimate

#: Scenarios that are about throughput, by their own names and those of files; the time per item follows from it.
AT_FULL_LOAD = ("async", "multistream", "elastic", "offline")

#: What DeepSparse calls the scheduler of each scenario.
SCHEDULERS = {
    "sync": "single_stream",
    "async": "multi_stream",
    "elastic": "elastic",
    "server": "multi_stream",
    "offline": "multi_stream",
}


def statistic(scenario: str) -> Literal["median", "mean"]:
    """What the time per item of a scenario is: of the median batch, or of the mean one, which throughput is."""
    return "mean" if scenario in AT_FULL_LOAD else "median"


def ms_per_item(
    scenario: str, batch_size: int | None, median_ms: float | None, items_per_sec: float | None
) -> float | None:
    """The time per item; the best cell is that of the lowest. None where what it follows from is not known."""
    if statistic(scenario) == "mean":
        return 1e3 / items_per_sec if items_per_sec else None
    return median_ms / batch_size if median_ms is not None and batch_size else None


def best_is(scenarios: Iterable[str]) -> str:
    """What "best" means among cells of these scenarios, in words."""
    statistics = {statistic(scenario) for scenario in scenarios}
    if statistics == {"mean"}:
        return "highest throughput"
    return "lowest median latency per item" if statistics == {"median"} else "lowest time per item"


_MILLION, _HOUR_S = 1e6, 3600.0


def price_of(benchmark: Benchmark, cell: Cell) -> float | None:
    """What an hour of the cell's machine costs, where the user said so."""
    return None if cell.machine_type is None else dict(benchmark.plan.prices).get(cell.machine_type)


def cost_per_million(items_per_sec: Estimate, price_per_hour: float) -> Estimate:
    """What a million items cost at this throughput; the faster, the cheaper, so the ends change places."""
    ends = items_per_sec.ends
    low, high = (None, None) if ends is None else (_cost(ends[1], price_per_hour), _cost(ends[0], price_per_hour))
    value = _cost(items_per_sec.value, price_per_hour)
    return Estimate(value, low, high, items_per_sec.level, items_per_sec.method)


def _cost(items_per_sec: float, price_per_hour: float) -> float:
    return price_per_hour * _MILLION / (items_per_sec * _HOUR_S)
