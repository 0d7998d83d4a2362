"""The list of cards: it follows the store and the queue, and touches only what changed."""

from __future__ import annotations

import asyncio

from nicegui import html, ui
from nicegui.element import Element

from inferlab.store.entries import QueuedJob
from inferlab.web.components import card_items
from inferlab.web.components.benchmark_card import BenchmarkCard, CardActions
from inferlab.web.components.card_faces import Shelf
from inferlab.web.components.card_items import Item, Listing
from inferlab.web.desk import Desk, Snapshot
from inferlab.web.live import follow

PAGE = 10
# As many cards as a tall screen shows.
_IN_SIGHT = 4
# How often cards are looked at that the command line measures: nothing tells when it has more.
_LOOK_S = 2.0
_AGE_S = 20.0


class Board:
    """Made within the page; `actions` are what its cards can do."""

    def __init__(
        self, desk: Desk, project_id: str, listing: Listing, shelf: Shelf, actions: CardActions, empty: Element
    ) -> None:
        self._desk, self._project_id, self._shelf, self._actions = desk, project_id, shelf, actions
        self._limit = PAGE
        self._cards: dict[str, BenchmarkCard] = {}
        self._reading = asyncio.Lock()
        self._empty = empty
        self._list: Element = html.div().classes("il-column il-bench-list").props('data-testid="cards"')
        self._older = ui.button("Show older benchmarks", on_click=self._show_older).props(
            'flat data-testid="older"'
        )
        self._arrange(listing)
        follow(desk, self._changed)
        ui.timer(_LOOK_S, self._look_at_others, immediate=False)
        ui.timer(_AGE_S, self._grow_older, immediate=False)

    async def refresh(self) -> None:
        """Show what the store has now."""
        async with self._reading:
            listing = await asyncio.to_thread(card_items.read, self._desk.workspace, self._project_id, self._limit)
            if self._list.is_deleted:
                return
            known = set(self._cards)
            self._arrange(listing)
        for item in listing.items:
            if item.key in known:
                await self._cards[item.key].update(item, self._position(item.job))

    async def _changed(self, before: Snapshot, now: Snapshot) -> None:
        if before.stamp != now.stamp or _shape(before) != _shape(now):
            await self.refresh()
        for job in now.jobs:
            card = self._cards.get(job.id)
            if card is not None:
                card.progress(job, self._position(job))

    def _position(self, job: QueuedJob | None) -> int:
        """How many jobs go before this one."""
        ids = [one.id for one in self._desk.watch.wanted().jobs]
        return ids.index(job.id) if job is not None and job.id in ids else 0

    def _arrange(self, listing: Listing) -> None:
        """Add cards that are new, remove those that are gone, and put all into their order."""
        wanted = {item.key: item for item in listing.items}
        for key in [key for key in self._cards if key not in wanted]:
            self._cards.pop(key).root.delete()
        for index, (key, item) in enumerate(wanted.items()):
            card = self._cards.get(key)
            if card is None:
                with self._list:
                    card = self._cards[key] = BenchmarkCard(
                        item, self._position(item.job), self._shelf, self._actions, index < _IN_SIGHT
                    )
            if self._list.default_slot.children.index(card.root) != index:
                card.root.move(target_index=index)
        self._older.set_visibility(listing.more)
        self._empty.set_visibility(not wanted)

    async def _show_older(self) -> None:
        self._limit += PAGE
        await self.refresh()

    async def _look_at_others(self) -> None:
        """Cards without a job that are not finished are measured on the command line."""
        open_ones = [card.item for card in self._cards.values() if _is_elsewhere(card.item)]
        if not open_ones:
            return
        workspace, project_id = self._desk.workspace, self._project_id
        for item in await asyncio.to_thread(card_items.reread, workspace, project_id, open_ones):
            card = self._cards.get(item.key)
            if card is not None and item.mark != card.item.mark:
                await card.update(item, 0)

    def _grow_older(self) -> None:
        for card in self._cards.values():
            card.grow_older()


def _shape(snapshot: Snapshot) -> list[tuple[object, ...]]:
    """What of the queue changes which cards there are, and not only how far they are."""
    return [(one.id, one.status, one.entry_id, one.cancel) for one in snapshot.jobs]


def _is_elsewhere(item: Item) -> bool:
    return item.job is None and item.entry is not None and item.entry.status == "pending"
