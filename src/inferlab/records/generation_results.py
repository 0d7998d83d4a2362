"""What follows from measuring generations: a comparison of two arms, a capacity, a recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from inferlab.records.benchmark import Estimate, Machine
from inferlab.records.capacity import CapacityProcess
from inferlab.records.comparison import Spread, Verdict
from inferlab.records.event import Finding
from inferlab.records.generation import (
    Agreement,
    GenerationCell,
    GenerationPlan,
    GenerationSweep,
    GenerativeModel,
    PromptSet,
    TokenLimit,
)

#: The first token's time, the time per output token, and the time of a token at the prefill, while decoding, and
#: of all that are generated from the submission on.
ComparedMetric = Literal["ttft", "tpot", "prefill", "decode", "output"]


@dataclass(frozen=True, slots=True)
class TokenAgreement:
    """How many tokens of the same prompts two arms chose alike, in all generations that were timed."""

    #: Tokens until the first that differs, in each generation, and all that were generated.
    agreeing: int
    tokens: int
    #: Generations that are alike to their end, and all of them.
    alike: int
    generations: int


@dataclass(frozen=True, slots=True)
class GenerationComparison:
    """How long B takes over A for the same prompts, generated interleaved, and whether their tokens agree."""

    #: What was compared, in the user's words.
    labels: tuple[str, str]
    metric: ComparedMetric
    #: B's time over A's; of prefill and decode it is the time of a token.
    ratio: Estimate
    verdict: Verdict
    margin: float
    seconds: float
    #: Seconds that would settle an inconclusive comparison, as far as can be told.
    settle_s: float | None
    arms: tuple[GenerationCell, GenerationCell]
    models: tuple[GenerativeModel, GenerativeModel]
    #: Logarithms of B's time over A's, of each pair of fresh processes.
    log_ratios: tuple[float, ...]
    #: Process-level times of both arms, in milliseconds.
    times_ms: tuple[tuple[float, ...], tuple[float, ...]]
    spread: Spread
    #: Of each arm with the reference on its own weights.
    agreements: tuple[Agreement, Agreement]
    #: Of the arms with each other.
    tokens: TokenAgreement
    versions: tuple[Mapping[str, str], Mapping[str, str]]
    machine: Machine
    #: What disturbed each arm.
    findings: tuple[tuple[Finding, ...], tuple[Finding, ...]] = ((), ())
    interrupted: bool = False
    #: What was compared, so that it can be compared once more; None where an earlier version saved it.
    plans: tuple[GenerationPlan, GenerationPlan] | None = None
    #: Seconds that it was allowed, and whether every process began from nothing.
    time_s: float = 60.0
    fresh: bool = False
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
    id: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a configuration was not taken."""

    cell_id: str
    #: "failed", "wrong-tokens", "misses" a limit, or "slower" than the one that is recommended.
    reason: Literal["failed", "wrong-tokens", "misses", "slower"]
    #: The limit that is missed most and what was measured, as a share of it; or the throughput as a share.
    limit: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class GenerationRecommendation:
    """The engine, cores and batch size that generate most tokens per second within the limits."""

    model: GenerativeModel
    slo: tuple[TokenLimit, ...]
    #: All configurations that were tried.
    sweep: GenerationSweep
    #: The cell that is recommended; empty where none meets the limits.
    chosen_id: str
    rejections: tuple[Rejection, ...]
    #: Where the best two were close: their comparison, A being the one that seemed better before.
    final: GenerationComparison | None
    seconds: float
    interrupted: bool = False
    #: What was asked for, so that it can be searched once more, and the seconds that it was allowed.
    plan: GenerationPlan | None = None
    time_s: float = 120.0
    id: str = ""
