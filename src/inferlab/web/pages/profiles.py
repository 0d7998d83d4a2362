"""The pages of profiles: of performance, measured and in theory, and of loss, measured and estimated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui
from starlette.responses import Response

from inferlab.errors import InferlabError
from inferlab.profiling.diff import LayerDiff
from inferlab.records.profile import BUDGET, FlopsProfile, LossProfile, Profile
from inferlab.store.entries import Entry, QueuedJob
from inferlab.units import capitalized, decimal, plural, scaled, share, shortened, size
from inferlab.views import profile as words
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.losses import loss_curves, loss_sensitivities, parameter_counts
from inferlab.views.charts.profile_values import FLOPS, VALUES, summaries
from inferlab.views.fields import between
from inferlab.views.layer_diff import diff_columns
from inferlab.views.reports.profile import group_columns, layer_columns, loss_columns, theory_columns
from inferlab.web import shell
from inferlab.web.components import profile_summary as summary
from inferlab.web.components.actions import ProjectJobs, ProjectWork, export_address, offer_undo, page_actions
from inferlab.web.components.charts import Chart, ChosenChart, LayerTable, loaded
from inferlab.web.components.profile_form import BudgetControl
from inferlab.web.desk import Desk
from inferlab.web.sections import (
    THEORY,
    Opened,
    approximated,
    is_measured,
    measured,
    named,
    newest_profile,
    only_generates,
    project_page,
)
from inferlab.web.shell import aged, div, p, tag
from inferlab.workspace import requests
from inferlab.workspace.engines import title
from inferlab.workspace.requests import ProfileRequest


def register(desk: Desk) -> None:
    """Define the pages."""
    for part in THEORY:
        _define(desk, part)


def _define(desk: Desk, part: str) -> None:
    """Define the pages of the profiles of a part: of each that was measured, and of what rests on no measuring."""

    @shell.page(f"/projects/{{project_id}}/{part}")
    async def newest(project_id: str, removed: str = "") -> Response:
        return await newest_profile(desk, project_id, part, removed)

    @shell.page(f"/projects/{{project_id}}/{part}/{{entry_id}}")
    async def page(project_id: str, entry_id: str, removed: str = "") -> None:
        async with project_page(desk, project_id, f"{part}/{entry_id}") as opened:
            if only_generates(opened):
                return
            await offer_undo(desk, removed, f"/projects/{project_id}/{part}", "the profile")
            entry = next((each for each in measured(opened.profiles, part) if each.id == entry_id), None)
            if entry is None and entry_id != THEORY[part]:
                gone = f"This project has no {part} profile {shortened(entry_id, 40)}: it may have been removed."
                shell.empty("No such profile", gone, "no-profile")
            elif part == "loss":
                await _Losses(desk, opened, entry).build()
            elif entry is None:
                await _show_theory(desk, opened)
            else:
                await _Performance(desk, opened, entry).build()


class _Performance:
    """The page of a measured performance profile."""

    def __init__(self, desk: Desk, opened: Opened, entry: Entry) -> None:
        self._desk, self._opened, self._entry = desk, opened, entry
        self._section = f"/projects/{opened.project.id}/performance"
        self._profile: Profile

    async def build(self) -> None:
        """Fill the page."""
        known = self._entry.brief["performance"]
        with shell.titled("Performance profile", summary.moment(known["measured_at"])):
            summary.of_version(self._opened.versions.get(self._entry.model_digest))
            page_actions(self._desk, self._section).button(self._entry)
        await _profile_jobs(self._desk, self._opened, self._section, self._entry).refresh()
        # Those of the same model, or version of it, that an estimate can go by.
        same = [other for other in self._opened.profiles if other.model_digest == self._entry.model_digest]
        self._losses = named(same, "loss")
        # Its own where they were measured, else the newest that were, else those of the weights.
        own = self._entry.id if self._entry.id in self._losses else None
        self._loss_id = own or next(iter(self._losses), None)
        self._profile = await loaded(self._desk.workspace.profile, self._entry.id, self._measured_losses())
        performance = self._profile.performance
        assert performance is not None
        summary.notices(replace(self._profile, loss=None))
        self._summary()
        self._known = charts.of(self._profile, "baseline")
        if performance.layers:
            self._layer_charts()
        else:
            shell.banner("warn", "The engine reported no times of layers; only the whole model was timed.")
        with div("il-pair"):
            pruning = words.PRUNING.get(performance.pruning, "")
            self._pruning = self._half("Pruning", pruning, "pruning") if performance.pruned else None
            roofline = self._half("Roofline", words.ROOFLINE, "roofline") if performance.ceilings else None
        self._table = self._layer_table() if performance.layers else None
        self._diff()
        self._how()
        await self._refresh_charts()
        await self._refresh_table()
        if roofline is not None:
            await roofline[1].show(lambda: charts.roofline(self._profile))

    def _summary(self) -> None:
        performance = self._profile.performance
        assert performance is not None
        shell.section("Model summary")
        with shell.card("il-summary"):
            with div("il-summary-part"):
                summary.setting(performance)
            with div("il-summary-part"):
                summary.measured(performance)
            with div("il-summary-part"):
                self._estimated = div("il-estimated")
                estimates = [gain.budget for gain in (self._profile.estimate, *self._profile.gains) if gain]
                budget = estimates[0] if estimates else BUDGET
                self._budget = BudgetControl(self._recompute, budget, self._losses, self._loss_id)
                self._start = summary.start_optimizing(
                    self._opened.project.id, performance.estimated_speedup, self._begin()
                )
        summary.estimated(self._estimated, self._profile)

    def _begin(self) -> str:
        """What the next version begins with: the estimate that is shown, unless this is a profile of a version."""
        if self._entry.model_digest != self._opened.project.model.digest:
            return ""
        return summary.as_estimated(self._entry.id, self._budget.loss_id, self._budget.budget)

    def _measured_losses(self) -> str | None:
        """The profile whose losses are gone by at first; None for its own, with the estimate that was kept."""
        return (
            self._loss_id
            if self._loss_id in {loss.id for loss in measured(self._opened.profiles, "loss")}
            else None
        )

    def _layer_charts(self) -> None:
        options = {key: text for key, text in summaries(self._profile).items() if key not in FLOPS}
        told = words.fallbacks(self._profile)
        self._summaries, self._results = _layer_charts(options, self._known, lambda: self._profile, told)

    def _half(self, heading: str, caption: str, name: str) -> tuple[ui.label, Chart]:
        """A chart beside another, and what its heading says of it."""
        with tag("section", "il-pair-part"):
            with shell.section(heading):
                told = ui.label().classes("il-muted il-small").props(f'data-testid="{name}-told"')
            with shell.card("il-chart-card"):
                p("il-caption", caption)
                return told, Chart(f"{name}-chart", self._known)

    def _layer_table(self) -> LayerTable:
        shell.section("Layers")
        with shell.card("il-card-flush"):
            table = LayerTable("layer-table")
            with table, tag("a", href=export_address(self._entry.id, "csv"), download=""):
                ui.button("CSV", icon="download").props('flat dense data-testid="table-csv"')
        return table

    def _diff(self) -> None:
        others = [other for other in measured(self._opened.profiles, "performance") if other.id != self._entry.id]
        if others:
            shell.section("Layer diff")
            DiffSection(self._desk, self._entry, others)

    def _how(self) -> None:
        with tag("details", "il-how"):
            tag("summary", "", "How it was measured")
            shell.facts(words.facts(self._profile).items())

    async def _recompute(self) -> None:
        budget, loss_id = self._budget.budget, self._budget.loss_id
        profile = await asyncio.to_thread(self._desk.workspace.profile, self._entry.id, loss_id, budget)
        if (budget, loss_id) != (self._budget.budget, self._budget.loss_id):
            return
        self._profile = profile
        summary.estimated(self._estimated, profile)
        self._start.props["href"] = f"/projects/{self._opened.project.id}/optimization{self._begin()}"
        await self._refresh_charts(only_estimates=True)
        await self._refresh_table()

    async def _refresh_charts(self, only_estimates: bool = False) -> None:
        assert self._profile.performance is not None
        if self._profile.performance.layers:
            for layers in (self._summaries, self._results):
                if not only_estimates or layers.chosen[0] in ("estimated", "speedup"):
                    await layers.refresh()
        if self._pruning is not None:
            told, chart = self._pruning
            told.set_text(await chart.show(lambda: charts.pruning(self._profile)))

    async def _refresh_table(self) -> None:
        if self._table is not None:
            profile = self._profile
            await self._table.show(lambda: layer_columns(profile))


def _profile_jobs(desk: Desk, opened: Opened, section: str, entry: Entry | None = None) -> ProjectJobs:
    """The jobs that make profiles of a project; `entry` is the profile that the page shows, if it is one."""
    workspace, project_id = desk.workspace, opened.project.id
    part = section.rpartition("/")[2]
    was_made = False

    def read() -> ProjectWork:
        jobs = [job for job in workspace.store.jobs.of_project(project_id) if job.kind == "profile"]
        profiles = workspace.profiles(project_id)
        # Those whose entry lacks something are told of where it is missed.
        job_ids = {job.id for job in jobs}
        for job in workspace.store.jobs.of_entries([profile.id for profile in profiles]).values():
            own = entry is not None and job.entry_id == entry.id
            if job.id not in job_ids and (job.status == "failed" or (own and job.status != "done")):
                jobs.append(job)
        briefs = {profile.id: profile.brief for profile in profiles}
        concerned = [job for job in jobs if job.alive or _concerns(job, briefs.get(job.entry_id or "", {}), part)]
        names = {
            profile.id: profile.brief[part]["name"] for profile in profiles if is_measured(profile.brief, part)
        }
        return ProjectWork(concerned, names, profiles)

    def show(work: ProjectWork) -> bool:
        nonlocal was_made
        if entry is None:
            return True
        before, was_made = was_made, entry.id in work.making
        if entry.id not in {entry.id for entry in work.entries}:
            # Removed, here or in another tab; or begun again, and then there is nothing to undo.
            ui.navigate.to(section if was_made else f"{section}?removed={entry.id}")
            return False
        if before and not was_made:
            shell.reload()
            return False
        return True

    profile_ids = [profile.id for profile in opened.profiles]
    return ProjectJobs(desk, read, show, profile_ids, section, "The profile “{}” is measured. Open it.")


def _concerns(job: QueuedJob, brief: Mapping[str, Any], part: str) -> bool:
    """Whether what became of a job belongs to this part: it was asked for, and is not there or not whole."""
    try:
        request = requests.request_of(job)
    except InferlabError:
        return True
    if isinstance(request, ProfileRequest) and not getattr(request.wanted, part):
        return False
    # What keeps a whole part from being made is a problem of the profile; others are of its times.
    of_a_part = job.status == "failed" and job.failure in (brief.get("problems") or ())
    return not is_measured(brief, part) or not (of_a_part or (job.status == "failed" and part == "loss"))


def _layer_charts(
    options: Mapping[str, str], known: Collection[str], profile: Callable[[], Profile], told: str = ""
) -> tuple[ChosenChart, ChosenChart]:
    """The charts of layers by type and one by one, of what a profile has by then."""
    choices = {"Summary type": options, "Value display": VALUES}
    shell.section("Layer summaries", told)
    summaries = ChosenChart("summaries", choices, lambda *given: charts.layer_summaries(profile(), *given), known)
    shell.section("Layer results")
    return summaries, ChosenChart(
        "results", choices, lambda *given: charts.layer_results(profile(), *given), known
    )


async def _show_theory(desk: Desk, opened: Opened) -> None:
    """Fill the page of the FLOPS profile."""
    section = f"/projects/{opened.project.id}/performance"
    shell.titled("FLOPS profile", "in theory, from the architecture alone; a multiply-add counts as two")
    await _profile_jobs(desk, opened, section).refresh()
    try:
        theory = await loaded(desk.workspace.theory, opened.project.id)
    except InferlabError as error:
        shell.empty("No FLOPS profile", str(error))
        return
    if theory.flops is None:
        shell.empty("No FLOPS profile", "\n".join(theory.problems) or "Nothing of this model could be counted.")
        return
    profile, flops = replace(theory, performance=None, estimate=None), theory.flops
    _show_flops(flops)
    if not flops.layers:
        return
    drawn = _layer_charts(FLOPS, charts.of(profile, "flops"), lambda: profile)
    shell.section("Nodes")
    with shell.card("il-card-flush"):
        table = LayerTable("layer-table", "nodes", "id, weight")
    for chart in drawn:
        await chart.refresh()
    await table.show(lambda: theory_columns(flops))


def _show_flops(flops: FlopsProfile) -> None:
    shell.section("Model summary", f"batch {flops.batch_size}")
    with shell.card(), shell.stats():
        by_type = ", ".join(f"{scaled(part.flops, 'FLOP')} in {name}" for name, part in flops.by_dtype.items())
        shell.stat("FLOPs", scaled(flops.flops, "FLOP"), by_type, "flops")
        shell.stat("Multiply-adds", scaled(flops.macs, "MAC"), "", "macs")
        shell.stat("Parameters", scaled(flops.params), size(flops.weight_bytes), "params")
        shell.stat("Activations", size(flops.activation_bytes), "read and written", "activations")
        intensity = "unknown" if flops.intensity is None else f"{flops.intensity:.3g}"
        shell.stat("Intensity", intensity, "FLOPs per byte", "intensity")
        summary.input_shapes(flops.shapes)
    if flops.uncounted:
        told = [f"Not counted: {part.count} × {part.type}: {part.reason}." for part in flops.uncounted]
        shell.banner("warn", "\n".join(told), "uncounted")


_NOTE = "Profiles are not measured interleaved, so a change of the machine between them counts too."


def _profile_line(entry: Entry) -> str:
    """A measured profile in a line."""
    brief = entry.brief["performance"]
    where = f"{title(brief['engine'])}, batch {brief['batch_size']}, {plural(brief['num_cores'], 'core')}"
    return f"{brief['name']} ({where}, {aged(entry.created_at)})"


class DiffSection:
    """A selector of the other profile, and what the two differ in once one is chosen."""

    def __init__(self, desk: Desk, entry: Entry, others: Sequence[Entry]) -> None:
        self._workspace, self._entry = desk.workspace, entry
        with shell.card("il-chart-card"):
            with div("il-chosen"):
                options = {other.id: _profile_line(other) for other in others}
                self._select = ui.select(options, label="Compare with", clearable=True).classes("il-wide-select")
                self._select.props('data-testid="diff-with"').on_value_change(self._show)
            self._told = ui.label(
                "Choose another performance profile: layers that cover the same nodes are shown side by side."
            ).classes("il-caption")
            with div() as self._found:
                self._verdict = ui.label().classes("il-verdict").props('data-testid="diff-verdict"')
                self._chart = Chart("diff-chart")
                self._table = LayerTable("diff-table", "rows", "id")
            self._found.set_visibility(False)

    async def _show(self) -> None:
        other = self._select.value
        self._found.set_visibility(bool(other))
        self._told.set_visibility(not other)
        if not other:
            return
        self._verdict.set_text("Comparing…")
        diff = await asyncio.to_thread(self._workspace.layer_diff, self._entry.id, other)
        if other != self._select.value:
            return
        self._verdict.set_text(_verdict(diff))
        await self._chart.show(lambda: charts.layer_diff(diff))
        await self._table.show(lambda: diff_columns(diff))


def _verdict(diff: LayerDiff) -> str:
    ends = diff.ratio.ends
    sure = "too few processes for an interval" if ends is None else between(ends)
    differ = f" They differ in {'; '.join(diff.differences)}." if diff.differences else ""
    return (
        f"This profile (B) takes {decimal(diff.ratio.value)} of the other's (A) time per item ({sure}): "
        f"{diff.verdict}.{differ} {_NOTE}"
    )


class _Losses:
    """The page of a loss profile, or of what is estimated from the weights; without either it says why."""

    def __init__(self, desk: Desk, opened: Opened, entry: Entry | None) -> None:
        self._desk, self._opened, self._measured = desk, opened, entry is not None
        self._entry = entry or approximated(opened.own)
        self._section = f"/projects/{opened.project.id}/loss"
        self._profile: Profile

    async def build(self) -> None:
        """Fill the page."""
        entry = self._entry
        age = (
            summary.moment(entry.created_at.isoformat())
            if entry and self._measured
            else "estimated from the weights"
        )
        with shell.titled("Loss profile", age):
            if entry is not None and self._measured:
                summary.of_version(self._opened.versions.get(entry.model_digest))
                page_actions(self._desk, self._section).button(entry)
        shown = entry if self._measured else None
        await _profile_jobs(self._desk, self._opened, self._section, shown).refresh()
        if entry is None:
            why = await loaded(self._why_none)
            shell.empty("No loss profile", why, "no-loss")
            return
        self._profile = await loaded(self._desk.workspace.loss_profile, entry.id)
        loss = self._profile.loss
        assert loss is not None
        summary.notices(replace(self._profile, performance=None))
        self._summary(loss)
        if not loss.layers:
            shell.empty("No layers", "No layer of this model has weights that could be pruned.")
            return
        await self._layers(loss)

    def _why_none(self) -> str:
        """Why nothing is known of this model's losses."""
        if self._opened.project.model.kind != "onnx":
            return "Only ONNX models have one: pruning is tried on the weights of their graph."
        try:
            theory = self._desk.workspace.theory(self._opened.project.id)
        except InferlabError as error:
            return str(error)
        return "\n".join(theory.problems) or "This model has no weights that could be pruned."

    def _summary(self, loss: LossProfile) -> None:
        shell.section("Model summary")
        with shell.card("il-summary"):
            with div("il-summary-part"), shell.stats("il-summary-facts"):
                shell.fact("Name", loss.name if self._measured else "Approximated", "name")
                shell.fact("Pruning settings", "weight magnitude, unstructured", "pruning-settings", wide=True)
                shell.fact("Method", f"{capitalized(words.method(loss))}.", "method", wide=True)
                shell.fact("Loss", words.metric(loss), "metric", wide=True)
                if self._profile.flops is not None:
                    summary.input_shapes(self._profile.flops.shapes)
            with div("il-summary-part"):
                self._numbers(loss)
            with div("il-summary-part"):
                self._estimated = div("il-estimated")
                self._budget = BudgetControl(self._recompute)
                summary.start_optimizing(self._opened.project.id)
        summary.pruned(self._estimated, self._profile)
        if told := words.left_out(loss):
            p("il-caption", told, name="left-out")

    def _numbers(self, loss: LossProfile) -> None:
        known = loss.average_sensitivity
        with shell.stats("il-summary-numbers"):
            shell.stat(
                "Parameters", scaled(loss.params), f"{scaled(loss.prunable_params)} can be pruned", "params"
            )
            average = "unknown" if known is None else f"{known:.3g}"
            shell.stat("Average sensitivity", average, "mean loss over all sparsities", "sensitivity")
            if loss.dense_accuracy is not None:
                shell.stat("Dense accuracy", share(loss.dense_accuracy), "before any pruning", "dense-accuracy")
            if loss.dense_loss is not None:
                shell.stat("Dense loss", f"{loss.dense_loss:.4g}", "cross-entropy, in nats", "dense-loss")

    async def _recompute(self) -> None:
        assert self._entry is not None
        budget = self._budget.budget
        profile = await asyncio.to_thread(self._desk.workspace.loss_profile, self._entry.id, budget)
        if budget == self._budget.budget:
            self._profile = profile
            summary.pruned(self._estimated, self._profile)

    async def _layers(self, loss: LossProfile) -> None:
        profile = self._profile
        shell.section("Layer sensitivities")
        choices = {"Value display": VALUES}
        sensitivities = ChosenChart("sensitivities", choices, lambda value: loss_sensitivities(profile, value))
        shell.section("Loss curves")
        with shell.card("il-chart-card"):
            curves = Chart("curves-chart")
        shell.section("Layer parameter counts")
        parameters = ChosenChart("parameters", choices, lambda value: parameter_counts(profile, value))
        shell.section("Layers", "losses at each sparsity")
        with shell.card("il-card-flush"):
            table = LayerTable("layer-table", "layers", "id, weight")
        groups: LayerTable | None = None
        if loss.groups:
            shell.section("Channels", "losses of those that are removed together")
            with shell.card("il-card-flush"):
                groups = LayerTable("group-table", "groups", "weight")
        await sensitivities.refresh()
        await curves.show(lambda: loss_curves(profile))
        await parameters.refresh()
        await table.show(lambda: loss_columns(loss))
        if groups is not None:
            await groups.show(lambda: group_columns(loss))
