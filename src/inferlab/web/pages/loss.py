"""The pages of loss profiles: as measured, and as estimated from the weights."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from inferlab.errors import InferlabError
from inferlab.records.profile import LossProfile, Profile
from inferlab.store.entries import Entry
from inferlab.units import capitalized, scaled, share
from inferlab.views import profile as words
from inferlab.views.charts.losses import loss_curves, loss_sensitivities, parameter_counts
from inferlab.views.charts.profile_values import VALUES
from inferlab.views.reports.profile import group_columns, loss_columns
from inferlab.web import shell
from inferlab.web.components import profile_summary as summary
from inferlab.web.components.actions import page_actions
from inferlab.web.components.charts import Chart, ChosenChart, LayerTable, loaded
from inferlab.web.components.profile_form import BudgetControl
from inferlab.web.desk import Desk
from inferlab.web.sections import (
    Opened,
    approximated,
    profile_jobs,
    profile_pages,
)
from inferlab.web.shell import div, p


def register(desk: Desk) -> None:
    """Define the pages."""

    async def fill(opened: Opened, entry: Entry | None) -> None:
        shown = entry or approximated(opened.own)
        await _Losses(desk, opened, shown, measured=entry is not None).build()

    profile_pages(desk, "loss", fill)


class _Losses:
    """The page of one loss profile; without an entry there is none, and it says why."""

    def __init__(self, desk: Desk, opened: Opened, entry: Entry | None, measured: bool) -> None:
        self._desk, self._opened, self._entry, self._measured = desk, opened, entry, measured
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
        await profile_jobs(self._desk, self._opened, self._section, shown).refresh()
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
            found = self._desk.workspace.theory(self._opened.project.id)
        except InferlabError as error:
            return str(error)
        return "\n".join(found.problems) or "This model has no weights that could be pruned."

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
        found = await asyncio.to_thread(self._desk.workspace.loss_profile, self._entry.id, budget)
        if budget == self._budget.budget:
            self._profile = found
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
