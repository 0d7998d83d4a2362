"""The pages of performance profiles: as measured, and in theory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.profiling.diff import LayerDiff
from inferlab.records.profile import BUDGET, FlopsProfile, Profile
from inferlab.store.entries import Entry
from inferlab.units import decimal, plural, scaled, size
from inferlab.views import profile as words
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.profile_values import FLOPS, VALUES
from inferlab.views.charts.profiles import layer_diff
from inferlab.views.fields import between
from inferlab.views.profile import PRUNING, facts
from inferlab.views.profile_report import diff_columns, layer_columns, theory_columns
from inferlab.web import shell
from inferlab.web.components import profile_summary as summary
from inferlab.web.components.actions import export_address, no_profile, page_actions
from inferlab.web.components.charts import Chart, ChosenChart, LayerTable, content, loaded
from inferlab.web.components.profile_form import BudgetControl
from inferlab.web.desk import Desk
from inferlab.web.faults import on_pages, sentence
from inferlab.web.live import aged
from inferlab.web.sections import (
    THEORY,
    Opened,
    approximated,
    losses,
    measured,
    profile_jobs,
    profile_pages,
)
from inferlab.workspace.engines import title


def register(desk: Desk) -> None:
    """Define the pages."""

    async def fill(opened: Opened, entry_id: str) -> None:
        if entry_id == THEORY["performance"]:
            await _Theory(desk, opened).build()
            return
        entry = next((profile for profile in measured(opened.profiles) if profile.id == entry_id), None)
        if entry is None:
            no_profile("performance", entry_id)
        else:
            await _Measured(desk, opened, entry).build()

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
        self._losses = _losses(self._opened, self._entry)
        self._loss_id = _chosen(self._entry, self._losses)
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
        with html.div().classes("il-pair"):
            self._pruning = self._pruning_chart() if performance.pruned else None
            roofline = self._roofline() if performance.ceilings else None
        self._table = self._layer_table() if performance.layers else None
        self._diff()
        self._how()
        await self._refresh_charts()
        await self._refresh_table()
        if roofline is not None:
            await roofline.show(lambda: charts.roofline(self._profile))

    def _summary(self) -> None:
        performance = self._profile.performance
        assert performance is not None
        shell.section("Model summary")
        with shell.card("il-summary"):
            with html.div().classes("il-summary-part"):
                summary.setting(performance)
            with html.div().classes("il-summary-part"):
                summary.measured(performance)
            with html.div().classes("il-summary-part"):
                self._estimated = html.div().classes("il-estimated")
                estimates = [one.budget for one in (self._profile.estimate, *self._profile.gains) if one]
                budget = estimates[0] if estimates else BUDGET
                self._budget = BudgetControl(self._recompute, budget, self._losses, self._loss_id)
                summary.start_optimizing(self._opened.project.id, performance.estimated_speedup)
        summary.estimated(self._estimated, self._profile)

    def _measured_losses(self) -> str | None:
        """The profile whose losses are gone by at first; None for its own, with the estimate that was kept."""
        return self._loss_id if self._loss_id in {loss.id for loss in losses(self._opened.profiles)} else None

    def _layer_charts(self) -> None:
        options = {key: text for key, text in charts.summaries(self._profile).items() if key not in FLOPS}
        choices = {"Summary type": options, "Value display": VALUES}
        shell.section("Layer summaries", words.fallbacks(self._profile))
        self._summaries = ChosenChart(
            "summaries", choices, lambda *given: charts.layer_summaries(self._profile, *given), self._known
        )
        shell.section("Layer results")
        self._results = ChosenChart(
            "results", choices, lambda *given: charts.layer_results(self._profile, *given), self._known
        )

    def _pruning_chart(self) -> tuple[ui.label, Chart]:
        assert self._profile.performance is not None
        with html.section().classes("il-pair-part"):
            with shell.section("Pruning"):
                told = ui.label().classes("il-muted il-small").props('data-testid="pruning-told"')
            with shell.card("il-chart-card"):
                html.p(PRUNING.get(self._profile.performance.pruning, "")).classes("il-caption")
                return told, Chart("pruning-chart", self._known)

    def _roofline(self) -> Chart:
        with html.section().classes("il-pair-part"):
            shell.section("Roofline")
            with shell.card("il-chart-card"):
                html.p(words.ROOFLINE).classes("il-caption")
                return Chart("roofline-chart", self._known)

    def _layer_table(self) -> LayerTable:
        shell.section("Layers")
        with shell.card("il-card-flush"):
            table = LayerTable("layer-table")
            with table, html.a(href=export_address(self._entry.id, "csv"), download=""):
                ui.button("CSV", icon="download").props('flat dense data-testid="table-csv"')
        return table

    def _diff(self) -> None:
        others = [one for one in measured(self._opened.profiles) if one.id != self._entry.id]
        if others:
            shell.section("Layer diff")
            DiffSection(self._desk, self._entry, others)

    def _how(self) -> None:
        with html.details().classes("il-how"):
            html.summary("How it was measured")
            shell.facts([(name, text) for name, text in facts(self._profile).items() if text])

    async def _recompute(self) -> None:
        budget, loss_id = self._budget.budget, self._budget.loss_id
        found = await asyncio.to_thread(self._desk.workspace.profile, self._entry.id, loss_id, budget)
        if (budget, loss_id) != (self._budget.budget, self._budget.loss_id):
            return
        self._profile = found
        summary.estimated(self._estimated, found)
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
            self._table.fill(await asyncio.to_thread(lambda: content(layer_columns(profile))))


def _losses(opened: Opened, entry: Entry) -> dict[str, str]:
    """The loss profiles of the same model, or version of it, that an estimate can go by."""
    same = [profile for profile in opened.profiles if profile.model_digest == entry.model_digest]
    found = {loss.id: f"{loss.brief['loss']['name']} ({aged(loss.created_at)})" for loss in losses(same)}
    theory = approximated(same)
    return {**found, theory.id: "Approximated"} if theory else found


def _chosen(entry: Entry, known: dict[str, str]) -> str | None:
    """The profile's own losses where they were measured, else the newest that were, else those of the weights."""
    return entry.id if entry.id in known else next(iter(known), None)


class _Theory:
    """The page of the FLOPS profile."""

    def __init__(self, desk: Desk, opened: Opened) -> None:
        self._desk, self._opened = desk, opened

    async def build(self) -> None:
        """Fill the page."""
        section = f"/projects/{self._opened.project.id}/performance"
        shell.titled("FLOPS profile", "in theory, from the architecture alone; a multiply-add counts as two")
        await profile_jobs(self._desk, self._opened, section).refresh()
        try:
            found = await loaded(self._desk.workspace.theory, self._opened.project.id)
        except InferlabError as error:
            shell.empty("No FLOPS profile", sentence(error))
            return
        if found.flops is None:
            told = "\n".join(map(on_pages, found.problems)) or "Nothing of this model could be counted."
            shell.empty("No FLOPS profile", told)
            return
        profile, flops = replace(found, performance=None, estimate=None), found.flops
        self._summary(flops)
        if not flops.layers:
            return
        known = charts.of(profile, "flops")
        shown = []
        for heading, name, draw in (
            ("Layer summaries", "summaries", charts.layer_summaries),
            ("Layer results", "results", charts.layer_results),
        ):
            shell.section(heading)
            choices = {"Summary type": FLOPS, "Value display": VALUES}
            shown.append(ChosenChart(name, choices, lambda *given, draw=draw: draw(profile, *given), known))
        shell.section("Nodes")
        with shell.card("il-card-flush"):
            table = LayerTable("layer-table", "nodes", "id, weight")
        for one in shown:
            await one.refresh()
        table.fill(await asyncio.to_thread(lambda: content(theory_columns(flops))))

    def _summary(self, flops: FlopsProfile) -> None:
        shell.section("Model summary", f"batch {flops.batch_size}")
        with shell.card(), shell.stats():
            by_type = ", ".join(f"{scaled(one.flops, 'FLOP')} in {name}" for name, one in flops.by_dtype.items())
            shell.stat("FLOPs", scaled(flops.flops, "FLOP"), by_type, "flops")
            shell.stat("Multiply-adds", scaled(flops.macs, "MAC"), "", "macs")
            shell.stat("Parameters", scaled(flops.params), size(flops.weight_bytes), "params")
            shell.stat("Activations", size(flops.activation_bytes), "read and written", "activations")
            intensity = "unknown" if flops.intensity is None else f"{flops.intensity:.3g}"
            shell.stat("Intensity", intensity, "FLOPs per byte", "intensity")
            summary.input_shapes(flops.shapes)
        if flops.uncounted:
            told = [f"Not counted: {one.count} × {one.type}: {one.reason}." for one in flops.uncounted]
            shell.banner("warn", "\n".join(told)).props('data-testid="uncounted"')


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
            with html.div().classes("il-chosen"):
                options = {other.id: _profile_line(other) for other in others}
                self._select = ui.select(options, label="Compare with", clearable=True).classes("il-wide-select")
                self._select.props('data-testid="diff-with"').on_value_change(self._show)
            self._told = ui.label(
                "Choose another performance profile: layers that cover the same nodes are shown side by side."
            ).classes("il-caption")
            with html.div() as self._found:
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
        diff, rows = await asyncio.to_thread(self._read, other)
        if other != self._select.value:
            return
        self._verdict.set_text(_verdict(diff))
        await self._chart.show(lambda: layer_diff(diff))
        self._table.fill(rows)

    def _read(self, other: str) -> tuple[LayerDiff, str]:
        diff = self._workspace.layer_diff(self._entry.id, other)
        return diff, content(diff_columns(diff))


def _verdict(diff: LayerDiff) -> str:
    ends = diff.ratio.ends
    sure = "too few processes for an interval" if ends is None else between(ends)
    differ = f" They differ in {'; '.join(diff.differences)}." if diff.differences else ""
    return (
        f"This profile (B) takes {decimal(diff.ratio.value)} of the other's (A) time per item ({sure}): "
        f"{diff.verdict}.{differ} {_NOTE}"
    )
