"""The page of one version: what it is, measured against estimated, and what can be taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from inferlab.codec import plain
from inferlab.errors import InferlabError
from inferlab.records.optimization import CHANNEL, ChangedLayer, Distance, Measured, Optimization
from inferlab.units import capitalized, decimal, plural, scaled, share, size
from inferlab.views import optimization as words
from inferlab.views.fields import between_at
from inferlab.views.reports.page import Cell, Columns
from inferlab.views.text import output_check
from inferlab.web import shell
from inferlab.web.components import benchmark_dialog, models
from inferlab.web.components.actions import page_actions
from inferlab.web.components.charts import LayerTable, loaded
from inferlab.web.components.forms import EngineSelect
from inferlab.web.components.profile_summary import moment
from inferlab.web.desk import Desk, follow
from inferlab.web.sections import Opened
from inferlab.web.shell import div, p, span, tag
from inferlab.workspace.engines import TITLES, title
from inferlab.workspace.entries import code_sample, recipe
from inferlab.workspace.versions import Version, is_ours

_NUMBERS = ("Original (ms)", "Version (ms)", "Speed-up", "Interval", "Estimated", "Off by")
_HEADS = ("Engine", *_NUMBERS[:4], "", *_NUMBERS[4:], "")


class VersionPage:
    """Made within the frame of its project."""

    def __init__(self, desk: Desk, opened: Opened, version_id: str) -> None:
        self._desk, self._opened, self._id = desk, opened, version_id
        self._base = f"/projects/{opened.project.id}/optimization"

    async def build(self) -> None:
        """Fill the page."""
        workspace = self._desk.workspace
        version = await asyncio.to_thread(workspace.versions.get, self._id)
        with shell.titled(version.name, moment(version.entry.created_at.isoformat())):
            compare = ui.button("Benchmark", icon="leaderboard", on_click=self._compare)
            compare.props('outline data-testid="benchmark-version"').set_enabled(version.file == "there")
            page_actions(self._desk, self._base).button(version.entry)
        optimization, predicted = await loaded(self._read)
        self._notices(version, optimization)
        self._summary(optimization, predicted)
        shell.section("Measured against the original", "interleaved, in fresh processes")
        self._measured(optimization)
        ExportCard(self._desk, version, optimization)
        await self._layers(optimization)
        # It grows from engine to engine while it is measured, and may be removed in another tab.
        follow(self._desk, lambda before, now: self._look(version))

    def _read(self) -> tuple[Optimization, float | None]:
        """The version, and what it was predicted to leave of the outputs' quality."""
        optimization = self._desk.workspace.versions.opened(self._id)
        pruning = optimization.recipe.pruning
        if pruning is not None and pruning.pattern not in ("unstructured", CHANNEL):
            return optimization, None
        try:
            basis = self._desk.workspace.read_basis(self._opened.project.id)
            unmeasured = basis.unmeasured(pruning.layers if pruning is not None else {})
            return optimization, None if unmeasured else basis.expected(optimization.recipe).recovery
        except InferlabError:
            return optimization, None

    @staticmethod
    def _notices(version: Version, optimization: Optimization) -> None:
        wrong = [
            comparison for comparison in optimization.measured if comparison.output_check.status == "mismatch"
        ]
        for comparison in wrong:
            told = f"Wrong outputs on {title(comparison.engine)}: {output_check(comparison.output_check)}"
            shell.banner("wrong", told, "wrong-outputs")
        if version.trouble:
            shell.banner("wrong", version.trouble, "trouble")
        shell.findings(map(_sentence, words.notes(optimization)), "notes")

    @staticmethod
    def _summary(optimization: Optimization, predicted: float | None) -> None:
        before, after = optimization.model, optimization.optimized
        shell.section("Model summary")
        with shell.card("il-summary"):
            with div("il-summary-part"), shell.stats("il-summary-facts"):
                shell.fact("Recipe", _sentence(words.recipe(optimization.recipe)), "recipe-told", wide=True)
                shell.fact("Made from", models.source(before), "made-of")
                shell.fact("Precision", models.precision(after), "precision")
            with div("il-summary-part"), shell.stats("il-summary-numbers"):
                shell.stat("Size", size(after.size_bytes), f"original {size(before.size_bytes)}", "size")
                known = "" if before.parameters is None else f"original {scaled(before.parameters)}"
                shell.stat("Parameters", models.parameters(after), known, "parameters")
                shell.stat("Zeros", models.zeros(after), f"original {models.zeros(before)}", "zeros")
            with div("il-summary-part"), shell.stats("il-summary-numbers"):
                _fidelity(optimization, predicted)

    def _measured(self, optimization: Optimization) -> None:
        with shell.card("il-card-flush il-scroll"):
            if not optimization.measured:
                p("il-version-none il-muted", "It was not measured on any engine.")
                return
            shell.table(_HEADS, map(self._row, optimization.measured), _NUMBERS, name="measured")

    def _row(self, comparison: Measured) -> shell.Row:
        known, error = comparison.predicted_speedup, comparison.predicted_error

        def engine() -> None:
            release = comparison.versions.get(comparison.engine, "")
            div("il-strong", f"{title(comparison.engine)} {release}".rstrip())
            div("il-muted il-small", f"cores {comparison.num_cores}, batch {comparison.batch_size}")

        def card() -> None:
            if comparison.entry_id:
                tag("a", "", "Card", href=f"/projects/{self._opened.project.id}/benchmarks")

        cells: tuple[shell.Cell, ...] = (
            engine,
            decimal(comparison.original_ms, 3),
            decimal(comparison.ms, 3),
            lambda: span("il-strong", f"{comparison.speedup:.2f} ×"),
            between_at(comparison.speedup_interval, comparison.level),
            lambda: shell.verdict(comparison.verdict),
            "–" if known is None else f"{known:.2f} ×",
            "–" if error is None else f"{100 * error:+.3g} %",
            card,
        )
        return shell.Row(cells, name=f"measured-{comparison.engine}")

    async def _layers(self, optimization: Optimization) -> None:
        changed = [layer for layer in optimization.layers if layer.wanted is not None or layer.precision != "FP32"]
        shell.section("Layers", f"{plural(len(changed), 'layer')} changed")
        if not optimization.layers:
            return
        with shell.card("il-card-flush"):
            table = LayerTable("layer-table", "layers", "id, weight")
        await table.show(lambda: _columns(optimization.layers))

    # What can be done.

    async def _compare(self) -> None:
        async def queued() -> None:
            ui.navigate.to(f"/projects/{self._opened.project.id}/benchmarks")

        with self._opened.content:
            await benchmark_dialog.open_dialog(self._desk, self._opened.project, queued, version=self._id)

    async def _look(self, shown: Version) -> None:
        workspace = self._desk.workspace
        if not await asyncio.to_thread(workspace.store.has, self._id):
            ui.navigate.to(f"{self._base}?removed={self._id}")
        elif await asyncio.to_thread(workspace.versions.get, self._id) != shown:
            shell.reload()


def _fidelity(optimization: Optimization, predicted: float | None) -> None:
    """What is left of the outputs' quality, measured, beside what was estimated."""
    distance = optimization.distance
    value, *details = fidelity(None if distance is None else plain(distance))
    labelled = distance is not None and distance.accuracy is not None
    shell.stat(
        "Accuracy" if labelled else "Output distance", value, ", ".join(filter(None, details)), "fidelity"
    ).classes("il-whole-row")
    if distance is not None and labelled and distance.relative_power is not None:
        power = f"{distance.relative_power:.3g}"
        shell.stat("Output distance", power, "relative mean square change", "distance")
    if distance is not None and distance.loss_rise is not None:
        shell.stat("Cross-entropy", f"{distance.loss_rise:+.3g}", "over the original's", "loss-rise")
    if distance is not None and predicted is not None:
        measured = _recovery(distance)
        told = "" if measured is None else f"measured {share(measured)}"
        shell.stat("Estimated recovery", share(predicted), told, "estimated-recovery")


def _recovery(distance: Distance) -> float | None:
    """What is left: of the accuracy with labels, else of the outputs' power."""
    if distance.accuracy is not None and distance.original_accuracy:
        return distance.accuracy / distance.original_accuracy
    return None if distance.relative_power is None else max(0.0, 1 - distance.relative_power)


def _columns(layers: tuple[ChangedLayer, ...]) -> Columns:
    """All layers with weights, in the order of execution; what is alike for all is left out."""
    columns: Columns = {
        "#": [Cell(str(index), index) for index in range(len(layers))],
        "Type": [Cell(layer.type) for layer in layers],
        "Weight": [Cell(layer.weight) for layer in layers],
        "ID": [Cell(layer.id) for layer in layers],
        "Data type": [Cell(layer.precision) for layer in layers],
        "Parameters": [Cell(scaled(layer.params), layer.params) for layer in layers],
        "Wanted": [Cell("–" if layer.wanted is None else share(layer.wanted), layer.wanted) for layer in layers],
        "Zeros": [Cell(share(layer.zeros_after), layer.zeros_after) for layer in layers],
    }
    if any(layer.params != layer.params_after for layer in layers):
        columns["Parameters left"] = [Cell(scaled(layer.params_after), layer.params_after) for layer in layers]
    if any(layer.zeros_before for layer in layers):
        columns["Zeros before"] = [Cell(share(layer.zeros_before), layer.zeros_before) for layer in layers]
    return columns


def _sentence(text: str) -> str:
    """A note as a sentence: engines as people call them, else a capital letter first."""
    engine = next((name for name in TITLES if text.startswith((f"{name} ", f"{name}: "))), "")
    return f"{title(engine)}{text.removeprefix(engine)}" if engine else capitalized(text)


def fidelity(distance: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """How much of the outputs is left: accuracy with labels, else how far they are off; what that is; on what."""
    if distance is None:
        return "not compared", "", ""
    on = f"{distance['items']} {'generated' if distance['generated'] else 'given'} inputs"
    if distance["accuracy"] is not None:
        before = distance["original_accuracy"]
        return f"{share(distance['accuracy'])} right", "" if before is None else f"original {share(before)}", on
    if distance["relative_power"] is None:
        return "not numbers", "outputs are not numbers", on
    return f"{distance['relative_power']:.3g}", "relative mean square change", on


# What is shown, as the browser has it.
_SHOWN = "document.querySelector('[data-testid=\"export-text\"]').textContent"


class ExportCard:
    """Made within the page of a version; texts come when they are asked for."""

    def __init__(self, desk: Desk, version: Version, optimization: Optimization) -> None:
        self._desk, self._version, self._model = desk, version, optimization.optimized
        shell.section("Export")
        with shell.card("il-version-export"):
            with div("il-row"):
                self._download()
                self._tabs = ui.toggle({"recipe": "Recipe", "code": "Code"}, value="recipe", on_change=self._show)
                self._tabs.props('no-caps dense unelevated data-testid="export-tabs"')
                self._engine = EngineSelect().props('data-testid="code-engine"').classes("il-version-engine")
                self._engine.on_value_change(self._show)
                with div("il-title-actions"):
                    copy = ui.button("Copy", icon="content_copy").props('flat dense data-testid="copy-text"')
                    copy.on("click", js_handler=shell.copy_handler(_SHOWN))
                    # A link: browsers save programs only when a user clicks on one.
                    with tag("a", download="") as self._link:
                        ui.button("Save", icon="download").props('flat dense data-testid="save-text"')
            self._code = ui.label().classes("il-version-code").props('data-testid="export-text"')
        ui.timer(0.0, self._begin, once=True)

    def _download(self) -> None:
        there = self._version.file == "there"
        text = f"Model ({size(self._model.size_bytes)})"
        with tag("a", href=f"/api/v1/versions/{self._version.id}/model", download="") as link:
            button = ui.button(text, icon="download").props('data-testid="download-model"')
        button.set_enabled(there)
        if not there:
            link.props(remove="href")
        if not is_ours(self._version.path):
            span("il-muted il-small il-break", f"Made on the command line: {self._version.path}")

    async def _begin(self) -> None:
        engines = self._desk.workspace.engines
        choices = await asyncio.to_thread(engines.choices, self._model)
        measured = next((row["engine"] for row in self._version.measured), "onnxruntime")
        self._engine.offer([choice for choice in choices if choice.name != "fake"], measured)
        await self._show()

    async def _show(self) -> None:
        code = self._tabs.value == "code"
        self._engine.set_visibility(code)
        engine = self._engine.value or "onnxruntime"
        address = f"/api/v1/versions/{self._version.id}"
        try:
            shown = await asyncio.to_thread(self._made, code, engine)
        except InferlabError as error:
            shown = str(error)
        if self._code.is_deleted:
            return
        self._code.set_text(shown)
        self._link.props["href"] = f"{address}/code?engine={engine}" if code else f"{address}/recipe"

    def _made(self, code: bool, engine: str) -> str:
        workspace = self._desk.workspace
        if code:
            return code_sample(workspace, self._version.id, engine).text
        return recipe(workspace, self._version.id).text
