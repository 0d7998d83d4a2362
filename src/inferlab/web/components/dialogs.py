"""Dialogs over the page, the foot of those that ask, and texts that are copied."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import Client, html, ui
from nicegui.element import Element
from nicegui.elements.mixins.value_element import ValueElement

from inferlab.errors import InferlabError
from inferlab.web.faults import on_pages, sentence

# The clipboard is only there on this machine and by https, and only while a click is handled; the old way works
# everywhere. The answer says whether it was done.
_COPY = """
(async (text) => {
  try { await navigator.clipboard.writeText(text); return true; } catch {}
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
})(%s)
"""
# At the top: what was removed can be undone at the bottom.
_COPIED = 'Quasar.Notify.create({ message: "Copied", timeout: 1500, position: "top" })'


@contextmanager
def dialog(
    title: str, classes: str = "", client: Client | None = None, name: str = "", persistent: bool = False
) -> Iterator[ui.dialog]:
    """A dialog, open at once; `with` fills it. One that is persistent closes by its buttons only.

    It belongs to the page rather than to the part whose button opens it: that may be drawn again meanwhile.
    """
    content = (client or ui.context.client).content
    with (
        content,
        ui.dialog(value=True).props("persistent" if persistent else "") as opened,
        ui.card().classes(f"il-dialog {classes}").props(f'data-testid="{name}"' if name else ""),
    ):
        html.h2(title).classes("il-dialog-title")
        yield opened
    opened.on("hide", opened.delete)


def close_button(opened: ui.dialog, name: str = "close") -> None:
    """The foot of a dialog that only shows something."""
    with html.div().classes("il-dialog-actions"):
        ui.button("Close", on_click=opened.close).props(f'flat data-testid="{name}"')


async def ask_name(name: str, rename: Callable[[str], Awaitable[None]], client: Client) -> None:
    """Ask for another name; `rename` is given it, and the dialog closes when it succeeds."""
    with dialog("Rename", client=client) as opened:
        field = ui.input("Name", value=name).props('autofocus data-testid="new-name"')
        foot = Foot(opened, "Rename", "rename-to", lambda: rename(field.value or ""))
        field.on("keydown.enter", foot.submit)


class Foot:
    """The foot of a form: what it would do or what is wrong with it, and the button that does it.

    Made within the dialog; `run` does what was filled in, and the dialog closes when it succeeds. Why it did not
    is forgotten when something else is entered.
    """

    def __init__(
        self,
        dialog: ui.dialog,
        text: str,
        name: str,
        run: Callable[[], Awaitable[None]],
        color: str | None = "primary",
    ) -> None:
        self._dialog, self._run = dialog, run
        self._refused = False
        dialog.on("input", self._forget, [])
        self._estimate = ui.label("").classes("il-bench-estimate").props('data-testid="estimate"')
        self._error = ui.label("").classes("il-form-error").props('role=alert data-testid="error"')
        with html.div().classes("il-dialog-actions"):
            ui.button("Cancel", on_click=dialog.close).props('flat data-testid="cancel-dialog"')
            self._go = ui.button(text, on_click=self.submit, color=color).props(f'data-testid="{name}"')

    def needs(self, field: ValueElement[Any], fits: Callable[[Any], bool] = bool) -> None:
        """Let the button be pressed only while the value of a field fits."""
        self._go.bind_enabled_from(field, "value", backward=fits)

    def tell(self, estimate: str, error: str) -> None:
        """Say what the form would do; with an error it cannot be sent."""
        self._estimate.set_text(estimate)
        self._error.set_text(on_pages(error))
        self._go.set_enabled(not error)

    def _forget(self) -> None:
        if self._refused:
            self._refused = False
            self._error.set_text("")

    async def submit(self) -> None:
        """Do it, as the button does."""
        self._error.set_text("")
        self._go.set_enabled(False)
        try:
            await self._run()
        except InferlabError as problem:
            self._refused = True
            self._error.set_text(sentence(problem))
            self._go.set_enabled(True)
        else:
            self._dialog.close()


def copy_handler(expression: str) -> str:
    """A handler in JavaScript that copies what an expression gives."""
    return f"async () => {{ await {_COPY % expression}; {_COPIED} }}"


def command_line(text: str, name: str = "copy-command") -> Element:
    """A command as it is typed in a terminal, to be copied."""
    with html.div().classes("il-command") as whole:
        html.code(text)
        button = ui.button(icon="content_copy").props(f'flat dense round data-testid="{name}" aria-label="Copy"')
        with button:
            ui.tooltip("Copy")
    button.on("click", js_handler=copy_handler(json.dumps(text)))
    element: Element = whole
    return element


async def copy_command(command: str, client: Client) -> None:
    """Copy a command line and say so; where the browser refuses, show it to be copied by hand."""
    copied = await client.run_javascript(_COPY % json.dumps(command), timeout=5.0)
    with client:
        if copied:
            ui.notify(f"Copied: {command}", multi_line=True, close_button="Close", position="top")
            return
    with dialog("Command line", "il-log-dialog", client) as opened:
        command_line(command)
        close_button(opened)
