"""Jobs and entries on pages: how far each job is, also in the bar, and what can be done with either."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import Client, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import BENCHMARK, RESUMABLE, Entry, QueuedJob
from inferlab.store.formats import GENERATION, MADE_OF_GENERATIONS
from inferlab.units import plural, shortened
from inferlab.web import shell
from inferlab.web.components.forms import Foot, close_button, dialog
from inferlab.web.desk import Changed, Desk, Snapshot, done, follow
from inferlab.web.faults import on_pages
from inferlab.web.shell import div, span, tag
from inferlab.workspace import requests
from inferlab.workspace.engines import title
from inferlab.workspace.entries import NOUNS, given_name, measured_on
from inferlab.workspace.requests import InstallRequest, OptimizationRequest, ProfileRequest, plans_of

#: What a job is about, in the bar and on cards.
NAMES = {
    "benchmark": "Running benchmark",
    "comparison": "Comparing",
    "generation": "Generating tokens",
    "generation-comparison": "Comparing generation",
    "generation-capacity": "Searching the highest rate",
    "generation-recommendation": "Searching a configuration",
    "profile": "Profiling",
    "optimization": "Making a version",
    "install": "Installing an engine",
}
#: What a user should hear of after it ended.
TROUBLED = ("failed", "interrupted")
_LONGEST_FAILURE = 400


def described(job: QueuedJob) -> str:
    """What a job is about."""
    try:
        request = requests.request_of(job)
    except InferlabError:
        return NOUNS[job.kind]
    if isinstance(request, InstallRequest):
        return f"{NOUNS[job.kind]} of {title(request.engine)}"
    if isinstance(request, OptimizationRequest):
        return f"{NOUNS[job.kind]} “{request.asked.name}”"
    if isinstance(request, ProfileRequest) and not request.wanted.performance:
        return f"Loss profile “{request.wanted.loss_name}”"
    engines = dict.fromkeys(title(engine) for plan in plans_of(request) for engine in plan.engines)
    if isinstance(request, ProfileRequest):
        return f"Profile “{request.wanted.performance_name}” on {' and '.join(engines)}"
    return f"{NOUNS[job.kind]} on {' and '.join(engines)}"


def duration(seconds: float) -> str:
    """A length of time, roughly."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


def queue_indicator(desk: Desk, slot: Element) -> None:
    """What is being measured and how much waits, in the bar of every page; a link to where it is shown."""
    with slot:
        link = tag("a", "il-queue-link", name="queue", href="/")
        with link:
            words = ui.label("")

    def show(_: Snapshot, now: Snapshot) -> None:
        words.set_text(summary(now.jobs))
        link.props["href"] = page_of(now.jobs[0]) if now.jobs else "/"
        link.set_visibility(bool(now.jobs))

    snapshot = desk.watch.snapshot
    show(snapshot, snapshot)
    follow(desk, show)


def summary(jobs: tuple[QueuedJob, ...]) -> str:
    """The queue in a few words."""
    running = [job for job in jobs if job.status == "running"]
    waiting = len(jobs) - len(running)
    words = [f"{NAMES[job.kind]}{'' if job.fraction is None else f' {job.fraction:.0%}'}" for job in running]
    if waiting:
        words.append(f"{plural(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}")
    return ", ".join(words)


def page_of(job: QueuedJob) -> str:
    """The address of the page that shows what a job makes."""
    if job.project_id is None:
        return "/"
    page = {"profile": "performance", "optimization": "optimization"}.get(job.kind, "benchmarks")
    return f"/projects/{job.project_id}/{page}"


@dataclass(frozen=True, slots=True)
class JobActions:
    """What can be done about jobs; `changed` shows it on the page."""

    desk: Desk
    changed: Changed

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
                shell.banner("wrong" if job.status == "failed" else "warn", job.failure)
            tag("pre", "il-log", job.log or "No log output.", name="job-log")
            close_button(opened, "close-log")

    async def _do(self, act: Callable[[str], object], job_id: str) -> None:
        await self.desk.change(act, job_id)
        await done(self.changed())

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
        self, desk: Desk, ring: bool = False, cancel: Callable[[], Awaitable[None]] | None = None, mark: str = ""
    ) -> None:
        self._watch, self._ring = desk.watch, ring
        with div("il-job-ring" if ring else "il-job-bar", name="progress"):
            if ring:
                self._bar = shell.Progress(ring=True)
            self._stage = ui.label().classes("il-strong" if ring else "il-small").props('data-testid="stage"')
            if not ring:
                self._bar = shell.Progress()
            self._left = ui.label().classes("il-muted il-small il-number").props('data-testid="left"')
        self._cancel = None
        if cancel is not None:
            self._cancel = ui.button("Cancel", on_click=cancel).props(f'flat dense data-testid="cancel{mark}"')

    def show(self, job: QueuedJob) -> None:
        """Show another state of the job, and how many go before it."""
        waits = job.status == "queued"
        self._bar.set(0.0 if waits else job.fraction)
        self._stage.set_text("Waiting" if waits else job.stage or NAMES[job.kind])
        share = "" if job.fraction is None or self._ring else f"{job.fraction:.0%}"
        left = "" if job.left_s is None else f"about {duration(job.left_s)} left"
        rest = ", ".join(filter(None, (share, left)))
        state = "ends, and saves what is measured" if job.cancel else self._place(job) if waits else rest
        self._left.set_text(state)
        if self._cancel is not None:
            self._cancel.set_enabled(not job.cancel)

    def _place(self, job: QueuedJob) -> str:
        position = self._watch.snapshot.position(job.id)
        return "next in the queue" if position < 1 else f"{plural(position, 'job')} before it in the queue"


class JobPanel:
    """A list of jobs, made where it is shown; `show` updates it without taking buttons from under the pointer."""

    def __init__(self, desk: Desk, changed: Changed) -> None:
        self._actions = JobActions(desk, changed)
        self._part = shell.Part("il-jobs")
        self._progress: dict[str, JobProgress] = {}

    def show(self, jobs: Sequence[QueuedJob], projects: Mapping[str, str] | None = None) -> None:
        """Show jobs on their way before those that have ended; projects are named by their id."""
        names = dict(projects or {})
        self._part.box.set_visibility(bool(jobs))
        key = ([(job.id, job.status) for job in jobs], names)
        self._part.show(key, lambda: self._draw(jobs, names))
        for job in jobs:
            if job.alive:
                self._progress[job.id].show(job)

    def _draw(self, jobs: Sequence[QueuedJob], projects: Mapping[str, str]) -> None:
        self._progress = {}
        for job in sorted(jobs, key=lambda job: not job.alive):
            with self._row(job, projects):
                if job.alive:
                    cancel = partial(self._actions.cancel, job.id)
                    self._progress[job.id] = JobProgress(self._actions.desk, cancel=cancel, mark=f"-{job.id}")
                else:
                    _ended(job)
                    self._actions.buttons(job, f"-{job.id}")

    @staticmethod
    def _row(job: QueuedJob, projects: Mapping[str, str]) -> Element:
        row = div("il-job", name=f"job-{job.id}")
        with row, div("il-job-name"):
            div("il-cut", described(job))
            if job.project_id in projects:
                tag("a", "il-cut il-small", projects[str(job.project_id)], href=page_of(job))
        return row


def _ended(job: QueuedJob) -> None:
    with div("il-grow"):
        shell.chip(job.status, "wrong" if job.status == "failed" else "warn")
        if job.failure:
            span("il-small", " " + shortened(on_pages(job.failure), _LONGEST_FAILURE))


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
        queued: Changed,
        renamed: Changed,
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
        await self._do(partial(self._workspace.rerun, entry.id), self._queued)

    async def _rename(self, entry: Entry) -> None:
        """Ask for another name; the dialog closes when the entry has it."""
        with dialog("Rename", client=self._client) as opened:
            name = ui.input("Name", value=name_in_lists(entry)).props('autofocus data-testid="new-name"')
            rename = self._workspace.rename
            foot = Foot(
                opened,
                "Rename",
                "rename-to",
                lambda: self._do(partial(rename, entry.id, name.value or ""), self._renamed),
            )
            name.on("keydown.enter", foot.submit)

    async def _copy(self, entry: Entry) -> None:
        await copy_command(await asyncio.to_thread(self._workspace.command, entry.id), self._client)

    async def _remove(self, entry: Entry) -> None:
        await self._do(partial(self._workspace.remove, entry.id), partial(self._removed, entry))

    async def _do(self, act: Callable[[], object], show_page: Changed) -> None:
        await self._desk.change(act)
        with self._client:
            await done(show_page())


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


def undo_bar(desk: Desk, entry_id: str, name: str, then: Changed) -> Element:
    """Say for a while that something was removed, and put it back if the user wants to."""

    async def put_back() -> None:
        bar.delete()
        await desk.change(desk.workspace.trash.put_back, entry_id)
        await done(then())

    with div("il-undo", role="status") as bar:
        span("", f"Removed {name}.")
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


async def copy_command(command: str, client: Client) -> None:
    """Copy a command line and say so; where the browser refuses, show it to be copied by hand."""
    copied = await client.run_javascript(f"inferlabCopy({json.dumps(command)})", timeout=5.0)
    with client:
        if copied:
            ui.notify(f"Copied: {command}", multi_line=True, close_button="Close", position="top")
            return
    with dialog("Command line", "il-log-dialog", client) as opened:
        shell.command_line(command)
        close_button(opened)
