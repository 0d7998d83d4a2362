"""Do what a job asks for and tell how far it is: called by the runner, and nothing else measures for the pages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.engines import environments
from inferlab.errors import BadInput
from inferlab.lab import Lab, read_model
from inferlab.lab.executor import Executor
from inferlab.model.generative import read_generative
from inferlab.records import Event, Listener, Outcome
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import GenerationComparison
from inferlab.records.generation import GenerationOutcome, GenerationPlan
from inferlab.records.profile import LEVELS
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.store.entries import JobStatus, QueuedJob
from inferlab.store.jobs import Progress
from inferlab.store.store import Store
from inferlab.views.text import event as prose
from inferlab.workspace.engines import title
from inferlab.workspace.requests import (
    BenchmarkRequest,
    ComparisonRequest,
    GenerationCapacityRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
    GenerationRequest,
    InstallRequest,
    JobRequest,
    OptimizationRequest,
    ProfileRequest,
    TokenRequest,
    plans_of,
)
from inferlab.workspace.versions import VERSION, Versions, discard, path_of

#: What follows from measuring a model that generates.
MadeOfGenerations = GenerationComparisonRequest | GenerationCapacityRequest | GenerationRecommendationRequest
# The version that was just made is one of them.
_NEWEST = 10
# A part that takes longer than expected creeps up to here and waits.
_MOST = 0.97
# Too early a guess of what is left is a wrong one.
_GUESS_AFTER_S = 3.0
_LOAD_S = 1.5
# A comparison makes one pair of processes at least: two that load and warm up, and take turns.
_PAIR_S = 6.0
# A process is warm after about this long.
_WARMUP_S = 0.5
# Two or three rounds of 1.5 s, each with two engines that load.
_CEILINGS_S = 2.5 * (1.5 + 2 * _LOAD_S)
_LOSS_S = 30.0
# The tokens of a cell, compared with the reference's before and after it is timed.
_CHECKING_S = 2.0
_MAKING_S = 8.0
_LONGEST_LOG = 2000
# Events whose fraction is that of the part, rather than of a download or the like on the way to it.
_OF_PARTS = ("warming", "measuring", "checking", "loss", "searching")


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job."""

    status: JobStatus
    failure: str = ""


def work(
    job: QueuedJob, request: JobRequest, store: Store, listener: Listener, executor: Executor | None = None
) -> Ended:
    """Do a job, or go on with one that was cut off; Ctrl-C ends it and keeps what is measured.

    Raises what keeps it from being done at all.
    """
    unsaved = ""

    def listen(event: Event) -> None:
        nonlocal unsaved
        listener(event)
        if event.code == "saved" and _is_its(request, str(event.data["id"]), store):
            store.jobs.belongs(job.id, str(event.data["id"]))
        elif event.code == "unsaved":
            # What nobody could see needs no measuring; this ends it as Ctrl-C does.
            unsaved = f"The result cannot be saved: {event.data['reason']}"
            raise KeyboardInterrupt

    try:
        ended = _worked(job, request, store, listen, executor)
    except KeyboardInterrupt:
        if not unsaved:
            raise
    return Ended("failed", unsaved) if unsaved else ended


def _is_its(request: JobRequest, entry_id: str, store: Store) -> bool:
    """Whether an entry is what a job makes, rather than something that was measured on the way to it."""
    kinds = {OptimizationRequest: VERSION, GenerationRecommendationRequest: "generation-recommendation"}
    return type(request) not in kinds or store.entry(entry_id).kind == kinds[type(request)]


def _worked(
    job: QueuedJob, request: JobRequest, store: Store, listen: Listener, executor: Executor | None
) -> Ended:
    if isinstance(request, InstallRequest):
        environments.install(request.engine, listener=listen)
        return Ended("done")
    _refuse_changed(job, request, store, listen)
    lab = Lab(store, executor, job.project_id, getattr(request, "entry_labels", ()))
    # The entry may have been removed since.
    before = job.entry_id if job.entry_id and store.has(job.entry_id) else None
    if isinstance(request, BenchmarkRequest):
        if before:
            return _of_cells(lab.resume(before, listen, live=True).outcomes)
        return _of_cells(lab.benchmark(request.plan, listen, live=True, against=request.against).outcomes)
    if isinstance(request, ComparisonRequest):
        arms, timing = (request.a, request.b), (request.time_s, request.margin)
        sweep = lab.compare_all(*arms, *timing, listen, request.labels, entry_id=before or "", fresh=request.fresh)
        return _ended(sweep.interrupted, [failure.message for failure in sweep.failures])
    if isinstance(request, GenerationRequest):
        swept = lab.resume_generation(before, listen) if before else lab.generate(request.plan, listen)
        return _of_cells(swept.outcomes)
    if isinstance(request, MadeOfGenerations):
        return _of_generations(lab, request, listen, before or "")
    if before:
        # Its parts belong together: half of an older one is no use.
        store.remove(before)
    if isinstance(request, OptimizationRequest):
        return _of_version(lab, request, listen, store)
    return _of_profile(lab, request, listen)


def _of_cells(outcomes: Sequence[Outcome] | Sequence[GenerationOutcome]) -> Ended:
    interrupted = any(outcome.status in ("cancelled", "pending") for outcome in outcomes)
    return _ended(interrupted, [outcome.failure.message for outcome in outcomes if outcome.failure])


def _ended(interrupted: bool, problems: Sequence[str] = ()) -> Ended:
    """What became of a job whose result has these problems."""
    if interrupted:
        return Ended("cancelled")
    return Ended("failed", problems[0]) if problems else Ended("done")


def _of_generations(lab: Lab, request: MadeOfGenerations, listener: Listener, entry_id: str) -> Ended:
    """A comparison, a capacity or a recommendation of a model that generates, new or one that goes on."""
    result: GenerationComparison | GenerationCapacity | GenerationRecommendation
    if isinstance(request, GenerationComparisonRequest):
        timing = (request.metric, request.time_s, request.margin)
        result = lab.compare_generations(
            request.a, request.b, *timing, listener, fresh=request.fresh, entry_id=entry_id
        )
    elif isinstance(request, GenerationCapacityRequest):
        result = lab.generation_capacity(request.plan, request.attainment, listener, entry_id)
    else:
        result = lab.recommend_generation(request.plan, request.time_s, listener, entry_id)
    return _ended(result.interrupted)


def _of_profile(lab: Lab, request: ProfileRequest, listener: Listener) -> Ended:
    profile = lab.profile(request.plan, request.wanted, listener)
    of_times = profile.performance.problems if profile.performance else ()
    return _ended(profile.interrupted, [*profile.problems, *of_times])


def _of_version(lab: Lab, request: OptimizationRequest, listener: Listener, store: Store) -> Ended:
    file = Path(request.asked.out)
    discard(str(file))
    file.parent.mkdir(parents=True)
    try:
        version = lab.optimize(request.plan, request.asked, listener)
    finally:
        # Cut off before it was made; or its project was removed meanwhile.
        if str(file) not in map(path_of, store.history(_NEWEST, kinds=(VERSION,))):
            discard(str(file))
    return _ended(version.interrupted, version.problems)


def _refuse_changed(job: QueuedJob, request: JobRequest, store: Store, listener: Listener) -> None:
    """Refuse a model that is no longer the project's: its results would stand beside those of another."""
    if job.project_id is None or not store.projects.has(job.project_id):
        return
    project = store.projects.get(job.project_id)
    names, name = {plan.model for plan in plans_of(request)}, project.model.source
    if name in names and _digest(request, name, listener) != project.model.digest:
        raise BadInput(
            f"The model {name} has changed since the project '{project.name}' was made. Make a new project of "
            "it as it is now."
        )
    for version in Versions(store).of_project(project.id) if names - {name} else ():
        if version.path in names and version.trouble:
            raise BadInput(version.trouble)


def _digest(request: JobRequest, name: str, listener: Listener) -> str:
    """That of a model as it is now."""
    if isinstance(request, TokenRequest):
        return read_generative(name, listener).digest
    return read_model(name, listener).digest


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a job: which events begin it, how it is called, what it takes about."""

    codes: tuple[str, ...]
    name: str
    expected_s: float


def parts_of(request: JobRequest) -> tuple[Part, ...]:
    """The parts of a job, one after the other; codes that begin none belong to the part they fall in."""
    if isinstance(request, ProfileRequest):
        return tuple(_profile_parts(request))
    if isinstance(request, ComparisonRequest):
        count = len(request.a.num_cores) * len(request.a.batch_sizes)
        each_s = max(request.time_s, _PAIR_S) + 2 * _LOAD_S
        return (Part(("comparing",), "Comparing interleaved", count * each_s),)
    if isinstance(request, BenchmarkRequest):
        plan = request.plan
        count = len(plan.engines) * len(plan.num_cores) * len(plan.batch_sizes) * len(plan.scenarios)
        each_s = plan.time_s + 5 * (min(plan.warmup_s, _WARMUP_S) + _LOAD_S)
        return (Part(("measuring",), "Running benchmark", count * each_s),)
    if isinstance(request, GenerationRequest):
        return tuple(_generation_parts(request.plan))
    if isinstance(request, MadeOfGenerations):
        return tuple(_parts_of_generations(request))
    if isinstance(request, OptimizationRequest):
        making = Part(("optimizing",), "Making the version", _MAKING_S)
        options = request.asked
        return making, *(
            Part(("comparing",), f"Measuring on {title(engine)}", options.time_s) for engine in options.engines
        )
    return (Part(("install",), f"Installing {request.engine}", 90.0),)


def _generation_parts(plan: GenerationPlan) -> list[Part]:
    """Reading the model, then cell after cell."""
    swept = (plan.engines, plan.prompt_tokens, plan.new_tokens, plan.depths, plan.batch_sizes, plan.num_cores)
    count = math.prod(map(len, (*swept, plan.rates)))
    each_s = plan.time_s + 5 * _LOAD_S + (_CHECKING_S if plan.verify else 0.0)
    names = [f"Generating tokens, cell {number} of {count}" for number in range(1, count + 1)]
    # Of a single cell nobody says that it begins, but that its engine is loaded.
    first = Part(
        ("generation-cell", "loading", "reference"), names[0] if count > 1 else "Generating tokens", each_s
    )
    return [
        Part((), "Reading the model", 1.0),
        first,
        *(Part(("generation-cell",), name, each_s) for name in names[1:]),
    ]


def _parts_of_generations(request: MadeOfGenerations) -> list[Part]:
    reading = Part((), "Reading the model", 1.0)
    if isinstance(request, GenerationComparisonRequest):
        return [reading, Part(("comparing",), "Comparing interleaved", max(request.time_s, _PAIR_S))]
    if isinstance(request, GenerationCapacityRequest):
        return [reading, Part(("loading", "reference"), "Searching the highest rate", request.plan.time_s)]
    return [reading, Part(("generation-cell",), "Measuring configurations", request.time_s)]


def _profile_parts(request: ProfileRequest) -> list[Part]:
    options = request.wanted
    parts = [Part(("counting",), "Counting operations and parameters", 1.0)]
    if options.performance:
        levels = len(LEVELS if options.levels is None else options.levels)
        imposed = request.plan.engines == ("deepsparse",)
        more_s = 6.0 * levels if imposed else 0.0
        parts.append(
            Part(("loading", "reference"), "Profiling performance", options.time_s + 5 * _LOAD_S + more_s)
        )
        if options.levels and not imposed:
            name = "Measuring pruned copies"
            parts.append(Part(("pruned-copy",), name, levels * (options.time_s + 3 * _LOAD_S)))
        if options.int8:
            parts.append(Part(("quantizing",), "Measuring an INT8 copy", options.time_s + 5 * _LOAD_S))
        if options.roofline:
            parts.append(Part(("ceilings",), "Measuring the ceilings", _CEILINGS_S))
    if options.loss:
        parts.append(Part(("loss",), "Profiling loss", _LOSS_S))
    if options.verify:
        parts.append(Part(("verifying",), "Verifying the estimate", 2 * options.time_s))
    return parts


class Tracker:
    """A listener that knows how far the job is, and keeps its log."""

    def __init__(self, request: JobRequest, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts, self._clock = parts_of(request), clock
        self._index, self._began = 0, clock()
        self._part_began = self._began
        #: As it was told, of the part that is on its way.
        self._fraction: float | None = None
        self._lines: list[str] = []

    def __call__(self, event: Event) -> None:
        """Take notice of what happened."""
        if event.code == "generation-cell":
            # What goes on after an interruption begins with a later cell.
            self._index = max(self._index, min(int(event.data["number"]), len(self._parts)) - 2)
        for index in range(self._index + 1, len(self._parts)):
            if event.code in self._parts[index].codes:
                self._index, self._part_began, self._fraction = index, self._clock(), None
                break
        if event.fraction is not None:
            if event.code in _OF_PARTS:
                self._fraction = event.fraction
            return
        installs = event.code == "install"
        line = f"{event.data['step']} {event.data['detail']}".strip() if installs else prose(event)
        if line and (not self._lines or self._lines[-1] != line):
            self._lines = [*self._lines[-_LONGEST_LOG:], line]

    @property
    def log(self) -> str:
        """All lines that a terminal would have shown."""
        return "\n".join(self._lines)

    def progress(self) -> Progress:
        """What is being done, which share of it is done, and about how long the rest takes."""
        now, part = self._clock(), self._parts[self._index]
        within = self._fraction
        if within is None:
            within = min(_MOST, (now - self._part_began) / part.expected_s)
        total_s = sum(each.expected_s for each in self._parts)
        before_s = sum(each.expected_s for each in self._parts[: self._index])
        fraction = (before_s + within * part.expected_s) / total_s
        elapsed_s = now - self._began
        left_s = elapsed_s * (1 - fraction) / fraction if elapsed_s > _GUESS_AFTER_S and fraction > 0.02 else None
        return Progress(part.name, fraction, left_s)
