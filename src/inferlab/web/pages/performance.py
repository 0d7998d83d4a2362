"""The pages of performance profiles: as measured, and in theory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from nicegui import ui

from inferlab.errors import InferlabError
from inferlab.profiling.diff import LayerDiff
from inferlab.records.profile import BUDGET, FlopsProfile, Profile
from inferlab.store.entries import Entry
from inferlab.units import decimal, plural, scaled, size
from inferlab.views import profile as words
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.profile_values import FLOPS, VALUES, summaries
from inferlab.views.charts.profiles import layer_diff
from inferlab.views.fields import between
from inferlab.views.profile import PRUNING, facts
from inferlab.views.reports.profile import diff_columns, layer_columns, theory_columns
from inferlab.web import shell
from inferlab.web.components import profile_summary as summary
from inferlab.web.components.actions import export_address, page_actions
from inferlab.web.components.charts import Chart, ChosenChart, LayerTable, loaded
from inferlab.web.components.profile_form import BudgetControl
from inferlab.web.desk import Desk
from inferlab.web.live import aged
from inferlab.web.sections import (
    Opened,
    measured,
    named,
    profile_jobs,
    profile_pages,
)
from inferlab.web.shell import div, p, tag
from inferlab.workspace.engines import title


def register(desk: Desk) -> None:
    """Define the pages."""

    async def fill(opened: Opened, entry: Entry | None) -> None:
        await (_show_theory(desk, opened) if entry is None else _Measured(desk, opened, entry).build())

    profile_pages(desk, "performance", fill)


class _Measured:
    """The page of a measured profile."""

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
        await profile_jobs(self._desk, self._opened, self._section, self._entry).refresh()
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
            pruning = PRUNING.get(performance.pruning, "")
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
                estimates = [one.budget for one in (self._profile.estimate, *self._profile.gains) if one]
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
        others = [one for one in measured(self._opened.profiles, "performance") if one.id != self._entry.id]
        if others:
            shell.section("Layer diff")
            DiffSection(self._desk, self._entry, others)

    def _how(self) -> None:
        with tag("details", "il-how"):
            tag("summary", "", "How it was measured")
            shell.facts(facts(self._profile).items())

    async def _recompute(self) -> None:
        budget, loss_id = self._budget.budget, self._budget.loss_id
        found = await asyncio.to_thread(self._desk.workspace.profile, self._entry.id, loss_id, budget)
        if (budget, loss_id) != (self._budget.budget, self._budget.loss_id):
            return
        self._profile = found
        summary.estimated(self._estimated, found)
        self._start.props["href"] = f"/projects/{self._opened.project.id}/optimization{self._begin()}"
        await self._refresh_charts(only_estimates=True)
        await self._refresh_table()

    async def _refresh_charts(self, only_estimates: bool = False) -> None:
        assert self._profile.performance is not None
        if self._profile.performance.layers:
            for one in (self._summaries, self._results):
                if not only_estimates or one.chosen[0] in ("estimated", "speedup"):
                    await one.refresh()
        if self._pruning is not None:
            told, chart = self._pruning
            told.set_text(await chart.show(lambda: charts.pruning(self._profile)))

    async def _refresh_table(self) -> None:
        if self._table is not None:
            profile = self._profile
            await self._table.show(lambda: layer_columns(profile))


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
    await profile_jobs(desk, opened, section).refresh()
    try:
        found = await loaded(desk.workspace.theory, opened.project.id)
    except InferlabError as error:
        shell.empty("No FLOPS profile", str(error))
        return
    if found.flops is None:
        shell.empty("No FLOPS profile", "\n".join(found.problems) or "Nothing of this model could be counted.")
        return
    profile, flops = replace(found, performance=None, estimate=None), found.flops
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
    found = entry.brief["performance"]
    where = f"{title(found['engine'])}, batch {found['batch_size']}, {plural(found['num_cores'], 'core')}"
    return f"{found['name']} ({where}, {aged(entry.created_at)})"


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
        await self._chart.show(lambda: layer_diff(diff))
        await self._table.show(lambda: diff_columns(diff))


def _verdict(diff: LayerDiff) -> str:
    ends = diff.ratio.ends
    sure = "too few processes for an interval" if ends is None else between(ends)
    differ = f" They differ in {'; '.join(diff.differences)}." if diff.differences else ""
    return (
        f"This profile (B) takes {decimal(diff.ratio.value)} of the other's (A) time per item ({sure}): "
        f"{diff.verdict}.{differ} {_NOTE}"
    )
