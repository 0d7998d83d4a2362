"""The best configuration of a search, of a model that answers or one that generates, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inferlab.records.benchmark import Estimate, Failure, Machine, Model, OutputCheck, Scenario
from inferlab.records.capacity import Objective
from inferlab.records.comparison import GenerationComparison, TimeMetric, Verdict
from inferlab.records.generation import (
    GenerationPlan,
    GenerationSweep,
    GenerativeModel,
    TokenLimit,
)

Standing = Literal[
    "recommended", "runner-up", "finalist", "dropped", "missed", "wrong", "failed", "spared", "untried"
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration: an engine, its cores, the streams that divide them, the items of a batch."""

    engine: str
    num_cores: int
    num_streams: int
    batch_size: int

    @property
    def scenario(self) -> Scenario:
        """One request at a time has all the cores; several streams divide them."""
        return "sync" if self.num_streams == 1 else "async"

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Smaller is simpler: fewer cores, a smaller batch, fewer streams."""
        return self.num_cores, self.batch_size, self.num_streams


@dataclass(frozen=True, slots=True)
class Round:
    """What one fresh process measured of a candidate."""

    started_at: str
    items_per_sec: float
    median_ms: float
    peak_memory_bytes: int | None
    load_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What all rounds of a candidate say together."""

    items_per_sec: Estimate
    #: Of a batch.
    median_s: float
    #: The objective's statistic; None where there is not an objective.
    objective_s: float | None
    #: How many batches these two rest on; None in what version 1 stored.
    batches: int | None
    check: OutputCheck
    #: The share of its CPUs' time that others took.
    lost_share: float


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate and what became of it."""

    candidate: Candidate
    standing: Standing
    rounds: tuple[Round, ...] = ()
    #: None where no round measured it.
    figures: Figures | None = None
    #: How its streams run: "single", "threads", "processes" or "native".
    stream_mode: str = ""
    #: Why it has no figures that count.
    problem: str = ""
    #: The measured candidate that shows that it need not be measured.
    spared_by: Candidate | None = None


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """A comparison of two candidates in pairs, without its runs."""

    labels: tuple[str, str]
    #: B's time per item over A's.
    ratio: Estimate
    verdict: Verdict
    margin: float
    metric: TimeMetric
    pairs: int
    seconds: float
    #: Seconds that would settle an inconclusive comparison; None also where an earlier version saved it.
    settle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """All that is needed to write the program that runs a model as it was measured."""

    model_path: str
    #: For each process, the CPUs of each of its streams.
    children: tuple[tuple[tuple[int, ...], ...], ...]
    mode: str
    #: Name, type and shape of every input.
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    #: Python that defines load(cpus) and stream(model), from the engine; empty where it has none.
    engine_code: str
    #: The batch size that the model fixes, where a rewritten copy was measured.
    fixed_batch: int | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The best configuration, the evidence for it, and what became of the others."""

    model: Model
    objective: Objective | None
    #: The recommended one first, then by standing and throughput.
    contenders: tuple[Contender, ...]
    #: Of the recommended one (A) with others (B), or of the former leader with it.
    comparisons: tuple[PairedRatio, ...]
    #: What the comparisons could not do, in words.
    troubles: tuple[str, ...]
    #: The recommended one was taken because it is simpler than others that are as fast.
    simpler: bool
    deployment: Deployment | None
    #: Engines that were named but cannot run the model here, and why.
    left_out: Mapping[str, str]
    time_s: float
    seconds: float
    interrupted: bool
    #: None where nothing was measured.
    machine: Machine | None = None
    versions: Mapping[str, str] | None = None
    #: The program that sets it, of what version 1 stored without a deployment.
    code: str = ""
    #: Its name in the store; empty where it was not saved.
    id: str = ""

    @property
    def recommended(self) -> Contender | None:
        """The configuration to take; None where none meets the objective or nothing could be measured."""
        return next((contender for contender in self.contenders if contender.standing == "recommended"), None)

    @property
    def runner_up(self) -> Contender | None:
        """The next best."""
        return next((contender for contender in self.contenders if contender.standing == "runner-up"), None)


@dataclass(frozen=True, slots=True)
class MachineRecommendation:
    """What was found on one machine type of a cluster."""

    machine_type: str
    price_per_hour: float | None
    #: None where there is a failure instead.
    recommendation: Recommendation | None
    failure: Failure | None = None
    #: None where there is no price or nothing is recommended.
    cost_per_million: Estimate | None = None


@dataclass(frozen=True, slots=True)
class FleetRecommendation:
    """Recommendations of several machine types, the cheapest first."""

    model: Model
    objective: Objective | None
    machines: tuple[MachineRecommendation, ...]
    interrupted: bool
    id: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a configuration was not taken."""

    cell_id: str
    #: "failed", "not-measured" (interrupted before), "wrong-tokens", "ended-early" (fewer tokens than were asked
    #: for), "misses" a limit, or "slower" than the one that is recommended.
    reason: Literal["failed", "not-measured", "wrong-tokens", "ended-early", "misses", "slower"]
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
    #: Why engines were left out, or some of their cores and batch sizes.
    refusals: tuple[str, ...] = ()
    #: Why the best two could not be compared in pairs; empty where they were, or did not need to.
    final_failure: str = ""
    id: str = ""
