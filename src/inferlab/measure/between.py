"""How much machines of one type differ, and intervals that hold for the type rather than for one machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from inferlab.measure.intervals import LEVEL, student
from inferlab.records import Estimate


@dataclass(frozen=True, slots=True)
class Across:
    """What several machines of one type measured of the same cell."""

    #: The typical machine, with Student's interval over the machines: it contains what they differ by.
    typical: Estimate
    #: Standard deviations on the logarithmic scale, 0.01 being 1 %: of machines, and of processes of one machine.
    between: float
    within: float
    machines: int


def across(machines: Sequence[Sequence[float]]) -> Across:
    """From the processes' values of each machine (at least two machines) to the type.

    Each machine counts once, by its geometric mean: processes of one machine are no independent witnesses of the
    type. The variances are those of a one-way analysis with random effects; below zero they are zero.
    """
    logs = [[math.log(value) for value in values] for values in machines]
    means = [fmean(values) for values in logs]
    typical = student([math.exp(mean) for mean in means], LEVEL)
    counts = [len(values) for values in logs]
    total = sum(counts)
    freedom = total - len(logs)
    residue = sum((value - mean) ** 2 for values, mean in zip(logs, means, strict=True) for value in values)
    within = residue / freedom if freedom else 0.0
    grand = fmean([value for values in logs for value in values])
    spread = sum(count * (mean - grand) ** 2 for count, mean in zip(counts, means, strict=True)) / (len(logs) - 1)
    # The count of processes that a machine would have if all had as many.
    usual = (total - sum(count**2 for count in counts) / total) / (len(logs) - 1)
    between = max(0.0, (spread - within) / usual)
    return Across(typical, math.sqrt(between), math.sqrt(within), len(logs))
