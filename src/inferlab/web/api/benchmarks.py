"""Benchmarks and comparisons: asked for, listed, opened, measured again, removed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from inferlab import codec, records
from inferlab.errors import NotThere
from inferlab.options.plan import cell_texts
from inferlab.store.entries import Entry
from inferlab.views.charts.timeline import Track, tracks
from inferlab.views.text import finding, output_check
from inferlab.web.api.asking import BenchmarkBody
from inferlab.web.api.common import SHOWN, EntryId, ProjectId, SmallBody, SomeId, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, CellAnswer, EntryFacts, EntryLine, Estimate, JobFacts, of_record
from inferlab.workspace import cards
from inferlab.workspace.entries import entry_of
from inferlab.workspace.workspace import CARDS, Workspace


@of_record(records.Finding)
class FindingFacts(Answer):
    """Something to know of a result."""

    text: str

    @classmethod
    def more(cls, record: records.Finding, context: Any) -> dict[str, Any]:
        """The sentence."""
        return {"data": {name: codec.plain(value) for name, value in record.data.items()}, "text": finding(record)}


@of_record(records.OutputCheck)
class OutputFacts(Answer):
    """How outputs compare with the reference's."""

    text: str

    @classmethod
    def more(cls, record: records.OutputCheck, context: Any) -> dict[str, Any]:
        """The sentence."""
        return {"text": output_check(record)}


@of_record(cards.CardCell, without=("shapes",), flat=("cell",))
class CellFacts(CellAnswer):
    """One combination of core count and batch size."""

    cell_id: str
    options: dict[str, str]
    wrong: bool

    @classmethod
    def more(cls, record: cards.CardCell, context: Any) -> dict[str, Any]:
        """What else was given of its options."""
        options = {name: text for name, text in cell_texts(record.cell).items() if text is not None}
        return super().more(record, context) | {"options": options}


@of_record(cards.Arm, without=("outcomes",))
class ArmFacts(Answer):
    """One side of a card: an engine in one way of running."""


@of_record(cards.Duel)
class DuelFacts(Answer):
    """How the first arm compares with another one at one core count and batch size."""

    speedup: Estimate


@of_record(cards.Card, without=("id", "kind", "blocks", "results"))
class CardFacts(Answer):
    """A benchmark or a comparison, opened; a capacity or a recommendation has lines of text instead of arms."""

    entry: EntryFacts
    core_counts: list[int]
    batch_sizes: list[int]

    @classmethod
    def more(cls, record: cards.Card, context: EntryFacts) -> dict[str, Any]:
        """Its entry."""
        return {"entry": context}


@of_record(Track, without=("times_s", "begins_s"))
class IterationFacts(Answer):
    """Every iteration of a cell, in the order of time; processes follow each other as if none had to load."""

    process_begins_s: list[float]
    begins_s: list[float]
    latencies_ms: list[float]

    @classmethod
    def more(cls, record: Track, context: Any) -> dict[str, Any]:
        """Arrays as lists."""
        return {
            "process_begins_s": list(record.begins_s.values()),
            "begins_s": record.times_s.tolist(),
            "latencies_ms": record.latencies_ms.tolist(),
        }


router = APIRouter(tags=["benchmarks"], route_class=SmallBody)


@router.get("/projects/{project_id}/benchmarks", summary="A project's benchmarks")
def list_benchmarks(
    workspace: TheWorkspace,
    project_id: ProjectId,
    limit: Annotated[int, Query(ge=1, le=200, description="How many.")] = 10,
    before: Annotated[SomeId | None, Query(description="The last id of the page before.")] = None,
) -> list[EntryLine]:
    """A page of benchmarks and comparisons, newest first, without opening them."""
    workspace.store.projects.get(project_id)
    return [EntryLine.of(card, workspace.sources) for card in workspace.cards(project_id, limit, before)]


@router.post(
    "/projects/{project_id}/benchmarks",
    status_code=202,
    summary="Start a benchmark",
    dependencies=SHOWN,
)
def add_benchmark(
    workspace: TheWorkspace, project_id: ProjectId, request: BenchmarkBody, response: Response
) -> JobFacts:
    """Queue a benchmark of an engine, or an interleaved comparison of two, at each core count and batch size."""
    return queued(workspace.add_benchmark(project_id, request), workspace, response)


@router.get("/benchmarks/{entry_id}", summary="One benchmark")
def read_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> CardFacts:
    """All of a benchmark or comparison: arms, cells with intervals, findings, output checks, verdicts.

    While it is being measured it has what is there so far.
    """
    entry = _entry(workspace, entry_id)
    return CardFacts.of(cards.open_card(workspace.store, entry_id), EntryFacts.of(entry, workspace.sources))


@router.get("/benchmarks/{entry_id}/iterations", summary="Every iteration of a cell")
def read_iterations(
    workspace: TheWorkspace,
    entry_id: EntryId,
    num_cores: Annotated[int, Query(description="One of the card's core counts.")],
    batch_size: Annotated[int, Query(description="One of the card's batch sizes.")],
    arm: Annotated[int, Query(ge=0, description="The index of an arm of the card.")] = 0,
) -> IterationFacts:
    """The latency of every iteration of a cell over time, and which stretches were disturbed."""
    _entry(workspace, entry_id)
    arms = cards.open_card(workspace.store, entry_id).arms
    outcome = arms[arm].outcome(num_cores, batch_size) if arm < len(arms) else None
    if outcome is None:
        raise NotThere(f"{entry_id} has no arm {arm} with num_cores {num_cores} and batch_size {batch_size}.")
    return IterationFacts.of(tracks([outcome])[0])


def _entry(workspace: Workspace, entry_id: str) -> Entry:
    return entry_of(workspace.store, entry_id, CARDS, "benchmark")
