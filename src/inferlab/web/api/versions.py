"""Versions: estimated, asked for, listed, opened, taken away, removed."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field
from starlette.responses import FileResponse

from inferlab.records import optimization as made
from inferlab.records.profile import PruningEstimate
from inferlab.views import optimization as words
from inferlab.web.answers import attachment
from inferlab.web.api.asking import EstimateBody, VersionBody
from inferlab.web.api.common import CONFLICT, SHOWN, EntryId, ProjectId, SmallBody, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, JobFacts, ModelFacts
from inferlab.workspace.exports import Export, code_sample, model_file, recipe, shown_recipe
from inferlab.workspace.sources import Sources
from inferlab.workspace.version_requests import Basis, add_version, levels_of, read_basis
from inferlab.workspace.versions import Version, is_ours


class SpeedLine(Answer):
    """A version against the original on one engine, measured interleaved."""

    engine: str = Field(description="The engine.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    original_ms: float = Field(description="Milliseconds a batch of the original.")
    ms: float = Field(description="Milliseconds a batch of the version.")
    speedup: float = Field(description="How many times as fast the version is.")
    speedup_interval: list[float] | None = Field(description="Its low and high end.")
    level: float = Field(description="The confidence of the interval.")
    verdict: str = Field(description="The version is faster, slower, the same, or it is inconclusive.")
    foretold_speedup: float | None = Field(description="What the profiles predicted for this engine.")
    foretold_error: float | None = Field(description="Predicted time over measured time, less 1.")


class DistanceFacts(Answer):
    """How far the outputs of a version are from the original's."""

    relative_power: float | None = Field(description="The power of the change over that of the outputs.")
    items: int = Field(description="On so many inputs.")
    generated: bool = Field(description="They were generated, not given.")
    loss_rise: float | None = Field(description="The rise of the cross-entropy, with labels only.")
    accuracy: float | None = Field(description="With labels only.")
    original_accuracy: float | None = Field(description="The original's, on the same data.")


class VersionLine(Answer):
    """A version as lists show it."""

    id: str = Field(description="Its id.")
    name: str = Field(description="Its name.")
    created_at: datetime = Field(description="When it was made, in UTC.")
    project_id: str | None = Field(description="The project that it was made in; null from the command line.")
    file: Literal["there", "gone", "changed"] = Field(
        description="Whether its file is still the one that was made."
    )
    file_name: str = Field(description="The name of its file.")
    downloadable: bool = Field(description="It was made from the pages or over HTTP, and is still there.")
    precision: str = Field(description="FP32, INT8, …")
    pattern: str = Field(description="How its zeros lie; empty where it was not pruned.")
    quantization: str = Field(description="How it was quantised; empty where it was not.")
    zero_fraction: float | None = Field(description="The share of its weights that are zero.")
    parameters: int | None = Field(description="How many parameters it has.")
    size_bytes: int = Field(description="Size on the disk.")
    digest: str = Field(description="SHA-256 of its bytes.")
    distance: DistanceFacts | None = Field(description="How far its outputs are from the original's.")
    measured: list[SpeedLine] = Field(description="Its speed against the original, on each engine.")
    interrupted: bool = Field(description="It was stopped before all was measured.")
    problems: list[str] = Field(description="Why something that was asked for is not there.")

    @classmethod
    def more(cls, record: Version, context: Sources) -> dict[str, Any]:
        """Where its file lies is not given away."""
        return {
            "created_at": record.entry.created_at,
            "project_id": record.entry.project_id,
            "file_name": record.path.rpartition("/")[2],
            "downloadable": record.file == "there" and is_ours(record.path),
            "quantization": record.scheme,
            "problems": [context.without_folder(one) for one in record.problems],
        }


class VersionFacts(VersionLine):
    """A whole version: both models, what was done, and what became of every layer."""

    original: ModelFacts = Field(description="The model that it was made of.")
    optimized: ModelFacts = Field(description="What was made.")
    recipe: made.Recipe = Field(description="All that was done; see GET /versions/{entry_id}/recipe.")
    layers: list[made.ChangedLayer] = Field(description="Every weight as it was and as it is.")
    left_alone: dict[str, str] = Field(description="What could not be changed, and why.")
    notes: list[str] = Field(description="All that qualifies the numbers, in sentences.")

    @classmethod
    def whole(cls, found: Version, opened: made.Optimization, sources: Sources) -> VersionFacts:
        """A record as it is given back."""
        return cls(
            **VersionLine.of(found, sources).model_dump(),
            original=ModelFacts.of(opened.model, sources),
            optimized=ModelFacts.of(opened.optimized, sources),
            recipe=shown_recipe(opened.recipe, sources),
            layers=list(opened.layers),
            left_alone=dict(opened.left_alone),
            notes=[sources.without_folder(one) for one in words.notes(opened)],
        )


class EstimateFacts(Answer):
    """What shares of zeros would give, estimated by the profiles of the original."""

    levels: dict[str, float] = Field(description="The sparsity of every weight that is pruned.")
    performance: str | None = Field(description="The profile that times are from; null: nothing is said of time.")
    loss_profile: str | None = Field(description="The profile that losses are from.")
    loss_method: str = Field(description="approximated, or how they were measured.")
    ms_per_batch: float | None = Field(description="Of the original in that profile.")
    estimated_ms_per_batch: float | None = Field(description="Null where times at levels were not measured.")
    estimated_speedup: float | None = Field(description="The same as a ratio.")
    int8_speedup: float | None = Field(description="How many times as fast an INT8 copy was in that profile.")
    parameter_reduction: float = Field(description="The share of all parameters that become zero.")
    loss: float | None = Field(
        description="The sum of the layers' losses; null where outputs are no numbers, or a loss was not measured."
    )
    recovery: float | None = Field(description="What is left of accuracy, or of the outputs' power.")
    unmeasured: list[str] = Field(description="Weights of `levels` whose losses were not measured.")

    @classmethod
    def more(cls, record: PruningEstimate, context: Basis) -> dict[str, Any]:
        """Which profiles it rests on, and nothing of losses that were not measured."""
        unmeasured = context.unmeasured(record.levels)
        performance = context.profile.performance
        return {
            "performance": context.performance_id,
            "loss_profile": context.loss_id,
            "loss_method": context.loss.method,
            "ms_per_batch": performance.ms_per_batch if performance else None,
            "int8_speedup": context.int8_speedup(),
            "loss": record.loss if math.isfinite(record.loss) and not unmeasured else None,
            "recovery": None if unmeasured else record.recovery,
            "unmeasured": unmeasured,
        }


router = APIRouter(tags=["versions"], route_class=SmallBody)


@router.get("/projects/{project_id}/versions", summary="A project's versions")
def list_versions(workspace: TheWorkspace, project_id: ProjectId) -> list[VersionLine]:
    """All versions of a project's model, newest first; also those that the command line made."""
    workspace.project(project_id)
    return [VersionLine.of(one, workspace.sources) for one in workspace.versions.of_project(project_id)]


@router.post("/projects/{project_id}/versions", status_code=202, summary="Ask for a version", dependencies=SHOWN)
def create_version(
    workspace: TheWorkspace, project_id: ProjectId, asked: VersionBody, response: Response
) -> JobFacts:
    """Queue a version: made, its outputs compared, then measured against the original on each engine."""
    return queued(add_version(workspace, project_id, asked), workspace, response)


@router.post("/projects/{project_id}/estimate", summary="Estimate a version")
def estimate_version(workspace: TheWorkspace, project_id: ProjectId, asked: EstimateBody) -> EstimateFacts:
    """What shares of zeros would give in time, parameters and loss, by the profiles of the project's model."""
    basis = read_basis(workspace, project_id, asked.performance, asked.loss)
    return EstimateFacts.of(basis.predicted(levels_of(asked, basis) if asked.prunes else {}), basis)


@router.get("/versions/{entry_id}", summary="One version")
def read_version(workspace: TheWorkspace, entry_id: EntryId) -> VersionFacts:
    """All of a version: both models, the recipe, every layer, its speed, its outputs, and what qualifies them."""
    version = workspace.versions.get(entry_id)
    return VersionFacts.whole(version, workspace.versions.opened(entry_id), workspace.sources)


@router.get(
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


@router.get(
    "/versions/{entry_id}/recipe",
    summary="The recipe of a version",
    response_class=Response,
    responses={200: {"description": "The recipe.", "content": {"application/yaml": {}}}},
)
def download_recipe(workspace: TheWorkspace, entry_id: EntryId) -> Response:
    """All that was done, as YAML that `inferlab optimize --recipe` repeats."""
    return _attached(recipe(workspace, entry_id))


@router.get(
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


@router.delete(
    "/versions/{entry_id}",
    status_code=204,
    summary="Remove a version",
    responses=CONFLICT,
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
