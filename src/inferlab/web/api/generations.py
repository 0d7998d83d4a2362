"""Models that generate tokens: generations and what is made of them, asked for and opened."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from inferlab.measure.capacity import max_rate
from inferlab.records import Machine
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import GenerationComparison
from inferlab.records.generation import Agreement, GenerationCell
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.store.formats import GENERATION
from inferlab.views.text import agreement_text
from inferlab.web.api.asking import (
    GenerationBody,
    GenerationCapacityBody,
    GenerationComparisonBody,
    GenerationRecommendationBody,
)
from inferlab.web.api.common import EntryId, ProjectId, SomeId, TheWorkspace, routes, start
from inferlab.web.api.schemas import (
    Answer,
    EntryLine,
    Estimate,
    FindingFacts,
    GenerativeFacts,
    OpenedAnswer,
    of_record,
)
from inferlab.workspace import cards
from inferlab.workspace.workspace import Workspace


@of_record(Agreement, text=agreement_text)
class AgreementFacts(Answer):
    """How an engine's tokens compare with the reference's."""

    top1: float | None


@of_record(cards.GenerationCardCell, without=("engine_options",), flat=("cell",))
class GenerationCellFacts(Answer):
    """One combination of a generation."""

    cell_id: str
    engine_options: dict[str, str]
    findings: list[FindingFacts]
    wrong: bool

    @classmethod
    def more(cls, record: cards.GenerationCardCell, context: Any) -> dict[str, Any]:
        """Lists of pairs as objects."""
        return {"engine_options": dict(record.cell.engine_options)}


@of_record()
class GenerationFacts(OpenedAnswer):
    """A generation, opened."""

    model: GenerativeFacts
    cells: list[GenerationCellFacts]
    notes: list[str]

    @classmethod
    def more(cls, record: cards.GenerationCard, context: Workspace) -> dict[str, Any]:
        """What to know of it in sentences."""
        return super().more(record, context) | {"notes": [note.text for note in record.notes]}


@of_record(GenerationCell, without=("engine_options",))
class GenerationSettings(Answer):
    """What is fixed of a combination of a generation."""

    cell_id: str
    engine_options: dict[str, str]

    @classmethod
    def more(cls, record: GenerationCell, context: Any) -> dict[str, Any]:
        """Lists of pairs as objects."""
        return {"cell_id": record.id, "engine_options": dict(record.engine_options)}


@of_record(Machine)
class MachineFacts(Answer):
    """A machine, as far as it can be read."""


@of_record(GenerationComparison, without=("id", "plans", "pairs"))
class GenerationComparisonFacts(Answer):
    """Two arms that generated behind the same prompts, interleaved: how long B takes over A."""


@of_record()
class GenerationComparisonEntry(OpenedAnswer, GenerationComparisonFacts):
    """A comparison of generation, opened."""


@of_record(GenerationCapacity, without=("id", "plan", "progress", "settings"))
class GenerationCapacityEntry(OpenedAnswer):
    """A search for the highest rate of requests, opened."""

    max_rate: Estimate

    @classmethod
    def more(cls, record: GenerationCapacity, context: Workspace) -> dict[str, Any]:
        """What all its processes say together."""
        return super().more(record, context) | {"max_rate": Estimate.of(max_rate(record))}


@of_record(GenerationRecommendation, without=("id", "plan", "sweep"))
class GenerationRecommendationEntry(OpenedAnswer):
    """A search for the best configuration, opened."""

    generation_id: str
    cells: list[GenerationCellFacts]

    @classmethod
    def more(cls, record: GenerationRecommendation, context: Workspace) -> dict[str, Any]:
        """All that was tried, with the entry that has it."""
        cells = [GenerationCellFacts.of(cell) for cell in cards.card_cells(record.sweep)]
        return super().more(record, context) | {"generation_id": record.sweep.id, "cells": cells}


generation_routes = routes("generations")


@generation_routes.get("/projects/{project_id}/generations", summary="A project's generations")
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


for _noun, _name, _summary, _description, _request in (
    (
        "generations",
        "add_generation",
        "Start a generation",
        "Queue a generation of tokens on one or several engines, at every combination of what is asked for.",
        GenerationBody,
    ),
    (
        "generation-comparisons",
        "add_generation_comparison",
        "Start a comparison of generation",
        "Queue an interleaved comparison of two engines that generate the same tokens; one value of each list.",
        GenerationComparisonBody,
    ),
    (
        "generation-capacities",
        "add_generation_capacity",
        "Start a search for the highest rate",
        "Queue a search for the highest rate of requests of which enough meet the objective, of one combination.",
        GenerationCapacityBody,
    ),
    (
        "generation-recommendations",
        "add_generation_recommendation",
        "Start a search for the best configuration",
        "Queue a search for the engine, cores and batch size that generate most tokens per second.",
        GenerationRecommendationBody,
    ),
):
    start(generation_routes, _noun, _name, _summary, _description, _request, Workspace.add_generation)


@generation_routes.get("/generations/{entry_id}", summary="One generation")
def read_generation(workspace: TheWorkspace, entry_id: EntryId) -> GenerationFacts:
    """All of a generation: cells with intervals, agreement with the reference, memory and findings.

    While it is being measured it has what is there so far.
    """
    return GenerationFacts.of(cards.open_generation(workspace.store, entry_id), workspace)


@generation_routes.get("/generation-comparisons/{entry_id}", summary="One comparison of generation")
def read_generation_comparison(workspace: TheWorkspace, entry_id: EntryId) -> GenerationComparisonEntry:
    """The ratio with its interval and verdict, and how the tokens of both arms agree; of the pairs so far."""
    record = cards.opened(workspace.store, entry_id, GenerationComparison)
    return GenerationComparisonEntry.of(record, workspace)


@generation_routes.get("/generation-capacities/{entry_id}", summary="One search for the highest rate")
def read_generation_capacity(workspace: TheWorkspace, entry_id: EntryId) -> GenerationCapacityEntry:
    """The highest rate with its interval, and the curve below it; of the processes there are so far."""
    record = cards.opened(workspace.store, entry_id, GenerationCapacity)
    return GenerationCapacityEntry.of(record, workspace)


@generation_routes.get("/generation-recommendations/{entry_id}", summary="One search for the best configuration")
def read_generation_recommendation(workspace: TheWorkspace, entry_id: EntryId) -> GenerationRecommendationEntry:
    """The configuration to take, why the others are not taken, and what is measured of each so far."""
    record = cards.opened(workspace.store, entry_id, GenerationRecommendation)
    return GenerationRecommendationEntry.of(record, workspace)
