"""Benchmarks and comparisons: asked for, listed, opened, measured again, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from inferlab.errors import NotThere
from inferlab.store.entries import Entry
from inferlab.views.charts.timeline import tracks
from inferlab.web.api.asking import BenchmarkAsking
from inferlab.web.api.card_schemas import CardFacts, IterationFacts
from inferlab.web.api.common import (
    CONFLICT,
    NOT_THERE,
    SHOWN,
    EntryId,
    ProjectId,
    SmallBody,
    SomeId,
    TheWorkspace,
    queued,
)
from inferlab.web.api.schemas import EntryLine, JobFacts
from inferlab.workspace.entries import entry_of
from inferlab.workspace.workspace import CARDS, Workspace

router = APIRouter(tags=["benchmarks"], route_class=SmallBody)


@router.get("/projects/{project_id}/benchmarks", summary="A project's benchmarks", responses=NOT_THERE)
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
    responses=NOT_THERE,
    dependencies=SHOWN,
)
def add_benchmark(
    workspace: TheWorkspace, project_id: ProjectId, asking: BenchmarkAsking, response: Response
) -> JobFacts:
    """Queue a benchmark of an engine, or a comparison of two in turns, at each core count and batch size."""
    return queued(workspace.add_benchmark(project_id, asking.form()), workspace, response)


@router.get("/benchmarks/{entry_id}", summary="One benchmark", responses=NOT_THERE)
def read_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> CardFacts:
    """All of a benchmark or comparison: arms, cells with intervals, findings, output checks, verdicts.

    While it is being measured it has what is there so far.
    """
    entry = _entry(workspace, entry_id)
    return CardFacts.of(workspace.card(entry_id), entry, workspace.sources)


@router.get("/benchmarks/{entry_id}/iterations", summary="Every iteration of a cell", responses=NOT_THERE)
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


@router.post(
    "/benchmarks/{entry_id}/rerun",
    status_code=202,
    summary="Measure again",
    responses=NOT_THERE,
    dependencies=SHOWN,
)
def rerun_benchmark(workspace: TheWorkspace, entry_id: EntryId, response: Response) -> JobFacts:
    """Queue the same once more, under the same conditions, as a new entry."""
    _entry(workspace, entry_id)
    return queued(workspace.rerun(entry_id), workspace, response)


@router.delete(
    "/benchmarks/{entry_id}",
    status_code=204,
    summary="Remove a benchmark",
    responses={**NOT_THERE, **CONFLICT},
    dependencies=SHOWN,
)
def remove_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a benchmark or comparison; for ten minutes POST /entries/{entry_id}/restore puts it back."""
    _entry(workspace, entry_id)
    workspace.remove(entry_id)


def _entry(workspace: Workspace, entry_id: str) -> Entry:
    return entry_of(workspace.store, entry_id, CARDS, "benchmark")
