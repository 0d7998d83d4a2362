"""The one number by which cells are compared, in every table, chart, card and report: the time per item."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

#: Scenarios that are about throughput, by their own names and by those of files; the time an item follows from it.
AT_FULL_LOAD = ("async", "multistream", "elastic", "offline")


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
    known = {statistic(one) for one in scenarios}
    if known == {"mean"}:
        return "highest throughput"
    return "lowest median latency per item" if known == {"median"} else "lowest time per item"
