"""What the benchmarks page lists: entries and the jobs that make them, as cards before anything is opened."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from inferlab.errors import BadInput, InferlabError
from inferlab.machine import node_name
from inferlab.records import Plan
from inferlab.store.entries import BENCHMARK, Entry, QueuedJob
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import BenchmarkAsked, ComparisonAsked
from inferlab.workspace.cards import machine_of, side
from inferlab.workspace.engines import title
from inferlab.workspace.entries import given_name, reference_to
from inferlab.workspace.workspace import Workspace

#: Kinds of jobs that make cards.
_KINDS = ("benchmark", "comparison")
_DOCUMENTS = {"capacity": "Capacity", "recommendation": "Recommendation"}


@dataclass(frozen=True, slots=True)
class Head:
    """What the first row of a card says; what is empty is not said."""

    title: str
    batch_sizes: str = ""
    core_counts: str = ""
    scenario: str = ""
    #: The version of the model, where it is not the original.
    version: str = ""
    #: The engine of both sides, where these are called by something else.
    engine: str = ""
    #: The machine that measured, where it is another one.
    node: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """A card: an entry, the job that makes it or made it, or both."""

    #: It stays the same when a job gets its entry.
    key: str
    created_at: datetime
    head: Head
    entry: Entry | None
    job: QueuedJob | None

    @property
    def id(self) -> str:
        """What it is called: its entry, or its job while there is none."""
        return self.entry.id if self.entry else self.job.id if self.job else self.key

    @property
    def alive(self) -> bool:
        """Whether it waits or is being measured."""
        return self.job is not None and self.job.alive

    @property
    def mark(self) -> tuple[object, ...]:
        """It changes when there is more to show of the entry."""
        if self.entry is None:
            return ()
        cells = tuple((one.status, one.runs, one.median_ms) for one in self.entry.cells)
        return self.entry.id, cells, str(self.entry.brief)


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest cards, and whether there are older ones."""

    items: tuple[Item, ...]
    more: bool


def read(workspace: Workspace, project_id: str, limit: int) -> Listing:
    """The newest cards of a project: all jobs on their way, and so many entries."""
    store = workspace.store
    entries = workspace.cards(project_id, limit + 1)
    shown = entries[:limit]
    known = {one.id for one in shown}
    jobs = [one for one in store.jobs.of_project(project_id) if one.kind in _KINDS]
    by_entry = {
        **store.jobs.of_entries([one.id for one in shown]),
        **{one.entry_id: one for one in jobs if one.entry_id in known},
    }
    named = _Names.of(workspace, project_id)
    items = [_of_entry(workspace, one, by_entry.get(one.id), named) for one in shown]
    for job in jobs:
        if job.entry_id in known:
            continue
        old = _entry(workspace, job.entry_id)
        if old is not None:
            items.append(_of_entry(workspace, old, job, named))
        elif job.alive or job.entry_id is None:  # else its entry was removed
            items.append(Item(job.id, job.created_at, _head_of_job(workspace, job, named), None, job))
    items.sort(key=lambda one: (one.job.created_at if one.job else one.created_at, one.key), reverse=True)
    return Listing(tuple(items), len(entries) > limit)


def reread(workspace: Workspace, project_id: str, items: Iterable[Item]) -> list[Item]:
    """The same cards as the store has them now, without those that are gone."""
    found = ((one, _entry(workspace, one.id)) for one in items)
    named = _Names.of(workspace, project_id)
    return [_of_entry(workspace, entry, one.job, named) for one, entry in found if entry is not None]


@dataclass(frozen=True, slots=True)
class _Names:
    """What the versions of a project are called, by the digest of their models and by the path."""

    by_digest: Mapping[str, str]
    by_path: Mapping[str, str]
    #: The source of the project's own model.
    original: str

    @classmethod
    def of(cls, workspace: Workspace, project_id: str) -> _Names:
        found = [(one.brief["optimized"], one.brief["name"]) for one in workspace.versions.entries(project_id)]
        return cls(
            {made["digest"]: name for made, name in found},
            {made["path"]: name for made, name in found},
            workspace.project(project_id).model.source,
        )


def _entry(workspace: Workspace, entry_id: str | None) -> Entry | None:
    try:
        return workspace.store.entry(entry_id) if entry_id else None
    except BadInput:
        return None


def _of_entry(workspace: Workspace, entry: Entry, job: QueuedJob | None, named: _Names) -> Item:
    key = job.id if job else entry.id
    return Item(key, entry.created_at, _head_of_entry(workspace, entry, named), entry, job)


def _head_of_entry(workspace: Workspace, entry: Entry, named: _Names) -> Head:
    cells = [one.cell for one in entry.cells]
    return Head(
        _title(workspace, entry, named),
        _numbers(one.batch_size for one in cells),
        _numbers(one.num_cores for one in cells),
        _scenarios([one.scenario for one in cells]),
        # The arms of a comparison say it themselves.
        named.by_digest.get(entry.model_digest, "") if entry.kind == BENCHMARK else "",
        _engine_fact(entry, [one.engine for one in cells]),
        ", ".join(dict.fromkeys(filter(None, map(machine_of, cells)))) or ("" if is_here(entry) else entry.node),
        entry.note,
    )


def _engine_fact(entry: Entry, engines: Sequence[str]) -> str:
    """The engines, where the title does not say them."""
    if given_name(entry):
        return " and ".join(dict.fromkeys(map(title, engines)))
    return _only_engine(engines) if entry.kind == "comparison" else ""


def is_here(entry: Entry) -> bool:
    """Whether this machine measured it."""
    return entry.node in (platform.node(), node_name())


def _title(workspace: Workspace, entry: Entry, named: _Names) -> str:
    if name := given_name(entry):
        return name
    if entry.kind in _DOCUMENTS:
        return _DOCUMENTS[entry.kind]
    labels = entry.brief.get("labels")
    if entry.kind != BENCHMARK:
        # The card shows B, which is compared with A.
        own = named.original
        return f"{side(labels[1], own)} vs {side(labels[0], own)}" if labels else entry.title
    names = _engines(entry)
    other = _entry(workspace, entry.brief.get("against"))
    return f"{names} vs {reference_to(other)}" if other else names


def _engines(entry: Entry) -> str:
    return " vs ".join(dict.fromkeys(title(one.cell.engine) for one in entry.cells)) or entry.title


def _head_of_job(workspace: Workspace, job: QueuedJob, named: _Names) -> Head:
    try:
        asked = requests.from_content(job.kind, job.content)
    except InferlabError:
        return Head(job.kind.capitalize())
    if isinstance(asked, ComparisonAsked):
        engine = _only_engine([*asked.a.engines, *asked.b.engines])
        return _head_of_plan(asked.b, f"{title(asked.labels[1])} vs {title(asked.labels[0])}", engine=engine)
    assert isinstance(asked, BenchmarkAsked)
    other = _entry(workspace, asked.against)
    against = f" vs {reference_to(other)}" if other else ""
    version = named.by_path.get(asked.plan.model, "")
    return _head_of_plan(asked.plan, " vs ".join(map(title, asked.plan.engines)) + against, version)


def _head_of_plan(plan: Plan, name: str, version: str = "", engine: str = "") -> Head:
    return Head(
        name,
        _numbers(plan.batch_sizes, "the model's"),
        _numbers(plan.num_cores, "all"),
        _scenarios(plan.scenarios),
        version,
        engine,
    )


def _only_engine(engines: Sequence[str]) -> str:
    """The engine of both sides; empty where they have two."""
    return title(engines[0]) if len(set(engines)) == 1 else ""


def _numbers(values: Iterable[int | None], unset: str = "") -> str:
    found = set(values)
    words = [unset] if None in found else []
    return ", ".join([*words, *map(str, sorted(one for one in found if one is not None))])


def _scenarios(names: Sequence[str]) -> str:
    """The scenarios, where they are not the usual one."""
    found = list(dict.fromkeys(names))
    return "" if found == ["sync"] else ", ".join(found)
