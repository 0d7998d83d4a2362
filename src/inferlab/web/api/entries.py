"""Entries: benchmarks, comparisons and generations, asked for and opened; and what can be done with any entry."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response

from inferlab import codec, records
from inferlab.errors import NotThere
from inferlab.options.plan import cell_texts
from inferlab.records.generation import Agreement
from inferlab.store.entries import Entry
from inferlab.store.formats import GENERATION
from inferlab.views.charts.timeline import Track, tracks
from inferlab.views.text import agreement_text, finding, output_check
from inferlab.web.api.asking import (
    BenchmarkBody,
    EntryChange,
    GenerationBody,
    GenerationCapacityBody,
    GenerationComparisonBody,
    GenerationRecommendationBody,
)
from inferlab.web.api.common import (
    CONFLICT,
    SHOWN,
    EntryId,
    ProjectId,
    SomeId,
    TheWorkspace,
    queued,
    routes,
    start,
)
from inferlab.web.api.schemas import (
    Answer,
    CellAnswer,
    EntryFacts,
    EntryLine,
    Estimate,
    GenerativeFacts,
    JobFacts,
    of_record,
)
from inferlab.web.faults import attachment
from inferlab.workspace import cards, generations
from inferlab.workspace.entries import entry_of, export
from inferlab.workspace.workspace import CARDS, Workspace


@of_record(records.Finding, text=finding)
class FindingFacts(Answer):
    """Something to know of a result."""

    @classmethod
    def more(cls, record: records.Finding, context: Any) -> dict[str, Any]:
        """Its numbers as JSON has them."""
        return {"data": {name: codec.plain(value) for name, value in record.data.items()}}


@of_record(records.OutputCheck, text=output_check)
class OutputFacts(Answer):
    """How outputs compare with the reference's."""


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


benchmark_routes = routes("benchmarks")


@benchmark_routes.get("/projects/{project_id}/benchmarks", summary="A project's benchmarks")
def list_benchmarks(
    workspace: TheWorkspace,
    project_id: ProjectId,
    limit: Annotated[int, Query(ge=1, le=200, description="How many.")] = 10,
    before: Annotated[SomeId | None, Query(description="The last id of the page before.")] = None,
) -> list[EntryLine]:
    """A page of benchmarks and comparisons, newest first, without opening them."""
    workspace.store.projects.get(project_id)
    return [EntryLine.of(card, workspace.sources) for card in workspace.cards(project_id, limit, before)]


start(
    benchmark_routes,
    "benchmarks",
    "add_benchmark",
    "Start a benchmark",
    "Queue a benchmark of an engine, or an interleaved comparison of two, at each core count and batch size.",
    BenchmarkBody,
    Workspace.add_benchmark,
)


@benchmark_routes.get("/benchmarks/{entry_id}", summary="One benchmark")
def read_benchmark(workspace: TheWorkspace, entry_id: EntryId) -> CardFacts:
    """All of a benchmark or comparison: arms, cells with intervals, findings, output checks, verdicts.

    While it is being measured it has what is there so far.
    """
    entry = _card_entry(workspace, entry_id)
    return CardFacts.of(cards.open_card(workspace.store, entry_id), EntryFacts.of(entry, workspace.sources))


@benchmark_routes.get("/benchmarks/{entry_id}/iterations", summary="Every iteration of a cell")
def read_iterations(
    workspace: TheWorkspace,
    entry_id: EntryId,
    num_cores: Annotated[int, Query(description="One of the card's core counts.")],
    batch_size: Annotated[int, Query(description="One of the card's batch sizes.")],
    arm: Annotated[int, Query(ge=0, description="The index of an arm of the card.")] = 0,
) -> IterationFacts:
    """The latency of every iteration of a cell over time, and which stretches were disturbed."""
    _card_entry(workspace, entry_id)
    arms = cards.open_card(workspace.store, entry_id).arms
    outcome = arms[arm].outcome(num_cores, batch_size) if arm < len(arms) else None
    if outcome is None:
        raise NotThere(f"{entry_id} has no arm {arm} with num_cores {num_cores} and batch_size {batch_size}.")
    return IterationFacts.of(tracks([outcome])[0])


def _card_entry(workspace: Workspace, entry_id: str) -> Entry:
    return entry_of(workspace.store, entry_id, CARDS, "benchmark")


@of_record(Agreement, text=agreement_text)
class AgreementFacts(Answer):
    """How an engine's tokens compare with the reference's."""

    top1: float | None


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
    entry_of(workspace.store, entry_id, (GENERATION,), GENERATION)
    return GenerationFacts.of(generations.open_generation(workspace.store, entry_id), workspace)


entry_routes = routes("entries")


@of_record()
class CommandFacts(Answer):
    """A command line."""

    command: str


@entry_routes.post("/entries/{entry_id}/rerun", status_code=202, summary="Measure again", dependencies=SHOWN)
def rerun_entry(workspace: TheWorkspace, entry_id: EntryId, response: Response) -> JobFacts:
    """Queue the same once more, under the same conditions, as a new entry."""
    return queued(workspace.rerun(entry_id), workspace, response)


@entry_routes.delete(
    "/entries/{entry_id}", status_code=204, summary="Remove an entry", responses=CONFLICT, dependencies=SHOWN
)
def remove_entry(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a benchmark, a comparison, a profile or a version; for ten minutes it can be restored.

    The files of a version go after that; a file that the command line made stays where it is.
    """
    workspace.remove(entry_id)


@entry_routes.post("/entries/{entry_id}/restore", summary="Undo a removal", dependencies=SHOWN)
def restore_entry(workspace: TheWorkspace, entry_id: EntryId) -> EntryLine:
    """Put back what was removed less than ten minutes ago."""
    workspace.trash.put_back(entry_id)
    return EntryLine.of(workspace.store.entry(entry_id), workspace.sources)


@entry_routes.patch("/entries/{entry_id}", summary="Rename an entry", responses=CONFLICT, dependencies=SHOWN)
def rename_entry(workspace: TheWorkspace, entry_id: EntryId, change: EntryChange) -> EntryLine:
    """Call a benchmark, a comparison, a profile or a version something else."""
    return EntryLine.of(workspace.rename(entry_id, change.name), workspace.sources)


@entry_routes.get(
    "/entries/{entry_id}/export",
    summary="An entry as a file",
    response_class=Response,
    responses={
        200: {
            "description": "The file, as an attachment with a name.",
            "content": {kind: {} for kind in ("application/json", "text/csv", "text/html", "text/markdown")},
        },
    },
)
def export_entry(
    workspace: TheWorkspace,
    entry_id: EntryId,
    format: Annotated[Literal["json", "csv", "html", "md"], Query(description="The kind of file.")],
) -> Response:
    """An entry as JSON, as a table, or as a page that opens offline."""
    file = export(workspace.store, entry_id, format)
    return Response(file.text, media_type=file.media_type, headers=attachment(file.name))


@entry_routes.get("/entries/{entry_id}/command", summary="An entry as a command line")
def read_command(workspace: TheWorkspace, entry_id: EntryId) -> CommandFacts:
    """The command line that measures the same."""
    return CommandFacts(command=workspace.command(entry_id))
