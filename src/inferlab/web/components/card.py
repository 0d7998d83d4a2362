"""A card of the benchmarks page: its head and cached numbers at once, all else when it comes into view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nicegui import ui

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
from inferlab.web.shell import div, p, refilled, span, tag
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
        cache: CardCache,
        jobs: JobActions,
        actions: EntryActions,
        in_sight: bool = True,
    ) -> None:
        self._cache, self._jobs, self._actions = cache, jobs, actions
        self._chosen = Chosen()
        self._seen = False
        self._opened: tuple[object, ...] | None = None
        self._progress: JobProgress | None = None
        self._instruction_set = ""
        self.view = view
        with shell.card("il-bench") as self.root:
            self._head, self._job = shell.Part("il-bench-head"), shell.Part()
            self._body = div()
            # Covers the card without being in the way, and tells when it comes into view.
            sentinel = ui.element("q-intersection").props('once margin="300px"').classes("il-bench-sentinel")
            sentinel.on("visibility", self._came_into_view, [])
        self._show()
        self._fill_quickly(in_sight)

    async def update(self, view: CardView) -> None:
        """Show another state of the same card."""
        self.view = view
        self._show()
        await self._open()

    def show_progress(self, job: QueuedJob) -> None:
        """Show how far the job is, and nothing else."""
        self.view = replace(self.view, job=job)
        if self._progress is not None:
            self._progress.show(job)

    def show_age(self) -> None:
        """Say how old it is by now."""
        self._age.set_text(aged(self.view.created_at))

    def _show(self) -> None:
        self.root.props(f'data-testid="card-{self.view.id}"')
        self._show_head()
        self._show_job()
        self._body.set_visibility(not self.view.alive and self.view.has_content)

    def _show_head(self) -> None:
        view = self.view.with_instructions(self._instruction_set)
        key = (view.id, view.title, view.facts, view.wrong, view.alive, view.entry is None)
        self._head.show(key, lambda: self._fill_head(view))

    def _fill_head(self, view: CardView) -> None:
        tag("h2", "il-cut", view.title, name="engines")
        self._age = ui.label(aged(view.created_at)).classes("il-muted il-bench-age")
        if view.generates:
            shell.chip("generation", "info")
        if view.wrong:
            shell.chip("wrong tokens" if view.generates else "wrong outputs", "wrong")
        with div("il-bench-facts"):
            for name, value in view.facts.items():
                if value:
                    with span():
                        span("il-muted", name)
                        span("il-bench-fact", value)
        if view.entry is not None and not view.alive:
            self._actions.button(view.entry)

    # The job.

    def _show_job(self) -> None:
        """Say that it waits, runs, or why it ended before it was done; nothing where the job was done."""
        view, job = self.view, self.view.job
        job_state = (job.id, job.status, job.failure, view.entry is None) if job else (None,)
        state = (*job_state, None if view.alive else view.measured)
        self._job.show(state, self._fill_job)
        if job is not None and self._progress is not None:
            self._progress.show(job)

    def _fill_job(self) -> None:
        job, self._progress = self.view.job, None
        if job is not None and job.alive:
            with div("il-bench-progress"):
                self._progress = JobProgress(self._jobs.desk, ring=True, cancel=lambda: self._jobs.cancel(job.id))
        elif not self.view.whole:
            self._fill_ended()

    def _fill_ended(self) -> None:
        view, job = self.view, self.view.job
        status = job.status if job else ""
        bad = status == "failed" or (view.entry is not None and view.entry.status == "failed")
        with div(f"il-strip {'il-strip-failed' if bad else ''}", role="alert") as strip:
            ui.icon("error_outline" if bad else "info_outline")
            div("il-strip-text", _why_not_whole(view))
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
                with refilled(self._body):
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
                tag("pre", "il-lines", "\n".join(card.lines), name="lines")
            if not isinstance(card, Card) or card.cells:
                body = body_of(card, self._cache, mark, self._chosen)
            if view.entry.note:
                div("il-muted il-small", f"Note: {view.entry.note}")
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
        with self._body, div("il-bench-body"), div("il-bench-grid"):
            if first is not None:
                with div("il-bench-stats"):
                    show_stats(cached_stats(first), first.cell.scenario, first.wrong)
            div("il-bench-chart il-bench-empty")


def _show_blocks(blocks: Sequence[Block]) -> None:
    """A result that has no arms: its values, tables and code, and what to know of them."""
    notes = [block for block in blocks if isinstance(block, Note)]
    with div("il-bench-body il-column", name="blocks"):
        for note in notes:
            if note.warning:
                shell.banner("warn", note.text)
        shell.facts([(block.name, on_pages(block.value)) for block in blocks if isinstance(block, Pair)])
        for block in blocks:
            if isinstance(block, Table):
                _show_table(block)
            elif isinstance(block, Code):
                tag("pre", "il-log", block.text)
            elif isinstance(block, str) and block:
                p("", on_pages(block))
        shell.findings(note.text for note in notes if not note.warning)


def _show_table(table: Table) -> None:
    if table.title:
        shell.section(table.title)
    with div("il-scroll"):
        shell.text_table(table)


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
