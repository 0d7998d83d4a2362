"""Engines: which are there, which can run a model, and installing those that have an environment of their own."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from inferlab.engines.environments import SPECS
from inferlab.errors import BadInput, NotThere
from inferlab.records import EngineInfo
from inferlab.web.api.asking import Agreement
from inferlab.web.api.common import CONFLICT, SHOWN, ProjectId, SmallBody, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, JobFacts, LicenceFacts
from inferlab.workspace.engines import can_install, licence_of, title

router = APIRouter(tags=["engines"], route_class=SmallBody)


class EngineFacts(Answer):
    """An engine and what it can do here."""

    name: str = Field(description="Its name in requests.")
    title: str = Field(description="As people call it.")
    state: str = Field(description="ready, missing or broken.")
    version: str = Field(description="Its version.")
    kinds: list[str] = Field(description="The kinds of models that it runs.")
    capabilities: list[str] = Field(description="What more it can do, such as layer_times.")
    problem: str = Field(description="Why it cannot run.")
    remedy: str = Field(description="The command that mends it.")
    can_install: bool = Field(description="Whether POST /engines/{name}/install installs it.")
    licence: LicenceFacts | None = Field(description="What is agreed to before it is installed.")

    @classmethod
    def more(cls, record: EngineInfo, context: None) -> dict[str, Any]:
        """What people call it, and how it is installed."""
        licence = licence_of(record.name) if record.name in SPECS else None
        return {"title": title(record.name), "can_install": can_install(record), "licence": licence}


class ChoiceFacts(Answer):
    """An engine as a choice for a model."""

    name: str = Field(description="Its name in requests.")
    title: str = Field(description="As people call it.")
    reason: str = Field(description="Why it cannot be chosen; empty where it can.")


@router.get("/engines", summary="All engines")
def list_engines(workspace: TheWorkspace) -> list[EngineFacts]:
    """Every engine that comes with inferlab or a plug-in; the first answer takes some seconds."""
    return [EngineFacts.of(one) for one in workspace.engines.all()]


@router.get("/projects/{project_id}/engines", summary="Engines for a project's model")
def list_choices(
    workspace: TheWorkspace,
    project_id: ProjectId,
    profiling: Annotated[bool, Query(description="For a performance profile rather than a benchmark.")] = False,
) -> list[ChoiceFacts]:
    """Which engines can run, or profile, the model of a project, and why others cannot."""
    model = workspace.project(project_id).model
    found = workspace.engines.choices(model, profiling)
    return [ChoiceFacts.of(one) for one in found]


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
