"""Where files are chosen: dropped or uploaded models, data files, and paths on this machine."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nicegui import html, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.errors import InferlabError
from inferlab.units import size
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.workspace.sources import DATA_ENDING, MODEL_ENDINGS, DataFile, Listing, Sources

_CHANNEL = "ilUpload"
_WORDS = "An .onnx file with its external data, an .xml with its .bin, a .pt2 or a TorchScript file; up to {}."


def limits(sources: Sources, endings: Sequence[str] = ()) -> str:
    """What the script must know of uploads, as JSON; a file with one of the endings begins a new one."""
    most = sources.most_bytes
    too_large = (
        f"These files are too large: an upload may have {size(most)}. Name a path on this machine instead, or "
        "start the server with a larger limit."
    )
    return json.dumps({"mostBytes": most, "tooLarge": too_large, "endings": list(endings)})


def send_files(channel: str, limits: str, files: str, after: str) -> str:
    """A handler in JavaScript that sends what the expression `files` has, and then does `after`."""
    return f"(e) => {{ inferlabUpload.send('{channel}', {files}, {limits}); {after} }}"


class UploadZone:
    """Takes the files of one model; `begun` is told first, `ready` gets the source to name the upload by.

    What was uploaded and never became a project is removed by `give_up`.
    """

    def __init__(self, desk: Desk, begun: Callable[[], object], ready: Callable[[str], Any]) -> None:
        self._sources, self._begun, self._ready = desk.workspace.sources, begun, ready
        self._upload_id: str | None = None
        most = self._sources.most_bytes
        send = partial(send_files, _CHANNEL, limits(self._sources, MODEL_ENDINGS))
        with html.div().classes("il-drop").props('tabindex=0 role=button data-testid="drop-zone"') as zone:
            ui.icon("upload_file")
            html.div("Drop the files of a model here, or click to browse").classes("il-strong")
            html.div(_WORDS.format(size(most))).classes("il-muted il-small")
            chooser = ui.element("input").props('type=file multiple hidden data-testid="files"')
        chooser.on("change", js_handler=send("e.target.files", "e.target.value = '';"))
        choose = "(e) => e.currentTarget.querySelector('input').click()"
        zone.on("click", js_handler=choose)
        zone.on("keydown.enter", js_handler=choose)
        # A click on the chooser itself must not open it once more.
        chooser.on("click.stop", js_handler="() => {}")
        zone.on("dragover.prevent", js_handler="(e) => e.currentTarget.classList.add('il-drop-over')")
        zone.on("dragleave", js_handler="(e) => e.currentTarget.classList.remove('il-drop-over')")
        zone.on(
            "drop.prevent",
            js_handler=send("e.dataTransfer.files", "e.currentTarget.classList.remove('il-drop-over');"),
        )
        self._sending: Element = html.div().classes("il-working").props('data-testid="sending"')
        with self._sending:
            self._words = ui.label().classes("il-grow il-cut")
            ui.button("Cancel", on_click=self.stop).props('flat dense data-testid="cancel-upload"')
            self._bar = shell.Progress(0.0)
        self._problem: Element = html.div()
        self._sending.set_visibility(False)
        ui.on(_CHANNEL, self._heard)

    def stop(self) -> None:
        """End an upload that is on its way, and forget what came of it."""
        ui.run_javascript(f"inferlabUpload.stop('{_CHANNEL}')")
        self._sending.set_visibility(False)
        self.give_up()

    def keep(self) -> None:
        """What was uploaded last belongs to a project now."""
        self._upload_id = None

    def give_up(self) -> None:
        """Remove what was uploaded last, if anything was."""
        upload_id, self._upload_id = self._upload_id, None
        if upload_id is not None:
            self._sources.give_up(upload_id)

    async def _heard(self, event: GenericEventArguments) -> None:
        state_of_upload: dict[str, Any] = event.args
        state = state_of_upload["state"]
        if state == "sending":
            self._show(state_of_upload)
        elif state == "begun":
            self.give_up()
            self._upload_id = str(state_of_upload["id"])
        elif state == "failed":
            self._sending.set_visibility(False)
            self.give_up()
            self._problem.clear()
            if state_of_upload["problem"]:
                with self._problem:
                    shell.banner("warn", state_of_upload["problem"]).props('data-testid="upload-problem"')
        else:
            self._sending.set_visibility(False)
            await self._ready(f"upload:{self._upload_id}")

    def _show(self, upload: dict[str, Any]) -> None:
        done, total = float(upload["done"]), float(upload["total"])
        if not done:
            self._begun()
            self._problem.clear()
        self._sending.set_visibility(True)
        self._bar.set(done / total if total else None)
        self._words.set_text(f"Uploading {', '.join(map(str, upload['names']))}: {size(done)} of {size(total)}")


HINT = "An .npz file with your inputs by name, and labels if there are any."
_numbers = itertools.count()


class DataField:
    """Made within a form; uploads are shown by their names, and `source` is what the form asks for."""

    def __init__(
        self, sources: Sources, value: str, hint: str, changed: Callable[[], object] = lambda: None
    ) -> None:
        self._sources, self._changed = sources, changed
        self._channel = f"ilData{next(_numbers)}"
        self._uploads: dict[str, DataFile] = {}
        self._list()
        with html.div().classes("il-data"):
            self.field = ui.input("Data file (optional)", value=self._name_of(value), on_change=self._typed)
            self.field.props(f'hint="{hint}" data-testid="data"').classes("il-with-hint")
            with self.field.add_slot("append"):
                self._earlier = ui.button(icon="history").props(
                    'flat dense round aria-label="Files that were uploaded before" data-testid="data-known"'
                )
                with self._earlier:
                    self._menu = ui.menu().props("auto-close")
                self.upload = ui.button(icon="upload_file").props(
                    'flat dense round aria-label="Upload a data file" data-testid="data-upload"'
                )
                self.upload.tooltip("Upload an .npz file")
            chooser = ui.element("input").props(f'type=file accept="{DATA_ENDING}" hidden data-testid="data-file"')
            with html.div() as self._sending:
                self._bar = shell.Progress(0.0)
            self._problem = ui.label().classes("il-form-error").props('role=alert data-testid="data-problem"')
        self._sending.set_visibility(False)
        send = partial(send_files, self._channel, limits(sources))
        chooser.on("change", js_handler=send("e.target.files", "e.target.value = '';"))
        self.upload.on("click", js_handler=f"() => getHtmlElement({chooser.id}).click()")
        ui.on(self._channel, self._heard)
        self._fill_menu()

    @property
    def source(self) -> str | None:
        """What was chosen: `upload:ID`, a path, `demo:digits`, or nothing."""
        text = (self.field.value or "").strip()
        return self._uploads[text].source if text in self._uploads else text or None

    def _typed(self) -> object:
        self._problem.set_text("")
        return self._changed()

    def _list(self) -> None:
        """Find what was uploaded before; of several files of one name, the older ones get a number."""
        self._uploads = {}
        for data_file in self._sources.data_files():
            names = itertools.chain(
                [data_file.name], (f"{data_file.name} ({number})" for number in itertools.count(2))
            )
            self._uploads[next(name for name in names if name not in self._uploads)] = data_file

    def _name_of(self, value: str) -> str:
        return next(
            (name for name, upload in self._uploads.items() if value in (upload.source, upload.path)), value
        )

    def _fill_menu(self) -> None:
        self._earlier.set_visibility(bool(self._uploads))
        self._menu.clear()
        with self._menu:
            for name, upload in self._uploads.items():
                item = ui.menu_item(f"{name}, {size(upload.size_bytes)}", partial(self.field.set_value, name))
                item.props["data-testid"] = f"data-{name}"

    def _heard(self, event: GenericEventArguments) -> object:
        upload: dict[str, Any] = event.args
        self._sending.set_visibility(upload["state"] in ("sending", "begun"))
        if upload["state"] == "sending":
            self._problem.set_text("")
            self._bar.set(float(upload["done"]) / float(upload["total"]) if upload["total"] else None)
        elif upload["state"] == "failed":
            if upload["id"]:
                self._sources.give_up(str(upload["id"]))
            self._problem.set_text(str(upload["problem"]))
        elif upload["state"] == "sent":
            # Its files are one upload each: the next one begins again.
            ui.run_javascript(f"inferlabUpload.stop('{self._channel}')")
            return self._received(str(upload["id"]), str(upload["names"][0]))
        return None

    def _received(self, upload_id: str, name: str) -> object:
        source = f"upload:{upload_id}"
        if not name.lower().endswith(DATA_ENDING):
            self._sources.give_up(upload_id)
            self._problem.set_text(f"{name} is not an {DATA_ENDING} file. Save your inputs with numpy.savez.")
            return None
        self._list()
        self._fill_menu()
        self.field.set_value(self._name_of(source))
        return self._changed()


class PathBrowser:
    """Shows a folder where it is made; `chosen` gets the path of a file, or of a folder that is a model."""

    def __init__(self, desk: Desk, chosen: Callable[[str], object]) -> None:
        self._sources, self._chosen = desk.workspace.sources, chosen
        self._box: Element = html.div().classes("il-browser").props('data-testid="browser"')
        folders = self._sources.folders
        with self._box:
            if not folders:
                html.div("No folder may be opened: the server was started without one.").classes("il-muted")
        if len(folders) == 1:
            ui.timer(0.0, lambda: self.open(str(folders[0])), once=True)
        elif folders:
            self._roots()

    async def open(self, path: str) -> None:
        """Show what is in a folder."""
        try:
            listing = await asyncio.to_thread(self._sources.listing, path)
        except InferlabError as error:
            self._box.clear()
            with self._box:
                shell.banner("warn", str(error))
                if len(self._sources.folders) > 1:
                    self._row("arrow_upward", "All folders", "", self._roots)
            return
        self._show(listing)

    def _roots(self) -> None:
        self._box.clear()
        with self._box:
            for folder in self._sources.folders:
                self._row("folder", str(folder), "", partial(self.open, str(folder)))

    def _show(self, listing: Listing) -> None:
        here = Path(listing.path)
        self._box.clear()
        with self._box:
            html.div(listing.path).classes("il-browser-here il-mono il-cut").props["title"] = listing.path
            parent = listing.parent
            if parent is not None:
                self._row("arrow_upward", "..", "", partial(self.open, parent))
            elif len(self._sources.folders) > 1:
                self._row("arrow_upward", "All folders", "", self._roots)
            if listing.is_model:
                self._row(
                    "view_in_ar", "This folder", "a model of Hugging Face's", partial(self._chosen, listing.path)
                )
            for name in listing.folders:
                self._row("folder", name, "", partial(self.open, str(here / name)))
            for file in listing.files:
                chosen = partial(self._chosen, str(here / file.name))
                self._row("view_in_ar", file.name, size(file.size_bytes), chosen)
            if not (listing.folders or listing.files or listing.is_model):
                html.div("There is no model here.").classes("il-muted il-browser-none")
            if listing.is_cut:
                html.div("There is more here than is listed. Type the path instead.").classes("il-muted")

    def _row(self, icon: str, name: str, detail: str, act: Callable[[], object]) -> None:
        with html.button(type="button").classes("il-browser-row") as row:
            ui.icon(icon)
            html.span(name).classes("il-cut")
            html.span(detail).classes("il-muted il-small il-browser-detail")
        row.props["data-testid"] = f"pick-{name}"
        row.on("click", act, [])
