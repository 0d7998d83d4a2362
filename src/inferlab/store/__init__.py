"""What was measured, saved at once: in SQLite, or in PostgreSQL by URL; nothing heavy is imported until then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inferlab.errors import InferlabError
from inferlab.records import Cell, Event, Listener, Model, Outcome, Plan, Run
from inferlab.store.entries import CellEntry, Document, Entry, Heading, Stored

if TYPE_CHECKING:
    from inferlab.store.database import Database
    from inferlab.store.formats import Record
    from inferlab.store.store import Store

__all__ = [
    "CellEntry",
    "Document",
    "Entry",
    "Heading",
    "Saver",
    "Stored",
    "inspect_store",
    "open_store",
]


def open_store(url: str | os.PathLike[str] | None = None, make: bool = True) -> Store:
    """Open the store that is named, else that of `INFERLAB_STORE`, else the user's own; it is made if missing.

    A path is an SQLite file; `postgresql://…` is a PostgreSQL database. Without `make` a file that is missing
    is told of by `NoStore`, and none is left behind.
    """
    from inferlab.store.database import connect, prepare
    from inferlab.store.store import Store

    named = None if url is None else str(os.fspath(url))
    database = connect(named or os.environ.get("INFERLAB_STORE") or None, make)
    try:
        prepare(database)
    except BaseException:
        database.close()
        raise
    return Store(database)


@contextmanager
def inspect_store(url: str | None = None) -> Iterator[Database]:
    """The database behind a store that is there, as it is: neither made nor migrated."""
    from inferlab.store.database import connect

    database = connect(url or os.environ.get("INFERLAB_STORE") or None, make=False)
    try:
        yield database
    finally:
        database.close()


class Saver:
    """Saves one benchmark or other record, for as long as the store takes it; tells once why it does not."""

    def __init__(
        self,
        store: Store | None,
        listener: Listener,
        entry_id: str = "",
        project_id: str | None = None,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._store, self._listener, self._project_id, self._labels = store, listener, project_id, labels
        #: The entry's name in the store; empty where it is not saved.
        self.id = entry_id

    def begin(self, plan: Plan, model: Model, cells: Sequence[Cell], against: str | None = None) -> None:
        """Save what is about to be measured."""
        with self._saving():
            if self._store is not None:
                self.id = self._store.begin(plan, model, cells, self._project_id, against, self._labels)
        self._tell_id()

    def run(self, cell: Cell, run: Run) -> None:
        """Save what one process measured."""
        with self._saving():
            if self._store is not None:
                self._store.add_run(self.id, cell.id, run)

    def finish(self, outcome: Outcome) -> None:
        """Save what became of a cell."""
        with self._saving():
            if self._store is not None:
                self._store.finish_cell(self.id, outcome.cell.id, outcome.status, outcome.failure, outcome)

    def record(self, record: Record, title: str, saved: int = 0) -> None:
        """Save a result; called again, it is the same one that has grown.

        Of several comparisons, the cells of the first `saved` are in the store already.
        """
        if self._store is None:
            return
        from inferlab.store.formats import cells_since, content_of, kind_of  # late: benchmarks need none of it

        content, stored_id = content_of(record), self.id
        keep, outcomes = cells_since(record, saved)
        with self._saving():
            if stored_id:
                self._store.replace_document(stored_id, content, outcomes, keep)
            else:
                kind = kind_of(record)
                self.id = self._store.add_document(kind, title, content, outcomes, self._project_id, self._labels)
        if not stored_id:
            self._tell_id()

    def _tell_id(self) -> None:
        if self.id:
            self._listener(Event("saved", {"id": self.id}))

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """A store that fails costs the saving, never the measuring."""
        try:
            yield
        except InferlabError as error:
            self._store = None
            self._listener(Event("unsaved", {"reason": str(error)}))
