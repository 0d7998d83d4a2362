"""The machine, the server, and the folders below which it may open models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from inferlab import machine
from inferlab.records import Machine
from inferlab.version import __version__
from inferlab.web.api.common import SmallBody, TheWorkspace
from inferlab.web.api.schemas import Answer, of_record
from inferlab.workspace.sources import Listing
from inferlab.workspace.workspace import Workspace

router = APIRouter(tags=["system"], route_class=SmallBody)


@of_record(Machine)
class SystemFacts(Answer):
    """The machine that measures, and the server."""

    inferlab_version: str
    store: str
    folders: list[str]
    most_upload_bytes: int
    vector_instructions: str
    usable_cores: int

    @classmethod
    def more(cls, record: Machine, context: Workspace) -> dict[str, Any]:
        """What the server is, and what a measurement gets of the machine."""
        return {
            "inferlab_version": __version__,
            "store": context.store.name,
            "folders": list(map(str, context.sources.folders)),
            "most_upload_bytes": context.sources.most_bytes,
            "vector_instructions": machine.vector_width(record.instruction_sets),
            "usable_cores": machine.usable_cores(),
        }


@of_record(Listing)
class FolderFacts(Answer):
    """What can be chosen in a folder."""


@router.get("/system", summary="The machine and the server")
def read_system(workspace: TheWorkspace) -> SystemFacts:
    """CPU, instruction sets, cores and memory of the machine that measures; version and store of the server."""
    return SystemFacts.of(machine.describe(), workspace)


@router.get("/folders", summary="What can be chosen in a folder")
def list_folder(
    workspace: TheWorkspace,
    path: Annotated[str, Query(description="A folder below an allowed one, or one of these.")] = ".",
) -> FolderFacts:
    """The folders and models in a folder that the user allowed; nothing is said about any other."""
    return FolderFacts.of(workspace.sources.listing(path))
