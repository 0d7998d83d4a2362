"""Entries, whatever their kind: renamed, measured again, removed, put back, exported, and as a command line."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from inferlab.web.api.asking import EntryChange
from inferlab.web.api.common import CONFLICT, SHOWN, EntryId, SmallBody, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, EntryLine, JobFacts, of_record
from inferlab.web.faults import attachment
from inferlab.workspace.exports import export

router = APIRouter(tags=["entries"], route_class=SmallBody)


@of_record()
class CommandFacts(Answer):
    """A command line."""

    command: str


@router.post("/entries/{entry_id}/rerun", status_code=202, summary="Measure again", dependencies=SHOWN)
def rerun_entry(workspace: TheWorkspace, entry_id: EntryId, response: Response) -> JobFacts:
    """Queue the same once more, under the same conditions, as a new entry."""
    return queued(workspace.rerun(entry_id), workspace, response)


@router.delete(
    "/entries/{entry_id}", status_code=204, summary="Remove an entry", responses=CONFLICT, dependencies=SHOWN
)
def remove_entry(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a benchmark, a comparison, a profile or a version; for ten minutes it can be restored.

    The files of a version go after that; a file that the command line made stays where it is.
    """
    workspace.remove(entry_id)


@router.post("/entries/{entry_id}/restore", summary="Undo a removal", dependencies=SHOWN)
def restore_entry(workspace: TheWorkspace, entry_id: EntryId) -> EntryLine:
    """Put back what was removed less than ten minutes ago."""
    workspace.trash.put_back(entry_id)
    return EntryLine.of(workspace.store.entry(entry_id), workspace.sources)


@router.patch("/entries/{entry_id}", summary="Rename an entry", responses=CONFLICT, dependencies=SHOWN)
def rename_entry(workspace: TheWorkspace, entry_id: EntryId, change: EntryChange) -> EntryLine:
    """Call a benchmark, a comparison, a profile or a version something else."""
    return EntryLine.of(workspace.rename(entry_id, change.name), workspace.sources)


@router.get(
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


@router.get("/entries/{entry_id}/command", summary="An entry as a command line")
def read_command(workspace: TheWorkspace, entry_id: EntryId) -> CommandFacts:
    """The command line that measures the same."""
    return CommandFacts(command=workspace.command(entry_id))
