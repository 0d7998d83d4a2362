"""What can be done with a profile: exported, measured again, removed, and put back."""

from __future__ import annotations

import asyncio
import json

from nicegui import html, ui

from inferlab.store.entries import Entry
from inferlab.units import shortened
from inferlab.web import shell
from inferlab.web.desk import Desk
from inferlab.web.components.copying import command_line
from inferlab.web.components.dialogs import ask_name
from inferlab.workspace.names import given_name
from inferlab.workspace.workspace import Workspace

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
