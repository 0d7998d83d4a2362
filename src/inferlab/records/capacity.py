"""The highest rate of requests that meets a latency objective, and the curve of latency over rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inferlab.records.benchmark import Cell, Machine, OutputCheck
from inferlab.records.event import Finding
from inferlab.records.model import Model

#: Where the search ended: between two rates, at saturation, at no rate at all, or out of time.
Reach = Literal["crossing", "saturation", "none", "bound"]


@dataclass(frozen=True, slots=True)
class Objective:
    """A statistic of the response times and the limit that it must not exceed."""

    #: mean, median, or a percentile such as p99 or p99.9.
    statistic: str
    limit_s: float
    text: str


@dataclass(frozen=True, slots=True)
class LoneRequest:
    """How long requests take that come one by one: a glance at a few gives their median, more the objective's."""

    seconds: float
    statistic: str


@dataclass(frozen=True, slots=True)
class CapacityProcess:
    """What one fresh process found."""

    started_at: str
    saturation_rate: float
    #: The highest rate on this process's arrivals.
    measured_rate: float
    #: What to multiply it by, because these arrivals were easier or harder than usual.
    luck: float
    reach: Reach
    #: The highest rate of this process, whatever the arrivals.
    rate: float


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One rate of the curve, the requests of all processes together; None where too few carry a statistic."""

    rate: float
    #: The rate as a share of saturation.
    load: float
    requests: int
    processes: int
    unserved_share: float
    responses_s: Mapping[str, float | None]
    services_s: Mapping[str, float | None]
    #: Whether the objective is met; None where the requests do not carry its statistic.
    kept: bool | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was found out about one cell and one objective."""

    cell: Cell
    model: Model
    objective: Objective
    #: What queueing theory makes of the first process's service times, saturated or, if too long, one by one.
    predicted_rate: float
    processes: tuple[CapacityProcess, ...]
    curve: tuple[RatePoint, ...]
    stream_mode: str
    #: Of all processes, before and after timing.
    check: OutputCheck
    findings: tuple[Finding, ...]
    machine: Machine
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    #: With no rate at all: the service time of requests that came one by one.
    lone: LoneRequest | None = None
    interrupted: bool = False
    #: Its name in the store; empty where it was not saved.
    id: str = ""
