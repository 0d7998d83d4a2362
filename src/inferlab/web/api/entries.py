"""Entries: benchmarks and comparisons, asked for and opened; and what can be done with any entry."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response

from inferlab import records
from inferlab.errors import NotThere
from inferlab.options.plan import cell_texts
from inferlab.views.charts.timeline import Track, tracks
from inferlab.views.text import output_check
from inferlab.web.api.asking import (
    BenchmarkBody,
    EntryChange,
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
    EntryLine,
    Estimate,
    JobFacts,
    OpenedAnswer,
    of_record,
)
from inferlab.web.faults import attachment
from inferlab.workspace import cards
from inferlab.workspace.entries import entry_of, export
from inferlab.workspace.workspace import CARDS, Workspace


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
class CardFacts(OpenedAnswer):
    """A benchmark or a comparison, opened; a capacity or a recommendation has lines of text instead of arms."""

    core_counts: list[int]
    batch_sizes: list[int]


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
    entry_of(workspace.store, entry_id, CARDS, "benchmark")
    return CardFacts.of(cards.open_card(workspace.store, entry_id), workspace)


@benchmark_routes.get("/benchmarks/{entry_id}/iterations", summary="Every iteration of a cell")
def read_iterations(
    workspace: TheWorkspace,
    entry_id: EntryId,
    num_cores: Annotated[int, Query(description="One of the card's core counts.")],
    batch_size: Annotated[int, Query(description="One of the card's batch sizes.")],
    arm: Annotated[int, Query(ge=0, description="The index of an arm of the card.")] = 0,
) -> IterationFacts:
    """The latency of every iteration of a cell over time, and which stretches were disturbed."""
    entry_of(workspace.store, entry_id, CARDS, "benchmark")
    arms = cards.open_card(workspace.store, entry_id).arms
    outcome = arms[arm].outcome(num_cores, batch_size) if arm < len(arms) else None
    if outcome is None:
        raise NotThere(f"{entry_id} has no arm {arm} with num_cores {num_cores} and batch_size {batch_size}.")
    return IterationFacts.of(tracks([outcome])[0])


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
