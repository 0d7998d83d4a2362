"""The highest rate of requests, for an answer or for tokens, that meets an objective, and the curve below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inferlab.records.benchmark import Cell, Finding, Machine, Model, OutputCheck
from inferlab.records.generation import (
    Agreement,
    GenerationCell,
    GenerationPlan,
    GenerationRun,
    GenerativeModel,
    PromptSet,
    TokenLimit,
)

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


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One rate of the curve, the requests of all processes together; None where too few carry a percentile."""

    rate: float
    #: The rate as a share of what is served when requests always wait.
    load: float
    requests: int
    processes: int
    unserved_share: float
    #: The share of requests that meet every limit, and requests per second that do.
    attainment: float
    goodput_per_s: float
    ttft_percentiles_ms: Mapping[float, float | None]
    tpot_percentiles_ms: Mapping[float, float | None]
    end_to_end_percentiles_ms: Mapping[float, float | None]


@dataclass(frozen=True, slots=True)
class LoneRequests:
    """What requests take that come one by one, typically; and the share of each limit that this is."""

    ttft_ms: float
    tpot_ms: float | None
    #: The largest share of a limit that a typical one takes: above 1 no rate will do.
    limit_share: float


@dataclass(frozen=True, slots=True)
class GenerationTrial:
    """What one process of a search measured."""

    #: Its repetitions are requests that came one by one, then many at once, then those of each rate.
    run: GenerationRun
    #: Each rate, how many requests arrived, and which of the repetitions has those that were served.
    readings: tuple[tuple[float, int, int], ...]


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """What a search that was cut off goes on with."""

    #: So far.
    seconds: float
    #: What a process takes before its search.
    overhead_s: float
    #: The rate of rung 0, 0 where no rate will do; and the rungs that the search of each process begins with.
    start_rate: float
    rungs: tuple[int, ...]
    trials: tuple[GenerationTrial, ...]


@dataclass(frozen=True, slots=True)
class GenerationCapacity:
    """The highest rate of requests of which enough meet every limit, of one cell."""

    cell: GenerationCell
    model: GenerativeModel
    slo: tuple[TokenLimit, ...]
    #: The share of the requests that must meet it.
    wanted_attainment: float
    #: Its fields speak of requests per second; its luck is not known here, hence 1.
    processes: tuple[CapacityProcess, ...]
    curve: tuple[LoadPoint, ...]
    lone: LoneRequests
    #: How requests were served: "continuous batching", "by the server" or "one at a time".
    serving: str
    agreement: Agreement
    findings: tuple[Finding, ...]
    machine: Machine
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    prompts: PromptSet | None = None
    interrupted: bool = False
    #: What was asked for, so that it can be searched once more; None where an earlier version saved it.
    plan: GenerationPlan | None = None
    #: None where it is complete.
    progress: SearchProgress | None = None
    id: str = ""
