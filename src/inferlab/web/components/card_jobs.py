"""What a card says of its job: it waits, it runs, or why it ended before it was done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry, QueuedJob
from inferlab.web import shell
from inferlab.web.components.advice import on_pages
from inferlab.web.components.card_items import Item
from inferlab.web.components.card_words import before
from inferlab.web.components.job_list import left
from inferlab.web.live import NAMES
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import ComparisonAsked

_ENDS = {
    "cancelled": "Cancelled.",
    "interrupted": "Interrupted: inferlab was stopped while this was measured.",
    "failed": "Failed.",
}


@dataclass(frozen=True, slots=True)
class JobActions:
    """What can be done about a job; each is given the job."""

    cancel: Callable[[QueuedJob], Awaitable[None]]
    resume: Callable[[QueuedJob], Awaitable[None]]
    dismiss: Callable[[QueuedJob], Awaitable[None]]
    show_log: Callable[[QueuedJob], Awaitable[None]]


class JobPanel:
    """The part of a card about its job; empty where the job was done."""

    def __init__(self, slot: Element, actions: JobActions) -> None:
        self._slot, self._actions = slot, actions
        self._shown: tuple[object, ...] = ()
        self._ring: shell.Progress | None = None

    def show(self, item: Item, position: int) -> None:
        """Say what there is to say; only what changed is drawn anew."""
        job = item.job
        parts = (job.id, job.status, job.cancel, job.failure, item.entry is None) if job else (None,)
        shown = (*parts, None if item.alive else measured(item))
        if shown != self._shown:
            self._shown = shown
            self._slot.clear()
            self._ring = None
            with self._slot:
                if job is not None and job.alive:
                    self._fill_progress(job)
                elif item.entry is None or not _is_whole(item.entry, job):
                    self._fill_ended(item)
        if job is not None and self._ring is not None:
            self.progress(job, position)

    def progress(self, job: QueuedJob, position: int) -> None:
        """How far it is."""
        if self._ring is None:
            return
        waits = job.status == "queued"
        self._ring.set(None if waits else job.fraction)
        self._stage.set_text("Waiting" if waits else job.stage or NAMES[job.kind])
        rest = before(position) if waits else left(job.left_s)
        self._rest.set_text("ends, and keeps what is measured" if job.cancel else rest)

    def _fill_progress(self, job: QueuedJob) -> None:
        with html.div().classes("il-bench-progress").props('data-testid="progress"'):
            self._ring = shell.Progress(job.fraction, ring=True)
            self._stage = ui.label("").classes("il-bench-stage").props('data-testid="stage"')
            self._rest = ui.label("").classes("il-muted il-number").props('data-testid="left"')
            cancel = ui.button("Cancel", on_click=lambda: self._actions.cancel(job))
            cancel.props('flat dense data-testid="cancel"').set_enabled(not job.cancel)

    def _fill_ended(self, item: Item) -> None:
        job = item.job
        status = job.status if job else ""
        bad = status == "failed" or (item.entry is not None and item.entry.status == "failed")
        with html.div(role="alert").classes(f"il-strip {'il-strip-failed' if bad else ''}") as strip:
            ui.icon("error_outline" if bad else "info_outline")
            html.div(_told(item)).classes("il-strip-text")
            if job is not None:
                self._fill_buttons(job, item.entry is not None)
        strip.props(f'data-testid="ended" data-status="{status}"')

    def _fill_buttons(self, job: QueuedJob, has_entry: bool) -> None:
        actions = self._actions
        if job.status in ("cancelled", "interrupted"):
            resume = ui.button("Resume", icon="play_arrow", on_click=lambda: actions.resume(job))
            resume.props('flat dense data-testid="resume"')
        if job.started_at is not None:
            ui.button("Log", on_click=lambda: actions.show_log(job)).props('flat dense data-testid="log"')
        if not has_entry:
            dismiss = ui.button("Dismiss", on_click=lambda: actions.dismiss(job))
            dismiss.props('flat dense data-testid="dismiss"')


def measured(item: Item) -> tuple[int, int]:
    """How many of a card's combinations were measured, and of how many."""
    done = sum(one.status == "done" for one in item.entry.cells) if item.entry else 0
    planned = len(item.entry.cells) if item.entry else 0
    if item.job is not None and item.job.kind == "comparison":
        # The store has only those that were measured, and two cells of each.
        try:
            asked = requests.from_content(item.job.kind, item.job.content)
        except InferlabError:
            return done // 2, planned // 2
        assert isinstance(asked, ComparisonAsked)
        return done // 2, len(asked.a.num_cores) * len(asked.a.batch_sizes)
    return done, planned


def _is_whole(entry: Entry, job: QueuedJob | None) -> bool:
    """Whether there is nothing to say but the numbers."""
    return entry.status == "done" and (job is None or job.status == "done")


def _told(item: Item) -> str:
    job, entry = item.job, item.entry
    done, planned = measured(item)
    words = [_ENDS[job.status]] if job is not None and job.status in _ENDS else []
    if job is not None and job.status == "failed":
        words = [f"Failed: {on_pages(job.failure)}" if job.failure else "Failed."]
    elif job is None and entry is not None and entry.status in ("pending", "cancelled"):
        words = [
            "Not finished: it is being measured on the command line, or was cut off there. "
            f"Then go on with: inferlab benchmark --resume {entry.id}"
        ]
    failed = [one.failure.message for one in entry.cells if one.failure] if entry else []
    if job is None and failed:
        words = [f"Failed: {on_pages(failed[0])}"]
    if planned > 1:
        part = entry is not None and any(one.status != "done" and one.runs for one in entry.cells)
        words.append(f"{done} of {planned} combinations were measured{', one more in part' if part else ''}.")
    return "\n".join(words)
