"""Numbers with intervals, derived from Runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Method = Literal["student", "welch", "signed-rank"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; `low` and `high` are None where too little is known for one."""

    value: float
    low: float | None
    high: float | None
    #: The confidence that the interval was made for.
    level: float
    method: Method

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval, where there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Summary:
    """Derived from a Cell's runs; latencies in milliseconds a batch, None where too few samples carry one."""

    items_per_sec: Estimate
    median_ms: Estimate
    seconds_ran: float
    iterations: int
    mean_ms: float
    std_ms: float
    percentiles_ms: Mapping[float, float | None]
    #: Of the work alone, without the wait for it, where requests arrive by themselves.
    service_percentiles_ms: Mapping[float, float | None] | None = None
    #: The share of requests that were still waiting when time was up.
    unserved_share: float = 0.0
