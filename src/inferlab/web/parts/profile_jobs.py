"""Profiles that are being made, above the page of one that is there, and what makes that page out of date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import html, ui

from inferlab.store.entries import Entry, QueuedJob
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.web.parts.job_list import JobList
from inferlab.web.sections import Opened


@dataclass(frozen=True, slots=True)
class _State:
    """The jobs to show, and the profiles that there are."""

    alive: tuple[QueuedJob, ...]
    ended: tuple[QueuedJob, ...]
    places: dict[str, int]
    profiles: tuple[Entry, ...]


class ProfileJobs:
    """Follows the jobs of a project's profiles; `entry` is the profile that the page shows, if it is one."""

    def __init__(self, desk: Desk, opened: Opened, section: str, entry: Entry | None = None) -> None:
        self._desk, self._section, self._entry = desk, section, entry
        self._project_id = opened.project.id
        alive = {one.entry_id for one in desk.watch.wanted().jobs}
        self._known = {one.id for one in opened.profiles} - alive
        self._was_made = False
        with html.div().classes("il-profile-jobs"):
            self._list = JobList(desk, self.refresh)
        self._news = html.div().classes("il-news")
        follow(desk, self._changed)

    async def refresh(self) -> None:
        """Show how it is now."""
        found = await asyncio.to_thread(self._read)
        self._list.show(found.alive, found.ended, {}, found.places)
        # What is still being made grows from part to part.
        making = {one.entry_id for one in found.alive}
        if self._entry is not None:
            was_made, self._was_made = self._was_made, self._entry.id in making
            if self._entry.id not in {one.id for one in found.profiles}:
                # Removed, here or in another tab; or begun anew, and then there is nothing to undo.
                asked = "" if self._was_made else f"?removed={self._entry.id}"
                ui.navigate.to(f"{self._section}{asked}")
                return
            if was_made and not self._was_made:
                ui.navigate.reload()
                return
        self._tell([one for one in found.profiles if one.id not in making])

    def _tell(self, profiles: Sequence[Entry]) -> None:
        """Offer to open what was measured meanwhile."""
        part = self._section.rpartition("/")[2]
        for one in profiles:
            if one.id not in self._known and _there(one.brief, part):
                with self._news:
                    told = f"The profile “{one.brief[part]['name']}” is measured. Open it."
                    link = html.a(told, href=f"{self._section}/{one.id}").classes("il-banner")
                    link.props(f'data-testid="news-{one.id}"')
            self._known.add(one.id)

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        await self.refresh()

    def _read(self) -> _State:
        workspace = self._desk.workspace
        jobs = [one for one in workspace.store.jobs.of_project(self._project_id) if one.kind == "profile"]
        if self._entry is not None:
            own = workspace.store.jobs.of_entries([self._entry.id]).get(self._entry.id)
            if own is not None and own.status != "done" and own.id not in {one.id for one in jobs}:
                jobs.append(own)
        alive = sorted((one for one in jobs if one.alive), key=lambda one: (one.status == "queued", one.queued_at))
        return _State(
            tuple(alive),
            tuple(one for one in jobs if not one.alive),
            {one.id: workspace.position(one) for one in alive},
            tuple(workspace.profiles(self._project_id)),
        )


def _there(brief: Mapping[str, Any], part: str) -> bool:
    """Whether a part of a profile was measured."""
    found = brief.get(part) or {}
    return bool(found) and found.get("method") != "approximated"
