"""Profiles that are being made, above the page of one that is there, and what makes that page out of date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import html, ui

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry, QueuedJob
from inferlab.web.components.job_list import JobList
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.web.sections import Opened
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import ProfileAsked


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
        profiles = tuple(workspace.profiles(self._project_id))
        # Those whose entry lacks something are told of where it is missed.
        known = {one.id for one in jobs}
        for one in workspace.store.jobs.of_entries([one.id for one in profiles]).values():
            own = self._entry is not None and one.entry_id == self._entry.id
            if one.id not in known and (one.status == "failed" or (own and one.status != "done")):
                jobs.append(one)
        alive = sorted((one for one in jobs if one.alive), key=lambda one: (one.status == "queued", one.queued_at))
        briefs, part = {one.id: one.brief for one in profiles}, self._section.rpartition("/")[2]
        ended = [one for one in jobs if not one.alive and _concerns(one, briefs.get(one.entry_id or "", {}), part)]
        return _State(tuple(alive), tuple(ended), {one.id: workspace.position(one) for one in alive}, profiles)


def _concerns(job: QueuedJob, brief: Mapping[str, Any], part: str) -> bool:
    """Whether what became of a job belongs to this part: it was asked for, and is not there or not whole."""
    try:
        asked = requests.from_content(job.kind, job.content)
    except InferlabError:
        return True
    if isinstance(asked, ProfileAsked) and not getattr(asked.wanted, part):
        return False
    # What keeps a whole part from being made is a problem of the profile; others are of its times.
    of_a_part = job.status == "failed" and job.failure in (brief.get("problems") or ())
    return not _there(brief, part) or not (of_a_part or (job.status == "failed" and part == "loss"))


def _there(brief: Mapping[str, Any], part: str) -> bool:
    """Whether a part of a profile was measured."""
    found = brief.get(part) or {}
    return bool(found) and found.get("method") != "approximated"
