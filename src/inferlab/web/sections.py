"""The frame of every page of a project: its sections, with the profiles that it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import ui
from starlette.responses import RedirectResponse, Response

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry, Project, QueuedJob
from inferlab.web import shell
from inferlab.web.components.actions import JobPanel
from inferlab.web.components.profile_form import open_profile
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import aged, follow, queue_indicator
from inferlab.web.shell import Frame, Item, Section, div, tag
from inferlab.workspace import requests
from inferlab.workspace.requests import ProfileRequest
from inferlab.workspace.versions import Version
from inferlab.workspace.workspace import ONLY_GENERATES

#: What the page of each part is called that rests on the architecture alone.
THEORY = {"performance": "flops", "loss": "approximated"}


@dataclass(frozen=True, slots=True)
class Opened:
    """A project whose page is shown; its profiles are newest first."""

    project: Project
    profiles: tuple[Entry, ...]
    frame: Frame
    #: The names of versions by the digests of their models.
    versions: Mapping[str, str]

    @property
    def own(self) -> tuple[Entry, ...]:
        """The profiles of the model as it is, without those of its versions."""
        return tuple(profile for profile in self.profiles if profile.model_digest == self.project.model.digest)


def measured(profiles: Sequence[Entry], part: str) -> list[Entry]:
    """Profiles of which a part, performance or loss, was measured."""
    return [profile for profile in profiles if _is_measured(profile.brief, part)]


def approximated(profiles: Sequence[Entry]) -> Entry | None:
    """The oldest profile whose losses were estimated from the weights: the one that the project began with."""
    methods = ((profile, (profile.brief.get("loss") or {}).get("method")) for profile in reversed(profiles))
    return next((profile for profile, method in methods if method == "approximated"), None)


def named(profiles: Sequence[Entry], part: str) -> dict[str, str]:
    """Profiles of a part to choose from, by their ids: those that were measured, then the estimate of losses."""
    names = {
        entry.id: f"{entry.brief[part]['name']} ({aged(entry.created_at)})" for entry in measured(profiles, part)
    }
    theory = approximated(profiles) if part == "loss" else None
    return {**names, theory.id: "Approximated"} if theory else names


async def newest_profile(desk: Desk, project_id: str, part: str, removed: str = "") -> Response:
    """Lead on to the newest profile of a part of a project, or to what its architecture says."""
    workspace = desk.workspace
    await asyncio.to_thread(workspace.store.projects.get, project_id)
    profiles = measured(await asyncio.to_thread(workspace.profiles, project_id), part)
    page = profiles[0].id if profiles else THEORY[part]
    return RedirectResponse(f"/projects/{project_id}/{part}/{page}{f'?removed={removed}' if removed else ''}")


def only_generates(opened: Opened) -> bool:
    """Whether a page makes no sense for a model that only generates tokens, which it then says."""
    if opened.project.only_generates:
        shell.empty("Not for this model", ONLY_GENERATES, "only-generates")
    return opened.project.only_generates


@asynccontextmanager
async def project_page(desk: Desk, project_id: str, here: str, title: str = "") -> AsyncIterator[Opened]:
    """A page of a project under its frame; `here` is what follows the project's address, such as benchmarks."""
    workspace = desk.workspace
    project = await asyncio.to_thread(workspace.store.projects.get, project_id)
    listed = await asyncio.to_thread(_read, desk, project_id)
    address = f"/projects/{project_id}/{here}"
    sections = _sections(desk, project, listed)
    with shell.project_frame(project.name, project_id, sections, address, title) as frame:
        queue_indicator(desk, frame.queue)
        _follow_entries(desk, project, listed, frame, address)
        with frame.content:
            yield Opened(project, listed.profiles, frame, listed.names)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the navigation lists."""

    profiles: tuple[Entry, ...]
    versions: tuple[Entry, ...]

    @property
    def names(self) -> dict[str, str]:
        """The names of versions by the digests of their models."""
        return {version.brief["optimized"]["digest"]: version.brief["name"] for version in self.versions}

    def ages(self) -> list[str]:
        """How old it says they are."""
        return [aged(entry.created_at) for entry in (*self.profiles, *self.versions)]


def _read(desk: Desk, project_id: str) -> _Listed:
    workspace = desk.workspace
    return _Listed(tuple(workspace.profiles(project_id)), tuple(workspace.versions.entries(project_id)))


def _sections(desk: Desk, project: Project, listed: _Listed) -> tuple[Section, ...]:
    base = f"/projects/{project.id}"
    benchmarks = Section("Benchmarks", "leaderboard", f"{base}/benchmarks")
    settings = Section("Settings", "settings", f"{base}/settings")
    if project.only_generates:
        return benchmarks, settings
    profiles = [
        Section(
            f"{part.capitalize()} profiles",
            icon,
            f"{base}/{part}",
            (
                *_items(measured(listed.profiles, part), part, base, listed.names),
                Item(theory, f"{base}/{part}/{THEORY[part]}"),
            ),
            partial(open_profile, desk, project, part),
        )
        for part, icon, theory in (("performance", "speed", "FLOPS"), ("loss", "trending_down", "Approximated"))
    ]
    versions = tuple(
        Item(version.brief["name"], f"{base}/optimization/{version.id}", aged(version.created_at))
        for version in listed.versions
    )
    optimization = Section("Optimization", "tune", f"{base}/optimization", versions)
    return *profiles, optimization, benchmarks, Section("Trends", "show_chart", f"{base}/trends"), settings


def _follow_entries(desk: Desk, project: Project, listed: _Listed, frame: Frame, address: str) -> None:
    """Show profiles and versions in the navigation as they come and go, and grow older."""
    drawn = (listed, listed.ages())

    async def renew() -> None:
        nonlocal drawn
        listed_now = await asyncio.to_thread(_read, desk, project.id)
        if frame.rail is not None and (listed_now, listed_now.ages()) != drawn:
            drawn = (listed_now, listed_now.ages())
            shell.fill_rail(frame.rail, project.name, _sections(desk, project, listed_now), address)

    async def changed(before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp:
            await renew()

    follow(desk, changed, renew)


def _items(entries: list[Entry], part: str, base: str, versions: Mapping[str, str]) -> list[Item]:
    """Profiles; those of a version say of which."""
    items = []
    for entry in entries:
        version = versions.get(entry.model_digest, "")
        name = f"{entry.brief[part]['name']} · {version}" if version else str(entry.brief[part]["name"])
        items.append(Item(name, f"{base}/{part}/{entry.id}", aged(entry.created_at)))
    return items


@dataclass(frozen=True, slots=True)
class ProjectWork:
    """The jobs of one kind of a project, and what there is of what they make: names by id."""

    jobs: Sequence[QueuedJob]
    made: Mapping[str, str]
    #: All entries or versions, for whoever shows them.
    entries: Sequence[Any]

    @property
    def making(self) -> set[str | None]:
        """What is still being made, and grows from part to part."""
        return {job.entry_id for job in self.jobs if job.alive}


class ProjectJobs:
    """Jobs of a project above the page of what they make, and news of what they made meanwhile.

    `shown` gets what was read, and says whether the page stays.
    """

    def __init__(
        self,
        desk: Desk,
        read: Callable[[], ProjectWork],
        on_work: Callable[[ProjectWork], bool],
        known_ids: Collection[str],
        base: str,
        news: str,
    ) -> None:
        self._read, self._on_work, self._base, self._news_text = read, on_work, base, news
        self._known_ids = set(known_ids) - {job.entry_id for job in desk.watch.snapshot.jobs}
        with div("il-profile-jobs"):
            self._panel = JobPanel(desk, self.refresh)
        self._news = div("il-news")
        follow(desk, lambda before, now: self.refresh())

    async def refresh(self) -> None:
        """Show how it is now."""
        work = await asyncio.to_thread(self._read)
        if self._news.is_deleted:
            return
        self._panel.show(sorted(work.jobs, key=lambda job: (job.status != "running", job.queued_at)))
        if not self._on_work(work):
            return
        for entry_id, name in work.made.items():
            if entry_id not in self._known_ids and entry_id not in work.making:
                self._known_ids.add(entry_id)
                with self._news:
                    link = tag("a", "", self._news_text.format(name), href=f"{self._base}/{entry_id}")
                    link.classes("il-banner").props(f'data-testid="news-{entry_id}"')


def version_jobs(
    desk: Desk,
    project_id: str,
    base: str,
    versions_before: Sequence[Version],
    on_versions: Callable[[Sequence[Version]], None],
) -> ProjectJobs:
    """The jobs that make versions of a project; `shown` is given the versions whenever they may have changed."""
    workspace = desk.workspace

    def read() -> ProjectWork:
        jobs_there = workspace.store.jobs.of_project(project_id)
        # Without its entry, a job that has ended is one whose version was removed.
        jobs = [job for job in jobs_there if job.kind == "optimization" and (job.alive or job.entry_id is None)]
        versions = workspace.versions.of_project(project_id)
        return ProjectWork(jobs, {version.id: version.name for version in versions}, versions)

    def show(work: ProjectWork) -> bool:
        on_versions(work.entries)
        return True

    news = "The version “{}” is made and measured. Open it."
    return ProjectJobs(desk, read, show, [version.id for version in versions_before], base, news)


def profile_jobs(desk: Desk, opened: Opened, section: str, entry: Entry | None = None) -> ProjectJobs:
    """The jobs that make profiles of a project; `entry` is the profile that the page shows, if it is one."""
    workspace, project_id = desk.workspace, opened.project.id
    part = section.rpartition("/")[2]
    was_made = False

    def read() -> ProjectWork:
        jobs = [job for job in workspace.store.jobs.of_project(project_id) if job.kind == "profile"]
        profiles = workspace.profiles(project_id)
        # Those whose entry lacks something are told of where it is missed.
        job_ids = {job.id for job in jobs}
        for job in workspace.store.jobs.of_entries([profile.id for profile in profiles]).values():
            own = entry is not None and job.entry_id == entry.id
            if job.id not in job_ids and (job.status == "failed" or (own and job.status != "done")):
                jobs.append(job)
        briefs = {profile.id: profile.brief for profile in profiles}
        concerned = [job for job in jobs if job.alive or _concerns(job, briefs.get(job.entry_id or "", {}), part)]
        names = {
            profile.id: profile.brief[part]["name"] for profile in profiles if _is_measured(profile.brief, part)
        }
        return ProjectWork(concerned, names, profiles)

    def show(work: ProjectWork) -> bool:
        nonlocal was_made
        if entry is None:
            return True
        before, was_made = was_made, entry.id in work.making
        if entry.id not in {entry.id for entry in work.entries}:
            # Removed, here or in another tab; or begun again, and then there is nothing to undo.
            ui.navigate.to(section if was_made else f"{section}?removed={entry.id}")
            return False
        if before and not was_made:
            shell.reload()
            return False
        return True

    profile_ids = [profile.id for profile in opened.profiles]
    return ProjectJobs(desk, read, show, profile_ids, section, "The profile “{}” is measured. Open it.")


def _concerns(job: QueuedJob, brief: Mapping[str, Any], part: str) -> bool:
    """Whether what became of a job belongs to this part: it was asked for, and is not there or not whole."""
    try:
        request = requests.request_of(job)
    except InferlabError:
        return True
    if isinstance(request, ProfileRequest) and not getattr(request.wanted, part):
        return False
    # What keeps a whole part from being made is a problem of the profile; others are of its times.
    of_a_part = job.status == "failed" and job.failure in (brief.get("problems") or ())
    return not _is_measured(brief, part) or not (of_a_part or (job.status == "failed" and part == "loss"))


def _is_measured(brief: Mapping[str, Any], part: str) -> bool:
    """Whether a part of a profile was measured."""
    measured = brief.get(part) or {}
    return bool(measured) and measured.get("method") != "approximated"
