"""Versions that are being made, above those that there are, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from nicegui import html

from inferlab.store.entries import QueuedJob
from inferlab.web.components.job_list import JobList
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.workspace.versions import Version


class VersionJobs:
    """Follows the jobs of a project's versions; `shown` is given the versions whenever they may have changed."""

    def __init__(
        self,
        desk: Desk,
        project_id: str,
        base: str,
        known: Sequence[Version],
        shown: Callable[[Sequence[Version]], None],
    ) -> None:
        self._desk, self._project_id, self._base, self._shown = desk, project_id, base, shown
        alive = {one.entry_id for one in desk.watch.wanted().jobs}
        self._known = {one.id for one in known} - alive
        with html.div().classes("il-profile-jobs"):
            self._list = JobList(desk, self.refresh)
        self._news = html.div().classes("il-news")
        follow(desk, self._changed)

    async def refresh(self) -> None:
        """Show how it is now."""
        jobs, versions, places = await asyncio.to_thread(self._read)
        if self._news.is_deleted:
            return
        alive = [one for one in jobs if one.alive]
        self._list.show(alive, [one for one in jobs if not one.alive], {}, places)
        self._shown(versions)
        # What is still being measured grows from engine to engine.
        making = {one.entry_id for one in alive}
        for one in versions:
            if one.id not in making and one.id not in self._known:
                self._known.add(one.id)
                with self._news:
                    told = f"The version “{one.name}” is made and measured. Open it."
                    link = html.a(told, href=f"{self._base}/{one.id}").classes("il-banner")
                    link.props(f'data-testid="news-{one.id}"')

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        await self.refresh()

    def _read(self) -> tuple[list[QueuedJob], list[Version], dict[str, int]]:
        workspace = self._desk.workspace
        found = workspace.store.jobs.of_project(self._project_id)
        # Without its entry, a job that has ended is one whose version was removed.
        jobs = [one for one in found if one.kind == "optimization" and (one.alive or one.entry_id is None)]
        jobs.sort(key=lambda one: (one.status != "running", one.queued_at))
        places = {one.id: workspace.position(one) for one in jobs if one.alive}
        return jobs, workspace.versions.of_project(self._project_id), places
