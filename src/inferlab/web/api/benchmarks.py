"""Benchmarks and comparisons: asked for, listed, opened, measured again, removed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from inferlab import records
from inferlab.errors import NotThere
from inferlab.measure.findings import find_all
from inferlab.options.plan import cell_texts
from inferlab.store.entries import Entry
from inferlab.views import content
from inferlab.views.charts.timeline import Track, tracks
from inferlab.views.text import output_check
from inferlab.web.api.asking import BenchmarkBody
from inferlab.web.api.common import CONFLICT, SHOWN, EntryId, ProjectId, SmallBody, SomeId, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, EntryFacts, EntryLine, Estimate, Failure, JobFacts, of_cell
from inferlab.workspace import cards
from inferlab.workspace.entries import entry_of
from inferlab.workspace.workspace import CARDS, Workspace


class FindingFacts(Answer):
    """Something to know of a result."""

    code: str = Field(description="Its name; docs/benchmark.md lists them.")
    data: dict[str, Any] = Field(description="Its numbers.")
    text: str = Field(description="As a sentence.")


class OutputFacts(Answer):
    """How outputs compare with the reference's."""

    status: str = Field(description="match, mismatch or unchecked.")
    error: float | None = Field(description="The largest error relative to the reference; null where unknown.")
    metric: str = Field(description="max: of the worst element; rms: of the whole output; share: of labels.")
    tolerance: float | None = Field(description="The largest error that counts as a match.")
    reference: str = Field(description="What it was compared with.")
    detail: str = Field(description="The output with the largest error, or why nothing was compared.")
    text: str = Field(description="All of it as a sentence.")

    @classmethod
    def more(cls, record: records.OutputCheck, context: None) -> dict[str, Any]:
        """The sentence."""
        return {"text": output_check(record)}


class NumberFacts(Answer):
    """What was measured of a cell."""

    ms_per_item: Estimate = Field(description="Milliseconds per item.")
    ms_per_batch: Estimate = Field(description="Median latency of a batch in milliseconds.")
    items_per_second: Estimate = Field(description="Throughput.")
    iterations: int = Field(description="How many batches were measured.")
    processes: int = Field(description="In how many fresh processes.")


class CellFacts(Answer):
    """One combination of core count and batch size."""

    cell_id: str = Field(description="A hash of all that was fixed: the same for the same conditions.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    num_streams: int = Field(description="Streams.")
    scenario: str = Field(description="How requests were issued.")
    instances: int = Field(description="Whole copies of the scenario.")
    rate: float | None = Field(description="Requests a second, of the scenario server.")
    sequence_length: int | None = Field(description="As it was asked for.")
    input_shapes: dict[str, list[int]] = Field(description="The shape of every input.")
    engine_options: dict[str, str] = Field(description="Options of the engine.")
    options: dict[str, str] = Field(description="Other options that were given, as the command line takes them.")
    time_s: float = Field(description="Seconds of measuring that were asked for.")
    status: records.Status = Field(description="done, failed, cancelled or pending.")
    failure: Failure | None = Field(description="Why it has no result.")
    numbers: NumberFacts | None = Field(description="Null where nothing was measured yet.")
    wrong: bool = Field(description="Its outputs are not what they should be: its numbers are meaningless.")
    output_check: OutputFacts | None = Field(description="How its outputs compare with the reference's.")
    findings: list[FindingFacts] = Field(description="What to know of its numbers.")
    versions: dict[str, str] = Field(description="Versions of the engine and its libraries.")

    @classmethod
    def more(cls, record: records.Outcome, context: None) -> dict[str, Any]:
        """What was fixed comes from the cell; numbers, checks and findings from its runs."""
        cell, found, runs = record.cell, cards.numbers(record), record.runs
        return {
            **of_cell(cell, cls),
            "cell_id": cell.id,
            "input_shapes": dict(cell.shapes),
            "engine_options": dict(cell.engine_options),
            "options": {name: text for name, text in cell_texts(cell).items() if text is not None},
            "numbers": found,
            "wrong": bool(found and found.wrong),
            "output_check": OutputFacts.of(cards.checked(record)) if runs else None,
            "findings": content.findings(find_all(record)) if runs else (),
            "versions": runs[0].versions if runs else {},
        }


class ArmFacts(Answer):
    """One side of a card: an engine in one way of running."""

    label: str = Field(description="What it is called.")
    engine: str = Field(description="The engine.")
    machine: str = Field(
        description="The machine of a cluster that measured it; empty where there was no cluster."
    )
    cells: list[CellFacts] = Field(description="Its combinations.")

    @classmethod
    def more(cls, record: cards.Arm, context: None) -> dict[str, Any]:
        """Its cells."""
        return {"cells": [CellFacts.of(one) for one in record.outcomes]}


class DuelFacts(Answer):
    """How the first arm compares with another one at one core count and batch size."""

    other: int = Field(description="The index of the other arm.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    ratio: Estimate = Field(description="The first arm's time over the other's.")
    speedup: Estimate = Field(description="How many times as fast the first arm is.")
    verdict: str = Field(description="The first arm is faster, slower, the same, or it is inconclusive.")
    paired: bool = Field(description="Measured interleaved, which is surer than results of different times.")
    outputs_match: bool | None = Field(description="Whether both compute the same; null where that is unknown.")
    notes: list[str] = Field(description="What to know of it.")


class CardFacts(Answer):
    """A benchmark or a comparison, opened; a capacity or a recommendation has lines of text instead of arms."""

    entry: EntryFacts = Field(description="What it is called, and where it comes from.")
    instruction_set: str = Field(description="The widest vector instructions of the machine that measured.")
    core_counts: list[int] = Field(description="All that were planned.")
    batch_sizes: list[int] = Field(description="All that were planned.")
    arms: list[ArmFacts] = Field(description="Engines, in each way of running.")
    duels: list[DuelFacts] = Field(description="How the first arm compares with each other one.")
    problems: list[str] = Field(description="What keeps a part of it from being shown.")
    lines: list[str] = Field(description="The text of what has no arms.")

    @classmethod
    def more(cls, record: cards.Card, context: EntryFacts) -> dict[str, Any]:
        """Its entry, and its arms with their cells."""
        return {"entry": context, "arms": [ArmFacts.of(one) for one in record.arms]}


class DisturbedFacts(Answer):
    """A stretch in which something took a visible share of the time."""

    begin_s: float = Field(description="From when.")
    end_s: float = Field(description="To when.")
    by: str = Field(description="What it was.")


class IterationFacts(Answer):
    """Every iteration of a cell, in the order of time; processes follow each other as if none had to load."""

    median_ms: float = Field(description="The cell's median latency; its interval is on the card.")
    end_s: float = Field(description="When the last one ended.")
    process_begins_s: list[float] = Field(description="When each process began.")
    disturbed: list[DisturbedFacts] = Field(description="What was disturbed, and by what.")
    begins_s: list[float] = Field(description="When each iteration began, or was due.")
    latencies_ms: list[float] = Field(description="How long each took.")

    @classmethod
    def more(cls, record: Track, context: None) -> dict[str, Any]:
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
    workspace.project(project_id)
    return [EntryLine.of(one, workspace.sources) for one in workspace.cards(project_id, limit, before)]


@router.post(
    "/projects/{project_id}/benchmarks",
    status_code=202,
    summary="Ask for a benchmark",
    dependencies=SHOWN,
)
def add_benchmark(
    workspace: TheWorkspace, project_id: ProjectId, asked: BenchmarkBody, response: Response
) -> JobFacts:
    """Queue a benchmark of an engine, or an interleaved comparison of two, at each core count and batch size."""
    return queued(workspace.add_benchmark(project_id, asked), workspace, response)


@router.get("/benchmarks/{entry_id}", summary="One benchmark")
def read_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> CardFacts:
    """All of a benchmark or comparison: arms, cells with intervals, findings, output checks, verdicts.

    While it is being measured it has what is there so far.
    """
    entry = _entry(workspace, entry_id)
    return CardFacts.of(workspace.card(entry_id), EntryFacts.of(entry, workspace.sources))


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
    arms = workspace.card(entry_id).arms
    outcome = arms[arm].at(num_cores, batch_size) if arm < len(arms) else None
    if outcome is None:
        raise NotThere(f"{entry_id} has no arm {arm} with num_cores {num_cores} and batch_size {batch_size}.")
    return IterationFacts.of(tracks([outcome])[0])


@router.post("/benchmarks/{entry_id}/rerun", status_code=202, summary="Measure again", dependencies=SHOWN)
def rerun_benchmark(workspace: TheWorkspace, entry_id: EntryId, response: Response) -> JobFacts:
    """Queue the same once more, under the same conditions, as a new entry."""
    _entry(workspace, entry_id)
    return queued(workspace.rerun(entry_id), workspace, response)


@router.delete(
    "/benchmarks/{entry_id}",
    status_code=204,
    summary="Remove a benchmark",
    responses=CONFLICT,
    dependencies=SHOWN,
)
def remove_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a benchmark or comparison; for ten minutes POST /entries/{entry_id}/restore puts it back."""
    _entry(workspace, entry_id)
    workspace.remove(entry_id)


def _entry(workspace: Workspace, entry_id: str) -> Entry:
    return entry_of(workspace.store, entry_id, CARDS, "benchmark")
