"""The same cell measured again and again: a Series, its points in the order of time, and where it changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from inferlab.records.benchmark import Cell, Estimate

#: What is followed: the time per item, or the peak memory.
SeriesMetric = Literal["time", "memory"]
#: What a series may reach across; by itself it is of one model, one machine and one version of the engine.
Across = Literal["machine", "version", "model"]


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One entry of a series."""

    entry_id: str
    created_at: datetime
    #: Milliseconds per item, or bytes; corrected where the series is.
    value: float
    #: The interval between the processes of the entry, where it has one.
    low: float | None
    high: float | None
    labels: tuple[tuple[str, str], ...]
    model_digest: str
    machine: str
    version: str

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of its interval, where there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Where a series changed: what came after over what was before, and how sure that is."""

    #: The index of the first point after it.
    index: int
    ratio: Estimate
    #: How often a series that does not change would look so by chance, at this one place.
    p_value: float
    #: The last entry before, and the first after.
    before_id: str
    after_id: str


@dataclass(frozen=True, slots=True)
class Series:
    """One cell over time, oldest first."""

    model: str
    cell: Cell
    metric: SeriesMetric
    #: Each of one value unless the series reaches across it.
    machines: tuple[str, ...]
    versions: tuple[str, ...]
    points: tuple[SeriesPoint, ...]
    changes: tuple[ChangePoint, ...] = ()
    #: Whether it has as many points as a change can be told from.
    enough: bool = True
    #: The cell that machines or versions were corrected by, in words; empty where nothing was corrected.
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Trend:
    """Series that were asked for, the one with the newest point first."""

    metric: SeriesMetric
    series: tuple[Series, ...]
    across: tuple[Across, ...] = ()
