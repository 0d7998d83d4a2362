"""The same cell over time and over releases: a Series and where it changed, and a Bisection of releases."""

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


#: What may become worse: the time, the peak memory, the time of loading, or what is computed.
BisectionMetric = Literal["latency", "memory", "load", "outputs"]
StepVerdict = Literal["good", "bad", "skipped"]


@dataclass(frozen=True, slots=True)
class BisectionStep:
    """One release, compared with the good one."""

    version: str
    verdict: StepVerdict
    #: What it takes over what the good one takes; None where outputs are compared, or it could not be.
    ratio: Estimate | None
    #: Why it could not be compared, or how its outputs differ.
    detail: str = ""
    #: It was compared before, and read from the store.
    saved: bool = False
    #: The interval leaves no doubt whether it is nearer to the bad release than to the good one.
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Bisection:
    """The search for the first bad release between a good and a bad one."""

    model: str
    engine: str
    metric: BisectionMetric
    margin: float
    #: From the good to the bad one, oldest first.
    versions: tuple[str, ...]
    #: In the order in which they were compared; the bad one is the first.
    steps: tuple[BisectionStep, ...]
    last_good: str
    first_bad: str
    #: Between them: those that could not be compared, any of which may be the first bad one instead.
    untried: tuple[str, ...] = ()
