"""The benchmarks of a project: cards newest first, what is being measured, and the dialog for more."""

from __future__ import annotations

import asyncio

from nicegui import ui
from nicegui.element import Element

from inferlab.store.entries import Entry
from inferlab.web import shell
from inferlab.web.components.actions import EntryActions, JobActions, name_in_lists, undo_bar
from inferlab.web.components.benchmark_dialog import open_dialog, open_generation_dialog
from inferlab.web.components.card import BenchmarkCard
from inferlab.web.components.cards import CardCache, CardList, read_cards
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow
from inferlab.web.sections import Opened, project_page
from inferlab.web.shell import div

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
        self._cards: dict[str, BenchmarkCard] = {}
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
                    card = BenchmarkCard(view, self._cache, self._jobs, self._actions, index < _IN_SIGHT)
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
        with self._opened.frame.content:
            await open_dialog(self._desk, self._project, self.refresh, against)

    async def _add_generation(self) -> None:
        with self._opened.frame.content:
            await open_generation_dialog(self._desk, self._project, self.refresh)

    async def _removed(self, entry: Entry) -> None:
        await self.refresh()
        if self._undo is not None and not self._undo.is_deleted:
            self._undo.delete()
        with self._opened.frame.content:
            self._undo = undo_bar(self._desk, entry.id, name_in_lists(entry), self.refresh)


def _shape(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """What of the queue changes which cards there are, and not only how far they are."""
    return [(job.id, job.status, job.entry_id, job.cancel) for job in snapshot.jobs]
