"""What is measured is saved at once; a store that fails costs the saving, never the measuring."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from inferlab.errors import InferlabError
from inferlab.records import Cell, Event, Listener, Model, Outcome, Plan, Run

if TYPE_CHECKING:
    from inferlab.store.formats import Record
    from inferlab.store.store import Store

T = TypeVar("T")


@contextmanager
def opened(url: str | None, listener: Listener) -> Iterator[Store | None]:
    """The store to save results in; None where it cannot be opened and nobody named it: measuring goes on."""
    from inferlab.store import open_store

    try:
        store = open_store(url)
    except InferlabError as error:
        if url or os.environ.get("INFERLAB_STORE"):
            raise
        listener(Event("unsaved", {"reason": str(error)}))
        yield None
        return
    with store:
        yield store


class Saver:
    """Saves one benchmark or other record, for as long as the store takes it; tells once why it does not."""

    def __init__(
        self, store: Store | None, listener: Listener, entry_id: str = "", project_id: str | None = None
    ) -> None:
        self._store, self._listener, self._project_id = store, listener, project_id
        #: The entry's name in the store; empty where it is not saved.
        self.id = entry_id

    def begin(self, plan: Plan, model: Model, cells: Sequence[Cell], against: str | None = None) -> None:
        """Save what is about to be measured."""
        self._begun(lambda store: store.begin(plan, model, cells, self._project_id, against))

    def run(self, cell: Cell, run: Run) -> None:
        """Save what one process measured."""
        self._try(lambda store: store.add_run(self.id, cell.id, run))

    def finish(self, outcome: Outcome) -> None:
        """Save what became of a cell."""
        cell_id, status, failure = outcome.cell.id, outcome.status, outcome.failure
        self._try(lambda store: store.finish_cell(self.id, cell_id, status, failure, outcome))

    def record(
        self, record: Record, title: str, outcomes: Sequence[Outcome] = (), keep: int | None = None
    ) -> None:
        """Save a result and cells that were measured for it; called again, it is the same one that has grown.

        Of the cells that it had, only the first `keep` stay where that is given.
        """
        if self._store is None:
            return
        from inferlab.store.formats import content_of, kind_of  # late: benchmarks need none of it

        content = content_of(record)
        if not self.id:
            kind = kind_of(record)
            self._begun(lambda store: store.add_document(kind, title, content, outcomes, self._project_id))
        else:
            self._try(lambda store: store.replace_document(self.id, content, outcomes, keep))

    def _begun(self, save: Callable[[Store], str]) -> None:
        self.id = self._try(save) or ""
        if self.id:
            self._listener(Event("saved", {"id": self.id}))

    def _try(self, save: Callable[[Store], T]) -> T | None:
        if self._store is None:
            return None
        try:
            return save(self._store)
        except InferlabError as error:
            self._store = None
            self._listener(Event("unsaved", {"reason": str(error)}))
            return None
