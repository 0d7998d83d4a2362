"""Entries by their kind: what is a benchmark is not looked for among profiles."""

from __future__ import annotations

from collections.abc import Collection

from inferlab.errors import NotThere
from inferlab.store.entries import Entry
from inferlab.store.store import Store


def entry_of(store: Store, entry_id: str, kinds: Collection[str], called: str) -> Entry:
    """The entry with this id; not there where it is of another kind than those that are `called` so."""
    entry = store.entry(entry_id)
    if entry.kind not in kinds:
        raise NotThere(f"{entry_id} is a {entry.kind}, not a {called}.")
    return entry
