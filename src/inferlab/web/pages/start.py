"""The start page: projects, the queue, and what this machine is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

from nicegui import ui

from inferlab import machine
from inferlab.errors import InferlabError
from inferlab.records import EngineInfo
from inferlab.store.entries import CellEntry, ProjectLine, QueuedJob
from inferlab.units import capitalized, duration, plural, size
from inferlab.version import __version__
from inferlab.views import history
from inferlab.web import shell
from inferlab.web.components import models
from inferlab.web.components.actions import TROUBLED, JobActions, JobPanel, JobProgress, queue_indicator
from inferlab.web.components.forms import Foot, dialog
from inferlab.web.desk import Desk, Snapshot, follow
from inferlab.web.shell import aged, div, p, refilled, span, tag
from inferlab.workspace import requests
from inferlab.workspace.engines import can_install, licence_of, title
from inferlab.workspace.requests import InstallRequest
from inferlab.workspace.workspace import Workspace

# Fewer are seen at one look.
_SEARCH_FROM = 6
# A page of them; a longer one takes longer to paint than to search.
_PAGE = 20
_HEADS = ("Project", "Model", "Size", "Parameters", "Best result", "Measured", "Last change")


class ProjectTable:
    """Shows projects where it is made, with a search box where there are many."""

    def __init__(self) -> None:
        self._lines: Sequence[ProjectLine] = ()
        self._limit = _PAGE
        self._search = ui.input(placeholder="Search projects", on_change=lambda: self._paint())
        self._search.props('clearable aria-label="Search projects" data-testid="search-projects"').classes(
            "il-search"
        )
        with self._search.add_slot("prepend"):
            ui.icon("search")
        with div("il-card il-card-flush"):
            self._part = shell.Part()
            # It is never painted again: a click on a button that was just replaced would be lost.
            self._more = ui.button(on_click=self._show_more).props('flat data-testid="more-projects"')
            self._more.classes("il-more")

    def show(self, lines: Sequence[ProjectLine]) -> None:
        """Show these projects, or those of them that are searched for."""
        self._lines = lines
        self._search.set_visibility(len(lines) >= _SEARCH_FROM)
        self._paint()

    def _paint(self) -> None:
        fitting = [line for line in self._lines if fits(line, self._search.value or "")]
        hidden = len(fitting) - self._limit
        self._more.set_visibility(hidden > 0)
        self._more.set_text(f"Show {min(_PAGE, hidden)} more of {len(fitting)}")
        rows = [(line, aged(line.active_at)) for line in fitting[: self._limit]]
        self._part.show(rows, lambda: self._draw(rows))

    @staticmethod
    def _draw(rows: Sequence[tuple[ProjectLine, str]]) -> None:
        if rows:
            with div("il-scroll"):
                shell.table(_HEADS, (_row(*row) for row in rows), ("Size", "Parameters"), "il-projects")
        else:
            div("il-muted il-no-rows", "No project matches this search.")

    def _show_more(self) -> None:
        self._limit += _PAGE
        self._paint()


def fits(line: ProjectLine, search: str) -> bool:
    """Whether every word of a search is in a project's name, description or model."""
    project = line.project
    text = " ".join((project.name, project.description, project.model.source, project.model.precision)).lower()
    return all(word in text for word in search.lower().split())


def best(cell: CellEntry | None, digest: str = "") -> tuple[str, str]:
    """A result with its interval, and where it was reached; empty where there is none.

    `digest` is that of the project's model: what has another is a version of it.
    """
    if cell is None or cell.items_per_sec is None:
        return "", ""
    fixed = cell.cell
    where = [title(fixed.engine), plural(fixed.num_cores, "core"), f"batch {fixed.batch_size}"]
    where += ["optimised version"] if digest not in ("", fixed.model_digest) else []
    return history.best([cell]), ", ".join(where)


def _row(line: ProjectLine, changed: str) -> shell.Row:
    project, model = line.project, line.project.model
    reached, where = best(line.best, model.digest)
    if not reached and line.tpot_ms is not None:
        reached, where = f"TPOT {duration(line.tpot_ms / 1e3)}", "per output token"

    def name() -> None:
        tag("a", "il-row-link", project.name, href=f"/projects/{project.id}")
        if project.description:
            div("il-muted il-small il-cut", project.description, title=project.description)

    def named_model() -> None:
        div("il-cut", models.source(model), title=model.source)
        div("il-muted il-small", f"{models.kind(model)}, {model.precision}")

    cells: tuple[shell.Cell, ...] = (
        name,
        named_model,
        size(model.size_bytes),
        models.parameters(model),
        (reached, where) if reached else lambda: span("il-muted", "no benchmark yet"),
        f"{plural(line.benchmarks, 'benchmark')}, {plural(line.profiles, 'profile')}",
        lambda: span("il-nowrap", changed, title=f"{line.active_at.astimezone():%c}"),
    )
    return shell.Row(cells, name=f"project-{project.id}")


# What a first look at inferlab may begin with: small and large, an image and a text, and one that is trained.
_DEMOS = (
    ("demo:mobilenet_v2", "MobileNetV2"),
    ("demo:resnet50", "ResNet-50"),
    ("demo:bert_3layer", "BERT, 3 layers"),
    ("demo:digits", "Digits, with data"),
    ("demo:llama", "Llama, generates tokens"),
)
_EMPTY = (
    "A project is a model with its profiles and benchmarks. Start with your own model, or with one of these, "
    "which are made here without a download:"
)
_MOST_ENDED = 5


@dataclass(frozen=True, slots=True)
class _Lists:
    """What the page shows out of the store."""

    projects: Sequence[ProjectLine]
    unfiled: Sequence[tuple[str, int]]
    ended: Sequence[QueuedJob]


def register(desk: Desk) -> None:
    """Define the page."""

    @shell.page("/")
    async def start() -> None:
        projects = await asyncio.to_thread(_read, desk.workspace)
        with shell.frame("Projects") as queue:
            queue_indicator(desk, queue)
            _Start(desk, projects)


def _read(workspace: Workspace) -> _Lists:
    recent = workspace.store.jobs.recent()
    ended = [job for job in recent if job.status in TROUBLED][:_MOST_ENDED]
    return _Lists(workspace.store.projects.lines(), workspace.store.projects.unfiled(), ended)


class _Start:
    """The page's content; it follows what the runner and other tabs do."""

    def __init__(self, desk: Desk, lists: _Lists) -> None:
        self._desk, self._lists = desk, lists
        with shell.titled("Projects"):
            ui.button("New project", icon="add").props('href="/new" data-testid="new-project"')
        self._empty = div()
        with self._empty:
            _offer_demos()
        self._projects = div("il-column")
        with self._projects:
            self._table = ProjectTable()
        self._unfiled = div("il-column")
        self._queue = div("il-column")
        with self._queue:
            shell.section("Queue", "one measurement at a time")
            with shell.card("il-card-flush"):
                self._jobs = JobPanel(desk, self._reload)
        with div("il-columns"):
            _system(desk.workspace)
            _engines(desk)
        self._show(desk.watch.snapshot)
        follow(desk, self._follow, self._reload)

    async def _follow(self, before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp:
            await self._reload()
        else:
            self._show_jobs(now)

    async def _reload(self) -> None:
        self._lists = await asyncio.to_thread(_read, self._desk.workspace)
        self._show(self._desk.watch.snapshot)

    def _show(self, now: Snapshot) -> None:
        lists = self._lists
        self._empty.set_visibility(not lists.projects)
        self._projects.set_visibility(bool(lists.projects))
        if lists.projects:
            self._table.show(lists.projects)
        self._unfiled.set_visibility(bool(lists.unfiled))
        with refilled(self._unfiled):
            _offer_unfiled(lists.unfiled)
        self._show_jobs(now)

    def _show_jobs(self, now: Snapshot) -> None:
        names = {line.project.id: line.project.name for line in self._lists.projects}
        self._queue.set_visibility(bool(now.jobs or self._lists.ended))
        self._jobs.show([*now.jobs, *self._lists.ended], names)


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
            with div("il-list-row"):
                span("il-cut", source).props["title"] = source
                span("il-muted il-small il-grow", plural(entries, "benchmark"))
                button = ui.button("Make a project from it").props("flat dense")
                # Foreign text, which may have quotes in it.
                button.props["href"] = _new(source)
                button.props["data-testid"] = f"file-{source}"


def _system(workspace: Workspace) -> None:
    seen = machine.describe()
    threads = f", {plural(seen.logical_cpus, 'thread')}" if seen.logical_cpus != seen.physical_cores else ""
    quota = "" if seen.cpu_quota is None else f", of which a quota allows {seen.cpu_quota:g}"
    nodes = "" if seen.numa_nodes < 2 else f", {seen.numa_nodes} NUMA nodes"
    folders = "\n".join(map(str, workspace.sources.folders))
    with shell.card(), div("il-column", name="system"):
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
                ("Folders with models", folders or "none are allowed"),
            )
        )


def _engines(desk: Desk) -> None:
    with shell.card(), div(name="engines"):
        with shell.section("Engines"):
            span("il-grow")
            again = ui.button(icon="refresh").props('flat dense round aria-label="Check again"')
            again.tooltip("Check again which engines are available")
        engines = EngineList(desk)
        again.on_click(engines.look_again)


_STATES: dict[str, tuple[str, shell.Kind]] = {
    "ready": ("ready", "ok"),
    "missing": ("not installed", "muted"),
    "broken": ("broken", "wrong"),
}
_FOREIGN: tuple[str, shell.Kind] = ("cannot run here", "muted")
# For tests and demonstrations: nobody deploys it.
_UNSHOWN = ("fake",)


class EngineList:
    """Shows the engines where it is made; asking them takes seconds, so that they come after the page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._part = shell.Part("il-engines")
        self._engines: tuple[EngineInfo, ...] | None = None
        self._jobs = JobActions(desk, lambda: self._show(desk.watch.snapshot))
        self._bars: dict[str, JobProgress] = {}
        with self._part.box:
            div("il-muted", "Checking which engines are available…")
        ui.timer(0.0, self._look, once=True)
        follow(desk, self._changed)

    async def look_again(self) -> None:
        """Ask all engines once more."""
        self._desk.workspace.engines.forget()
        await self._look()

    async def _look(self) -> None:
        self._engines = await asyncio.to_thread(self._desk.workspace.engines.all)
        self._show(self._desk.watch.snapshot)

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        if set(_installing(before.jobs)) - set(_installing(now.jobs)):
            await self._look()
        else:
            self._show(now)

    def _show(self, now: Snapshot) -> None:
        if self._engines is None:
            return
        jobs = _installing(now.jobs)
        key = (self._engines, {name: (job.id, job.status, job.cancel) for name, job in jobs.items()})
        self._part.show(key, lambda: self._draw(jobs))
        for name, bar in self._bars.items():
            bar.show(jobs[name])

    def _draw(self, jobs: Mapping[str, QueuedJob]) -> None:
        self._bars = {}
        for engine in self._engines or ():
            if engine.name not in _UNSHOWN:
                self._row(engine, jobs.get(engine.name))

    def _row(self, engine: EngineInfo, job: QueuedJob | None) -> None:
        words, look = _FOREIGN if _is_foreign(engine) else _STATES[engine.state]
        with div("il-engine", name=f"engine-row-{engine.name}"):
            with div("il-engine-head"):
                span("il-strong", title(engine.name))
                span("il-muted il-number", engine.version)
                span("il-grow")
                if job is None and can_install(engine):
                    install = ui.button("Install", on_click=lambda: self._ask(engine.name)).props("outline dense")
                    install.props(f'data-testid="install-{engine.name}"')
                shell.chip("installing" if job else words, "info" if job else look)
            if job is not None:
                with div("il-job"):
                    cancel = partial(self._jobs.cancel, job.id)
                    self._bars[engine.name] = JobProgress(
                        self._desk, cancel=cancel, mark=f"-install-{engine.name}"
                    )
            elif engine.state != "ready":
                _reason(engine)

    def _ask(self, name: str) -> None:
        """The licence, to be agreed to."""
        licence = licence_of(name)

        async def agreed() -> None:
            await self._desk.change(self._desk.workspace.add_installation, name)
            self._show(self._desk.watch.snapshot)

        with dialog(f"Install {title(name)}") as opened:
            p(
                "",
                f"It gets an environment of its own, of about {size(licence.size_bytes)}, from the Python Package "
                "Index. That is downloaded now.",
            )
            with div("il-licence", name="licence"):
                div("il-strong", licence.name)
                p("", licence.summary)
            agree = ui.checkbox("I agree to this licence").props('data-testid="agree"')
            Foot(opened, "Install", "install", agreed).needs(agree)


def _is_foreign(engine: EngineInfo) -> bool:
    """Whether nothing could make it run on this machine."""
    return engine.state == "missing" and not engine.remedy


def _reason(engine: EngineInfo) -> None:
    if engine.state == "broken" or _is_foreign(engine):
        div("il-muted il-small", capitalized(engine.problem))
    if engine.remedy and not can_install(engine):
        shell.command_line(engine.remedy, f"copy-{engine.name}")


def _installing(jobs: Sequence[QueuedJob]) -> dict[str, QueuedJob]:
    """The installations on their way, by engine."""
    jobs_by_engine = {}
    for job in jobs:
        if job.kind == "install":
            try:
                request = requests.request_of(job)
            except InferlabError:
                continue
            assert isinstance(request, InstallRequest)
            jobs_by_engine[request.engine] = job
    return jobs_by_engine
