"""Generations: asked for, listed, opened."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from inferlab.records.generation import Agreement
from inferlab.store.formats import GENERATION
from inferlab.views.generation import agreement_text
from inferlab.web.api.asking import (
    GenerationBody,
    GenerationCapacityBody,
    GenerationComparisonBody,
    GenerationRecommendationBody,
)
from inferlab.web.api.benchmarks import FindingFacts
from inferlab.web.api.common import SHOWN, EntryId, ProjectId, SmallBody, SomeId, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, EntryFacts, EntryLine, GenerativeFacts, JobFacts, of_record
from inferlab.workspace import generations
from inferlab.workspace.entries import entry_of
from inferlab.workspace.workspace import Workspace


@of_record(Agreement)
class AgreementFacts(Answer):
    """How an engine's tokens compare with the reference's."""

    top1: float | None
    text: str

    @classmethod
    def more(cls, record: Agreement, context: Any) -> dict[str, Any]:
        """The sentence."""
        return {"text": agreement_text(record)}


@of_record(generations.GenerationCardCell, without=("engine_options",), flat=("cell",))
class GenerationCellFacts(Answer):
    """One combination of a generation."""

    cell_id: str
    engine_options: dict[str, str]
    findings: list[FindingFacts]
    wrong: bool

    @classmethod
    def more(cls, record: generations.GenerationCardCell, context: Any) -> dict[str, Any]:
        """Lists of pairs as objects."""
        return {"engine_options": dict(record.cell.engine_options)}


@of_record()
class GenerationFacts(Answer):
    """A generation, opened."""

    entry: EntryFacts
    model: GenerativeFacts
    cells: list[GenerationCellFacts]
    notes: list[str]

    @classmethod
    def more(cls, record: generations.GenerationCard, context: Workspace) -> dict[str, Any]:
        """Its entry, and what to know of it in sentences."""
        return {
            "entry": EntryFacts.of(context.store.entry(record.id), context.sources),
            "notes": [note.text for note in record.notes],
        }


router = APIRouter(tags=["generations"], route_class=SmallBody)


@router.get("/projects/{project_id}/generations", summary="A project's generations")
def list_generations(
    workspace: TheWorkspace,
    project_id: ProjectId,
    limit: Annotated[int, Query(ge=1, le=200, description="How many.")] = 10,
    before: Annotated[SomeId | None, Query(description="The last id of the page before.")] = None,
) -> list[EntryLine]:
    """A page of generations, newest first, without opening them."""
    workspace.store.projects.get(project_id)
    page = workspace.store.history(limit, before, project_id=project_id, kinds=(GENERATION,))
    return [EntryLine.of(entry, workspace.sources) for entry in page]


@router.post(
    "/projects/{project_id}/generations",
    status_code=202,
    summary="Start a generation",
    dependencies=SHOWN,
)
def add_generation(
    workspace: TheWorkspace, project_id: ProjectId, request: GenerationBody, response: Response
) -> JobFacts:
    """Queue a generation of tokens on one or several engines, at every combination of what is asked for."""
    return queued(workspace.add_generation(project_id, request), workspace, response)


@router.post(
    "/projects/{project_id}/generation-comparisons",
    status_code=202,
    summary="Start a comparison of generation",
    dependencies=SHOWN,
)
def add_generation_comparison(
    workspace: TheWorkspace, project_id: ProjectId, request: GenerationComparisonBody, response: Response
) -> JobFacts:
    """Queue an interleaved comparison of two engines that generate the same tokens; one value of each list."""
    return queued(workspace.add_generation_comparison(project_id, request), workspace, response)


@router.post(
    "/projects/{project_id}/generation-capacities",
    status_code=202,
    summary="Start a search for the highest rate",
    dependencies=SHOWN,
)
def add_generation_capacity(
    workspace: TheWorkspace, project_id: ProjectId, request: GenerationCapacityBody, response: Response
) -> JobFacts:
    """Queue a search for the highest rate of requests of which enough meet the objective, of one combination."""
    return queued(workspace.add_generation_capacity(project_id, request), workspace, response)


@router.post(
    "/projects/{project_id}/generation-recommendations",
    status_code=202,
    summary="Start a search for the best configuration",
    dependencies=SHOWN,
)
def add_generation_recommendation(
    workspace: TheWorkspace, project_id: ProjectId, request: GenerationRecommendationBody, response: Response
) -> JobFacts:
    """Queue a search for the engine, cores and batch size that generate most tokens per second."""
    return queued(workspace.add_generation_recommendation(project_id, request), workspace, response)


@router.get("/generations/{entry_id}", summary="One generation")
def read_generation(workspace: TheWorkspace, entry_id: EntryId) -> GenerationFacts:
    """All of a generation: cells with intervals, agreement with the reference, memory and findings.

    While it is being measured it has what is there so far.
    """
    entry_of(workspace.store, entry_id, (GENERATION,), GENERATION)
    return GenerationFacts.of(generations.open_generation(workspace.store, entry_id), workspace)
