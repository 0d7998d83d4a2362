"""A project's versions, and what the profiles foretell of optimised ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.profiling.estimate import BUDGET
from inferlab.profiling.records import Profile, PruningEstimate
from inferlab.store.entries import Project
from inferlab.units import decimal, share, size
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.web.parts import model_facts
from inferlab.web.parts.copying import command_line
from inferlab.web.sections import Opened, approximated, losses, measured, project_page
from inferlab.workspace.engines import title
from inferlab.workspace.workspace import Workspace

_NOT_YET = (
    "Versions of the model, pruned or in INT8, are not made on this page yet. What is below is an estimate from "
    "the profiles; the command makes the estimated model, measures it, and shows both side by side."
)


@dataclass(frozen=True, slots=True)
class _Foretold:
    """What the newest profiles say of pruning, or why they say nothing."""

    profile: Profile | None
    problem: str
    command: str


def register(desk: Desk) -> None:
    """Define the page."""

    @ui.page("/projects/{project_id}/optimization")
    async def optimization(project_id: str) -> None:
        async with project_page(desk, project_id, "optimization") as opened:
            found = await asyncio.to_thread(_read, desk.workspace, opened)
            shell.titled("Optimization")
            shell.banner("info", _NOT_YET)
            _versions(opened.project)
            shell.section("What pruning would buy", "estimated from the newest profiles")
            _estimate(opened.project, found)
            shell.section("Make and measure it", "on the command line")
            with shell.card():
                html.p(
                    "Prunes each layer as the estimate says, measures the result, and says how far the estimate "
                    "was off."
                )
                command_line(found.command)


def _read(workspace: Workspace, opened: Opened) -> _Foretold:
    project_id, profiles = opened.project.id, opened.profiles
    timed, tried = measured(profiles), losses(profiles)
    first = timed[0].id if timed else None
    command = workspace.verify_command(project_id, first)
    rough = approximated(profiles)
    loss_id = tried[0].id if tried else rough.id if rough else None
    try:
        found = workspace.profile(first, loss_id) if first else None
        if found is None:
            found = workspace.loss_profile(loss_id) if loss_id else workspace.theory(project_id)
    except InferlabError as error:
        return _Foretold(None, str(error), command)
    return _Foretold(found, "", command)


def _versions(project: Project) -> None:
    model = project.model
    shell.section("Versions")
    with shell.card("il-card-flush"), html.table().classes("il-table").props('data-testid="versions"'):
        with html.thead(), html.tr():
            for head in ("Version", "Made of", "Precision", "Zeros", "Parameters", "Size"):
                html.th(head)
        with html.tbody(), html.tr():
            html.td("original").classes("il-strong")
            html.td(model_facts.source(model)).classes("il-break")
            html.td(model_facts.precision(model))
            html.td(model_facts.zeros(model))
            html.td(model_facts.parameters(model))
            html.td(size(model.size_bytes))


def _estimate(project: Project, found: _Foretold) -> None:
    with shell.card(), html.div().props('data-testid="estimate"').classes("il-column"):
        if found.profile is None:
            html.p(found.problem)
            return
        estimate = found.profile.estimate
        if estimate is None:
            html.p("Nothing can be foretold: this model has no weights that could be pruned.")
            return
        with shell.stats():
            for label, value, detail in _numbers(found.profile, estimate):
                shell.stat(label, value, detail)
        html.p(_meaning(found.profile, estimate)).classes("il-muted")
        base = f"/projects/{project.id}"
        with html.div().classes("il-row"):
            html.a("Performance profiles", href=f"{base}/performance")
            html.a("Loss profiles", href=f"{base}/loss")


def _numbers(profile: Profile, estimate: PruningEstimate) -> list[tuple[str, str, str]]:
    numbers = []
    performance = profile.performance
    if performance is not None:
        where = f"{title(performance.engine)}, batch {performance.batch_size}"
        numbers.append(("MS per Batch", decimal(performance.ms_per_batch, 3), where))
    if estimate.estimated_ms_per_batch is not None and estimate.estimated_speedup is not None:
        gain = f"loss budget {estimate.budget:g}"
        numbers.append(("Estimated MS per Batch", decimal(estimate.estimated_ms_per_batch, 3), gain))
        numbers.append(("Estimated Speed-up", f"{estimate.estimated_speedup:.2f} ×", ""))
    numbers.append(("Pruned Parameters", share(estimate.parameter_reduction), "would become zero"))
    if estimate.recovery is not None:
        numbers.append(("Estimated Recovery", share(estimate.recovery), "before any retraining"))
    return numbers


def _meaning(profile: Profile, estimate: PruningEstimate) -> str:
    """What the numbers rest on, and what they do not say."""
    budget = f"For a loss budget of {BUDGET:g}"
    if profile.loss is not None and profile.loss.method == "approximated":
        budget += ", by losses that were only approximated from the weights"
    if estimate.gained == "parameters":
        return (
            f"{budget}. The times of pruned copies were not measured, so it goes by parameters and foretells no "
            "speed-up: add a performance profile with “Times of pruned copies” on, or on DeepSparse."
        )
    if estimate.estimated_speedup is not None and estimate.estimated_speedup <= 1.0:
        return f"{budget}. This engine gains nothing from zeros in the weights: pruning would not make it faster."
    return f"{budget}, which layers take which share of zeros is chosen by the time that each gains for its loss."
