"""Dialogs over the page, which go away for good when they are closed, and the foot of those that ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.web.components.advice import on_pages


@contextmanager
def dialog(title: str, classes: str = "") -> Iterator[ui.dialog]:
    """A dialog, open at once; `with` fills it.

    It belongs to the page rather than to the part whose button opens it: that may be painted anew meanwhile.
    """
    with ui.context.client.content, ui.dialog(value=True) as opened, ui.card().classes(f"il-dialog {classes}"):
        html.h2(title).classes("il-dialog-title")
        yield opened
    opened.on("hide", opened.delete)


async def ask_name(name: str, rename: Callable[[str], Awaitable[None]]) -> None:
    """Ask for another name; `rename` is given it, and the dialog closes when it succeeds."""
    with dialog("Rename") as opened:
        field = ui.input("Name", value=name).props('autofocus data-testid="new-name"')
        foot = Foot(opened, "Rename", "rename-to", lambda: rename(field.value or ""))
        field.on("keydown.enter", foot.submit)


class Foot:
    """The foot of a form: what it would do or what is wrong with it, and the button that does it.

    Made within the dialog; `run` does what was filled in, and the dialog closes when it succeeds.
    """

    def __init__(self, dialog: ui.dialog, text: str, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._dialog, self._run = dialog, run
        self._estimate = ui.label("").classes("il-bench-estimate").props('data-testid="estimate"')
        self._error = ui.label("").classes("il-form-error").props('role=alert data-testid="error"')
        with html.div().classes("il-dialog-actions"):
            ui.button("Cancel", on_click=dialog.close).props('flat data-testid="cancel-dialog"')
            self._go = ui.button(text, on_click=self.submit).props(f'data-testid="{name}"')

    def tell(self, told: str, error: str) -> None:
        """Say what the form would do; with an error it cannot be sent."""
        self._estimate.set_text(told)
        self._error.set_text(on_pages(error))
        self._go.set_enabled(not error)

    async def submit(self) -> None:
        """Do it, as the button does."""
        self._error.set_text("")
        self._go.set_enabled(False)
        try:
            await self._run()
        except InferlabError as problem:
            self._error.set_text(on_pages(str(problem)))
            self._go.set_enabled(True)
        else:
            self._dialog.close()
