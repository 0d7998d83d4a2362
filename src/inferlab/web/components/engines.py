"""The engines of this machine: versions, states, and how those that lack are installed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.records import EngineInfo
from inferlab.store.entries import QueuedJob
from inferlab.units import size
from inferlab.web import shell
from inferlab.web.components.dialogs import Foot, command_line, dialog
from inferlab.web.components.jobs import JobActions, JobProgress
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.workspace import requests
from inferlab.workspace.engines import can_install, licence_of, title
from inferlab.workspace.requests import InstallRequest

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
        self._box: Element = html.div().classes("il-engines")
        self._engines: tuple[EngineInfo, ...] | None = None
        self._key: object = None
        self._jobs = JobActions(desk, lambda: self._show(desk.watch.snapshot))
        self._bars: dict[str, JobProgress] = {}
        with self._box:
            html.div("Checking which engines are available…").classes("il-muted")
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
        if key != self._key:
            self._key, self._bars = key, {}
            self._box.clear()
            with self._box:
                for engine in self._engines:
                    if engine.name not in _UNSHOWN:
                        self._row(engine, jobs.get(engine.name))
        for name, bar in self._bars.items():
            bar.show(jobs[name], [job.id for job in now.jobs].index(jobs[name].id))

    def _row(self, engine: EngineInfo, job: QueuedJob | None) -> None:
        words, look = _FOREIGN if _is_foreign(engine) else _STATES[engine.state]
        with html.div().classes("il-engine").props(f'data-testid="engine-row-{engine.name}"'):
            with html.div().classes("il-engine-head"):
                html.span(title(engine.name)).classes("il-strong")
                html.span(engine.version).classes("il-muted il-number")
                html.span().classes("il-grow")
                if job is None and can_install(engine):
                    install = ui.button("Install", on_click=lambda: self._ask(engine.name)).props("outline dense")
                    install.props(f'data-testid="install-{engine.name}"')
                shell.chip("installing" if job else words, "info" if job else look)
            if job is not None:
                with html.div().classes("il-job"):
                    cancel = partial(self._jobs.cancel, job.id)
                    self._bars[engine.name] = JobProgress(cancel=cancel, mark=f"-install-{engine.name}")
            elif engine.state != "ready":
                _reason(engine)

    def _ask(self, name: str) -> None:
        """The licence, to be agreed to."""
        licence = licence_of(name)

        async def agreed() -> None:
            await asyncio.to_thread(self._desk.workspace.add_installation, name)
            self._show(await self._desk.watch.refresh())

        with dialog(f"Install {title(name)}") as opened:
            html.p(
                f"It gets an environment of its own, of about {size(licence.size_bytes)}, from the Python Package "
                "Index. That is downloaded now."
            )
            with html.div().classes("il-licence").props('data-testid="licence"'):
                html.div(licence.name).classes("il-strong")
                html.p(licence.summary)
            agree = ui.checkbox("I agree to this licence").props('data-testid="agree"')
            Foot(opened, "Install", "install", agreed).needs(agree)


def _is_foreign(engine: EngineInfo) -> bool:
    """Whether nothing could make it run on this machine."""
    return engine.state == "missing" and not engine.remedy


def _reason(engine: EngineInfo) -> None:
    if engine.state == "broken" or _is_foreign(engine):
        html.div(engine.problem[:1].upper() + engine.problem[1:]).classes("il-muted il-small")
    if engine.remedy and not can_install(engine):
        command_line(engine.remedy, f"copy-{engine.name}")


def _installing(jobs: Sequence[QueuedJob]) -> dict[str, QueuedJob]:
    """The installations on their way, by engine."""
    jobs_by_engine = {}
    for job in jobs:
        if job.kind == "install":
            try:
                request = requests.from_content(job.kind, job.content)
            except InferlabError:
                continue
            assert isinstance(request, InstallRequest)
            jobs_by_engine[request.engine] = job
    return jobs_by_engine
