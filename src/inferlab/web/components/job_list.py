"""The queue as a list: what is measured, what waits, and what was cut off or failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import RESUMABLE, QueuedJob
from inferlab.units import plural, shortened
from inferlab.web import shell
from inferlab.web.components.advice import on_pages
from inferlab.web.components.dialogs import dialog
from inferlab.web.desk import Desk
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import InstallAsked, OptimizationAsked, ProfileAsked
from inferlab.workspace.engines import title
from inferlab.workspace.work import plans_of

_KINDS = {
    "benchmark": "Benchmark",
    "comparison": "Comparison",
    "profile": "Profile",
    "optimization": "Version",
    "install": "Installation",
}
_PAGES = {
    "benchmark": "benchmarks",
    "comparison": "benchmarks",
    "profile": "performance",
    "optimization": "optimization",
}
#: What a user should hear of after it ended.
TROUBLED = ("failed", "interrupted")
_LONGEST_FAILURE = 400


def left(seconds: float | None) -> str:
    """About how long something still takes; empty where nobody knows."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes < 90 else f"about {seconds / 3600:.1f} h left"


def described(job: QueuedJob) -> str:
    """What a job is about."""
    try:
        asked = requests.from_content(job.kind, job.content)
    except InferlabError:
        return _KINDS[job.kind]
    if isinstance(asked, InstallAsked):
        return f"{_KINDS[job.kind]} of {title(asked.engine)}"
    if isinstance(asked, OptimizationAsked):
        return f"{_KINDS[job.kind]} “{asked.asked.name}”"
    if isinstance(asked, ProfileAsked) and not asked.wanted.performance:
        return f"Loss profile “{asked.wanted.loss_name}”"
    engines = dict.fromkeys(title(one) for plan in plans_of(asked) for one in plan.engines)
    if isinstance(asked, ProfileAsked):
        return f"Profile “{asked.wanted.performance_name}” on {' and '.join(engines)}"
    return f"{_KINDS[job.kind]} on {' and '.join(engines)}"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What of a running job changes from second to second."""

    bar: shell.Progress
    stage: ui.label
    details: ui.label


class JobList:
    """Shows jobs where it is made; `show` brings it up to date without taking buttons from under the pointer."""

    def __init__(self, desk: Desk, reload: Callable[[], object]) -> None:
        self._desk, self._reload = desk, reload
        self._box: Element = html.div().classes("il-jobs")
        self._key: object = None
        self._live: dict[str, _Shown] = {}

    def show(
        self,
        alive: Sequence[QueuedJob],
        ended: Sequence[QueuedJob],
        projects: Mapping[str, str],
        places: Mapping[str, int] | None = None,
    ) -> None:
        """Show the queue and what has ended; projects are named by their id.

        Where only a part of the queue is shown, `places` says how many jobs go before each.
        """
        before = dict(places or {one.id: place for place, one in enumerate(alive)})
        self._box.set_visibility(bool(alive or ended))
        key = ([(one.id, one.status, one.cancel) for one in (*alive, *ended)], dict(projects), before)
        if key != self._key:
            self._key = key
            self._live = {}
            self._box.clear()
            with self._box:
                for job in alive:
                    self._alive(job, before[job.id], projects)
                for job in ended:
                    self._ended(job, projects)
        for job in alive:
            if job.id in self._live:
                _update(self._live[job.id], job)

    def _alive(self, job: QueuedJob, place: int, projects: Mapping[str, str]) -> None:
        with self._row(job, projects) as row:
            if job.status == "running":
                with html.div().classes("il-job-progress"):
                    stage = ui.label().classes("il-small")
                    bar = shell.Progress()
                details = ui.label().classes("il-muted il-small il-number il-job-details")
                self._live[job.id] = _Shown(bar, stage, details)
            else:
                before = f"waits behind {plural(place, 'job')}" if place else "is the next"
                html.div(before).classes("il-muted il-small il-grow")
            text, enabled = ("Cancelling…", False) if job.cancel else ("Cancel", True)
            button = ui.button(text, on_click=lambda: self._cancel(job.id)).props("flat dense")
            button.props(f'data-testid="cancel-{job.id}"').set_enabled(enabled)
        row.classes("il-job-alive")

    def _ended(self, job: QueuedJob, projects: Mapping[str, str]) -> None:
        with self._row(job, projects):
            with html.div().classes("il-grow"):
                shell.chip(job.status, "wrong" if job.status == "failed" else "warn")
                if job.failure:
                    html.span(" " + shortened(on_pages(job.failure), _LONGEST_FAILURE)).classes("il-small")
            ui.button("Log", on_click=lambda: self._log(job.id)).props(f'flat dense data-testid="log-{job.id}"')
            if job.status in RESUMABLE:
                again = ui.button("Resume", on_click=lambda: self._resume(job.id)).props("outline dense")
                again.props(f'data-testid="resume-{job.id}"')
            gone = ui.button(icon="close", on_click=lambda: self._dismiss(job.id)).props("flat dense round")
            gone.props(f'aria-label="Dismiss" data-testid="dismiss-{job.id}"').tooltip("Do not show it any more")

    def _row(self, job: QueuedJob, projects: Mapping[str, str]) -> Element:
        row: Element = html.div().classes("il-job").props(f'data-testid="job-{job.id}"')
        with row, html.div().classes("il-job-name"):
            html.div(described(job)).classes("il-cut")
            if job.project_id in projects:
                address = f"/projects/{job.project_id}/{_PAGES[job.kind]}"
                html.a(projects[str(job.project_id)], href=address).classes("il-cut il-small")
        return row

    async def _cancel(self, job_id: str) -> None:
        await asyncio.to_thread(self._desk.workspace.cancel, job_id)
        await self._changed()

    async def _resume(self, job_id: str) -> None:
        await asyncio.to_thread(self._desk.workspace.resume, job_id)
        await self._changed()

    async def _dismiss(self, job_id: str) -> None:
        await asyncio.to_thread(self._desk.workspace.store.jobs.remove, job_id)
        await self._changed()

    async def _log(self, job_id: str) -> None:
        await log_dialog(self._desk, job_id)

    async def _changed(self) -> None:
        await self._desk.watch.refresh()
        waiting = self._reload()
        if asyncio.iscoroutine(waiting):
            await waiting


def _update(shown: _Shown, job: QueuedJob) -> None:
    shown.bar.set(job.fraction)
    shown.stage.set_text(job.stage or "Starting")
    percent = "" if job.fraction is None else f"{job.fraction:.0%}"
    shown.details.set_text(", ".join(filter(None, (percent, left(job.left_s)))))


async def log_dialog(desk: Desk, job_id: str) -> None:
    """What a job told on its way, over the page."""
    job = await asyncio.to_thread(desk.workspace.store.jobs.get, job_id)
    with dialog(described(job), "il-log-dialog") as opened:
        if job.failure:
            shell.banner("wrong" if job.status == "failed" else "warn", on_pages(job.failure))
        html.pre(job.log or "No log output.").classes("il-log").props('data-testid="job-log"')
        with html.div().classes("il-dialog-actions"):
            ui.button("Close", on_click=opened.close).props('flat data-testid="close-log"')
