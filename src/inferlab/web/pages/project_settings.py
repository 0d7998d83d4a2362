"""A project's settings: its name, what its model is, and its end."""

from __future__ import annotations

import asyncio

from nicegui import ui
from starlette.responses import RedirectResponse, Response

from inferlab.errors import InferlabError
from inferlab.store.entries import Project
from inferlab.units import plural, size
from inferlab.views.history import moment
from inferlab.web import shell
from inferlab.web.components import models
from inferlab.web.components.forms import Foot, dialog, shapes_field
from inferlab.web.desk import Desk
from inferlab.web.sections import newest_profile, project_page
from inferlab.web.shell import div, p, tag
from inferlab.workspace.entries import NOUNS


def register(desk: Desk) -> None:
    """Define the page, and the address of the project itself."""

    @shell.page("/projects/{project_id}")
    async def project(project_id: str) -> Response:
        opened = await asyncio.to_thread(desk.workspace.store.projects.get, project_id)
        if opened.only_generates:
            return RedirectResponse(f"/projects/{project_id}/benchmarks")
        return await newest_profile(desk, project_id, "performance")

    @shell.page("/projects/{project_id}/settings")
    async def settings(project_id: str) -> None:
        async with project_page(desk, project_id, "settings") as opened:
            shell.titled("Settings")
            with div("il-columns"):
                _Naming(desk, opened.project)
                _facts(opened.project)
            _deletion(desk, opened.project)


class _Naming:
    """The name and the description, to be changed."""

    def __init__(self, desk: Desk, project: Project) -> None:
        self._desk, self._id = desk, project.id
        with shell.card():
            shell.section("Project")
            self._name = ui.input("Project name", value=project.name, on_change=self._forget_problem)
            self._name.props('data-testid="project-name"')
            self._description = ui.textarea("Description", value=project.description).props("rows=5")
            self._description.props('data-testid="project-description"')
            self._shapes = None
            if not project.only_generates:
                self._shapes = shapes_field(project.model, project.input_shapes, self._forget_problem)
            self._problem = div()
            ui.button("Save", on_click=self._save).props('data-testid="save"')

    def _forget_problem(self) -> None:
        """What was wrong is being changed."""
        self._problem.clear()

    async def _save(self) -> None:
        self._problem.clear()
        values = [field.value or "" for field in (self._name, self._description, self._shapes) if field]
        try:
            await self._desk.change(self._desk.workspace.change_project, self._id, *values)
        except InferlabError as error:
            with self._problem:
                shell.banner("warn", str(error), "problem")
            return
        # The name stands in the frame too.
        shell.reload()


def _facts(project: Project) -> None:
    model = project.model
    with shell.card(), div("il-column", name="facts"):
        shell.section("Model")
        shell.facts(
            (
                *models.origin(model),
                *models.facts(model, project.generative),
                ("Project made", moment(project.created_at)),
            )
        )


def _deletion(desk: Desk, project: Project) -> None:
    with shell.card("il-danger"):
        shell.section("Delete the project")
        p("il-muted", "Removes it with everything that was measured in it. This cannot be undone.")
        button = ui.button("Delete project", color="negative", on_click=lambda: _ask(desk, project))
        button.props('outline data-testid="delete"')


async def _ask(desk: Desk, project: Project) -> None:
    """Say what is removed, and do it where the user types the project's name."""
    counts = await asyncio.to_thread(desk.workspace.store.projects.counts, project.id)
    uploaded = await asyncio.to_thread(desk.workspace.owns_model, project)

    async def delete() -> None:
        await desk.change(desk.workspace.remove_project, project.id)
        ui.navigate.to("/")

    with dialog(f"Delete '{project.name}'?") as opened:
        div("", "This is removed, and cannot be brought back:")
        with tag("ul", "il-bullets"):
            for kind, entries in counts.items():
                tag("li", "", plural(entries, NOUNS.get(kind, kind).lower()))
            if uploaded:
                tag("li", "", f"the uploaded model, {size(project.model.size_bytes)}")
            tag("li", "", "the project, and its jobs in the queue")
        p("il-muted", "What was measured on the command line without this project stays.")
        typed = ui.input(f"Type the project's name to confirm: {project.name}").props('data-testid="confirm-name"')
        foot = Foot(opened, "Delete", "confirm-delete", delete, color="negative")
        foot.needs(typed, lambda text: (text or "").strip() == project.name)
