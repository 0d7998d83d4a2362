"""Do what a job asks for: the runner calls this, and nothing else measures for the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.engines import environments
from inferlab.errors import BadInput
from inferlab.lab import Lab, read_model
from inferlab.lab.executor import Executor
from inferlab.records import Benchmark, Event, Listener, Plan
from inferlab.store.entries import JobStatus, QueuedJob
from inferlab.store.store import Store
from inferlab.workspace.asked import (
    Asked,
    BenchmarkAsked,
    ComparisonAsked,
    InstallAsked,
    OptimizationAsked,
    ProfileAsked,
)
from inferlab.workspace.versions import VERSION, Versions, discard, path_of

# The version that was just made is one of them.
_NEWEST = 10


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a job."""

    status: JobStatus
    failure: str = ""


def work(
    job: QueuedJob, asked: Asked, store: Store, listener: Listener, executor: Executor | None = None
) -> Ended:
    """Do a job, or go on with one that was cut off; Ctrl-C ends it and keeps what is measured.

    Raises what keeps it from being done at all.
    """
    unsaved = ""

    def listen(event: Event) -> None:
        nonlocal unsaved
        listener(event)
        if event.code == "saved" and _is_its(asked, str(event.data["id"]), store):
            store.jobs.belongs(job.id, str(event.data["id"]))
        elif event.code == "unsaved":
            # What nobody could see needs no measuring; this ends it as Ctrl-C does.
            unsaved = f"The result cannot be saved: {event.data['reason']}"
            raise KeyboardInterrupt

    try:
        ended = _worked(job, asked, store, listen, executor)
    except KeyboardInterrupt:
        if not unsaved:
            raise
    return Ended("failed", unsaved) if unsaved else ended


def _is_its(asked: Asked, entry_id: str, store: Store) -> bool:
    """Whether an entry is what a job makes, rather than something that was measured on the way to it."""
    return not isinstance(asked, OptimizationAsked) or store.entry(entry_id).kind == VERSION


def _worked(job: QueuedJob, asked: Asked, store: Store, listen: Listener, executor: Executor | None) -> Ended:
    if isinstance(asked, InstallAsked):
        environments.install(asked.engine, listener=listen)
        return Ended("done")
    _refuse_changed(job, asked, store, listen)
    lab = Lab(store, executor, job.project_id)
    # The entry may have been removed since.
    before = job.entry_id if job.entry_id and store.has(job.entry_id) else None
    if isinstance(asked, BenchmarkAsked):
        if before:
            return _of_benchmark(lab.resume(before, listen, live=True))
        return _of_benchmark(lab.benchmark(asked.plan, listen, live=True, against=asked.against))
    if isinstance(asked, ComparisonAsked):
        series = lab.compare_all(
            asked.a, asked.b, asked.labels, asked.time_s, asked.margin, listen, entry_id=before or ""
        )
        if series.interrupted:
            return Ended("cancelled")
        return Ended("failed", series.failures[0].message) if series.failures else Ended("done")
    if before:
        # Its parts belong together: half of an older one is no use.
        store.remove(before)
    if isinstance(asked, OptimizationAsked):
        return _of_version(lab, asked, listen, store)
    return _of_profile(lab, asked, listen)


def _of_benchmark(found: Benchmark) -> Ended:
    states = [one.status for one in found.outcomes]
    if "cancelled" in states or "pending" in states:
        return Ended("cancelled")
    failures = [one.failure.message for one in found.outcomes if one.failure]
    return Ended("failed", failures[0]) if failures else Ended("done")


def _of_profile(lab: Lab, asked: ProfileAsked, listener: Listener) -> Ended:
    found = lab.profile(asked.plan, asked.wanted, listener)
    if found.interrupted:
        return Ended("cancelled")
    problems = [*found.problems, *(found.performance.problems if found.performance else ())]
    return Ended("failed", problems[0]) if problems else Ended("done")


def _of_version(lab: Lab, asked: OptimizationAsked, listener: Listener, store: Store) -> Ended:
    file = Path(asked.asked.out)
    discard(str(file))
    file.parent.mkdir(parents=True)
    try:
        found = lab.optimize(asked.plan, asked.asked, listener)
    finally:
        # Cut off before it was made; or its project was removed meanwhile.
        if str(file) not in map(path_of, store.history(_NEWEST, kinds=(VERSION,))):
            discard(str(file))
    if found.interrupted:
        return Ended("cancelled")
    return Ended("failed", found.problems[0]) if found.problems else Ended("done")


def plans_of(asked: Asked) -> Sequence[Plan]:
    """The plans that a job has."""
    if isinstance(asked, ComparisonAsked):
        return asked.a, asked.b
    return () if isinstance(asked, InstallAsked) else (asked.plan,)


def _refuse_changed(job: QueuedJob, asked: Asked, store: Store, listener: Listener) -> None:
    """Refuse a model that is no longer the project's: its results would stand beside those of another."""
    if job.project_id is None or not store.projects.has(job.project_id):
        return
    project = store.projects.get(job.project_id)
    names, name = {plan.model for plan in plans_of(asked)}, project.model.source
    if name in names and read_model(name, listener).digest != project.model.digest:
        raise BadInput(
            f"The model {name} has changed since the project '{project.name}' was made. Make a new project of "
            "it as it is now."
        )
    for version in Versions(store).of_project(project.id) if names - {name} else ():
        if version.path in names and version.trouble:
            raise BadInput(version.trouble)
