"""The last step of a new project: the profiles that are wanted, and how far measuring them is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import BadInput
from inferlab.records import Model
from inferlab.store.entries import QueuedJob
from inferlab.units import plural
from inferlab.web import shell
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.web.components.advice import on_pages
from inferlab.web.components.job_list import left, log_dialog
from inferlab.web.components.profile_form import ProfileFields
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import ProfileAsked
from inferlab.workspace.forms import ProfileForm, form_of

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
        self._form: Element = html.div().classes("il-column")
        self._ring: Element = html.div().classes("il-running").props('data-testid="running"')
        with self._ring:
            self._progress = shell.Progress(0.0, ring=True)
            self._stage = ui.label().classes("il-strong").props('data-testid="stage"')
            self._details = ui.label().classes("il-muted il-number").props('data-testid="left"')
        self._trouble: Element = html.div().classes("il-column")
        self._ring.set_visibility(False)
        follow(desk, self._follow)

    def offer(self, model: Model) -> None:
        """Show the form for a model; what was entered for another stays as far as it fits."""
        if model == self._model:
            return
        self._build(model, self.fields.kept() if self.fields else ProfileForm())

    def resume(self, model: Model, job: QueuedJob) -> None:
        """Show a job that was begun before."""
        asked = requests.from_content(job.kind, job.content)
        if not isinstance(asked, ProfileAsked):
            raise BadInput("This job makes no profile. See the list of projects.")
        self._build(model, form_of(asked))
        self.take(job)

    def take(self, job: QueuedJob) -> None:
        """Show what becomes of a job from now on."""
        self.job = job
        self._show(self._desk.watch.wanted())
        self._changed()

    @property
    def state(self) -> str:
        """What the page is about: the form, or the state of its job."""
        return "form" if self.job is None else self.job.status

    async def cancel(self) -> None:
        """Ask the job to end."""
        if self.job is not None:
            await asyncio.to_thread(self._desk.workspace.cancel, self.job.id)
            await self._follow(Snapshot(), await self._desk.watch.refresh())

    def _build(self, model: Model, filled: ProfileForm) -> None:
        self._model = model
        self._form.clear()
        with self._form:
            html.div("Measure where the time goes, and what pruning would cost:")
            self.fields = ProfileFields(self._desk, model, filled=filled, changed=lambda: self._changed())

    async def _follow(self, _: Snapshot, now: Snapshot) -> None:
        if self.job is None or not self.job.alive:
            return
        before = self.job
        job = next((one for one in now.jobs if one.id == before.id), None)
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
            self._show_progress(job, [one.id for one in now.jobs])
        elif job.status != "done":
            self._show_trouble(job)

    def _show_progress(self, job: QueuedJob, queue: list[str]) -> None:
        before = queue.index(job.id) if job.id in queue else 0
        if job.status == "queued":
            self._progress.set(0.0)
            self._stage.set_text("Waiting")
            self._details.set_text(
                f"behind {plural(before, 'job')} in the queue" if before else "the next in the queue"
            )
        else:
            self._progress.set(job.fraction)
            self._stage.set_text("Cancelling" if job.cancel else job.stage or "Starting")
            self._details.set_text("" if job.cancel else left(job.left_s))

    def _show_trouble(self, job: QueuedJob) -> None:
        self._trouble.clear()
        with self._trouble:
            text = on_pages(job.failure) or _ENDED.get(job.status, "This did not work.")
            with shell.banner("wrong" if job.status == "failed" else "warn", text).props('data-testid="trouble"'):
                log = ui.button("Log", on_click=lambda: log_dialog(self._desk, job.id))
                log.props('flat dense color=white data-testid="log"' if job.status == "failed" else "flat dense")
