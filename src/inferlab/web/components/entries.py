"""What can be done with an entry: run again, renamed, exported, copied as a command, removed, put back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import html, ui
from nicegui.element import Element

from inferlab.store.entries import BENCHMARK, Entry
from inferlab.store.formats import GENERATION, MADE_OF_GENERATIONS
from inferlab.units import shortened
from inferlab.web import shell
from inferlab.web.components.dialogs import ask_name, copy_command
from inferlab.web.desk import Desk
from inferlab.workspace.entries import given_name, measured_on

_EXPORTS = {"json": "Export JSON", "csv": "Export CSV", "html": "Export HTML report"}
# What can be measured again; of the rest, only what it says can be taken away.
_RERUN = {
    BENCHMARK: "Re-run benchmark",
    "comparison": "Re-run benchmark",
    GENERATION: "Re-run generation",
    **dict.fromkeys(MADE_OF_GENERATIONS, "Re-run"),
    "profile": "Re-run",
    "version": "Make again",
}
# As long as the trash keeps it would be in the way.
_UNDO_S = 20.0


def export_address(entry_id: str, ending: str) -> str:
    """Where the HTTP API hands out an entry as a file."""
    return f"/api/v1/entries/{entry_id}/export?format={ending}"


class EntryActions:
    """Does what the menus of entries offer; `queued`, `renamed` and `removed` show what came of it.

    With `compare` benchmarks offer to be compared with.
    """

    def __init__(
        self,
        desk: Desk,
        queued: Callable[[], Awaitable[None] | None],
        renamed: Callable[[], Awaitable[None] | None],
        removed: Callable[[Entry], Awaitable[None] | None],
        compare: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._desk, self._workspace, self._compare = desk, desk.workspace, compare
        self._queued, self._renamed, self._removed = queued, renamed, removed
        # A card may be gone when what it was asked for is done.
        self._client = ui.context.client

    def button(self, entry: Entry) -> None:
        """The button that opens the menu of an entry."""

        def open_menu() -> None:
            # Made when it is asked for: ten menus would be half of the page.
            with button:
                menu = self._menu(entry)
            menu.on("hide", menu.delete)
            menu.open()

        button = ui.button(icon="more_vert", on_click=open_menu).classes("il-quiet")
        button.props('flat round dense data-testid="menu" aria-label="More"')

    def _menu(self, entry: Entry) -> ui.menu:
        again, compare = _RERUN.get(entry.kind), self._compare
        with ui.menu().props('auto-close no-parent-event anchor="bottom right" self="top right"') as menu:
            if again:
                _item(again, "rerun", self._rerun, entry)
            if compare is not None and entry.kind == BENCHMARK and any(cell.runs for cell in entry.cells):
                _item("Compare with this…", "compare", lambda entry: compare(entry.id), entry)
            _item("Rename…", "rename", self._rename, entry)
            if again:
                _item("Copy command line", "copy-command", self._copy, entry)
            ui.separator()
            for ending, text in _EXPORTS.items():
                if ending == "json" or (again and entry.kind != "version"):
                    item = ui.menu_item(
                        text, on_click=partial(ui.download.from_url, export_address(entry.id, ending))
                    )
                    item.props(f'data-testid="export-{ending}"')
            ui.separator()
            _item("Remove", "remove", self._remove, entry)
        return menu

    async def _rerun(self, entry: Entry) -> None:
        await asyncio.to_thread(self._workspace.rerun, entry.id)
        await self._show(self._queued)

    async def _rename(self, entry: Entry) -> None:
        async def rename(name: str) -> None:
            await asyncio.to_thread(self._workspace.rename, entry.id, name)
            await self._show(self._renamed)

        await ask_name(name_in_lists(entry), rename, self._client)

    async def _copy(self, entry: Entry) -> None:
        await copy_command(await asyncio.to_thread(self._workspace.command, entry.id), self._client)

    async def _remove(self, entry: Entry) -> None:
        await asyncio.to_thread(self._workspace.remove, entry.id)
        await self._show(partial(self._removed, entry))

    async def _show(self, show_page: Callable[[], Awaitable[None] | None]) -> None:
        """Let all pages see what was changed, this one at once."""
        await self._desk.watch.refresh()
        with self._client:
            waiting = show_page()
            if waiting is not None:
                await waiting


def page_actions(desk: Desk, section: str) -> EntryActions:
    """What can be done with the entry of a page; `section` is the address that the page belongs to."""
    return EntryActions(
        desk,
        lambda: ui.notify("It is in the queue.", type="info"),
        # It stands in the navigation and in selectors too.
        shell.reload,
        # The page that comes next offers to undo it.
        lambda entry: ui.navigate.to(f"{section}?removed={entry.id}"),
    )


def name_in_lists(entry: Entry) -> str:
    """What an entry is called where its project is known."""
    return given_name(entry) or measured_on(entry)


def _item(text: str, name: str, act: Callable[[Entry], object], entry: Entry) -> None:
    ui.menu_item(text, on_click=lambda: act(entry)).props(f'data-testid="{name}"')


def undo_bar(desk: Desk, entry_id: str, name: str, then: Callable[[], Awaitable[None] | None]) -> Element:
    """Say for a while that something was removed, and put it back if the user wants to."""

    async def put_back() -> None:
        bar.delete()
        await asyncio.to_thread(desk.workspace.trash.put_back, entry_id)
        await desk.watch.refresh()
        waiting = then()
        if waiting is not None:
            await waiting

    with html.div(role="status").classes("il-undo") as bar:
        html.span(f"Removed {name}.")
        ui.button("Undo", on_click=put_back).props('flat dense data-testid="undo"')
        ui.timer(_UNDO_S, bar.delete, once=True)
    element: Element = bar
    return element


async def offer_undo(desk: Desk, entry_id: str, section: str, name: str) -> None:
    """Offer to put back what an address says was removed, if it really is, and not put back since."""
    if not entry_id or await asyncio.to_thread(desk.workspace.store.has, entry_id):
        return
    undo_bar(desk, entry_id, name, lambda: ui.navigate.to(f"{section}/{entry_id}"))
    # Who loads the page again is not told again.
    ui.run_javascript(
        f"history.replaceState(null, '', {json.dumps(section)} + location.pathname.slice({len(section)}))"
    )


def no_profile(part: str, entry_id: str) -> None:
    """Say that an address names no profile of its project."""
    sentence = f"This project has no {part} profile {shortened(entry_id, 40)}: it may have been removed."
    with html.div().props('data-testid="no-profile"'):
        shell.empty("No such profile", sentence)
