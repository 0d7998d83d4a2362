"""Dialogs over the page, command lines to copy, and what can be done with an entry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry
from inferlab.units import shortened
from inferlab.web import shell
from inferlab.web.components.advice import on_pages
from inferlab.web.desk import Desk
from inferlab.workspace.entries import given_name
from inferlab.workspace.workspace import Workspace


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


#: Copies what a JavaScript expression gives. In the browser itself, which may write to the clipboard only while it
#: handles a click; where the page comes from another machine without https, it keeps the newer way to itself.
COPY = """async () => {
  const text = %s;
  try { await navigator.clipboard.writeText(text); }
  catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  Quasar.Notify.create({ message: "Copied", timeout: 1500, position: "top" });
}"""


def command_line(text: str, name: str = "copy-command") -> Element:
    """A command as it is typed in a terminal, to be copied."""
    with html.div().classes("il-command") as whole:
        html.code(text)
        button = ui.button(icon="content_copy").props(f'flat dense round data-testid="{name}" aria-label="Copy"')
        with button:
            ui.tooltip("Copy")
    button.on("click", js_handler=COPY % json.dumps(text))
    element: Element = whole
    return element


_EXPORTS = {"json": "Export JSON", "csv": "Export CSV", "html": "Export HTML report"}
# As long as the trash keeps it would be in the way.
_UNDO_S = 20.0


def export_address(entry_id: str, ending: str) -> str:
    """Where the HTTP API hands out an entry as a file."""
    return f"/api/v1/entries/{entry_id}/export?format={ending}"


class ProfileMenu:
    """The menu of a profile's page; `section` is the address that the page belongs to."""

    def __init__(self, desk: Desk, entry: Entry, section: str) -> None:
        self._desk, self._entry, self._section = desk, entry, section
        button = ui.button(icon="more_vert").classes("il-quiet")
        button.props('flat round dense data-testid="menu" aria-label="More"')
        with button, ui.menu().props('auto-close anchor="bottom right" self="top right"'):
            _item("Re-run", "rerun").on_click(self._rerun)
            _item("Rename…", "rename").on_click(self._rename)
            _item("Copy command line", "copy-command").on_click(self._copy)
            for ending, text in _EXPORTS.items():
                with html.a(href=export_address(entry.id, ending), download="").classes("il-menu-link"):
                    _item(text, f"export-{ending}")
            _item("Remove", "remove").on_click(self._remove)

    async def _rerun(self) -> None:
        await asyncio.to_thread(self._desk.workspace.rerun, self._entry.id)
        await self._desk.watch.refresh()
        ui.notify("It is in the queue.", type="info")

    async def _rename(self) -> None:
        await ask_name(given_name(self._entry), self._renamed)

    async def _renamed(self, name: str) -> None:
        await asyncio.to_thread(self._desk.workspace.rename, self._entry.id, name)
        # It stands in the navigation and in selectors too.
        ui.navigate.reload()

    async def _copy(self) -> None:
        command = await asyncio.to_thread(self._desk.workspace.command, self._entry.id)
        with ui.dialog(value=True) as dialog, ui.card().classes("il-dialog"):
            html.h2("Command line").classes("il-dialog-title")
            html.p("This measures the same in a terminal.").classes("il-muted")
            command_line(command)
            with html.div().classes("il-dialog-actions"):
                ui.button("Close", on_click=dialog.close).props('flat data-testid="close"')
        dialog.on("hide", dialog.delete)

    async def _remove(self) -> None:
        removed = await asyncio.to_thread(self._desk.workspace.remove, self._entry.id)
        await self._desk.watch.refresh()
        # The page that comes next offers to undo it.
        ui.navigate.to(f"{self._section}?removed={removed}")


def _item(text: str, name: str) -> ui.menu_item:
    return ui.menu_item(text).props(f'data-testid="{name}"')


def removed_entry(workspace: Workspace, entry_id: str) -> bool:
    """Whether an entry that an address calls removed really is, and not put back since."""
    return bool(entry_id) and not workspace.store.has(entry_id)


def no_profile(part: str, entry_id: str) -> None:
    """Say that an address names no profile of its project."""
    told = f"This project has no {part} profile {shortened(entry_id, 40)}: it may have been removed."
    with html.div().props('data-testid="no-profile"'):
        shell.empty("No such profile", told)


def offer_undo(desk: Desk, entry_id: str, section: str, noun: str = "profile") -> None:
    """Say for a while that something was removed, and put it back if the user wants to."""

    async def put_back() -> None:
        await asyncio.to_thread(desk.workspace.put_back, entry_id)
        await desk.watch.refresh()
        ui.navigate.to(f"{section}/{entry_id}")

    with html.div(role="status").classes("il-undo") as bar:
        html.span(f"Removed the {noun}.")
        ui.button("Undo", on_click=put_back).props('flat dense data-testid="undo"')
        ui.timer(_UNDO_S, bar.delete, once=True)
    # Who loads the page again is not told again.
    ui.run_javascript(
        f"history.replaceState(null, '', {json.dumps(section)} + location.pathname.slice({len(section)}))"
    )
