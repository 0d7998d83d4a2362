"""Models, before a project is made of one, and projects: models with a name."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from inferlab.web.api.asking import ModelAsking, ProjectAsking, ProjectChange
from inferlab.web.api.common import (
    PREFIX,
    SHOWN,
    TOO_LARGE,
    TOO_MANY,
    ProjectId,
    SmallBody,
    TheDesk,
    TheWorkspace,
    analysed,
)
from inferlab.web.api.profiles import ProfileFacts
from inferlab.web.api.schemas import JobFacts, ModelFacts, ProjectFacts, ProjectSummary

router = APIRouter(tags=["projects"], route_class=SmallBody)


@router.post("/models/analyse", tags=["models"], summary="What a model is", responses={**TOO_LARGE, **TOO_MANY})
async def analyse_model(desk: TheDesk, request: Request, asking: ModelAsking) -> ModelFacts:
    """Find a model, fetching it where needed, and read what it is; nothing is kept but a download."""
    return ModelFacts.of(await analysed(desk, request, asking.source), desk.workspace.sources)


@router.get("/projects", summary="All projects")
def list_projects(workspace: TheWorkspace) -> list[ProjectSummary]:
    """All projects, the one that was active last first, each with its best result."""
    return [ProjectSummary.of(line, workspace.sources) for line in workspace.store.projects.lines()]


@router.post(
    "/projects",
    status_code=201,
    summary="Make a project",
    responses={**TOO_LARGE, **TOO_MANY},
    dependencies=SHOWN,
)
async def add_project(desk: TheDesk, request: Request, asking: ProjectAsking, response: Response) -> ProjectFacts:
    """Analyse a model and make a project of it; one that must be fetched first takes its time."""
    model, workspace = await analysed(desk, request, asking.source), desk.workspace
    project = await asyncio.to_thread(
        workspace.create_project, asking.name, asking.description, model, asking.input_shapes
    )
    response.headers["Location"] = f"{PREFIX}/projects/{project.id}"
    return ProjectFacts.of(project, workspace.sources)


@router.get("/projects/{project_id}", summary="One project")
def read_project(workspace: TheWorkspace, project_id: ProjectId) -> ProjectFacts:
    """The name, the description and the model of a project."""
    return ProjectFacts.of(workspace.store.projects.get(project_id), workspace.sources)


@router.patch("/projects/{project_id}", summary="Change a project", dependencies=SHOWN)
def change_project(workspace: TheWorkspace, project_id: ProjectId, change: ProjectChange) -> ProjectFacts:
    """Give a project another name, description or input shapes."""
    before = workspace.store.projects.get(project_id)
    name = before.name if change.name is None else change.name
    description = before.description if change.description is None else change.description
    changed = workspace.change_project(project_id, name, description, change.input_shapes)
    return ProjectFacts.of(changed, workspace.sources)


@router.delete("/projects/{project_id}", status_code=204, summary="Remove a project", dependencies=SHOWN)
def remove_project(workspace: TheWorkspace, project_id: ProjectId) -> None:
    """Remove a project with all that was measured in it, and its model where that was uploaded; no way back."""
    workspace.remove_project(project_id)


@router.get("/projects/{project_id}/theory", summary="What the architecture says")
def read_theory(workspace: TheWorkspace, project_id: ProjectId) -> ProfileFacts:
    """The FLOPS profile and the approximated loss profile of a project's model, which take no measuring."""
    return ProfileFacts.of(workspace.theory(project_id), workspace.sources)


@router.get("/projects/{project_id}/jobs", summary="A project's jobs")
def list_project_jobs(workspace: TheWorkspace, project_id: ProjectId) -> list[JobFacts]:
    """Jobs that wait or run, and those that ended without an entry to show; newest first."""
    workspace.store.projects.get(project_id)
    return [JobFacts.of(job, workspace.position(job)) for job in workspace.store.jobs.of_project(project_id)]
