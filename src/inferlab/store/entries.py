"""What a store hands out: plain records, importing nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from inferlab.measure.headline import ms_per_item
from inferlab.records import Benchmark, Cell, Failure, Model, Outcome, Status
from inferlab.records.generation import GenerativeModel

#: The kind of an entry that is measured run by run; every other kind is a document.
BENCHMARK = "benchmark"
JobKind = Literal[
    "benchmark",
    "comparison",
    "generation",
    "generation-comparison",
    "generation-capacity",
    "generation-recommendation",
    "profile",
    "optimization",
    "install",
]
JobStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
#: What a job is while something may still become of it by itself.
ALIVE: tuple[JobStatus, ...] = ("queued", "running")
#: What can be put into the queue again.
RESUMABLE: tuple[JobStatus, ...] = ("interrupted", "cancelled")
#: A benchmark is called by the first of these that one of its cells has.
PRECEDENCE: tuple[Status, ...] = ("failed", "cancelled", "pending", "done")


@dataclass(frozen=True, slots=True)
class CellEntry:
    """A cell in the history; its numbers, and `wrong`, come from a cache that is empty until it is finished."""

    cell_id: str
    cell: Cell
    status: Status
    failure: Failure | None
    runs: int
    items_per_sec: float | None
    items_per_sec_low: float | None
    items_per_sec_high: float | None
    median_ms: float | None
    median_ms_low: float | None
    median_ms_high: float | None
    #: The outputs of a run do not match the reference: fast, perhaps, but meaningless.
    wrong: bool = False
    #: Of the engine, where it is known.
    engine_version: str | None = None
    #: The CPU and cores of the machine that measured it.
    machine: str | None = None
    peak_memory_bytes: float | None = None

    @property
    def ms_per_item(self) -> float:
        """The number by which cells are compared; infinite where it is not known."""
        time_ms = ms_per_item(self.cell.scenario, self.cell.batch_size, self.median_ms, self.items_per_sec)
        return math.inf if time_ms is None else time_ms


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the history: a benchmark with its cells, or a document without any."""

    id: str
    created_at: datetime
    #: "benchmark", or the kind of a document.
    kind: str
    #: The model as the user wrote it, or the title of a document.
    title: str
    model_digest: str
    inferlab_version: str
    node: str
    note: str
    cells: tuple[CellEntry, ...]
    project_id: str | None = None
    #: What lists show of it beside its cells; see `briefs`.
    brief: Mapping[str, Any] = field(default_factory=dict)
    #: What it was marked with, such as its commit and branch.
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """What became of the whole: failed, cancelled or pending where a cell is, else done."""
        # A generation has no rows of cells: its brief says what became of them.
        states: list[Status] = [cell.status for cell in self.cells] or list(self.brief.get("statuses", ()))
        return min(states, key=PRECEDENCE.index, default="done")


@dataclass(frozen=True, slots=True)
class Heading:
    """What an entry is called."""

    id: str
    created_at: datetime
    kind: str
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A benchmark as it was saved."""

    id: str
    created_at: datetime
    inferlab_version: str
    node: str
    note: str
    benchmark: Benchmark
    project_id: str | None = None
    #: The id of the benchmark that it is to be compared with.
    against: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """A result that is stored as its JSON: a comparison, a capacity, a recommendation, a profile, a version."""

    id: str
    created_at: datetime
    inferlab_version: str
    node: str
    note: str
    kind: str
    title: str
    content: Mapping[str, Any]
    project_id: str | None = None
    #: The cells of a comparison with their runs, A and B of each result in turn.
    outcomes: tuple[Outcome, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """A model with a name; its profiles, versions and benchmarks are entries."""

    id: str
    created_at: datetime
    changed_at: datetime
    name: str
    description: str
    model: Model
    #: The shapes that its inputs get where nobody gives others, as `--input_shapes` takes them; empty: guessed.
    input_shapes: str = ""
    #: What its model is as one that generates tokens; None where it does not.
    generative: GenerativeModel | None = None

    @property
    def only_generates(self) -> bool:
        """Whether its model cannot be run as one call, so that it has no profiles, versions and benchmarks."""
        return self.generative is not None and not self.model.inputs


@dataclass(frozen=True, slots=True)
class ProjectLine:
    """A project in a list, with what was measured of it."""

    project: Project
    benchmarks: int
    profiles: int
    #: When something was measured or changed last.
    active_at: datetime
    #: The fastest cell of its benchmarks whose outputs are right.
    best: CellEntry | None
    #: The lowest time per output token of its generations whose tokens are right.
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Something to be measured, being measured or measured."""

    id: str
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    project_id: str | None
    #: The entry that it makes, from when there is one.
    entry_id: str | None
    #: The machine that it is measured on.
    node: str
    kind: JobKind
    status: JobStatus
    #: The user wants it to end.
    cancel: bool
    stage: str
    fraction: float | None
    left_s: float | None
    failure: str
    log: str
    #: What was asked, as JSON values.
    content: Mapping[str, Any]

    @property
    def alive(self) -> bool:
        """Whether something may still become of it by itself."""
        return self.status in ALIVE
