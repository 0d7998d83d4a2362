"""What the buttons and the menus of the cards do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from nicegui import html, ui

from inferlab.store.entries import QueuedJob
from inferlab.web.components.benchmark_card import CardActions
from inferlab.web.components.card_jobs import JobActions
from inferlab.web.components.dialogs import ask_name, command_line
from inferlab.web.components.job_list import log_dialog
from inferlab.web.desk import Desk
from inferlab.workspace.entries import given_name, measured_on

# As long as the trash keeps it would be in the way.
_UNDO_S = 20.0
# The clipboard is only there on this machine and by https; the old way works everywhere.
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


class Deeds:
    """Does what users ask of the cards; `refresh` shows it, `compare` opens the dialog."""

    def __init__(
        self,
        desk: Desk,
        refresh: Callable[[], Awaitable[None]],
        compare: Callable[[str], Awaitable[None]],
    ) -> None:
        self._desk, self._workspace = desk, desk.workspace
        self._refresh, self._compare = refresh, compare
        self._undo: ui.element | None = None
        # A card may be gone when what it was asked for is done.
        self._client = ui.context.client

    def actions(self) -> CardActions:
        """All of it, as cards take it."""
        return CardActions(
            JobActions(self._cancel, self._resume, self._dismiss, self._show_log),
            self._rerun,
            self._compare,
            self._copy,
            self._rename,
            self._export,
            self._remove,
        )

    async def shown(self) -> None:
        """Let all pages see what was changed, this one at once."""
        await self._desk.watch.refresh()
        await self._refresh()

    async def _cancel(self, job: QueuedJob) -> None:
        await asyncio.to_thread(self._workspace.cancel, job.id)
        await self.shown()

    async def _resume(self, job: QueuedJob) -> None:
        await asyncio.to_thread(self._workspace.resume, job.id)
        await self.shown()

    async def _dismiss(self, job: QueuedJob) -> None:
        await asyncio.to_thread(self._workspace.store.jobs.remove, job.id)
        await self.shown()

    async def _show_log(self, job: QueuedJob) -> None:
        with self._client:
            await log_dialog(self._desk, job.id)

    async def _rerun(self, entry_id: str) -> None:
        await asyncio.to_thread(self._workspace.rerun, entry_id)
        await self.shown()

    async def _copy(self, entry_id: str) -> None:
        command = await asyncio.to_thread(self._workspace.command, entry_id)
        copied = await self._client.run_javascript(_COPY % json.dumps(command), timeout=5.0)
        with self._client:
            if copied:
                # At the top: what was removed can be undone at the bottom.
                ui.notify(f"Copied: {command}", multi_line=True, close_button="Close", position="top")
                return
            with ui.dialog(value=True) as dialog, ui.card().classes("il-dialog il-log-dialog"):
                command_line(command)
                with html.div().classes("il-dialog-actions"):
                    ui.button("Close", on_click=dialog.close).props("flat")

    async def _rename(self, entry_id: str) -> None:
        async def rename(name: str) -> None:
            await asyncio.to_thread(self._workspace.rename, entry_id, name)
            await self.shown()

        entry = await asyncio.to_thread(self._workspace.store.entry, entry_id)
        with self._client:
            await ask_name(given_name(entry) or measured_on(entry), rename)

    async def _export(self, entry_id: str, ending: str) -> None:
        found = await asyncio.to_thread(self._workspace.export, entry_id, ending)
        with self._client:
            ui.download.content(found.text, found.name, found.media_type)

    async def _remove(self, entry_id: str) -> None:
        entry = await asyncio.to_thread(self._workspace.store.entry, entry_id)
        removed = await asyncio.to_thread(self._workspace.remove, entry_id)
        await self.shown()
        self._offer_undo(removed, given_name(entry) or measured_on(entry))

    def _offer_undo(self, entry_id: str, name: str) -> None:
        if self._undo is not None:
            self._undo.delete()

        async def put_back() -> None:
            close()
            await asyncio.to_thread(self._workspace.put_back, entry_id)
            await self.shown()

        def close() -> None:
            if not bar.is_deleted:
                bar.delete()
            self._undo = None if self._undo is bar else self._undo

        with self._client, html.div(role="status").classes("il-undo") as bar:
            html.span(f"Removed {name}.")
            ui.button("Undo", on_click=put_back).props('flat dense data-testid="undo"')
            ui.timer(_UNDO_S, close, once=True)
        self._undo = bar
