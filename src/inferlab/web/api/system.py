"""The machine, the server, the folders below which it may open models, and the engines that run them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response

from inferlab import machine
from inferlab.engines.specs import SPECS
from inferlab.errors import BadInput, NotThere
from inferlab.records import EngineInfo, Machine
from inferlab.version import __version__
from inferlab.web.api.asking import Agreement
from inferlab.web.api.common import CONFLICT, SHOWN, ProjectId, TheWorkspace, queued, routes
from inferlab.web.api.schemas import Answer, JobFacts, of_record
from inferlab.workspace.engines import EngineChoice, Licence, can_install, licence_of, title
from inferlab.workspace.sources import Listing
from inferlab.workspace.workspace import Workspace

system_routes = routes("system")


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


@system_routes.get("/system", summary="The machine and the server")
def read_system(workspace: TheWorkspace) -> SystemFacts:
    """CPU, instruction sets, cores and memory of the machine that measures; version and store of the server."""
    return SystemFacts.of(machine.describe(), workspace)


@system_routes.get("/folders", summary="What can be chosen in a folder")
def list_folder(
    workspace: TheWorkspace,
    path: Annotated[str, Query(description="A folder below an allowed one, or one of these.")] = ".",
) -> FolderFacts:
    """The folders and models in a folder that the user allowed; nothing is said about any other."""
    return FolderFacts.of(workspace.sources.listing(path))


engine_routes = routes("engines")


@of_record(Licence, without=("engine",))
class LicenceFacts(Answer):
    """What is agreed to before an engine is installed."""


@of_record(EngineInfo, without=("environment",))
class EngineFacts(Answer):
    """An engine and what it can do here."""

    title: str
    can_install: bool
    licence: LicenceFacts | None

    @classmethod
    def more(cls, record: EngineInfo, context: Any) -> dict[str, Any]:
        """What people call it, and how it is installed."""
        licence = LicenceFacts.of(licence_of(record.name)) if record.name in SPECS else None
        return {"title": title(record.name), "can_install": can_install(record), "licence": licence}


@of_record(EngineChoice)
class ChoiceFacts(Answer):
    """An engine as a choice for a model."""


@engine_routes.get("/engines", summary="All engines")
def list_engines(workspace: TheWorkspace) -> list[EngineFacts]:
    """Every engine that comes with inferlab or a plug-in; the first answer takes some seconds."""
    return [EngineFacts.of(info) for info in workspace.engines.all()]


@engine_routes.get("/projects/{project_id}/engines", summary="Engines for a project's model")
def list_choices(
    workspace: TheWorkspace,
    project_id: ProjectId,
    profiling: Annotated[bool, Query(description="For a performance profile rather than a benchmark.")] = False,
) -> list[ChoiceFacts]:
    """Which engines can run, or profile, the model of a project, and why others cannot."""
    model = workspace.store.projects.get(project_id).model
    return [ChoiceFacts.of(choice) for choice in workspace.engines.choices(model, profiling)]


@engine_routes.post(
    "/engines/{name}/install",
    status_code=202,
    summary="Install an engine",
    responses=CONFLICT,
    dependencies=SHOWN,
)
def install_engine(
    workspace: TheWorkspace,
    name: Annotated[str, Path(description="The name of an engine that can be installed.")],
    agreement: Agreement,
    response: Response,
) -> JobFacts:
    """Queue the installation of an engine into an environment of its own, to whose licence the user agreed."""
    try:
        workspace.engines.named(name)
    except BadInput as error:
        raise NotThere(str(error)) from error
    return queued(workspace.add_installation(name), workspace, response)
