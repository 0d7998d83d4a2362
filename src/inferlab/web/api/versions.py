"""Versions: estimated, asked for, listed, opened, taken away, removed."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from starlette.responses import FileResponse

from inferlab.records import optimization
from inferlab.records.profile import RecipeEstimate
from inferlab.store import entries
from inferlab.views import optimization as words
from inferlab.web.api.asking import EstimateBody, VersionBody
from inferlab.web.api.common import EntryId, ProjectId, TheWorkspace, routes, start
from inferlab.web.api.schemas import Answer, ModelFacts, of_record
from inferlab.web.faults import attachment
from inferlab.workspace.entries import Export, code_sample, model_file, recipe, shown_recipe
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import Basis, Version, is_ours, levels_of
from inferlab.workspace.workspace import Workspace


@of_record(optimization.Measured, only=entries.MEASURED)
class SpeedLine(Answer):
    """A version against the original on one engine, measured interleaved."""


@of_record(optimization.Distance)
class DistanceFacts(Answer):
    """How far the outputs of a version are from the original's."""


@of_record(Version, without=("entry", "path"))
class VersionLine(Answer):
    """A version as lists show it."""

    id: str
    created_at: datetime
    project_id: str | None
    file_name: str
    downloadable: bool
    distance: DistanceFacts | None
    measured: list[SpeedLine]

    @classmethod
    def more(cls, record: Version, context: Sources) -> dict[str, Any]:
        """Where its file lies is not given away."""
        return {
            "created_at": record.entry.created_at,
            "project_id": record.entry.project_id,
            "file_name": record.path.rpartition("/")[2],
            "downloadable": record.file == "there" and is_ours(record.path),
            "problems": [context.without_folder(problem) for problem in record.problems],
        }


@of_record(optimization.Optimization, only=("optimized", "recipe", "layers", "left_alone"))
class VersionFacts(VersionLine):
    """A whole version: both models, what was done, and what became of every layer."""

    original: ModelFacts
    notes: list[str]

    @classmethod
    def whole(cls, version: Version, opened: optimization.Optimization, sources: Sources) -> VersionFacts:
        """A record as it is given back."""
        return cls.model_validate(
            {
                **VersionLine.of(version, sources).model_dump(),
                "original": ModelFacts.of(opened.model, sources),
                "optimized": ModelFacts.of(opened.optimized, sources),
                "recipe": shown_recipe(opened.recipe, sources),
                "layers": opened.layers,
                "left_alone": opened.left_alone,
                "notes": [sources.without_folder(note) for note in words.notes(opened)],
            }
        )


@of_record(
    RecipeEstimate,
    only=("levels", "estimated_ms_per_batch", "estimated_speedup", "parameter_reduction", "recovery", "accuracy"),
)
class EstimateFacts(Answer):
    """What a version would give, estimated by the profiles of the original."""

    performance: str | None
    loss_profile: str | None
    loss_method: str
    ms_per_batch: float | None
    int8_speedup: float | None
    loss: float | None
    unmeasured: list[str]

    @classmethod
    def more(cls, record: RecipeEstimate, context: Basis) -> dict[str, Any]:
        """Which profiles it rests on, and nothing of losses that were not measured."""
        unmeasured = context.unmeasured(record.levels)
        performance = context.profile.performance
        return {
            "performance": context.performance_id,
            "loss_profile": context.loss_id,
            "loss_method": context.loss.method,
            "ms_per_batch": performance.ms_per_batch if performance else None,
            "int8_speedup": context.int8_speedup(),
            "loss": None if unmeasured or record.loss is None or math.isinf(record.loss) else record.loss,
            "recovery": None if unmeasured else record.recovery,
            "accuracy": None if unmeasured else record.accuracy,
            "unmeasured": unmeasured,
        }


version_routes = routes("versions")


@version_routes.get("/projects/{project_id}/versions", summary="A project's versions")
def list_versions(workspace: TheWorkspace, project_id: ProjectId) -> list[VersionLine]:
    """All versions of a project's model, newest first; also those that the command line made."""
    workspace.store.projects.get(project_id)
    return [VersionLine.of(version, workspace.sources) for version in workspace.versions.of_project(project_id)]


start(
    version_routes,
    "versions",
    "create_version",
    "Start making a version",
    "Queue a version: made, its outputs compared, then measured against the original on each engine.",
    VersionBody,
    Workspace.add_version,
)


@version_routes.post("/projects/{project_id}/estimate", summary="Estimate a version")
def estimate_version(workspace: TheWorkspace, project_id: ProjectId, request: EstimateBody) -> EstimateFacts:
    """What a version would give in time, parameters, loss and accuracy, by the profiles of the project's model."""
    basis = workspace.read_basis(project_id, request.performance, request.loss)
    if request.as_estimated:
        return EstimateFacts.of(basis.expected(basis.estimated(request)), basis)
    levels = levels_of(request, basis) if request.prunes else {}
    return EstimateFacts.of(basis.predicted(levels, request.pattern, request.quantization), basis)


@version_routes.get("/versions/{entry_id}", summary="One version")
def read_version(workspace: TheWorkspace, entry_id: EntryId) -> VersionFacts:
    """All of a version: both models, the recipe, every layer, its speed, its outputs, and what qualifies them."""
    version = workspace.versions.get(entry_id)
    return VersionFacts.whole(version, workspace.versions.opened(entry_id), workspace.sources)


@version_routes.get(
    "/versions/{entry_id}/model",
    summary="The model of a version",
    response_class=FileResponse,
    responses={200: {"description": "The ONNX file.", "content": {"application/octet-stream": {}}}},
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


@version_routes.get(
    "/versions/{entry_id}/recipe",
    summary="The recipe of a version",
    response_class=Response,
    responses={200: {"description": "The recipe.", "content": {"application/yaml": {}}}},
)
def download_recipe(workspace: TheWorkspace, entry_id: EntryId) -> Response:
    """All that was done, as YAML that `inferlab optimize --recipe` repeats."""
    return _attached(recipe(workspace, entry_id))


@version_routes.get(
    "/versions/{entry_id}/code",
    summary="Code that runs a version",
    response_class=Response,
    responses={200: {"description": "A program.", "content": {"text/x-python": {}}}},
)
def download_code(
    workspace: TheWorkspace,
    entry_id: EntryId,
    engine: Annotated[str, Query(description="An engine of GET /engines that runs ONNX models.")] = "onnxruntime",
) -> Response:
    """A Python program that loads a version on an engine and runs one batch."""
    return _attached(code_sample(workspace, entry_id, engine))


def _attached(file: Export) -> Response:
    return Response(file.text, media_type=file.media_type, headers=attachment(file.name))
