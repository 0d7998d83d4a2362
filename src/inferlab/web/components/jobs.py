"""Jobs on pages: how far each is, why it ended, what can be done about it, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import RESUMABLE, Entry, QueuedJob
from inferlab.units import plural, shortened
from inferlab.web import shell
from inferlab.web.components.dialogs import close_button, dialog
from inferlab.web.desk import Desk
from inferlab.web.faults import on_pages
from inferlab.web.live import NAMES, follow, page_of
from inferlab.web.sections import Opened
from inferlab.workspace import requests
from inferlab.workspace.engines import title
from inferlab.workspace.jobs import plans_of
from inferlab.workspace.requests import InstallRequest, OptimizationRequest, ProfileRequest
from inferlab.workspace.versions import Version

_KINDS = {
    "benchmark": "Benchmark",
    "comparison": "Comparison",
    "generation": "Generation",
    "generation-comparison": "Comparison of generation",
    "generation-capacity": "Capacity of generation",
    "generation-recommendation": "Recommendation for generation",
    "profile": "Profile",
    "optimization": "Version",
    "install": "Installation",
}
#: What a user should hear of after it ended.
TROUBLED = ("failed", "interrupted")
_LONGEST_FAILURE = 400


def described(job: QueuedJob) -> str:
    """What a job is about."""
    try:
        request = requests.from_content(job.kind, job.content)
    except InferlabError:
        return _KINDS[job.kind]
    if isinstance(request, InstallRequest):
        return f"{_KINDS[job.kind]} of {title(request.engine)}"
    if isinstance(request, OptimizationRequest):
        return f"{_KINDS[job.kind]} “{request.asked.name}”"
    if isinstance(request, ProfileRequest) and not request.wanted.performance:
        return f"Loss profile “{request.wanted.loss_name}”"
    engines = dict.fromkeys(title(engine) for plan in plans_of(request) for engine in plan.engines)
    if isinstance(request, ProfileRequest):
        return f"Profile “{request.wanted.performance_name}” on {' and '.join(engines)}"
    return f"{_KINDS[job.kind]} on {' and '.join(engines)}"


def time_left(seconds: float | None) -> str:
    """About how long something still takes; empty where nobody knows."""
    return "" if seconds is None else f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """A length of time, roughly."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


def _before(position: int) -> str:
    """How long the queue in front of a job is."""
    return "next in the queue" if position < 1 else f"{plural(position, 'job')} before it in the queue"


@dataclass(frozen=True, slots=True)
class JobActions:
    """What can be done about jobs; `changed` shows it on the page."""

    desk: Desk
    changed: Callable[[], Awaitable[None] | None]

    async def cancel(self, job_id: str) -> None:
        """Take it out of the queue, or ask it to end."""
        await self._do(self.desk.workspace.store.jobs.cancel, job_id)

    async def resume(self, job_id: str) -> None:
        """Queue it again."""
        await self._do(self.desk.workspace.store.jobs.resume, job_id)

    async def dismiss(self, job_id: str) -> None:
        """Forget that it was there."""
        await self._do(self.desk.workspace.store.jobs.remove, job_id)

    async def show_log(self, job_id: str) -> None:
        """What it told on its way, over the page."""
        job = await asyncio.to_thread(self.desk.workspace.store.jobs.get, job_id)
        with dialog(described(job), "il-log-dialog") as opened:
            if job.failure:
                shell.banner("wrong" if job.status == "failed" else "warn", on_pages(job.failure))
            html.pre(job.log or "No log output.").classes("il-log").props('data-testid="job-log"')
            close_button(opened, "close-log")

    async def _do(self, act: Callable[[str], object], job_id: str) -> None:
        await asyncio.to_thread(act, job_id)
        await self.desk.watch.refresh()
        waiting = self.changed()
        if waiting is not None:
            await waiting

    def buttons(self, job: QueuedJob, mark: str = "", can_dismiss: bool = True) -> None:
        """Log, Resume and Dismiss of a job that has ended, each where it makes sense."""
        if job.started_at is not None:
            log = ui.button("Log", on_click=lambda: self.show_log(job.id))
            log.props(f'flat dense data-testid="log{mark}"')
        if job.status in RESUMABLE:
            resume = ui.button("Resume", icon="play_arrow", on_click=lambda: self.resume(job.id))
            resume.props(f'flat dense data-testid="resume{mark}"')
        if can_dismiss:
            dismiss = ui.button("Dismiss", on_click=lambda: self.dismiss(job.id))
            dismiss.props(f'flat dense data-testid="dismiss{mark}"')


class JobProgress:
    """How far a job on its way is, as a bar or as a ring: stage, share done, time left, and a button that cancels.

    Made within the element that shall show it; `mark` follows the name of the button.
    """

    def __init__(
        self, ring: bool = False, cancel: Callable[[], Awaitable[None]] | None = None, mark: str = ""
    ) -> None:
        self._ring = ring
        with html.div().classes("il-job-ring" if ring else "il-job-bar").props('data-testid="progress"'):
            if ring:
                self._bar = shell.Progress(ring=True)
            self._stage = ui.label().classes("il-strong" if ring else "il-small").props('data-testid="stage"')
            if not ring:
                self._bar = shell.Progress()
            self._left = ui.label().classes("il-muted il-small il-number").props('data-testid="left"')
        self._cancel = None
        if cancel is not None:
            self._cancel = ui.button("Cancel", on_click=cancel).props(f'flat dense data-testid="cancel{mark}"')

    def show(self, job: QueuedJob, position: int) -> None:
        """Show another state of the job; so many go before it."""
        waits = job.status == "queued"
        self._bar.set(0.0 if waits else job.fraction)
        self._stage.set_text("Waiting" if waits else job.stage or NAMES[job.kind])
        share = "" if job.fraction is None or self._ring else f"{job.fraction:.0%}"
        rest = ", ".join(filter(None, (share, time_left(job.left_s))))
        state = "ends, and saves what is measured" if job.cancel else _before(position) if waits else rest
        self._left.set_text(state)
        if self._cancel is not None:
            self._cancel.set_enabled(not job.cancel)


class JobPanel:
    """A list of jobs, made where it is shown; `show` updates it without taking buttons from under the pointer."""

    def __init__(self, desk: Desk, changed: Callable[[], Awaitable[None] | None]) -> None:
        self._actions = JobActions(desk, changed)
        self._box: Element = html.div().classes("il-jobs")
        self._key: object = None
        self._progress: dict[str, JobProgress] = {}

    def show(
        self,
        alive: Sequence[QueuedJob],
        ended: Sequence[QueuedJob],
        projects: Mapping[str, str],
        positions: Mapping[str, int] | None = None,
    ) -> None:
        """Show jobs on their way and those that have ended; projects are named by their id.

        Where only a part of the queue is shown, `positions` says how many jobs go before each.
        """
        before = dict(positions or {job.id: place for place, job in enumerate(alive)})
        self._box.set_visibility(bool(alive or ended))
        key = ([(job.id, job.status) for job in (*alive, *ended)], dict(projects))
        if key != self._key:
            self._key, self._progress = key, {}
            self._box.clear()
            with self._box:
                for job in alive:
                    with self._row(job, projects):
                        cancel = partial(self._actions.cancel, job.id)
                        self._progress[job.id] = JobProgress(cancel=cancel, mark=f"-{job.id}")
                for job in ended:
                    with self._row(job, projects):
                        _ended(job)
                        self._actions.buttons(job, f"-{job.id}")
        for job in alive:
            self._progress[job.id].show(job, before[job.id])

    @staticmethod
    def _row(job: QueuedJob, projects: Mapping[str, str]) -> Element:
        row: Element = html.div().classes("il-job").props(f'data-testid="job-{job.id}"')
        with row, html.div().classes("il-job-name"):
            html.div(described(job)).classes("il-cut")
            if job.project_id in projects:
                html.a(projects[str(job.project_id)], href=page_of(job)).classes("il-cut il-small")
        return row


def _ended(job: QueuedJob) -> None:
    with html.div().classes("il-grow"):
        shell.chip(job.status, "wrong" if job.status == "failed" else "warn")
        if job.failure:
            html.span(" " + shortened(on_pages(job.failure), _LONGEST_FAILURE)).classes("il-small")


@dataclass(frozen=True, slots=True)
class ProjectWork:
    """The jobs of one kind of a project, and what there is of what they make: names by id."""

    alive: tuple[QueuedJob, ...]
    ended: tuple[QueuedJob, ...]
    positions: Mapping[str, int]
    made: Mapping[str, str]
    #: All entries or versions, for whoever shows them.
    entries: tuple[Any, ...] = field(default=())

    @property
    def making(self) -> set[str | None]:
        """What is still being made, and grows from part to part."""
        return {job.entry_id for job in self.alive}


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
        with html.div().classes("il-profile-jobs"):
            self._panel = JobPanel(desk, self.refresh)
        self._news = html.div().classes("il-news")
        follow(desk, lambda before, now: self.refresh())

    async def refresh(self) -> None:
        """Show how it is now."""
        work = await asyncio.to_thread(self._read)
        if self._news.is_deleted:
            return
        self._panel.show(work.alive, work.ended, {}, work.positions)
        if not self._on_work(work):
            return
        for entry_id, name in work.made.items():
            if entry_id not in self._known_ids and entry_id not in work.making:
                self._known_ids.add(entry_id)
                with self._news:
                    link = html.a(self._news_text.format(name), href=f"{self._base}/{entry_id}")
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
        return _work(desk, jobs, {version.id: version.name for version in versions}, versions)

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
        return _work(desk, concerned, names, profiles)

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


def _work(desk: Desk, jobs: list[QueuedJob], names: Mapping[str, str], entries: Sequence[Any]) -> ProjectWork:
    jobs.sort(key=lambda job: (job.status != "running", job.queued_at))
    alive = tuple(job for job in jobs if job.alive)
    positions = {job.id: desk.workspace.position(job) for job in alive}
    return ProjectWork(alive, tuple(job for job in jobs if not job.alive), positions, names, tuple(entries))


def _concerns(job: QueuedJob, brief: Mapping[str, Any], part: str) -> bool:
    """Whether what became of a job belongs to this part: it was asked for, and is not there or not whole."""
    try:
        request = requests.from_content(job.kind, job.content)
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
