"""A field for data: a file that is uploaded here, one that was uploaded before, or a path."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import html, ui
from nicegui.events import GenericEventArguments

from inferlab.units import size
from inferlab.web import shell
from inferlab.web.components.upload_zone import limits, send_files
from inferlab.workspace.sources import DATA_ENDING, DataFile, Sources

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
            self.field = ui.input("Data File (optional)", value=self._name_of(value), on_change=self._typed)
            self.field.props(f'hint="{hint}" data-testid="data"').classes("il-with-hint")
            with self.field.add_slot("append"):
                self._known = ui.button(icon="history").props(
                    'flat dense round aria-label="Files that were uploaded before" data-testid="data-known"'
                )
                with self._known:
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
        for one in self._sources.data_files():
            names = itertools.chain([one.name], (f"{one.name} ({number})" for number in itertools.count(2)))
            self._uploads[next(name for name in names if name not in self._uploads)] = one

    def _name_of(self, value: str) -> str:
        return next((name for name, one in self._uploads.items() if value in (one.source, one.path)), value)

    def _fill_menu(self) -> None:
        self._known.set_visibility(bool(self._uploads))
        self._menu.clear()
        with self._menu:
            for name, one in self._uploads.items():
                item = ui.menu_item(f"{name}, {size(one.size_bytes)}", partial(self.field.set_value, name))
                item.props["data-testid"] = f"data-{name}"

    def _heard(self, event: GenericEventArguments) -> object:
        told: dict[str, Any] = event.args
        self._sending.set_visibility(told["state"] in ("sending", "begun"))
        if told["state"] == "sending":
            self._problem.set_text("")
            self._bar.set(float(told["done"]) / float(told["total"]) if told["total"] else None)
        elif told["state"] == "failed":
            if told["id"]:
                self._sources.give_up(str(told["id"]))
            self._problem.set_text(str(told["problem"]))
        elif told["state"] == "sent":
            # Its files are one upload each: the next one begins anew.
            ui.run_javascript(f"inferlabUpload.stop('{self._channel}')")
            return self._received(str(told["id"]), str(told["names"][0]))
        return None

    def _received(self, upload_id: str, name: str) -> object:
        source = f"upload:{upload_id}"
        if not name.lower().endswith(DATA_ENDING):
            self._sources.give_up(upload_id)
            self._problem.set_text(f"{name} is no {DATA_ENDING} file. Save your inputs with numpy.savez.")
            return None
        self._list()
        self._fill_menu()
        self.field.set_value(self._name_of(source))
        return self._changed()
