"""In which release of an engine a model became worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inferlab.records.benchmark import Estimate

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
