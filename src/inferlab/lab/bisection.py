"""In which release an engine made a model worse: comparisons with a good one, as few as a binary search needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from inferlab.engines.environments import releases
from inferlab.engines.specs import spec_of
from inferlab.errors import BadInput, EngineFailed, EngineHung, InferlabError
from inferlab.lab.comparison import arm_labels, comparison_title
from inferlab.measure.intervals import covers
from inferlab.measure.stats import resource_ratio
from inferlab.records import Comparison, Estimate, Event, Listener, Plan
from inferlab.records.series import Bisection, BisectionMetric, BisectionStep, StepVerdict
from inferlab.store.rows import own_name
from inferlab.units import share

if TYPE_CHECKING:
    from inferlab.lab.lab import Lab
    from inferlab.store.store import Store

_COMPARISONS_READ = 200
_WHAT = {"latency": "slower", "memory": "larger in memory", "load": "slower to load"}


@dataclass(frozen=True, slots=True)
class BisectionRequest:
    """What is searched for, between which releases; the plan has one cell and an engine without a version."""

    plan: Plan
    good: str
    bad: str
    metric: BisectionMetric = "latency"
    margin: float = 0.03
    #: For each comparison.
    time_s: float = 30.0
    #: Use comparisons of the store that were made before.
    resume: bool = False

    @property
    def engine(self) -> str:
        """The engine without a version."""
        return self.plan.engines[0]


def versions_between(request: BisectionRequest) -> tuple[str, ...]:
    """The releases from the good to the bad one that pip can install here, oldest first."""
    if len(request.plan.engines) != 1 or "==" in request.engine:
        raise BadInput(
            "One engine is bisected, named without a version: -e onnxruntime --good 1.17.3 --bad 1.31.1"
        )
    spec = spec_of(f"{request.engine}=={request.good}")
    try:
        good, bad = Version(request.good), Version(request.bad)
    except InvalidVersion as error:
        raise BadInput(f"{error} of {request.engine}.".replace("Invalid version", "There is no version")) from None
    if good == bad:
        raise BadInput(f"--good and --bad are the same release, {request.good}.")
    low, high = sorted((good, bad))
    between = [version for version in releases(spec.package) if low < Version(version) < high]
    ordered = [request.good, *(between if good < bad else reversed(between)), request.bad]
    return tuple(ordered)


def most_comparisons(versions: Sequence[str]) -> int:
    """How many comparisons a search takes at most, where every release can be compared."""
    return 1 + math.ceil(math.log2(len(versions) - 1))


def first_bad(versions: Sequence[str], is_bad: Callable[[str], bool | None]) -> tuple[str, str, tuple[str, ...]]:
    """The last good version, the first bad one, and those between that could not be tried.

    The first is good and the last bad. `is_bad` is None for a version that cannot be tried: one beside it is.
    """
    low, high = 0, len(versions) - 1
    untried: set[int] = set()
    while open_ := [index for index in range(low + 1, high) if index not in untried]:
        middle = min(open_, key=lambda index: (abs(2 * index - low - high), index))
        bad = is_bad(versions[middle])
        if bad is None:
            untried.add(middle)
        elif bad:
            high = middle
        else:
            low = middle
    return versions[low], versions[high], tuple(versions[low + 1 : high])


class BisectionSearch:
    """A search on its way; every comparison is saved as an entry of its own, so that it can go on."""

    def __init__(
        self,
        lab: Lab,
        request: BisectionRequest,
        store: Store | None,
        install: Callable[[str], None],
        listener: Listener,
    ) -> None:
        self._lab, self._request, self._store = lab, request, store
        self._install, self._listener = install, listener
        self._steps: list[BisectionStep] = []
        #: A ratio above it is nearer to the bad release than to the good one.
        self._threshold = 1 + request.margin

    def run(self) -> Bisection:
        """Compare the bad release with the good one, then search between them."""
        request, versions = self._request, versions_between(self._request)
        self._install(self._label(request.good))
        worst = self._step(request.bad)
        self._refuse_no_change(worst)
        if worst.ratio is not None:
            self._threshold = math.sqrt(worst.ratio.value)
        last_good, first, untried = first_bad(versions, self._is_bad)
        return Bisection(
            model=request.plan.model,
            engine=request.engine,
            metric=request.metric,
            margin=request.margin,
            versions=versions,
            steps=tuple(self._steps),
            last_good=last_good,
            first_bad=first,
            untried=untried,
        )

    def release_plan(self, version: str) -> Plan:
        """The plan on one release."""
        return replace(self._request.plan, engines=(self._label(version),))

    def _label(self, version: str) -> str:
        return f"{self._request.engine}=={version}"

    def _is_bad(self, version: str) -> bool | None:
        step = self._step(version)
        return None if step.verdict == "skipped" else step.verdict == "bad"

    def _step(self, version: str) -> BisectionStep:
        """Compare one release with the good one; one that cannot run the model is passed over."""
        number, request = len(self._steps) + 1, self._request
        self._listener(Event("bisecting", {"number": number, "engine": self._label(version)}))
        good, other = self.release_plan(request.good), self.release_plan(version)
        saved = self._saved(good, other) if request.resume else None
        try:
            self._install(self._label(version))
            comparison = saved or self._lab.compare(
                good, other, request.time_s, request.margin, self._listener, goal=self._goal()
            )
        except (EngineFailed, EngineHung) as error:
            step = self._failed(version, error)
        except BadInput as error:
            if version in (request.good, request.bad):
                raise
            step = self._failed(version, error)
        else:
            if comparison.interrupted:
                raise KeyboardInterrupt
            step = replace(self._judged(version, comparison), saved=saved is not None)
        self._steps.append(step)
        return step

    def _goal(self) -> float | None:
        return self._threshold if self._request.metric == "latency" else None

    def _failed(self, version: str, error: InferlabError) -> BisectionStep:
        verdict: StepVerdict = "bad" if self._request.metric == "outputs" else "skipped"
        return BisectionStep(version, verdict, None, str(error))

    def _judged(self, version: str, comparison: Comparison) -> BisectionStep:
        if self._request.metric == "outputs":
            differ = comparison.outputs_match is False
            detail = f"its outputs differ in '{comparison.output_detail}'" if differ else ""
            return BisectionStep(version, "bad" if differ else "good", None, detail)
        ratio = self._ratio(comparison)
        if ratio is None:
            return BisectionStep(version, "skipped", None, f"its {self._request.metric} is not known")
        verdict: StepVerdict = "bad" if ratio.value > self._threshold else "good"
        return BisectionStep(version, verdict, ratio, sure=not covers(ratio, self._threshold))

    def _ratio(self, comparison: Comparison) -> Estimate | None:
        match self._request.metric:
            case "latency":
                return comparison.ratio
            case "memory" | "load" as resource:
                return resource_ratio(comparison.pairs, resource)
        return None

    def _refuse_no_change(self, worst: BisectionStep) -> None:
        """Refuse a bad release that is not worse than the good one."""
        request, ratio = self._request, worst.ratio
        good, bad = self._label(request.good), self._label(request.bad)
        if request.metric == "outputs":
            if worst.verdict == "good":
                raise BadInput(f"There is nothing to search for: the outputs of {bad} match those of {good}.")
            return
        what = _WHAT[request.metric]
        if ratio is None:
            raise BadInput(f"{bad} cannot be compared with {good}: {worst.detail}")
        if ratio.high is not None and ratio.high <= 1 + request.margin:
            raise BadInput(
                f"There is nothing to search for: {bad} is not {what} than {good} by more than "
                f"{share(request.margin)} ({ratio.value:.3f} of it)."
            )
        if ratio.low is None or ratio.low <= 1 or ratio.value <= 1 + request.margin:
            raise BadInput(
                f"It is not sure that {bad} is {what} than {good} by more than {share(request.margin)} "
                f"({ratio.value:.3f} of it). Give more time with -t."
            )

    def _saved(self, a: Plan, b: Plan) -> Comparison | None:
        """The newest comparison of the same cells on this machine, where there is one."""
        title = comparison_title(a, b, arm_labels(a, b))
        entries = self._store.history(_COMPARISONS_READ, kinds=("comparison",)) if self._store else ()
        for entry in entries:
            if entry.title == title and entry.node == own_name():
                comparison = self._lab.saved_comparison(entry.id)
                cells = [self._lab.cells(plan)[0].id for plan in (a, b)]
                if comparison.cells and [cell.id for cell in comparison.cells] == cells and comparison.pairs:
                    return None if comparison.interrupted else comparison
        return None
