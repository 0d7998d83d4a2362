"""The start page: projects, the queue, and what this machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nicegui import html, ui
from nicegui.element import Element

from inferlab import machine
from inferlab.store.entries import ProjectLine, QueuedJob
from inferlab.units import plural, size
from inferlab.version import __version__
from inferlab.web import shell
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow, queue_indicator
from inferlab.web.components.engine_list import EngineList
from inferlab.web.components.job_list import TROUBLED, JobList
from inferlab.web.components.project_table import ProjectTable
from inferlab.web.settings import PAGE_TIMEOUT_S
from inferlab.workspace.workspace import Workspace

# What a first look at inferlab may begin with: small and large, an image and a text, and one that is trained.
_DEMOS = (
    ("demo:mobilenet_v2", "MobileNetV2"),
    ("demo:resnet50", "ResNet-50"),
    ("demo:bert_3layer", "BERT, 3 layers"),
    ("demo:digits", "Digits, with data"),
)
_EMPTY = (
    "A project is a model with its profiles and benchmarks. Begin with your own model, or with one of these, "
    "which are made here without a download:"
)
_MOST_ENDED = 5
# The ages in the table are renewed so often.
_RENEW_S = 60.0


@dataclass(frozen=True, slots=True)
class _Found:
    """What the page shows out of the store."""

    projects: Sequence[ProjectLine]
    unfiled: Sequence[tuple[str, int]]
    ended: Sequence[QueuedJob]


def register(desk: Desk) -> None:
    """Define the page."""

    @ui.page("/", response_timeout=PAGE_TIMEOUT_S)
    async def start() -> None:
        found = await asyncio.to_thread(_read, desk.workspace)
        with shell.frame("Projects") as frame:
            queue_indicator(desk, frame.queue)
            _Start(desk, found)


def _read(workspace: Workspace) -> _Found:
    recent = workspace.store.jobs.recent()
    ended = [one for one in recent if one.status in TROUBLED][:_MOST_ENDED]
    return _Found(workspace.projects(), workspace.store.projects.unfiled(), ended)


class _Start:
    """The page's content; it follows what the runner and other tabs do."""

    def __init__(self, desk: Desk, found: _Found) -> None:
        self._desk, self._found = desk, found
        with shell.titled("Projects"):
            ui.button("New project", icon="add").props('href="/new" data-testid="new-project"')
        self._empty: Element = html.div()
        with self._empty:
            _offer_demos()
        self._projects: Element = html.div().classes("il-column")
        with self._projects:
            self._table = ProjectTable()
        self._unfiled: Element = html.div().classes("il-column")
        self._queue: Element = html.div().classes("il-column")
        with self._queue:
            shell.section("Queue", "one measurement at a time")
            with shell.card("il-card-flush"):
                self._jobs = JobList(desk, self._reload)
        with html.div().classes("il-columns"):
            _system(desk.workspace)
            _engines(desk)
        self._show(desk.watch.wanted())
        follow(desk, self._follow)
        ui.timer(_RENEW_S, self._reload)

    async def _follow(self, before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp:
            await self._reload()
        else:
            self._show_jobs(now)

    async def _reload(self) -> None:
        self._found = await asyncio.to_thread(_read, self._desk.workspace)
        self._show(self._desk.watch.wanted())

    def _show(self, now: Snapshot) -> None:
        found = self._found
        self._empty.set_visibility(not found.projects)
        self._projects.set_visibility(bool(found.projects))
        if found.projects:
            self._table.show(found.projects)
        self._unfiled.set_visibility(bool(found.unfiled))
        self._unfiled.clear()
        with self._unfiled:
            _offer_unfiled(found.unfiled)
        self._show_jobs(now)

    def _show_jobs(self, now: Snapshot) -> None:
        names = {line.project.id: line.project.name for line in self._found.projects}
        self._queue.set_visibility(bool(now.jobs or self._found.ended))
        self._jobs.show(now.jobs, self._found.ended, names)


def _new(source: str) -> str:
    return f"/new?{urlencode({'source': source})}"


def _offer_demos() -> None:
    with shell.empty("No projects yet", _EMPTY):
        for source, name in _DEMOS:
            ui.button(name).props(f'outline href="{_new(source)}" data-testid="{source}"')


def _offer_unfiled(models: Sequence[tuple[str, int]]) -> None:
    shell.section("Measured on the command line without a project")
    with shell.card("il-card-flush il-list"):
        for source, entries in models:
            with html.div().classes("il-list-row"):
                html.span(source).classes("il-cut").props["title"] = source
                html.span(plural(entries, "benchmark")).classes("il-muted il-small il-grow")
                button = ui.button("Make a project of it").props("flat dense")
                # Foreign text, which may have quotes in it.
                button.props["href"] = _new(source)
                button.props["data-testid"] = f"file-{source}"


def _system(workspace: Workspace) -> None:
    seen = machine.describe()
    threads = f", {plural(seen.logical_cpus, 'thread')}" if seen.logical_cpus != seen.physical_cores else ""
    quota = "" if seen.cpu_quota is None else f", of which a quota allows {seen.cpu_quota:g}"
    nodes = "" if seen.numa_nodes < 2 else f", {seen.numa_nodes} NUMA nodes"
    folders = "\n".join(map(str, workspace.sources.folders))
    with shell.card(), html.div().classes("il-column").props('data-testid="system"'):
        shell.section("This machine", seen.node)
        shell.facts(
            (
                ("CPU", f"{seen.cpu} ({seen.architecture})"),
                ("Instruction sets", ", ".join(seen.instruction_sets) or "unknown"),
                ("Cores", f"{seen.physical_cores}{threads}{nodes}{quota}"),
                ("Memory", "unknown" if seen.memory_bytes is None else size(seen.memory_bytes)),
                ("System", seen.system),
                ("inferlab", __version__),
                ("Store", workspace.store.name),
                ("Folders with models", folders or "none: start with inferlab serve --folder DIR"),
            )
        )


def _engines(desk: Desk) -> None:
    with shell.card(), html.div().props('data-testid="engines"'):
        with shell.section("Engines"):
            html.span().classes("il-grow")
            again = ui.button(icon="refresh").props('flat dense round aria-label="Look again"')
            again.tooltip("Look again which engines are here")
        engines = EngineList(desk)
        again.on_click(engines.look_again)
