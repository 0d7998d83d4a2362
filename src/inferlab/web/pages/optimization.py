"""Optimization: the versions of a project's model, the next one with its estimates, and each as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nicegui import html, ui

from inferlab.errors import BadInput, InferlabError
from inferlab.records.optimization import Scheme
from inferlab.store.entries import Entry
from inferlab.views.history import age
from inferlab.web import shell
from inferlab.web.components.charts import loaded
from inferlab.web.components.entries import offer_undo
from inferlab.web.components.jobs import version_jobs
from inferlab.web.components.version_editor import VersionEditor
from inferlab.web.components.versions import VersionTable, ask_version
from inferlab.web.desk import Desk
from inferlab.web.pages.version import VersionPage
from inferlab.web.sections import Opened, approximated, losses, measured, only_generates, project_page
from inferlab.web.settings import PAGE_TIMEOUT_S
from inferlab.workspace.version_requests import SCHEMES, Basis, VersionRequest, add_version, free_name, read_basis
from inferlab.workspace.versions import Version


def register(desk: Desk) -> None:
    """Define the pages."""

    @ui.page("/projects/{project_id}/optimization", response_timeout=PAGE_TIMEOUT_S)
    async def optimization(project_id: str, removed: str = "") -> None:
        async with project_page(desk, project_id, "optimization") as opened:
            if only_generates(opened):
                return
            await offer_undo(desk, removed, f"/projects/{project_id}/optimization", "the version")
            await _Overview(desk, opened).build()

    @ui.page("/projects/{project_id}/optimization/{version_id}", response_timeout=PAGE_TIMEOUT_S)
    async def version(project_id: str, version_id: str) -> None:
        async with project_page(desk, project_id, f"optimization/{version_id}") as opened:
            if not await asyncio.to_thread(desk.workspace.store.projects.belongs, project_id, version_id):
                with html.div().props('data-testid="no-version"'):
                    shell.empty("No such version", "This project has no such version: it may have been removed.")
                return
            await VersionPage(desk, opened, version_id).build()


@dataclass(frozen=True, slots=True)
class _Found:
    """What the page begins with; without a basis nothing can be pruned, for the reason given."""

    versions: list[Version]
    basis: Basis | None
    problem: str


class _Overview:
    """All versions, and the editor of the next one."""

    def __init__(self, desk: Desk, opened: Opened) -> None:
        self._desk, self._opened, self._project = desk, opened, opened.project
        self._base = f"/projects/{opened.project.id}/optimization"
        self._editor: VersionEditor | None = None

    async def build(self) -> None:
        """Fill the page."""
        with shell.titled("Optimization"):
            self._button = ui.button("Create version", icon="add", on_click=self._create)
            self._button.props('data-testid="create-version"').set_enabled(False)
        found = await loaded(self._read)
        shell.section("Versions")
        table = VersionTable(self._project.model, self._base)
        table.show(found.versions)
        self._jobs = version_jobs(self._desk, self._project.id, self._base, found.versions, table.show)
        await self._jobs.refresh()
        shell.section("New version", "estimates follow the sliders")
        if found.basis is None:
            self._precision(found.problem)
            return
        own = self._opened.own
        self._editor = VersionEditor(found.basis, self._rebase, _timed(own), _tried(own))
        self._button.set_enabled(True)
        await self._editor.begin()

    def _precision(self, problem: str) -> None:
        """What can be chosen of a version where nothing can be pruned."""
        if self._project.model.kind != "onnx":
            shell.empty("No versions", "Only ONNX models can be optimised. Export the model to ONNX first.")
            return
        with shell.card("il-version-new"), html.div().props('data-testid="nothing-to-prune"').classes("il-column"):
            html.p(f"Nothing can be pruned: {problem} Its precision can be changed.")
            options = {str(one): text for one, text in SCHEMES.items()}
            self._scheme = ui.select(options, label="Precision", value="static").props('data-testid="scheme"')
        self._button.set_enabled(True)

    def _draft(self, taken: set[str]) -> VersionRequest:
        """The version that was put together so far."""
        if self._editor is None:
            scheme: Scheme = self._scheme.value
            name = SCHEMES[scheme].replace(", ", " ")
            return VersionRequest(free_name(name, taken), quantization=scheme)
        draft = self._editor.draft
        return draft.form(free_name(draft.suggested(), taken), self._editor.basis)

    def _read(self) -> _Found:
        versions = self._desk.workspace.versions.of_project(self._project.id)
        try:
            basis = read_basis(self._desk.workspace, self._project.id)
            if not basis.loss.layers:
                raise BadInput("This model has no weights that could be pruned.")
        except InferlabError as error:
            return _Found(versions, None, str(error))
        return _Found(versions, basis, "")

    async def _rebase(self, performance_id: str | None, loss_id: str | None) -> Basis:
        return await asyncio.to_thread(read_basis, self._desk.workspace, self._project.id, performance_id, loss_id)

    async def _create(self) -> None:
        workspace, project = self._desk.workspace, self._project
        names = await asyncio.to_thread(workspace.versions.names, project.id)
        form = self._draft(set(names.values()))

        async def run(asked: VersionRequest) -> None:
            await asyncio.to_thread(add_version, workspace, project.id, asked)
            await self._desk.watch.refresh()
            await self._jobs.refresh()

        await ask_version(
            project.model, lambda: workspace.engines.choices(project.model), form, run, workspace.sources
        )


def _timed(profiles: Sequence[Entry]) -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        one.id: f"{one.brief['performance']['name']} ({age(one.created_at, now)})" for one in measured(profiles)
    }


def _tried(profiles: Sequence[Entry]) -> dict[str, str]:
    now = datetime.now(UTC)
    found = {loss.id: f"{loss.brief['loss']['name']} ({age(loss.created_at, now)})" for loss in losses(profiles)}
    theory = approximated(profiles)
    return {**found, theory.id: "Approximated"} if theory else found
