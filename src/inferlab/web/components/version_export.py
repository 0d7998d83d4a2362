"""What can be taken away of a version: its model, its recipe, and code for each engine, to save or to copy."""

from __future__ import annotations

import asyncio

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.records.optimization import Optimization
from inferlab.units import size
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.web.components.copying import COPY
from inferlab.web.components.engine_select import EngineSelect
from inferlab.workspace.deliver import code_sample, recipe
from inferlab.workspace.versions import Version, is_ours

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
                    copy.on("click", js_handler=COPY % _SHOWN)
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
        self._engine.offer([one for one in choices if one.name != "fake"], measured)
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
