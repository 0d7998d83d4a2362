"""Uploads and other models, before a project is made of one, and projects: models with a name."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from inferlab.web.api.asking import ModelAsking, ProjectAsking, ProjectChange
from inferlab.web.api.common import (
    CONFLICT,
    PREFIX,
    SHOWN,
    TOO_LARGE,
    TOO_MANY,
    ProjectId,
    TheDesk,
    TheWorkspace,
    UploadId,
    analysed,
    routes,
)
from inferlab.web.api.profiles import ProfileFacts
from inferlab.web.api.schemas import Answer, JobFacts, ModelFacts, ProjectFacts, ProjectSummary, of_record
from inferlab.workspace.sources import Received

project_routes = routes("projects")


@project_routes.post(
    "/models/analyse", tags=["models"], summary="What a model is", responses={**TOO_LARGE, **TOO_MANY}
)
async def analyse_model(desk: TheDesk, request: Request, asking: ModelAsking) -> ModelFacts:
    """Find a model, fetching it where needed, and read what it is; nothing is kept but a download."""
    return ModelFacts.of(await analysed(desk, request, asking.source), desk.workspace.sources)


@project_routes.get("/projects", summary="All projects")
def list_projects(workspace: TheWorkspace) -> list[ProjectSummary]:
    """All projects, the one that was active last first, each with its best result."""
    return [ProjectSummary.of(line, workspace.sources) for line in workspace.store.projects.lines()]


@project_routes.post(
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


@project_routes.get("/projects/{project_id}", summary="One project")
def read_project(workspace: TheWorkspace, project_id: ProjectId) -> ProjectFacts:
    """The name, the description and the model of a project."""
    return ProjectFacts.of(workspace.store.projects.get(project_id), workspace.sources)


@project_routes.patch("/projects/{project_id}", summary="Change a project", dependencies=SHOWN)
def change_project(workspace: TheWorkspace, project_id: ProjectId, change: ProjectChange) -> ProjectFacts:
    """Give a project another name, description or input shapes."""
    before = workspace.store.projects.get(project_id)
    name = before.name if change.name is None else change.name
    description = before.description if change.description is None else change.description
    changed = workspace.change_project(project_id, name, description, change.input_shapes)
    return ProjectFacts.of(changed, workspace.sources)


@project_routes.delete("/projects/{project_id}", status_code=204, summary="Remove a project", dependencies=SHOWN)
def remove_project(workspace: TheWorkspace, project_id: ProjectId) -> None:
    """Remove a project with all that was measured in it, and its model where that was uploaded; no way back."""
    workspace.remove_project(project_id)


@project_routes.get("/projects/{project_id}/theory", summary="What the architecture says")
def read_theory(workspace: TheWorkspace, project_id: ProjectId) -> ProfileFacts:
    """The FLOPS profile and the approximated loss profile of a project's model, which take no measuring."""
    return ProfileFacts.of(workspace.theory(project_id), workspace.sources)


@project_routes.get("/projects/{project_id}/jobs", summary="A project's jobs")
def list_project_jobs(workspace: TheWorkspace, project_id: ProjectId) -> list[JobFacts]:
    """Jobs that wait or run, and those that ended without an entry to show; newest first."""
    workspace.store.projects.get(project_id)
    return [JobFacts.of(job, workspace.position(job)) for job in workspace.store.jobs.of_project(project_id)]


# The bodies of uploads are files, which may be large.
upload_routes = APIRouter(tags=["uploads"])
_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


@of_record()
class UploadFacts(Answer):
    """Room for the files of one model."""

    id: str
    source: str
    most_bytes: int


@of_record(Received, without=("path",))
class ReceivedFacts(Answer):
    """A file that was received."""

    name: str

    @classmethod
    def more(cls, record: Received, context: Any) -> dict[str, Any]:
        """Where it lies is not given away."""
        return {"name": record.path.name}


@upload_routes.post("/uploads", status_code=201, summary="Begin an upload", responses=TOO_MANY)
def begin_upload(workspace: TheWorkspace, response: Response) -> UploadFacts:
    """Make room for the files of one model: its .onnx with its data, an .xml with its .bin, a .pt2, a .pt."""
    upload_id = workspace.sources.new_upload()
    response.headers["Location"] = f"{PREFIX}/uploads/{upload_id}"
    return UploadFacts(id=upload_id, source=f"upload:{upload_id}", most_bytes=workspace.sources.most_bytes)


@upload_routes.put(
    "/uploads/{upload_id}/{name}",
    status_code=201,
    summary="Send a file",
    responses={**CONFLICT, **TOO_LARGE, **TOO_MANY},
    openapi_extra={"requestBody": {"required": True, "description": "The bytes of the file.", **_BYTES}},
)
async def receive_file(
    workspace: TheWorkspace,
    upload_id: UploadId,
    name: Annotated[str, Path(description="The name of the file.")],
    request: Request,
) -> ReceivedFacts:
    """Write the body to the disk as it comes; what is too large or cut off leaves nothing behind.

    Where a name is sent twice at the same time, the request that came last wins; the other is answered with 409.
    """
    length_text = request.headers.get("content-length", "")
    size_bytes = int(length_text[:30]) if length_text.isascii() and length_text.isdigit() else None
    return ReceivedFacts.of(await workspace.sources.receive(upload_id, name, request.stream(), size_bytes))


@upload_routes.delete("/uploads/{upload_id}", status_code=204, summary="Remove an upload", responses=CONFLICT)
def remove_upload(workspace: TheWorkspace, upload_id: UploadId) -> None:
    """Remove the files of an upload of which no project was made."""
    workspace.remove_upload(upload_id)
