"""Two arms measured interleaved, which answer a call or generate: their ratio, its interval and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inferlab.records.benchmark import Cell, Estimate, Finding, Machine, Metric, Model, Run
from inferlab.records.generation import (
    Agreement,
    GenerationCell,
    GenerationPlan,
    GenerationRun,
    GenerativeModel,
)

Verdict = Literal["faster", "slower", "same", "inconclusive"]
#: The first token's time, the time per output token, and the time of a token at the prefill, while decoding, and
#: of all that are generated from the submission on.
ComparedMetric = Literal["ttft", "tpot", "prefill", "decode", "output"]
#: What stands for an arm's time: its median latency, the time per item at full throughput, or the median response
#: to requests that arrive at the same moments; of saved generations one of theirs.
TimeMetric = Literal["median", "throughput", "response", ComparedMetric]


@dataclass(frozen=True, slots=True)
class Pair:
    """Both arms of a comparison, measured interleaved by one fresh process each."""

    a: Run
    b: Run
    #: Logarithm of B's time per item over A's.
    log_ratio: float


@dataclass(frozen=True, slots=True)
class SpreadPrior:
    """How much the log ratios of pairs are expected to differ before any was measured."""

    #: Their standard deviation.
    sd: float
    #: How many degrees of freedom that counts for. More would let a prior that is wrong by a factor of 3 mislead.
    freedom: float = 2.0
    #: How many comparisons on this machine it is from; 0: it is built in.
    comparisons: int = 0


#: By the number of cores.
Spreads = Mapping[int, SpreadPrior]
#: By the name of the machine.
MachineSpreads = Mapping[str, Spreads]


@dataclass(frozen=True, slots=True)
class Spread:
    """How much measurements of one comparison differ, as standard deviations of log ratios."""

    #: Between pairs of processes, beyond what turns explain.
    between: float
    #: Between the double turns of one pair.
    within: float
    #: How many double turns the pairs have, on average.
    turns: float
    prior: SpreadPrior


@dataclass(frozen=True, slots=True)
class Comparison:
    """How B's time compares with A's, and whether both compute the same."""

    #: What was compared, in the user's words.
    labels: tuple[str, str]
    #: B's time per item over A's.
    ratio: Estimate
    verdict: Verdict
    margin: float
    metric: TimeMetric
    seconds: float
    #: None where the outputs could not be compared; `output_detail` says why, or which output differs most.
    outputs_match: bool | None
    output_error: float | None
    output_detail: str
    #: Seconds that would settle an inconclusive comparison, as far as can be told.
    settle_s: float | None
    cells: tuple[Cell, Cell] | None = None
    models: tuple[Model, Model] | None = None
    #: Empty where saved results were compared.
    pairs: tuple[Pair, ...] = ()
    #: Process-level times per item of both arms, in milliseconds.
    times_ms: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    #: How the two results differ beside their numbers, where they were saved at other times or places.
    differences: tuple[str, ...] = ()
    interrupted: bool = False
    #: What `output_error` is.
    output_metric: Metric = "max"
    #: None where saved results were compared, or an older version did.
    spread: Spread | None = None
    #: What tells it apart from the others of a sweep of saved results; where arms were measured, their cells do.
    place: str = ""
    #: B's 99th percentile over A's, where requests arrive by themselves and enough of them did.
    tail_ratio: Estimate | None = None
    #: Of how many entries of a series A's times are; 0: of the processes of one result.
    entries: int = 0


@dataclass(frozen=True, slots=True)
class ComparisonFailure:
    """Why a core count and batch size have no comparison; None stands for all cores, and the model's own batch."""

    num_cores: int | None
    batch_size: int | None
    message: str


@dataclass(frozen=True, slots=True)
class ComparisonSweep:
    """The same two arms compared at several core counts and batch sizes."""

    results: tuple[Comparison, ...]
    failures: tuple[ComparisonFailure, ...] = ()
    interrupted: bool = False
    #: Its name in the store; empty where it was not saved.
    id: str = ""


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
class GenerationPair:
    """Both arms of a comparison, generating interleaved in one fresh process each."""

    a: GenerationRun
    b: GenerationRun
    #: The logarithms of A's and B's times, in nanoseconds, in each double turn.
    turns: tuple[tuple[float, float], ...]


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
    #: What one that was cut off goes on with; empty where it is complete.
    pairs: tuple[GenerationPair, ...] = ()
    #: Its name in the store; empty where it was not saved.
    id: str = ""


@dataclass(frozen=True, slots=True)
class GenerationComparisonSweep:
    """The same two arms compared in several cells, each of them an entry of its own."""

    results: tuple[GenerationComparison, ...]
    failures: tuple[ComparisonFailure, ...] = ()
    interrupted: bool = False
