"""Versions: foretold, asked for, listed, opened, taken away, removed."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from starlette.responses import FileResponse

from inferlab.web.answers import attachment
from inferlab.web.api.asking import LevelsAsking, VersionAsking
from inferlab.web.api.common import (
    CONFLICT,
    NOT_THERE,
    SHOWN,
    EntryId,
    ProjectId,
    SmallBody,
    TheWorkspace,
    queued,
)
from inferlab.web.api.schemas import JobFacts
from inferlab.web.api.version_schemas import EstimateFacts, VersionFacts, VersionLine
from inferlab.workspace.deliver import code_sample, model_file, recipe
from inferlab.workspace.exports import Export
from inferlab.workspace.version_forms import add_version, levels_of, read_basis

router = APIRouter(tags=["versions"], route_class=SmallBody)


@router.get("/projects/{project_id}/versions", summary="A project's versions", responses=NOT_THERE)
def list_versions(workspace: TheWorkspace, project_id: ProjectId) -> list[VersionLine]:
    """All versions of a project's model, newest first; also those that the command line made."""
    workspace.project(project_id)
    return [VersionLine.of(one, workspace.sources) for one in workspace.versions.of_project(project_id)]


@router.post(
    "/projects/{project_id}/versions",
    status_code=202,
    summary="Ask for a version",
    responses=NOT_THERE,
    dependencies=SHOWN,
)
def create_version(
    workspace: TheWorkspace, project_id: ProjectId, asking: VersionAsking, response: Response
) -> JobFacts:
    """Queue a version: made, its outputs compared, then measured against the original on each engine."""
    return queued(add_version(workspace, project_id, asking.form()), workspace, response)


@router.post("/projects/{project_id}/estimate", summary="Foretell a version", responses=NOT_THERE)
def estimate_version(workspace: TheWorkspace, project_id: ProjectId, asking: LevelsAsking) -> EstimateFacts:
    """What shares of zeros would give in time, parameters and loss, by the profiles of the project's model."""
    form = asking.form()
    basis = read_basis(workspace, project_id, form.performance, form.loss)
    return EstimateFacts.of(basis, levels_of(form, basis) if form.prunes else {})


@router.get("/versions/{entry_id}", summary="One version", responses=NOT_THERE)
def read_version(workspace: TheWorkspace, entry_id: EntryId) -> VersionFacts:
    """All of a version: both models, the recipe, every layer, its speed, its outputs, and what qualifies them."""
    version = workspace.versions.get(entry_id)
    return VersionFacts.whole(version, workspace.versions.opened(entry_id), workspace.sources)


@router.get(
    "/versions/{entry_id}/model",
    summary="The model of a version",
    response_class=FileResponse,
    responses={**NOT_THERE, 200: {"description": "The ONNX file.", "content": {"application/octet-stream": {}}}},
)
def download_model(
    workspace: TheWorkspace,
    entry_id: EntryId,
    part: Annotated[
        Literal["model", "data"], Query(description="The model, or the weights of a large one beside it.")
    ] = "model",
) -> FileResponse:
    """The file of a version that was made here, as long as it is what was made."""
    file = model_file(workspace, entry_id, part)
    return FileResponse(file, media_type="application/octet-stream", filename=file.name)


@router.get(
    "/versions/{entry_id}/recipe",
    summary="The recipe of a version",
    response_class=Response,
    responses={**NOT_THERE, 200: {"description": "The recipe.", "content": {"application/yaml": {}}}},
)
def download_recipe(workspace: TheWorkspace, entry_id: EntryId) -> Response:
    """All that was done, as YAML that `inferlab optimize --recipe` repeats."""
    return _attached(recipe(workspace, entry_id))


@router.get(
    "/versions/{entry_id}/code",
    summary="Code that runs a version",
    response_class=Response,
    responses={**NOT_THERE, 200: {"description": "A program.", "content": {"text/x-python": {}}}},
)
def download_code(
    workspace: TheWorkspace,
    entry_id: EntryId,
    engine: Annotated[str, Query(description="An engine of GET /engines that runs ONNX models.")] = "onnxruntime",
) -> Response:
    """A Python program that loads a version on an engine and runs one batch."""
    return _attached(code_sample(workspace, entry_id, engine))


@router.delete(
    "/versions/{entry_id}",
    status_code=204,
    summary="Remove a version",
    responses={**NOT_THERE, **CONFLICT},
    dependencies=SHOWN,
)
def remove_version(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a version; for ten minutes POST /entries/{entry_id}/restore puts it back, then its files go too.

    A file that the command line made stays where it is.
    """
    workspace.versions.get(entry_id)
    workspace.remove(entry_id)


def _attached(found: Export) -> Response:
    return Response(found.text, media_type=found.media_type, headers=attachment(found.name))
