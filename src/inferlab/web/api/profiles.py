"""Profiles: asked for, listed, opened, compared, removed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from inferlab.profiling import diff
from inferlab.records import profile as profiled
from inferlab.records.profile import BUDGET
from inferlab.store.entries import Entry
from inferlab.web.api.asking import ProfileBody
from inferlab.web.api.common import CONFLICT, SHOWN, EntryId, ProjectId, SmallBody, SomeId, TheWorkspace, queued
from inferlab.web.api.schemas import Answer, Estimate, JobFacts, ModelFacts
from inferlab.workspace.entries import entry_of
from inferlab.workspace.sources import Sources
from inferlab.workspace.workspace import Workspace


class PerformanceLine(Answer):
    """The measured part of a profile, as lists show it."""

    name: str = Field(description="Its name.")
    engine: str = Field(description="The engine.")
    batch_size: int = Field(description="Batch size.")
    num_cores: int = Field(description="Cores.")
    ms_per_batch: float = Field(description="Milliseconds a batch.")
    ms_interval: list[float] | None = Field(None, description="Its low and high end.")
    items_per_second: float = Field(description="Throughput.")
    items_interval: list[float] | None = Field(None, description="Its low and high end.")
    measured_at: str = Field(description="When it was measured.")


class LossLine(Answer):
    """The loss part of a profile, as lists show it."""

    name: str = Field(description="Its name.")
    method: str = Field(description="approximated, or how it was measured.")
    params: int = Field(description="Parameters of the model.")
    average_sensitivity: float | None = Field(description="The mean over its layers.")


class ProfileLine(Answer):
    """A profile as lists show it."""

    id: str = Field(description="Its id.")
    created_at: datetime = Field(description="When it was begun, in UTC.")
    title: str = Field(description="The model.")
    project_id: str | None = Field(description="The project that it was made in; null from the command line.")
    flops: int | None = Field(description="FLOPs of a batch, from the architecture.")
    performance: PerformanceLine | None = Field(description="Null where no layers were measured.")
    loss: LossLine | None = Field(description="Null where there are no losses.")
    interrupted: bool = Field(description="It was stopped before all was done.")
    problems: list[str] = Field(description="Why a part that was asked for is not there.")

    @classmethod
    def more(cls, record: Entry, context: Sources) -> dict[str, Any]:
        """What lists show of it, without folders of the server."""
        brief = record.brief
        return {
            "title": context.without_folder(record.title),
            **{name: brief.get(name) for name in ("flops", "performance", "loss")},
            "interrupted": bool(brief.get("interrupted")),
            "problems": brief.get("problems") or (),
        }


class ProfileFacts(Answer):
    """A whole profile, as `inferlab profile -x` writes it but for the model (see docs/profiles.md)."""

    id: str = Field(description="Its id; empty for what the architecture says and nobody saved.")
    format: str = Field(description="The version of its format.")
    inferlab: str = Field(description="The version that made it.")
    created_at: str = Field(description="When, in UTC.")
    model: ModelFacts = Field(description="The model.")
    flops: profiled.FlopsProfile | None = Field(description="What the architecture says.")
    performance: profiled.PerformanceProfile | None = Field(description="Where the time goes.")
    loss: profiled.LossProfile | None = Field(description="What pruning each layer costs.")
    estimate: profiled.PruningEstimate | None = Field(description="What pruning within the budget would give.")
    problems: list[str] = Field(description="Why a part that was asked for is not there.")
    interrupted: bool = Field(description="It was stopped before all was done.")

    @classmethod
    def more(cls, record: profiled.Profile, context: Sources) -> dict[str, Any]:
        """Its model, without where that lies."""
        return {"model": ModelFacts.of(record.model, context)}


class DiffRow(Answer):
    """Layers of both profiles that cover the same nodes of the graph."""

    id: str = Field(description="The id of the slowest of them.")
    type: str = Field(description="Its type.")
    a_layers: list[int] = Field(description="The indexes of A's layers.")
    b_layers: list[int] = Field(description="The indexes of B's layers.")
    a_ms: float = Field(description="A's milliseconds per item.")
    b_ms: float = Field(description="B's milliseconds per item.")
    ratio: Estimate | None = Field(description="B's time over A's; null where only one has a time.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")

    @classmethod
    def more(cls, record: diff.Row, context: None) -> dict[str, Any]:
        """Layers by their indexes: the profiles have the rest."""
        return {"a_layers": [one.index for one in record.a], "b_layers": [one.index for one in record.b]}


class DiffFacts(Answer):
    """How a profile (B) compares with another (A), the largest difference first; times are those per item."""

    labels: list[str] = Field(description="What A and B are.")
    a_ms: float = Field(description="A's milliseconds per item, of the whole model.")
    b_ms: float = Field(description="B's milliseconds per item.")
    ratio: Estimate = Field(description="B's time over A's.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")
    margin: float = Field(description="Differences below this share count as none.")
    differences: list[str] = Field(description="In what else the two differ.")
    rows: list[DiffRow] = Field(description="Layer by layer; the intervals hold for all rows together.")

    @classmethod
    def more(cls, record: diff.LayerDiff, context: None) -> dict[str, Any]:
        """Its rows."""
        return {"rows": [DiffRow.of(one) for one in record.rows]}


Budget = Annotated[float, Query(allow_inf_nan=False, description="The loss that the estimate may spend.")]

router = APIRouter(tags=["profiles"], route_class=SmallBody)


@router.get("/projects/{project_id}/profiles", summary="A project's profiles")
def list_profiles(workspace: TheWorkspace, project_id: ProjectId) -> list[ProfileLine]:
    """All profiles of a project, newest first, without opening them."""
    workspace.project(project_id)
    return [ProfileLine.of(one, workspace.sources) for one in workspace.profiles(project_id)]


@router.post("/projects/{project_id}/profiles", status_code=202, summary="Ask for profiles", dependencies=SHOWN)
def add_profile(
    workspace: TheWorkspace, project_id: ProjectId, asked: ProfileBody, response: Response
) -> JobFacts:
    """Queue a performance profile, a loss profile, or both."""
    return queued(workspace.add_profile(project_id, asked), workspace, response)


@router.get("/profiles/{entry_id}", summary="One profile")
def read_profile(
    workspace: TheWorkspace,
    entry_id: EntryId,
    budget: Budget = BUDGET,
    loss: Annotated[SomeId | None, Query(description="Take the losses of the profile with this id.")] = None,
) -> ProfileFacts:
    """A whole profile, layer by layer, with what pruning within a budget of loss would give."""
    for each in filter(None, (entry_id, loss)):
        _refuse_others(workspace, each)
    return ProfileFacts.of(workspace.profile(entry_id, loss, budget), workspace.sources)


@router.get("/profiles/{entry_id}/loss", summary="The losses of a profile alone")
def read_losses(workspace: TheWorkspace, entry_id: EntryId, budget: Budget = BUDGET) -> ProfileFacts:
    """The losses of a profile, with what pruning by them within a budget does to the parameters."""
    _refuse_others(workspace, entry_id)
    return ProfileFacts.of(workspace.loss_profile(entry_id, budget), workspace.sources)


@router.get("/profiles/{entry_id}/diff", summary="Compare with another profile")
def compare_profiles(
    workspace: TheWorkspace,
    entry_id: EntryId,
    against: Annotated[SomeId, Query(description="The id of the other profile, which is A.")],
) -> DiffFacts:
    """Which layers of a profile (B) differ from another's (A), by how much, and how sure that is."""
    for each in (entry_id, against):
        _refuse_others(workspace, each)
    return DiffFacts.of(workspace.layer_diff(entry_id, against))


@router.delete(
    "/profiles/{entry_id}",
    status_code=204,
    summary="Remove a profile",
    responses=CONFLICT,
    dependencies=SHOWN,
)
def remove_profile(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a profile; for ten minutes POST /entries/{entry_id}/restore puts it back."""
    _refuse_others(workspace, entry_id)
    workspace.remove(entry_id)


def _refuse_others(workspace: Workspace, entry_id: str) -> None:
    entry_of(workspace.store, entry_id, ("profile",), "profile")
