"""Engines: which are there, which can run a model, and installing those that have an environment of their own."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from inferlab.engines.specs import SPECS
from inferlab.errors import BadInput, NotThere
from inferlab.records import EngineInfo
from inferlab.web.api.asking import Agreement
from inferlab.web.api.common import CONFLICT, SHOWN, ProjectId, SmallBody, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, JobFacts, of_record
from inferlab.workspace.engines import EngineChoice, Licence, can_install, licence_of, title

router = APIRouter(tags=["engines"], route_class=SmallBody)


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


@router.get("/engines", summary="All engines")
def list_engines(workspace: TheWorkspace) -> list[EngineFacts]:
    """Every engine that comes with inferlab or a plug-in; the first answer takes some seconds."""
    return [EngineFacts.of(info) for info in workspace.engines.all()]


@router.get("/projects/{project_id}/engines", summary="Engines for a project's model")
def list_choices(
    workspace: TheWorkspace,
    project_id: ProjectId,
    profiling: Annotated[bool, Query(description="For a performance profile rather than a benchmark.")] = False,
) -> list[ChoiceFacts]:
    """Which engines can run, or profile, the model of a project, and why others cannot."""
    model = workspace.store.projects.get(project_id).model
    return [ChoiceFacts.of(choice) for choice in workspace.engines.choices(model, profiling)]


@router.post(
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
