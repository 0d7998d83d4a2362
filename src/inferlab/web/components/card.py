"""A card of the benchmarks page: its head and cached numbers at once, all else when it comes into view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nicegui import html, ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import QueuedJob
from inferlab.views.tables import Block, Code, Note, Pair, Table
from inferlab.web import shell
from inferlab.web.components.actions import EntryActions, JobActions, JobProgress
from inferlab.web.components.card_body import Chosen, body_of
from inferlab.web.components.card_stats import cached_stats, show_stats
from inferlab.web.components.cards import CardCache, CardView
from inferlab.web.faults import on_pages
from inferlab.web.live import aged
from inferlab.workspace.cards import Card

_ENDS = {
    "cancelled": "Cancelled.",
    "interrupted": "Interrupted: inferlab was stopped while this was measured.",
    "failed": "Failed.",
}
_ELSEWHERE = "Not finished: it is being measured on the command line, or was cut off there."


class BenchmarkCard:
    """Made within the list; `update` draws only what changed, and keeps what the user chose to see."""

    def __init__(
        self,
        view: CardView,
        position: int,
        cache: CardCache,
        jobs: JobActions,
        actions: EntryActions,
        in_sight: bool = True,
    ) -> None:
        self._cache, self._jobs, self._actions = cache, jobs, actions
        self._chosen = Chosen()
        self._seen = False
        self._opened: tuple[object, ...] | None = None
        self._head_shown: tuple[object, ...] = ()
        self._job_shown: tuple[object, ...] = ()
        self._progress: JobProgress | None = None
        self._instruction_set = ""
        self.view = view
        with shell.card("il-bench") as self.root:
            self._head: Element = html.div().classes("il-bench-head")
            self._job: Element = html.div()
            self._body: Element = html.div()
            # Covers the card without being in the way, and tells when it comes into view.
            sentinel = ui.element("q-intersection").props('once margin="300px"').classes("il-bench-sentinel")
            sentinel.on("visibility", self._came_into_view, [])
        self._show(position)
        self._fill_quickly(in_sight)

    async def update(self, view: CardView, position: int) -> None:
        """Show another state of the same card."""
        self.view = view
        self._show(position)
        await self._open()

    def show_progress(self, job: QueuedJob, position: int) -> None:
        """Show how far the job is, and nothing else."""
        self.view = replace(self.view, job=job)
        if self._progress is not None:
            self._progress.show(job, position)

    def show_age(self) -> None:
        """Say how old it is by now."""
        self._age.set_text(aged(self.view.created_at))

    def _show(self, position: int) -> None:
        self.root.props(f'data-testid="card-{self.view.id}"')
        self._show_head()
        self._show_job(position)
        self._body.set_visibility(not self.view.alive and self.view.has_content)

    def _show_head(self) -> None:
        view = self.view.with_instructions(self._instruction_set)
        head = (view.id, view.title, view.facts, view.wrong, view.alive, view.entry is None)
        if head == self._head_shown:
            return
        self._head_shown = head
        self._head.clear()
        with self._head:
            html.h2(view.title).classes("il-cut").props('data-testid="engines"')
            self._age = ui.label(aged(view.created_at)).classes("il-muted il-bench-age")
            if view.generates:
                shell.chip("generation", "info")
            if view.wrong:
                shell.chip("wrong tokens" if view.generates else "wrong outputs", "wrong")
            with html.div().classes("il-bench-facts"):
                for name, value in view.facts.items():
                    if value:
                        with html.span():
                            html.span(name).classes("il-muted")
                            html.span(value).classes("il-bench-fact")
            if view.entry is not None and not view.alive:
                self._actions.button(view.entry)

    # The job.

    def _show_job(self, position: int) -> None:
        """Say that it waits, runs, or why it ended before it was done; nothing where the job was done."""
        view, job = self.view, self.view.job
        job_state = (job.id, job.status, job.failure, view.entry is None) if job else (None,)
        state = (*job_state, None if view.alive else view.measured)
        if state != self._job_shown:
            self._job_shown, self._progress = state, None
            self._job.clear()
            with self._job:
                if job is not None and job.alive:
                    with html.div().classes("il-bench-progress"):
                        self._progress = JobProgress(ring=True, cancel=lambda: self._jobs.cancel(job.id))
                elif not view.whole:
                    self._fill_ended()
        if job is not None and self._progress is not None:
            self._progress.show(job, position)

    def _fill_ended(self) -> None:
        view, job = self.view, self.view.job
        status = job.status if job else ""
        bad = status == "failed" or (view.entry is not None and view.entry.status == "failed")
        with html.div(role="alert").classes(f"il-strip {'il-strip-failed' if bad else ''}") as strip:
            ui.icon("error_outline" if bad else "info_outline")
            html.div(_why_not_whole(view)).classes("il-strip-text")
            if job is not None:
                self._jobs.buttons(job, can_dismiss=view.entry is None)
        strip.props(f'data-testid="ended" data-status="{status}"')

    # The body.

    async def _came_into_view(self) -> None:
        self._seen = True
        await self._open()

    async def _open(self) -> None:
        """Read all of the entry and show it, where that was not done yet and somebody looks."""
        view, mark = self.view, self.view.mark
        if not self._seen or view.entry is None or view.alive or not view.has_content or mark == self._opened:
            return
        self._opened = mark
        try:
            card = await asyncio.to_thread(self._cache.card, view)
        except InferlabError as error:
            self._opened = None
            if not self.root.is_deleted:
                self._body.clear()
                with self._body:
                    shell.banner("warn", f"This cannot be shown: {error}")
            return
        if self.root.is_deleted or self._opened != mark:
            return
        if isinstance(card, Card):
            self._instruction_set = card.instruction_set
            self._show_head()
        self._body.clear()
        body = None
        with self._body:
            if isinstance(card, Card) and card.blocks:
                _show_blocks(card.blocks)
            elif isinstance(card, Card) and (card.lines or not card.arms):
                html.pre("\n".join(card.lines)).classes("il-lines").props('data-testid="lines"')
            if not isinstance(card, Card) or card.cells:
                body = body_of(card, self._cache, mark, self._chosen)
            if view.entry.note:
                html.div(f"Note: {view.entry.note}").classes("il-muted il-small")
        if body is not None:
            await body.draw()

    def _fill_quickly(self, in_sight: bool) -> None:
        """What the store has cached, until the entry is opened; of cards out of sight, only their room."""
        entry = self.view.entry
        if entry is None or not self.view.has_content:
            return
        # Of a comparison A and B take turns, and B is shown first.
        cells = entry.cells[1::2] if entry.kind == "comparison" else entry.cells
        first = next((cell for cell in cells if cell.runs), None) if in_sight else None
        with self._body, html.div().classes("il-bench-body"), html.div().classes("il-bench-grid"):
            if first is not None:
                with html.div().classes("il-bench-stats"):
                    show_stats(cached_stats(first), first.cell.scenario, first.wrong)
            html.div().classes("il-bench-chart il-bench-empty")


def _show_blocks(blocks: Sequence[Block]) -> None:
    """A result that has no arms: its values, tables and code, and what to know of them."""
    notes = [block for block in blocks if isinstance(block, Note)]
    with html.div().classes("il-bench-body il-column").props('data-testid="blocks"'):
        for note in notes:
            if note.warning:
                shell.banner("warn", on_pages(note.text))
        shell.facts([(block.name, on_pages(block.value)) for block in blocks if isinstance(block, Pair)])
        for block in blocks:
            if isinstance(block, Table):
                _show_table(block)
            elif isinstance(block, Code):
                html.pre(block.text).classes("il-log")
            elif isinstance(block, str) and block:
                html.p(on_pages(block))
        shell.findings([on_pages(note.text) for note in notes if not note.warning])


def _show_table(table: Table) -> None:
    heads, *rows = table.texts
    if table.title:
        shell.section(table.title)
    with html.div().classes("il-scroll"):
        shell.text_table(heads, rows, table.left, dict.fromkeys(table.strong, "il-strong"))


def _why_not_whole(view: CardView) -> str:
    job, entry = view.job, view.entry
    done, planned = view.measured
    words = [_ENDS[job.status]] if job is not None and job.status in _ENDS else []
    if job is not None and job.status == "failed":
        words = [f"Failed: {on_pages(job.failure)}" if job.failure else "Failed."]
    elif job is None and entry is not None and entry.status in ("pending", "cancelled"):
        words = [_ELSEWHERE]
    failed = [cell.failure.message for cell in entry.cells if cell.failure] if entry else []
    if job is None and failed:
        words = [f"Failed: {on_pages(failed[0])}"]
    if planned > 1:
        part = entry is not None and any(cell.status != "done" and cell.runs for cell in entry.cells)
        words.append(f"{done} of {planned} combinations were measured{', one more partly' if part else ''}.")
    return "\n".join(words)
