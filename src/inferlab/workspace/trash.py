"""What was removed a moment ago and can still be put back."""

from __future__ import annotations

import gzip
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import NotThere
from inferlab.store.store import Store
from inferlab.workspace.versions import discard_removed, mark_removed, path_of, unmark_removed

#: How long an entry can be put back.
KEPT_S = 600.0
_MOST = 20


@dataclass(frozen=True, slots=True)
class _Removed:
    """An entry as a file that travels, compressed."""

    project_id: str | None
    lines: bytes
    removed_at: float


class Trash:
    """Keeps the last entries that were removed, for some minutes, in memory; the files of versions on the disk."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._removed: OrderedDict[str, _Removed] = OrderedDict()
        self._lock = threading.Lock()
        # What an earlier server did not live to remove.
        discard_removed(KEPT_S)

    def remove(self, entry_id: str) -> str:
        """Remove an entry from the store; its whole id puts it back."""
        entry = self._store.entry(entry_id)
        lines = gzip.compress(b"".join(self._store.export([entry.id])), compresslevel=1)
        self._store.remove(entry.id)
        with self._lock:
            self._removed[entry.id] = _Removed(entry.project_id, lines, self._clock())
            while len(self._removed) > _MOST:
                self._removed.popitem(last=False)
        if model_path := path_of(entry):
            mark_removed(model_path)
            later = threading.Timer(KEPT_S + 1, discard_removed, (KEPT_S,))
            later.daemon = True
            later.start()
        return entry.id

    def put_back(self, entry_id: str) -> None:
        """Put an entry back that was removed a moment ago."""
        with self._lock:
            removed = self._removed.pop(entry_id, None)
        if removed is None or self._clock() - removed.removed_at > KEPT_S:
            raise NotThere(f"{entry_id} was removed too long ago to be put back.")
        try:
            self._import(entry_id, removed)
        except BaseException:
            # It can be tried again.
            with self._lock:
                self._removed[entry_id] = removed
            raise

    def _import(self, entry_id: str, removed: _Removed) -> None:
        with tempfile.NamedTemporaryFile(suffix=".jsonl.gz") as file:
            file.write(removed.lines)
            file.flush()
            self._store.import_file(Path(file.name))
        if removed.project_id is not None and self._store.projects.has(removed.project_id):
            self._store.projects.take(removed.project_id, entry_id)
        unmark_removed(path_of(self._store.entry(entry_id)))
