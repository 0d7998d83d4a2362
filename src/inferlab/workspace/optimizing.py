"""Versions asked for: what they are foretold by, and the jobs that make them."""

from __future__ import annotations

from dataclasses import replace

from inferlab.errors import InferlabError, NotThere
from inferlab.records.profile import LossProfile
from inferlab.store.entries import Entry, QueuedJob
from inferlab.workspace.version_forms import Basis, VersionForm, levels_of, version_asked
from inferlab.workspace.workspace import Workspace


def add_version(workspace: Workspace, project_id: str, form: VersionForm) -> QueuedJob:
    """Queue an optimised version of a project's model."""
    project = workspace.project(project_id)
    model = project.model
    if form.input_shapes is None:
        form = replace(form, input_shapes=project.input_shapes)
    for engine in form.engines:
        workspace.engines.refuse(engine, model)
    if form.data and form.data != "demo:digits":
        form = replace(form, data=workspace.sources.file(form.data))
    levels: dict[str, float] = {}
    try:
        basis = read_basis(workspace, project_id, form.performance, form.loss)
        levels = levels_of(form, basis) if form.prunes else {}
        form = replace(form, performance=basis.performance_id, loss=basis.loss_id)
    except InferlabError:
        # Nothing can be foretold of this model, which needs not be to change its precision.
        if form.prunes or form.performance or form.loss:
            raise
    return workspace.queue(project_id, version_asked(form, model, levels))


def read_basis(
    workspace: Workspace, project_id: str, performance_id: str | None = None, loss_id: str | None = None
) -> Basis:
    """The profiles of a project's model that a version is foretold by; without ids the newest."""
    digest = workspace.project(project_id).model.digest
    # Profiles of versions stand beside them.
    known = [one for one in workspace.profiles(project_id) if one.model_digest == digest]
    for wanted in filter(None, (performance_id, loss_id)):
        if wanted not in {one.id for one in known}:
            raise NotThere(f"{wanted} is no profile of this project's model.")
    first = performance_id or next((one.id for one in known if one.brief.get("performance")), None)
    second = loss_id or _newest_losses(known)
    losses = workspace.profile_as_kept(second) if second else workspace.theory(project_id)
    if losses.loss is not None and losses.loss.left_out:
        losses = replace(losses, loss=_with_all_layers(losses.loss, workspace.theory(project_id).loss))
    if first != second:
        timed = workspace.profile_as_kept(first).performance if first else None
        losses = replace(losses, performance=timed)
    return Basis(losses, first, second)


def _with_all_layers(loss: LossProfile, theory: LossProfile | None) -> LossProfile:
    """The losses with the layers that were not measured too, which have none."""
    known = {one.weight for one in loss.layers}
    missing = [one for one in theory.layers if one.weight not in known] if theory else []
    bare = [replace(one, losses={}, accuracies={}, sensitivity=None) for one in missing]
    return replace(loss, layers=tuple(sorted((*loss.layers, *bare), key=lambda one: one.index)))


def _newest_losses(profiles: list[Entry]) -> str | None:
    """The newest profile whose losses were measured, else the first one, with those foretold from the weights."""
    methods = {one.id: (one.brief.get("loss") or {}).get("method") for one in profiles}
    tried = [one for one, method in methods.items() if method not in (None, "approximated")]
    rough = [one for one, method in methods.items() if method == "approximated"]
    return next(iter([*tried, *reversed(rough)]), None)
