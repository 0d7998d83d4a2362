"""What the benchmarks page shows: a view of each entry or job, and what is in it once it is opened."""

from __future__ import annotations

import platform
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from inferlab.errors import BadInput, InferlabError
from inferlab.machine import describe, node_name, vector_width
from inferlab.records.generation import GenerationPlan
from inferlab.store.entries import BENCHMARK, Entry, QueuedJob
from inferlab.store.formats import GENERATION, MADE_OF_GENERATIONS
from inferlab.views.charts import cards as charts
from inferlab.views.charts.points import Point, from_row
from inferlab.workspace import requests
from inferlab.workspace.cards import (
    Card,
    CardCell,
    GenerationCard,
    Place,
    machine_of,
    open_card,
    open_generation,
    side,
)
from inferlab.workspace.engines import title
from inferlab.workspace.entries import NOUNS, WITHOUT_CELLS, given_name, reference_to
from inferlab.workspace.requests import BenchmarkRequest, ComparisonRequest, plans_of
from inferlab.workspace.versions import version_names
from inferlab.workspace.workspace import Workspace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: Kinds of jobs that make cards.
_KINDS = ("benchmark", "comparison", GENERATION, *MADE_OF_GENERATIONS)
# Opened cards keep all samples, of 16 bytes each; these many stay in memory for the next chart.
_MOST_SAMPLES = 8_000_000
# Beside a speed-up and three more numbers.
_TALL = 350
_INSTRUCTIONS = "Instruction set"
#: What the head of a card says of what varied, by its name in a brief; prompts and tokens of generations only.
_VARIED = {
    "prompt_tokens": "Prompt",
    "new_tokens": "New tokens",
    "depth": "Depth",
    "batch_size": "Batch size",
    "num_cores": "Core count",
}
_OF_CELL = ("engine", "scenario", "num_cores", "num_streams", "batch_size", "sequence_length")


@dataclass(frozen=True, slots=True)
class CardView:
    """A card before it is opened: an entry, the job that makes it or made it, or both."""

    #: It stays the same when a job gets its entry.
    key: str
    created_at: datetime
    title: str
    #: What the first row says beside it, by name; what is empty is not said.
    facts: Mapping[str, str]
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
        cells = tuple((cell.status, cell.runs, cell.median_ms) for cell in self.entry.cells)
        return self.entry.id, cells, str(self.entry.brief)

    @property
    def wrong(self) -> bool:
        """Whether a cell computed wrong outputs."""
        if self.entry is None:
            return False
        return any(cell.wrong for cell in self.entry.cells) or any(self.entry.brief.get("wrong", ()))

    @property
    def generates(self) -> bool:
        """Whether it is a generation, which has a card of its own kind."""
        return (self.entry.kind if self.entry else self.job.kind if self.job else "") == GENERATION

    @property
    def has_content(self) -> bool:
        """Whether there is more to show than what became of its job."""
        if self.entry is None:
            return False
        if self.generates:
            states = self.entry.brief.get("statuses", ())
            return self.job is None or "done" in states or len(states) > 1
        cells = self.entry.cells
        causes = {cell.failure.message if cell.failure else "" for cell in cells}
        return not cells or any(cell.runs for cell in cells) or len(causes) > 1

    @property
    def whole(self) -> bool:
        """Whether there is nothing to say but the numbers."""
        done = self.job is None or self.job.status == "done"
        return self.entry is not None and self.entry.status == "done" and done

    @property
    def measured(self) -> tuple[int, int]:
        """How many of its combinations were measured, and of how many."""
        if self.generates:
            states = self.entry.brief.get("statuses", ()) if self.entry else ()
            return list(states).count("done"), len(states)
        cells = self.entry.cells if self.entry else ()
        done, planned = sum(cell.status == "done" for cell in cells), len(cells)
        if self.job is None or self.job.kind != "comparison":
            return done, planned
        # The store has only those that were measured, and two cells of each.
        try:
            request = requests.request_of(self.job)
        except InferlabError:
            return done // 2, planned // 2
        assert isinstance(request, ComparisonRequest)
        return done // 2, len(request.a.num_cores) * len(request.a.batch_sizes)

    def with_instructions(self, instruction_set: str) -> CardView:
        """The same with the instruction set of the machine that measured, which is known once it is opened."""
        if not instruction_set or _INSTRUCTIONS not in self.facts:
            return self
        return replace(self, facts={**self.facts, _INSTRUCTIONS: instruction_set})


@dataclass(frozen=True, slots=True)
class CardList:
    """The newest cards, and whether there are older ones."""

    cards: tuple[CardView, ...]
    more: bool


def read_cards(workspace: Workspace, project_id: str, limit: int) -> CardList:
    """The newest cards of a project: all jobs on their way, and so many entries."""
    store = workspace.store
    entries = workspace.cards(project_id, limit + 1)
    newest = entries[:limit]
    ids = {entry.id for entry in newest}
    jobs = [job for job in store.jobs.of_project(project_id) if job.kind in _KINDS]
    by_entry = {
        **store.jobs.of_entries([entry.id for entry in newest]),
        **{job.entry_id: job for job in jobs if job.entry_id in ids},
    }
    versions = workspace.versions.entries(project_id)
    original = store.projects.get(project_id).model.source
    names = _Names(version_names(versions), version_names(versions, "path"), original)
    cards = [_of_entry(workspace, entry, by_entry.get(entry.id), names) for entry in newest]
    for job in jobs:
        if job.entry_id in ids:
            continue
        old = _entry(workspace, job.entry_id)
        if old is not None:
            cards.append(_of_entry(workspace, old, job, names))
        elif job.alive or job.entry_id is None:  # else its entry was removed
            cards.append(_of_job(workspace, job, names))
    cards.sort(key=lambda card: (card.job.created_at if card.job else card.created_at, card.key), reverse=True)
    return CardList(tuple(cards), len(entries) > limit)


@dataclass(frozen=True, slots=True)
class _Names:
    """What the versions of a project are called, by the digest of their models and by the path."""

    by_digest: Mapping[str, str]
    by_path: Mapping[str, str]
    #: The source of the project's own model.
    original: str


def _entry(workspace: Workspace, entry_id: str | None) -> Entry | None:
    try:
        return workspace.store.entry(entry_id) if entry_id else None
    except BadInput:
        return None


def _of_entry(workspace: Workspace, entry: Entry, job: QueuedJob | None, names: _Names) -> CardView:
    brief, cells, name = entry.brief, [cell.cell for cell in entry.cells], given_name(entry)
    here = entry.node in (platform.node(), node_name())
    machine = ", ".join(dict.fromkeys(filter(None, map(machine_of, cells)))) or ("" if here else entry.node)
    if entry.kind == GENERATION or entry.kind in MADE_OF_GENERATIONS:
        engines = _of_kind(entry.kind, " vs ".join(map(title, brief.get("engine", ()))) or entry.title)
        facts = _facts({key: brief.get(key, ()) for key in _VARIED}, engine=engines if name else "")
    else:
        engines = _title(workspace, entry, names)
        facts = _facts(
            {key: [getattr(cell, key) for cell in cells] for key in ("batch_size", "num_cores")},
            # The arms of a comparison say it themselves.
            version=names.by_digest.get(entry.model_digest, "") if entry.kind == BENCHMARK else "",
            engine=_engine_fact(entry, [cell.engine for cell in cells]),
            scenarios=[cell.scenario for cell in cells],
            instructions=bool(here and cells),
        )
    key = job.id if job else entry.id
    return CardView(key, entry.created_at, name or engines, {**facts, "Machine": machine}, entry, job)


def _of_kind(kind: str, engines: str) -> str:
    """What a card of a model that generates is called."""
    return f"{NOUNS[kind]}: {engines}" if kind in MADE_OF_GENERATIONS else engines


def _facts(
    varied: Mapping[str, Iterable[int | None]],
    *,
    version: str = "",
    engine: str = "",
    scenarios: Sequence[str] = (),
    instructions: bool = True,
) -> dict[str, str]:
    """What the head of a card says; what is empty is not said. `varied` are values by their name in `_VARIED`."""
    generates = "prompt_tokens" in varied
    unset = {} if generates else {"batch_size": "the model's"}
    numbers = {_VARIED[name]: _numbers(values, unset.get(name, "all")) for name, values in varied.items()}
    facts = {"Version": version, "Engine": engine, "Scenario": _scenarios(scenarios), **numbers}
    if generates:
        return facts
    # As far as it is known without opening the entry: that of this machine.
    known = vector_width(describe().instruction_sets).upper() if instructions else ""
    return {**facts, _INSTRUCTIONS: known}


def _engine_fact(entry: Entry, engines: Sequence[str]) -> str:
    """The engines, where the title does not say them."""
    if given_name(entry):
        return " and ".join(dict.fromkeys(map(title, engines)))
    return _only_engine(engines) if entry.kind == "comparison" else ""


def _title(workspace: Workspace, entry: Entry, names: _Names) -> str:
    if entry.kind in WITHOUT_CELLS:
        return NOUNS[entry.kind]
    labels = entry.brief.get("labels")
    if entry.kind != BENCHMARK:
        # The card shows B, which is compared with A.
        own = names.original
        return f"{side(labels[1], own)} vs {side(labels[0], own)}" if labels else entry.title
    engines = " vs ".join(dict.fromkeys(title(cell.cell.engine) for cell in entry.cells)) or entry.title
    return engines + _against(workspace, entry.brief.get("against"))


def _against(workspace: Workspace, entry_id: str | None) -> str:
    """What a benchmark is compared with, where that is still there."""
    other = _entry(workspace, entry_id)
    return f" vs {reference_to(other)}" if other else ""


def _of_job(workspace: Workspace, job: QueuedJob, names: _Names) -> CardView:
    try:
        request = requests.request_of(job)
    except InferlabError:
        return CardView(job.id, job.created_at, job.kind.capitalize(), {}, None, job)
    plans = plans_of(request)
    name = " vs ".join(dict.fromkeys(title(engine) for plan in plans for engine in plan.engines))
    plan = plans[-1]
    if isinstance(plan, GenerationPlan):
        varied = {
            "prompt_tokens": plan.prompt_tokens,
            "new_tokens": plan.new_tokens,
            "depth": plan.depths,
            "batch_size": plan.batch_sizes,
            "num_cores": plan.num_cores,
        }
        return CardView(job.id, job.created_at, _of_kind(job.kind, name), _facts(varied), None, job)
    version, engine = names.by_path.get(plan.model, ""), ""
    if isinstance(request, ComparisonRequest):
        name = f"{title(request.labels[1])} vs {title(request.labels[0])}"
        version, engine = "", _only_engine([*request.a.engines, *request.b.engines])
    elif isinstance(request, BenchmarkRequest):
        name += _against(workspace, request.against)
    varied_cells = {"batch_size": plan.batch_sizes, "num_cores": plan.num_cores}
    facts = _facts(varied_cells, version=version, engine=engine, scenarios=plan.scenarios)
    return CardView(job.id, job.created_at, name, facts, None, job)


def _only_engine(engines: Sequence[str]) -> str:
    """The engine of both sides; empty where they have two."""
    return title(engines[0]) if len(set(engines)) == 1 else ""


def _numbers(values: Iterable[int | None], unset: str = "") -> str:
    distinct = set(values)
    words = [unset] if None in distinct else []
    return ", ".join([*words, *map(str, sorted(value for value in distinct if value is not None))])


def _scenarios(names: Sequence[str]) -> str:
    """The scenarios, where they are not the usual one."""
    scenarios = list(dict.fromkeys(names))
    return "" if scenarios == ["sync"] else ", ".join(scenarios)


class CardCache:
    """Opens cards for all tabs of a server, one at a time, and keeps the last ones; it is called in threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        #: With how many samples each has.
        self._opened: OrderedDict[tuple[object, ...], tuple[Card, int]] = OrderedDict()

    def card(self, view: CardView) -> Card | GenerationCard:
        """All numbers of a card, without its samples; of a generation, without the tokens of several cells."""
        assert view.entry is not None, "only what was measured is opened"
        if view.generates:
            return open_generation(self._workspace.store, view.entry.id)
        return self._open(view.entry.id, view.mark).without_samples()

    def iterations(self, entry_id: str, mark: tuple[object, ...], arm: int, place: Place) -> Figure:
        """Every batch of a cell, before those of the arm that it is compared with; refused where there is none."""
        card = self._open(entry_id, mark)
        own = card.arms[arm].outcome(*place)
        if own is None or not own.runs:
            raise BadInput("Nothing was measured of this cell.")
        outcomes = [(card.arms[arm].label, own)]
        for rival in card.arms[1 if arm == 0 else 0 :][:1]:
            if (outcome := rival.outcome(*place)) is not None:
                outcomes.append((rival.label, outcome))
        figure = charts.iterations(outcomes)
        return figure.update_layout(height=_TALL) if len(outcomes) > 1 else figure

    def _open(self, entry_id: str, mark: tuple[object, ...]) -> Card:
        key = (entry_id, mark)
        with self._lock:
            opened = self._opened.pop(key, None)
            if opened is None:
                card = open_card(self._workspace.store, entry_id)
                opened = card, _samples(card)
            self._opened[key] = opened
            while len(self._opened) > 1 and sum(samples for _, samples in self._opened.values()) > _MOST_SAMPLES:
                self._opened.popitem(last=False)
        return opened[0]


def scaling(card: Card, arm: int, place: Place, by_cores: bool) -> Figure:
    """How the time per item changes with more cores, or with the batch size, at what is fixed of the place."""
    # All arms, the chosen one first: it is the one in colour.
    order = [card.arms[arm], *(other for index, other in enumerate(card.arms) if index != arm)]
    lines = [(side.label, [point(cell) for cell in side.cells]) for side in order]
    return charts.core_scaling(lines, place[1]) if by_cores else charts.batch_scaling(lines, place[0])


def point(cell: CardCell) -> Point:
    """A cell as charts take it."""
    row = {name: getattr(cell.cell, name) for name in _OF_CELL}
    numbers = cell.numbers
    for name, number in (
        ("median_ms", numbers.ms_per_batch if numbers else None),
        ("items_per_sec", numbers.items_per_second if numbers else None),
    ):
        ends = (number.value, number.low, number.high) if number else (None, None, None)
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    check = cell.output_check.status if cell.output_check else ""
    return from_row({**row, "model": "", "status": cell.status, "output_check": check})


def _samples(card: Card) -> int:
    runs = (run for arm in card.arms for outcome in arm.outcomes for run in outcome.runs)
    return sum(len(stream) for run in runs for window in run.windows for stream in window.streams)
