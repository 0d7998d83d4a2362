"""Where files are dropped or chosen; the browser sends them to the HTTP API as it reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import html, ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

from inferlab.units import size
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.workspace.sources import MODEL_ENDINGS, Sources

_CHANNEL = "ilUpload"
_WORDS = "An .onnx file with its external data, an .xml with its .bin, a .pt2 or a TorchScript file; up to {}."


def limits(sources: Sources, endings: Sequence[str] = ()) -> str:
    """What the script must know of uploads, as JSON; a file with one of the endings begins a new one."""
    most = sources.most_bytes
    too_large = (
        f"These files are too large: an upload may have {size(most)}. Name a path on this machine instead, or "
        "start with: inferlab serve --max-upload 16G"
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
        told: dict[str, Any] = event.args
        state = told["state"]
        if state == "sending":
            self._show(told)
        elif state == "begun":
            self.give_up()
            self._upload_id = str(told["id"])
        elif state == "failed":
            self._sending.set_visibility(False)
            self.give_up()
            self._problem.clear()
            if told["problem"]:
                with self._problem:
                    shell.banner("warn", told["problem"]).props('data-testid="upload-problem"')
        else:
            self._sending.set_visibility(False)
            await self._ready(f"upload:{self._upload_id}")

    def _show(self, told: dict[str, Any]) -> None:
        done, total = float(told["done"]), float(told["total"])
        if not done:
            self._begun()
            self._problem.clear()
        self._sending.set_visibility(True)
        self._bar.set(done / total if total else None)
        self._words.set_text(f"Uploading {', '.join(map(str, told['names']))}: {size(done)} of {size(total)}")
