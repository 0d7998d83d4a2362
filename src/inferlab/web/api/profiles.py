"""Profiles: asked for, listed, opened, compared, removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from inferlab.profiling.estimate import BUDGET
from inferlab.web.api.asking import ProfileAsking
from inferlab.web.api.common import (
    CONFLICT,
    NOT_THERE,
    SHOWN,
    EntryId,
    ProjectId,
    SmallBody,
    SomeId,
    TheWorkspace,
    queued,
)
from inferlab.web.api.profile_schemas import DiffFacts, ProfileFacts, ProfileLine
from inferlab.web.api.schemas import JobFacts
from inferlab.workspace.entries import entry_of
from inferlab.workspace.workspace import Workspace

Budget = Annotated[float, Query(allow_inf_nan=False, description="The loss that the estimate may spend.")]

router = APIRouter(tags=["profiles"], route_class=SmallBody)


@router.get("/projects/{project_id}/profiles", summary="A project's profiles", responses=NOT_THERE)
def list_profiles(workspace: TheWorkspace, project_id: ProjectId) -> list[ProfileLine]:
    """All profiles of a project, newest first, without opening them."""
    workspace.project(project_id)
    return [ProfileLine.of(one, workspace.sources) for one in workspace.profiles(project_id)]


@router.post(
    "/projects/{project_id}/profiles",
    status_code=202,
    summary="Ask for profiles",
    responses=NOT_THERE,
    dependencies=SHOWN,
)
def add_profile(
    workspace: TheWorkspace, project_id: ProjectId, asking: ProfileAsking, response: Response
) -> JobFacts:
    """Queue a performance profile, a loss profile, or both."""
    return queued(workspace.add_profile(project_id, asking.form()), workspace, response)


@router.get("/profiles/{entry_id}", summary="One profile", responses=NOT_THERE)
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


@router.get("/profiles/{entry_id}/loss", summary="The losses of a profile alone", responses=NOT_THERE)
def read_losses(workspace: TheWorkspace, entry_id: EntryId, budget: Budget = BUDGET) -> ProfileFacts:
    """The losses of a profile, with what pruning by them within a budget does to the parameters."""
    _refuse_others(workspace, entry_id)
    return ProfileFacts.of(workspace.loss_profile(entry_id, budget), workspace.sources)


@router.get("/profiles/{entry_id}/diff", summary="Compare with another profile", responses=NOT_THERE)
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
    responses={**NOT_THERE, **CONFLICT},
    dependencies=SHOWN,
)
def remove_profile(workspace: TheWorkspace, entry_id: EntryId) -> None:
    """Remove a profile; for ten minutes POST /entries/{entry_id}/restore puts it back."""
    _refuse_others(workspace, entry_id)
    workspace.remove(entry_id)


def _refuse_others(workspace: Workspace, entry_id: str) -> None:
    entry_of(workspace.store, entry_id, ("profile",), "profile")
