"""Where files are chosen: dropped or uploaded models, data files, and paths on this machine."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.errors import InferlabError
from inferlab.units import size
from inferlab.web import shell
from inferlab.web.desk import Desk, done
from inferlab.web.shell import div, refilled, span, tag
from inferlab.workspace.sources import DATA_ENDING, MODEL_ENDINGS, DataFile, Listing, Sources

_WORDS = "An .onnx file with its external data, an .xml with its .bin, a .pt2 or a TorchScript file; up to {}."
_numbers = itertools.count()


class FileUpload:
    """Files that the browser sends as one upload: a bar while they are on their way, and why they did not arrive.

    `begun` is told first, `arrived` gets the source to name the upload by, and the names of its files. A file with
    one of the endings begins a new upload, others follow the one before. What nobody keeps, `give_up` removes.
    """

    def __init__(
        self,
        sources: Sources,
        name: str,
        arrived: Callable[[str, Sequence[str]], Any],
        begun: Callable[[], object] = lambda: None,
        endings: Sequence[str] = (),
    ) -> None:
        self._sources, self._name, self._arrived, self._begun = sources, name, arrived, begun
        self._channel = f"ilUpload{next(_numbers)}"
        self._id: str | None = None
        most = size(sources.most_bytes)
        too_large = (
            f"These files are too large: an upload may have {most}. Name a path on this machine instead, or start "
            "the server with a larger limit."
        )
        limits = {"mostBytes": sources.most_bytes, "tooLarge": too_large, "endings": list(endings)}
        self._limits = json.dumps(limits)
        self._sending = shell.Working(f"{name}-sending", self.stop)
        self._problem = div()
        self._sending.box.set_visibility(False)
        ui.on(self._channel, self._heard)

    def chooser(self, props: str) -> Element:
        """An invisible field that opens the browser's dialog for files."""
        chooser = ui.element("input").props(f"type=file hidden {props}")
        return chooser.on("change", js_handler=self.handler("e.target.files", "e.target.value = '';"))

    def handler(self, files: str, after: str) -> str:
        """A handler in JavaScript that sends what the expression `files` has, and then does `after`."""
        return f"(e) => {{ inferlabUpload.send('{self._channel}', {files}, {self._limits}); {after} }}"

    def stop(self) -> None:
        """End an upload that is on its way, and forget what came of it."""
        ui.run_javascript(f"inferlabUpload.stop('{self._channel}')")
        self._sending.box.set_visibility(False)
        self.give_up()

    def keep(self) -> None:
        """What was uploaded last is needed from now on."""
        self._id = None

    def give_up(self) -> None:
        """Remove what was uploaded last, if anything was."""
        upload_id, self._id = self._id, None
        if upload_id is not None:
            self._sources.give_up(upload_id)

    def refuse(self, problem: str = "") -> None:
        """Say what is wrong with what was sent, in place of what was said before."""
        with refilled(self._problem):
            if problem:
                shell.banner("warn", problem, f"{self._name}-problem")

    async def _heard(self, event: GenericEventArguments) -> None:
        upload: dict[str, Any] = event.args
        state = upload["state"]
        self._sending.box.set_visibility(state in ("sending", "begun"))
        if state == "sending":
            self._show(upload)
        elif state == "begun":
            self.give_up()
            self._id = str(upload["id"])
        elif state == "failed":
            self.give_up()
            self.refuse(upload["problem"])
        else:
            await done(self._arrived(f"upload:{self._id}", upload["names"]))

    def _show(self, upload: dict[str, Any]) -> None:
        done, total = float(upload["done"]), float(upload["total"])
        if not done:
            self._begun()
            self.refuse()
        words = f"Uploading {', '.join(map(str, upload['names']))}: {size(done)} of {size(total)}"
        self._sending.show(words, done / total if total else None)


def drop_zone(desk: Desk, begun: Callable[[], object], ready: Callable[[str], Any]) -> FileUpload:
    """Takes the files of one model; `begun` is told first, `ready` gets the source to name the upload by."""
    sources = desk.workspace.sources
    with div("il-drop", name="drop-zone").props("tabindex=0 role=button") as zone:
        ui.icon("upload_file")
        div("il-strong", "Drop the files of a model here, or click to browse")
        div("il-muted il-small", _WORDS.format(size(sources.most_bytes)))
    upload = FileUpload(sources, "upload", lambda source, names: ready(source), begun, MODEL_ENDINGS)
    with zone:
        # A click on the chooser itself must not open it once more.
        upload.chooser('multiple data-testid="files"').on("click.stop", js_handler="() => {}")
    for event, handler in {
        "click": "(e) => e.currentTarget.querySelector('input').click()",
        "keydown.enter": "(e) => e.currentTarget.querySelector('input').click()",
        "dragover.prevent": "(e) => e.currentTarget.classList.add('il-drop-over')",
        "dragleave": "(e) => e.currentTarget.classList.remove('il-drop-over')",
        "drop.prevent": upload.handler(
            "e.dataTransfer.files", "e.currentTarget.classList.remove('il-drop-over');"
        ),
    }.items():
        zone.on(event, js_handler=handler)
    return upload


HINT = "An .npz file with your inputs by name, and labels if there are any."


class DataField:
    """Made within a form; uploads are shown by their names, and `source` is what the form asks for."""

    def __init__(
        self, sources: Sources, value: str, hint: str, changed: Callable[[], object] = lambda: None
    ) -> None:
        self._sources, self._changed = sources, changed
        self._uploads: dict[str, DataFile] = {}
        self._list()
        with div("il-data"):
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
            self._sent = FileUpload(sources, "data", self._received)
            chooser = self._sent.chooser(f'accept="{DATA_ENDING}" data-testid="data-file"')
        self.upload.on("click", js_handler=f"() => getHtmlElement({chooser.id}).click()")
        self._fill_menu()

    @property
    def source(self) -> str | None:
        """What was chosen: `upload:ID`, a path, `demo:digits`, or nothing."""
        text = (self.field.value or "").strip()
        return self._uploads[text].source if text in self._uploads else text or None

    def _typed(self) -> object:
        self._sent.refuse()
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
        with refilled(self._menu):
            for name, upload in self._uploads.items():
                item = ui.menu_item(f"{name}, {size(upload.size_bytes)}", partial(self.field.set_value, name))
                item.props["data-testid"] = f"data-{name}"

    def _received(self, source: str, names: Sequence[str]) -> object:
        if not names[0].lower().endswith(DATA_ENDING):
            self._sent.stop()
            self._sent.refuse(f"{names[0]} is not an {DATA_ENDING} file. Save your inputs with numpy.savez.")
            return None
        # Its files are one upload each: the next one begins again.
        self._sent.keep()
        self._sent.stop()
        self._list()
        self._fill_menu()
        self.field.set_value(self._name_of(source))
        return self._changed()


class PathBrowser:
    """Shows a folder where it is made; `chosen` gets the path of a file, or of a folder that is a model."""

    def __init__(self, desk: Desk, chosen: Callable[[str], object]) -> None:
        self._sources, self._chosen = desk.workspace.sources, chosen
        self._box = div("il-browser", name="browser")
        folders = self._sources.folders
        with self._box:
            if not folders:
                div("il-muted", "No folder may be opened: the server was started without one.")
        if len(folders) == 1:
            ui.timer(0.0, lambda: self.open(str(folders[0])), once=True)
        elif folders:
            self._roots()

    async def open(self, path: str) -> None:
        """Show what is in a folder."""
        try:
            listing = await asyncio.to_thread(self._sources.listing, path)
        except InferlabError as error:
            with refilled(self._box):
                shell.banner("warn", str(error))
                if len(self._sources.folders) > 1:
                    self._row("arrow_upward", "All folders", "", self._roots)
            return
        self._show(listing)

    def _roots(self) -> None:
        with refilled(self._box):
            for folder in self._sources.folders:
                self._row("folder", str(folder), "", partial(self.open, str(folder)))

    def _show(self, listing: Listing) -> None:
        here = Path(listing.path)
        with refilled(self._box):
            div("il-browser-here il-mono il-cut", listing.path).props["title"] = listing.path
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
                div("il-muted il-browser-none", "There is no model here.")
            if listing.is_cut:
                div("il-muted", "There is more here than is listed. Type the path instead.")

    def _row(self, icon: str, name: str, detail: str, act: Callable[[], object]) -> None:
        with tag("button", "il-browser-row", type="button") as row:
            ui.icon(icon)
            span("il-cut", name)
            span("il-muted il-small il-browser-detail", detail)
        row.props["data-testid"] = f"pick-{name}"
        row.on("click", act, [])
