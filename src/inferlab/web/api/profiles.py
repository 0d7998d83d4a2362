"""Profiles: asked for, listed, opened, compared, removed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query

from inferlab.profiling import diff
from inferlab.records import profile as profiled
from inferlab.records.profile import BUDGET
from inferlab.store import entries
from inferlab.store.entries import Entry
from inferlab.web.api.asking import ProfileBody
from inferlab.web.api.common import EntryId, ProjectId, SomeId, TheWorkspace, routes, start
from inferlab.web.api.schemas import Answer, of_record
from inferlab.workspace.entries import entry_of
from inferlab.workspace.sources import Sources
from inferlab.workspace.workspace import Workspace


@of_record(profiled.PerformanceProfile, only=entries.PERFORMANCE)
class PerformanceLine(Answer):
    """The measured part of a profile, as lists show it."""


@of_record(profiled.LossProfile, only=entries.LOSS)
class LossLine(Answer):
    """The loss part of a profile, as lists show it."""


@of_record()
class ProfileLine(Answer):
    """A profile as lists show it."""

    id: str
    created_at: datetime
    title: str
    project_id: str | None
    flops: int | None
    performance: PerformanceLine | None
    loss: LossLine | None
    interrupted: bool
    problems: list[str]

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


@of_record(profiled.Profile)
class ProfileFacts(Answer):
    """A whole profile, as `inferlab profile -x` writes it but for the model (see docs/profiles.md)."""


@of_record(diff.Row, without=("a", "b"))
class DiffRow(Answer):
    """Layers of both profiles that cover the same nodes of the graph."""

    a_layers: list[int]
    b_layers: list[int]

    @classmethod
    def more(cls, record: diff.Row, context: Any) -> dict[str, Any]:
        """Layers by their indexes: the profiles have the rest."""
        return {"a_layers": [layer.index for layer in record.a], "b_layers": [layer.index for layer in record.b]}


@of_record(diff.LayerDiff)
class DiffFacts(Answer):
    """How a profile (B) compares with another (A), the largest difference first; times are those per item."""


Budget = Annotated[float, Query(allow_inf_nan=False, description="The loss that the estimate may spend.")]

profile_routes = routes("profiles")


@profile_routes.get("/projects/{project_id}/profiles", summary="A project's profiles")
def list_profiles(workspace: TheWorkspace, project_id: ProjectId) -> list[ProfileLine]:
    """All profiles of a project, newest first, without opening them."""
    workspace.store.projects.get(project_id)
    return [ProfileLine.of(profile, workspace.sources) for profile in workspace.profiles(project_id)]


start(
    profile_routes,
    "profiles",
    "add_profile",
    "Start profiles",
    "Queue a performance profile, a loss profile, or both.",
    ProfileBody,
    Workspace.add_profile,
)


@profile_routes.get("/profiles/{entry_id}", summary="One profile")
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


@profile_routes.get("/profiles/{entry_id}/loss", summary="The losses of a profile alone")
def read_losses(workspace: TheWorkspace, entry_id: EntryId, budget: Budget = BUDGET) -> ProfileFacts:
    """The losses of a profile, with what pruning by them within a budget does to the parameters."""
    _refuse_others(workspace, entry_id)
    return ProfileFacts.of(workspace.loss_profile(entry_id, budget), workspace.sources)


@profile_routes.get("/profiles/{entry_id}/diff", summary="Compare with another profile")
def compare_profiles(
    workspace: TheWorkspace,
    entry_id: EntryId,
    against: Annotated[SomeId, Query(description="The id of the other profile, which is A.")],
) -> DiffFacts:
    """Which layers of a profile (B) differ from another's (A), by how much, and how sure that is."""
    for each in (entry_id, against):
        _refuse_others(workspace, each)
    return DiffFacts.of(workspace.layer_diff(entry_id, against))


def _refuse_others(workspace: Workspace, entry_id: str) -> None:
    entry_of(workspace.store, entry_id, ("profile",), "profile")
