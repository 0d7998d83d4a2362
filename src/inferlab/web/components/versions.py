"""Versions of a model: the table, the dialog that asks for one, and what can be taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nicegui import html, ui

from inferlab import machine
from inferlab.errors import InferlabError
from inferlab.records import Model
from inferlab.records.optimization import Optimization
from inferlab.units import plural, scaled, share, size
from inferlab.views.history import age
from inferlab.views.intervals import in_brackets
from inferlab.web import shell
from inferlab.web.components import model_facts
from inferlab.web.components.dialogs import Foot, copy_handler, dialog
from inferlab.web.components.fields import EngineSelect, help_icon, number, whole
from inferlab.web.components.jobs import duration
from inferlab.web.components.uploads import HINT, DataField
from inferlab.web.desk import Desk
from inferlab.workspace.engines import EngineChoice, title
from inferlab.workspace.exports import code_sample, recipe
from inferlab.workspace.jobs import parts_of
from inferlab.workspace.requests import has_sequence, own_batch_size
from inferlab.workspace.sources import Sources
from inferlab.workspace.version_requests import PATTERNS, SCHEMES, VersionRequest, version_request
from inferlab.workspace.versions import Version, is_ours


def done_to(version: Version) -> str:
    """What was done to the original."""
    words = []
    if version.pattern:
        words.append(f"pruned ({PATTERNS.get(version.pattern, version.pattern).lower()})")
    if version.scheme:
        words.append(SCHEMES.get(version.scheme, version.scheme))  # type: ignore[call-overload]
    return ", ".join(words) or "cleaned up"


def speedup(measured: Mapping[str, Any]) -> str:
    """How many times as fast, with the interval."""
    ends = measured["speedup_interval"]
    span = in_brackets(ends) or ", no interval"
    return f"{measured['speedup']:.2f} ×{span}"


def where(measured: Mapping[str, Any]) -> str:
    """On what it was measured."""
    return f"{title(measured['engine'])}, cores {measured['num_cores']}, batch {measured['batch_size']}"


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


_HEADS = ("Version", "Precision", "Zeros", "Parameters", "Size", "Measured speed-up", "Outputs", "Age")


class VersionTable:
    """Made within the page; `show` draws it again where something changed."""

    def __init__(self, model: Model, base: str) -> None:
        self._model, self._base = model, base
        self._shown: tuple[Version, ...] | None = None
        with shell.card("il-card-flush il-scroll"):
            self._box = shell.table(_HEADS, ("Zeros", "Parameters", "Size"), "il-versions", "versions")

    def show(self, versions: Sequence[Version]) -> None:
        """Show these versions below the original."""
        if self._shown == tuple(versions):
            return
        self._shown = tuple(versions)
        self._box.clear()
        with self._box:
            self._original()
            for version in versions:
                self._row(version)

    def _original(self) -> None:
        model = self._model
        with html.tr():
            with html.td():
                html.div("original").classes("il-strong")
                html.div(model_facts.source(model)).classes("il-muted il-small il-break")
            html.td(model_facts.precision(model))
            html.td(model_facts.zeros(model)).classes("il-right il-nowrap")
            html.td(model_facts.parameters(model)).classes("il-right il-nowrap")
            html.td(size(model.size_bytes)).classes("il-right il-nowrap")
            for _ in range(3):
                html.td()

    def _row(self, one: Version) -> None:
        with html.tr().props(f'data-testid="version-{one.id}"'):
            with html.td():
                html.a(one.name, href=f"{self._base}/{one.id}").classes("il-version-link")
                html.div(done_to(one)).classes("il-muted il-small")
                if one.file != "there":
                    shell.chip("file gone" if one.file == "gone" else "file changed", "wrong")
                elif one.problems or one.interrupted:
                    shell.chip("not all was measured", "warn")
            html.td(one.precision)
            html.td("unknown" if one.zero_fraction is None else share(one.zero_fraction)).classes(
                "il-right il-nowrap"
            )
            html.td("unknown" if one.parameters is None else scaled(one.parameters)).classes("il-right il-nowrap")
            html.td(size(one.size_bytes)).classes("il-right il-nowrap")
            with html.td():
                self._gained(one)
            value, detail, on = fidelity(one.distance)
            with html.td().props(f'title="{on}"'):
                html.div(value)
                html.div(detail).classes("il-muted il-small")
            html.td(age(one.entry.created_at, datetime.now(UTC))).classes("il-nowrap")

    @staticmethod
    def _gained(one: Version) -> None:
        if not one.measured:
            html.span("not measured").classes("il-muted")
        for measured in one.measured:
            with html.div().classes("il-version-gain"):
                html.span(speedup(measured))
                shell.verdict(measured["verdict"])
                html.span(where(measured)).classes("il-muted il-small")


_GENERATED = "Without data, ranges are found on generated inputs, which are not like yours."


class VersionDialog:
    """Opens at once; `run` is given what was filled in, and the dialog closes when it succeeds."""

    def __init__(
        self,
        model: Model,
        choices: Sequence[EngineChoice],
        draft: VersionRequest,
        run: Callable[[VersionRequest], Awaitable[None]],
        sources: Sources,
    ) -> None:
        self._model, self._draft, self._sources = model, draft, sources
        with dialog("Create version", "il-bench-dialog", name="version-dialog", persistent=True) as opened:
            html.p(_described(draft)).classes("il-muted").props('data-testid="version-what"')
            self._name = ui.input("Name", value=draft.name, on_change=self._tell).props(
                'data-testid="version-name"'
            )
            self._engines = self._engine_boxes(choices)
            self._fields(draft)
            self._foot = Foot(opened, "Create", "create", lambda: run(self.form()))
        self._tell()

    def _engine_boxes(self, choices: Sequence[EngineChoice]) -> dict[str, ui.checkbox]:
        first = next((choice.name for choice in choices if not choice.reason), None)
        found = {}
        with html.div().classes("il-numbers"):
            html.div("Measure against the original on").classes("il-numbers-label")
            with html.div().classes("il-checks"):
                for choice in choices:
                    box = ui.checkbox(choice.title, value=choice.name == first, on_change=self._tell)
                    box.props(f'dense data-testid="on-{choice.name}"').set_enabled(not choice.reason)
                    if choice.reason:
                        help_icon(choice.reason)
                    found[choice.name] = box
        return found

    def _fields(self, draft: VersionRequest) -> None:
        cores = machine.usable_cores()
        with html.div().classes("il-fields-3"):
            self._time = number("Time (s)", "time", self._tell, draft.plan.time_s).props('hint="For each engine"')
            self._cores = number("CPU cores", "num-cores", self._tell, cores)
            self._batch = number("Batch size", "batch-size", self._tell, own_batch_size(self._model))
        self._sequence = None
        if has_sequence(self._model):
            with html.div().classes("il-fields-3"):
                self._sequence = number("Sequence length", "sequence-length", self._tell)
                self._sequence.props('placeholder="128"')
        known = "demo:digits" if self._model.source == "demo:digits" else ""
        hint = f"{HINT} {_GENERATED}" if draft.quantization == "static" else HINT
        self._data = DataField(self._sources, known, hint, self._tell)

    def form(self) -> VersionRequest:
        """What was filled in."""
        return replace(
            self._draft,
            name=self._name.value or "",
            engines=tuple(name for name, box in self._engines.items() if box.value and box.enabled),
            plan=replace(
                self._draft.plan,
                time_s=float(self._time.value or 0.0),
                num_cores=(whole(self._cores.value, "number of cores"),),
                batch_sizes=(whole(self._batch.value, "batch size"),),
                sequence_lengths=(whole(self._sequence.value, "sequence length") if self._sequence else None,),
            ),
            data=self._data.source,
        )

    def _tell(self) -> None:
        """Say how long it takes, or what is wrong."""
        try:
            form = self.form()
            asked = version_request(form, self._model, form.levels)
            takes = duration(sum(one.expected_s for one in parts_of(asked)))
            engines = plural(len(form.engines), "engine") if form.engines else "no engine"
            told, error = f"Made, then measured on {engines}: about {takes}.", ""
        except InferlabError as problem:
            told, error = "", str(problem)
        self._foot.tell(told, error)


async def ask_version(
    model: Model,
    choices: Callable[[], Sequence[EngineChoice]],
    draft: VersionRequest,
    run: Callable[[VersionRequest], Awaitable[None]],
    sources: Sources,
) -> None:
    """Ask for a version; asking the engines may take some seconds the first time."""
    found = await asyncio.to_thread(choices)
    VersionDialog(model, found, draft, run, sources)


def _described(draft: VersionRequest) -> str:
    """What will be made."""
    levels = sorted(draft.levels.values())
    words = []
    if levels:
        span = (
            f"{100 * levels[0]:g} %"
            if levels[0] == levels[-1]
            else f"{100 * levels[0]:g} to {100 * levels[-1]:g} %"
        )
        words.append(f"{plural(len(levels), 'layer')} pruned to {span} zeros ({draft.pattern})")
    if draft.quantization:
        words.append(SCHEMES[draft.quantization])
    return ", then ".join(words) or "Nothing would change."


# What is shown, as the browser has it.
_SHOWN = "document.querySelector('[data-testid=\"export-text\"]').textContent"


class ExportCard:
    """Made within the page of a version; texts come when they are asked for."""

    def __init__(self, desk: Desk, version: Version, found: Optimization) -> None:
        self._desk, self._version, self._model = desk, version, found.optimized
        shell.section("Export")
        with shell.card("il-version-export"):
            with html.div().classes("il-row"):
                self._download()
                self._tabs = ui.toggle({"recipe": "Recipe", "code": "Code"}, value="recipe", on_change=self._show)
                self._tabs.props('no-caps dense unelevated data-testid="export-tabs"')
                self._engine = EngineSelect().props('data-testid="code-engine"').classes("il-version-engine")
                self._engine.on_value_change(self._show)
                with html.div().classes("il-title-actions"):
                    copy = ui.button("Copy", icon="content_copy").props('flat dense data-testid="copy-text"')
                    copy.on("click", js_handler=copy_handler(_SHOWN))
                    # A link: browsers save programs only when a user clicks on one.
                    with html.a(download="") as self._link:
                        ui.button("Save", icon="download").props('flat dense data-testid="save-text"')
            self._code = ui.label().classes("il-version-code").props('data-testid="export-text"')
        ui.timer(0.0, self._begin, once=True)

    def _download(self) -> None:
        there = self._version.file == "there"
        text = f"Model ({size(self._model.size_bytes)})"
        with html.a(href=f"/api/v1/versions/{self._version.id}/model", download="") as link:
            button = ui.button(text, icon="download").props('data-testid="download-model"')
        button.set_enabled(there)
        if not there:
            link.props(remove="href")
        if not is_ours(self._version.path):
            html.span(f"Made on the command line: {self._version.path}").classes("il-muted il-small il-break")

    async def _begin(self) -> None:
        engines = self._desk.workspace.engines
        choices = await asyncio.to_thread(engines.choices, self._model)
        measured = next((one["engine"] for one in self._version.measured), "onnxruntime")
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
