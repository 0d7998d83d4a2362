"""The benchmarks of a project: cards newest first, each read when it comes into view, and the dialogs for more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nicegui import ui
from nicegui.element import Element

from inferlab.errors import InferlabError
from inferlab.store.entries import Entry, QueuedJob
from inferlab.views.tables import Block, Code, Note, Pair, Table
from inferlab.web import shell
from inferlab.web.components.actions import EntryActions, JobActions, JobProgress, name_in_lists, undo_bar
from inferlab.web.components.benchmark_dialog import open_dialog, open_generation_dialog
from inferlab.web.components.card_body import Chosen, body_of
from inferlab.web.components.card_stats import cached_stats, show_stats
from inferlab.web.components.cards import CardCache, CardList, CardView, read_cards
from inferlab.web.desk import Desk, Snapshot, follow
from inferlab.web.faults import on_pages
from inferlab.web.sections import Opened, project_page
from inferlab.web.shell import aged, div, p, refilled, span, tag
from inferlab.workspace.cards import Card

_PAGE = 10
# As many cards as a tall screen shows.
_IN_SIGHT = 4
_EMPTY = (
    "No benchmarks yet",
    "A benchmark measures how fast the model really runs: on an engine, at the core counts and batch sizes of "
    "your deployment, or on two engines interleaved. What the command line measures of it appears here too.",
)
_EMPTY_GENERATION = (
    "No generations yet",
    "A generation measures how fast the model generates tokens, on each engine that can run it, and whether the "
    "tokens are right: time to the first token, time per output token, and what the cache takes. What the command "
    "line measures of it appears here too.",
)


def register(desk: Desk) -> None:
    """Define the page."""
    cache = CardCache(desk.workspace)

    @shell.page("/projects/{project_id}/benchmarks")
    async def benchmarks(project_id: str) -> None:
        # Before the frame: what a page awaits later is sent to the browser after it, and painted later.
        cards = await asyncio.to_thread(read_cards, desk.workspace, project_id, _PAGE)
        async with project_page(desk, project_id, "benchmarks") as opened:
            _Board(desk, opened, cache, cards)


class _Board:
    """The list of cards: it follows the store and the queue, and touches only what changed."""

    def __init__(self, desk: Desk, opened: Opened, cache: CardCache, cards: CardList) -> None:
        self._desk, self._opened, self._cache = desk, opened, cache
        self._project = opened.project
        self._limit = _PAGE
        self._cards: dict[str, _Card] = {}
        self._reading = asyncio.Lock()
        self._undo: Element | None = None
        self._jobs = JobActions(desk, self.refresh)
        self._actions = EntryActions(desk, self.refresh, self.refresh, self._removed, self._add)
        generates, benchmarks = self._project.generative is not None, not self._project.only_generates
        adds = {"Add generation": self._add_generation} if generates else {}
        adds |= {"Add benchmark": self._add} if benchmarks else {}
        with shell.titled("Benchmarks"):
            for text, add in adds.items():
                button = ui.button(text, icon="add", on_click=lambda add=add: add())
                button.props(f'data-testid="{text.lower().replace(" ", "-")}"')
                # What is asked for most stands out.
                button.props("" if text == list(adds)[-1] else "outline")
        with div() as self._empty, shell.empty(*(_EMPTY if benchmarks else _EMPTY_GENERATION)):
            for text, add in adds.items():
                ui.button(text, on_click=lambda add=add: add()).props("outline")
        self._list = div("il-column il-bench-list", name="cards")
        self._older = ui.button("Show older benchmarks", on_click=self._show_older).props(
            'flat data-testid="older"'
        )
        self._arrange(cards)
        follow(desk, self._changed, self._show_ages)

    async def refresh(self) -> None:
        """Show what the store has now."""
        async with self._reading:
            cards = await asyncio.to_thread(read_cards, self._desk.workspace, self._project.id, self._limit)
            if self._list.is_deleted:
                return
            keys = set(self._cards)
            self._arrange(cards)
        for view in cards.cards:
            if view.key in keys and view.key in self._cards:
                await self._cards[view.key].update(view)

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp or _shape(before) != _shape(now):
            await self.refresh()
        for job in now.jobs:
            card = self._cards.get(job.id)
            if card is not None:
                card.show_progress(job)

    def _show_ages(self) -> None:
        for card in self._cards.values():
            card.show_age()

    def _arrange(self, cards: CardList) -> None:
        """Add cards that are new, remove those that are gone, and put all into their order."""
        views = {view.key: view for view in cards.cards}
        for key in [key for key in self._cards if key not in views]:
            self._cards.pop(key).root.delete()
        for index, (key, view) in enumerate(views.items()):
            card = self._cards.get(key)
            if card is None:
                with self._list:
                    card = _Card(view, self._cache, self._jobs, self._actions, index < _IN_SIGHT)
                self._cards[key] = card
            if self._list.default_slot.children.index(card.root) != index:
                card.root.move(target_index=index)
        self._older.set_visibility(cards.more)
        self._empty.set_visibility(not views)

    async def _show_older(self) -> None:
        self._limit += _PAGE
        await self.refresh()

    async def _add(self, against: str | None = None) -> None:
        # Not in the menu that was clicked: it is gone by then.
        with self._opened.content:
            await open_dialog(self._desk, self._project, self.refresh, against)

    async def _add_generation(self) -> None:
        with self._opened.content:
            await open_generation_dialog(self._desk, self._project, self.refresh)

    async def _removed(self, entry: Entry) -> None:
        await self.refresh()
        if self._undo is not None and not self._undo.is_deleted:
            self._undo.delete()
        with self._opened.content:
            self._undo = undo_bar(self._desk, entry.id, name_in_lists(entry), self.refresh)


def _shape(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """What of the queue changes which cards there are, and not only how far they are."""
    return [(job.id, job.status, job.entry_id, job.cancel) for job in snapshot.jobs]


_ENDS = {
    "cancelled": "Cancelled.",
    "interrupted": "Interrupted: inferlab was stopped while this was measured.",
    "failed": "Failed.",
}
_ELSEWHERE = "Not finished: it is being measured on the command line, or was cut off there."


class _Card:
    """A card, made within the list: its head and cached numbers at once, all else when it comes into view.

    `update` draws only what changed, and keeps what the user chose to see.
    """

    def __init__(
        self, view: CardView, cache: CardCache, jobs: JobActions, actions: EntryActions, in_sight: bool
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
                if block.title:
                    shell.section(block.title)
                with div("il-scroll"):
                    shell.text_table(block)
            elif isinstance(block, Code):
                tag("pre", "il-log", block.text)
            elif isinstance(block, str) and block:
                p("", on_pages(block))
        shell.findings(note.text for note in notes if not note.warning)


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
