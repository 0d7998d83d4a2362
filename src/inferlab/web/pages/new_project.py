"""A new project in three steps: select a model, name the project, profile the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import ui
from nicegui.element import Element

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Model
from inferlab.store.entries import Project, QueuedJob
from inferlab.web import shell
from inferlab.web.components.actions import JobActions, JobProgress, queue_indicator
from inferlab.web.components.models import ModelPicker
from inferlab.web.components.profile_form import ProfileFields
from inferlab.web.desk import Desk, Snapshot, follow
from inferlab.web.shell import div, refilled, tag
from inferlab.workspace import requests
from inferlab.workspace.requests import USUAL_PROFILE, ProfileRequest, checked_name, suggested_name

_ENDED = {
    "cancelled": "Cancelled. What was measured until then is kept.",
    "interrupted": "Interrupted: the process that measures ended. What was measured until then is kept.",
}


class ProfileRun:
    """Shows the form, or a ring while its job runs, where it is made; `changed` is called when that turns."""

    def __init__(self, desk: Desk, changed: Callable[[], object]) -> None:
        self._desk, self._changed = desk, changed
        self._model: Model | None = None
        #: What measures; None until the first run.
        self.job: QueuedJob | None = None
        self.fields: ProfileFields | None = None
        self._form = div("il-column")
        self._ring = div("il-running", name="running")
        with self._ring:
            self._progress = JobProgress(desk, ring=True)
        self._trouble = div("il-column")
        self._ring.set_visibility(False)
        follow(desk, self._follow)

    def offer(self, model: Model) -> None:
        """Show the form for a model; what was entered for another stays as far as it fits."""
        if model == self._model:
            return
        self._build(model, self.fields.kept() if self.fields else USUAL_PROFILE)

    def resume(self, model: Model, job: QueuedJob) -> None:
        """Show a job that was begun before."""
        request = requests.request_of(job)
        if not isinstance(request, ProfileRequest):
            raise BadInput("This job is not a profile. See the list of projects.")
        self._build(model, request)
        self.take(job)

    def take(self, job: QueuedJob) -> None:
        """Show what becomes of a job from now on."""
        self.job = job
        self._show(self._desk.watch.snapshot)
        self._changed()

    @property
    def state(self) -> str:
        """What the page is about: the form, or the state of its job."""
        return "form" if self.job is None else self.job.status

    async def cancel(self) -> None:
        """Ask the job to end."""
        if self.job is not None:
            await self._desk.change(self._desk.workspace.store.jobs.cancel, self.job.id)
            await self._follow(Snapshot(), self._desk.watch.snapshot)

    def _build(self, model: Model, filled: ProfileRequest) -> None:
        self._model = model
        with refilled(self._form):
            div("", "Measure where the time goes, and what pruning would cost:")
            self.fields = ProfileFields(self._desk, model, filled=filled, changed=lambda: self._changed())

    async def _follow(self, _: Snapshot, now: Snapshot) -> None:
        if self.job is None or not self.job.alive:
            return
        before = self.job
        job = next((alive for alive in now.jobs if alive.id == before.id), None)
        if job is None:
            # Once it is out of the queue, only the store knows what became of it.
            job = await asyncio.to_thread(self._desk.workspace.store.jobs.get, before.id)
        self.job = job
        # Its place in the queue may change though it does not.
        self._show(now)
        if (job.status, job.cancel) != (before.status, before.cancel):
            self._changed()

    def _show(self, now: Snapshot) -> None:
        job = self.job
        assert job is not None
        self._ring.set_visibility(job.alive)
        self._form.set_visibility(not job.alive)
        self._trouble.set_visibility(not job.alive and job.status != "done")
        if self.fields is not None:
            # What was interrupted goes on as it was asked for.
            self.fields.enable(job.status in ("failed", "cancelled"))
        if job.alive:
            self._progress.show(job)
        elif job.status != "done":
            self._show_trouble(job)

    def _show_trouble(self, job: QueuedJob) -> None:
        with refilled(self._trouble):
            text = job.failure or _ENDED.get(job.status, "This did not work.")
            with shell.banner("wrong" if job.status == "failed" else "warn", text, "trouble"):
                log = ui.button("Log", on_click=lambda: JobActions(self._desk, lambda: None).show_log(job.id))
                log.props('flat dense color=white data-testid="log"' if job.status == "failed" else "flat dense")


_STEPS = (("Select model", "view_in_ar"), ("Name project", "sell"), ("Profile model", "memory"))
_LAST = len(_STEPS) - 1
_AGAIN = {"failed": "Retry", "cancelled": "Run again", "interrupted": "Resume"}


def register(desk: Desk) -> None:
    """Define the page."""

    @shell.page("/new")
    async def new(source: str = "", job: str = "") -> None:
        # With a job it is the page that was left while the profiles were measured.
        begun = await asyncio.to_thread(desk.workspace.store.jobs.get, job) if job else None
        project = None
        if begun is not None and begun.project_id is not None:
            project = await asyncio.to_thread(desk.workspace.store.projects.get, begun.project_id)
        with shell.frame("New project", (("Projects", "/"),)) as queue:
            queue_indicator(desk, queue)
            page = _NewProject(desk, source)
            if begun is not None and project is not None:
                page.resume(project, begun)


class _NewProject:
    """The page's content; all steps stay in it, so that going back loses nothing."""

    def __init__(self, desk: Desk, source: str) -> None:
        self._desk = desk
        self._step = 0
        self._project: Project | None = None
        self._suggested = ""
        self._busy = False
        with div("il-wizard"):
            tag("h1", "il-wizard-title", "New project")
            self._header = div()
            with shell.card("il-wizard-card"):
                self._bodies: list[Element] = [div("il-column") for _ in _STEPS]
                self._problem = div()
                with self._bodies[0]:
                    self._picker = ModelPicker(desk, self._model_changed, source)
                with self._bodies[1]:
                    self._name = ui.input("Project name", on_change=self._forget_problem)
                    self._name.props('data-testid="project-name"')
                    self._description = ui.textarea("Description (optional)").props("rows=4")
                    self._description.props('data-testid="project-description"')
                with self._bodies[2]:
                    self._run = ProfileRun(desk, self._show)
                    self._bodies[2].on("input", self._forget_problem, [])
                with div("il-wizard-actions"):
                    self._cancel = _button("Cancel", self._leave, quiet=True)
                    self._back = _button("Back", self._go_back, quiet=True)
                    self._complete = _button("Complete", self._finish)
                    self._next = _button("Next", self._go_on)
                    self._start = _button("Run", self._begin)
        self._show()

    def resume(self, project: Project, job: QueuedJob) -> None:
        """Show a project that was made here before, and the job that profiles it."""
        self._project, self._step = project, _LAST
        self._run.resume(project.model, job)

    @property
    def _model(self) -> Model | None:
        return self._project.model if self._project else self._picker.model

    @property
    def _last(self) -> int:
        """The last step: what only generates tokens has no profiles."""
        return _LAST - 1 if self._project is None and self._picker.only_generates else _LAST

    def _model_changed(self) -> None:
        model = self._picker.model
        if model is not None:
            # A name that the user gave stays.
            if (self._name.value or "") in ("", self._suggested):
                self._name.set_value(suggested_name(model))
            self._suggested = suggested_name(model)
        self._show()

    def _show(self) -> None:
        """Show the step that the page is at, and the buttons that lead on from it."""
        last, state, job = self._step == self._last, self._run.state, self._run.job
        alive, over = last and job is not None and job.alive, last and job is not None and not job.alive
        nothing = last and job is None and not (self._run.fields and self._run.fields.anything)
        with refilled(self._header):
            shell.steps(_STEPS[: self._last + 1], self._step + (over and state == "done"))
        for number, body in enumerate(self._bodies):
            body.set_visibility(number == self._step)
        self._problem.clear()
        self._cancel.set_visibility(not over)
        self._cancel.set_enabled(not (job is not None and job.cancel))
        self._back.set_visibility(self._step > 0 and self._project is None)
        self._complete.set_visibility(over or nothing)
        self._complete.props["outline"] = over and state != "done"
        self._next.set_visibility(not last)
        self._next.set_enabled(self._model is not None)
        self._start.set_visibility(last and not nothing and not alive and state != "done")
        self._start.set_text(_AGAIN.get(state, "Run"))

    def _go_back(self) -> None:
        self._step -= 1
        self._show()
        self._focus()

    def _go_on(self) -> None:
        if self._model is None:
            return
        if self._step == 1:
            if not self._named():
                return
            self._run.offer(self._model)
        self._step += 1
        self._show()
        self._focus()

    def _named(self) -> bool:
        """Whether the project has a name that it can have; else it is said why not."""
        try:
            checked_name(self._name.value or "", "project")
        except InferlabError as error:
            self._refuse(error)
            return False
        return True

    async def _begin(self) -> None:
        """Make the project, once, and queue its profiles."""
        fields, model, workspace, job = self._run.fields, self._model, self._desk.workspace, self._run.job
        if self._busy or fields is None or model is None:
            return
        self._work(self._start, True)
        try:
            if job is not None and job.status == "interrupted":
                job = await asyncio.to_thread(workspace.store.jobs.resume, job.id)
            else:
                form = fields.form()
                await asyncio.to_thread(workspace.checked_profile, model, form)
                job = await asyncio.to_thread(workspace.add_profile, (await self._create_project(model)).id, form)
        except InferlabError as error:
            self._refuse(error)
            return
        finally:
            self._work(self._start, False)
        await self._desk.watch.refresh()
        self._run.take(job)
        # Whoever comes back to this page, or loads it again, finds the job.
        ui.navigate.history.replace(f"/new?job={job.id}")

    async def _finish(self) -> None:
        """Open the project; without any profile to measure it is made only now."""
        model = self._model
        if self._busy or model is None or not self._named():
            return
        self._work(self._complete, True)
        try:
            project = await self._create_project(model)
        except InferlabError as error:
            self._refuse(error)
            return
        finally:
            self._work(self._complete, False)
        ui.navigate.to(f"/projects/{project.id}")

    async def _create_project(self, model: Model) -> Project:
        workspace = self._desk.workspace
        shapes = self._run.fields.input_shapes if self._run.fields else ""
        if self._project is None:
            name, description = self._name.value or "", self._description.value or ""
            self._project = await asyncio.to_thread(workspace.create_project, name, description, model, shapes)
            self._picker.keep()
        elif self._project.input_shapes != shapes:
            # What was tried first did not fit.
            before = self._project
            self._project = await asyncio.to_thread(
                workspace.change_project, before.id, before.name, before.description, shapes
            )
        return self._project

    async def _leave(self) -> None:
        job = self._run.job
        if job is not None and job.alive:
            await self._run.cancel()
        else:
            self._picker.leave()
            ui.navigate.to("/")

    def _work(self, button: ui.button, on: bool) -> None:
        self._busy = on
        button.props(add="loading" if on else "", remove="" if on else "loading")

    def _refuse(self, error: InferlabError) -> None:
        with refilled(self._problem):
            shell.banner("warn", str(error), "problem")

    def _forget_problem(self) -> None:
        """What was wrong is being changed."""
        self._problem.clear()

    def _focus(self) -> None:
        """Let the keyboard go on where the step begins."""
        first = "input:not([type=file]):not([disabled]), textarea, button, [tabindex='0']"
        ui.run_javascript(f'getHtmlElement({self._bodies[self._step].id}).querySelector("{first}")?.focus()')


def _button(text: str, act: Callable[[], object], quiet: bool = False) -> ui.button:
    button = ui.button(text, on_click=act, color=None if quiet else "primary").props(
        f'data-testid="{text.lower()}"'
    )
    return button.props("flat").classes("il-quiet") if quiet else button
