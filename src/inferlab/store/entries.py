"""What a store hands out: plain records, importing nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inferlab.records import Benchmark, Cell, Failure, Status

#: The kind of an entry that is measured run by run; every other kind is a document.
BENCHMARK = "benchmark"
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
    #: The outputs of a run do not match the reference: fast, perhaps, but worth nothing.
    wrong: bool = False


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

    @property
    def status(self) -> Status:
        """What became of the whole: failed, cancelled or pending where a cell is, else done."""
        return min((cell.status for cell in self.cells), key=PRECEDENCE.index, default="done")


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


@dataclass(frozen=True, slots=True)
class Document:
    """A result that is kept as its JSON: a comparison, a capacity, a recommendation, a profile."""

    id: str
    created_at: datetime
    inferlab_version: str
    node: str
    note: str
    kind: str
    title: str
    content: Mapping[str, Any]
