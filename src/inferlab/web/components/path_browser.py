"""A small browser of the folders that the user allowed, to choose a file by its path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.units import size
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.workspace.sources import Listing


class PathBrowser:
    """Shows a folder where it is made; `chosen` gets the path of a file, or of a folder that is a model."""

    def __init__(self, desk: Desk, chosen: Callable[[str], object]) -> None:
        self._sources, self._chosen = desk.workspace.sources, chosen
        self._box: Element = html.div().classes("il-browser").props('data-testid="browser"')
        folders = self._sources.folders
        with self._box:
            if not folders:
                html.div("No folder may be opened. Start with: inferlab serve --folder DIR").classes("il-muted")
        if len(folders) == 1:
            ui.timer(0.0, lambda: self.open(str(folders[0])), once=True)
        elif folders:
            self._roots()

    async def open(self, path: str) -> None:
        """Show what is in a folder."""
        try:
            found = await asyncio.to_thread(self._sources.listing, path)
        except InferlabError as error:
            self._box.clear()
            with self._box:
                shell.banner("warn", str(error))
                if len(self._sources.folders) > 1:
                    self._row("arrow_upward", "All folders", "", self._roots)
            return
        self._show(found)

    def _roots(self) -> None:
        self._box.clear()
        with self._box:
            for folder in self._sources.folders:
                self._row("folder", str(folder), "", partial(self.open, str(folder)))

    def _show(self, found: Listing) -> None:
        here = Path(found.path)
        self._box.clear()
        with self._box:
            html.div(found.path).classes("il-browser-here il-mono il-cut").props["title"] = found.path
            parent = found.parent
            if parent is not None:
                self._row("arrow_upward", "..", "", partial(self.open, parent))
            elif len(self._sources.folders) > 1:
                self._row("arrow_upward", "All folders", "", self._roots)
            if found.is_model:
                self._row(
                    "view_in_ar", "This folder", "a model of Hugging Face's", partial(self._chosen, found.path)
                )
            for name in found.folders:
                self._row("folder", name, "", partial(self.open, str(here / name)))
            for name, size_bytes in found.files:
                self._row("view_in_ar", name, size(size_bytes), partial(self._chosen, str(here / name)))
            if not (found.folders or found.files or found.is_model):
                html.div("There is no model here.").classes("il-muted il-browser-none")
            if found.is_cut:
                html.div("There is more here than is listed. Type the path instead.").classes("il-muted")

    def _row(self, icon: str, name: str, detail: str, act: Callable[[], object]) -> None:
        with html.button(type="button").classes("il-browser-row") as row:
            ui.icon(icon)
            html.span(name).classes("il-cut")
            html.span(detail).classes("il-muted il-small il-browser-detail")
        row.props["data-testid"] = f"pick-{name}"
        row.on("click", act, [])
