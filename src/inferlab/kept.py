"""What was saved before, by its file or its id in the store: benchmarks, single results, profiles, versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import BadInput
from inferlab.measure.unpaired import Saved
from inferlab.records.optimization import Optimization
from inferlab.records.profile import Profile
from inferlab.store.entries import BENCHMARK, Document, Stored
from inferlab.views import files, optimization_files, profile_files, saved

if TYPE_CHECKING:
    from inferlab.store.store import Store

# An id of the store, or the beginning of one, and the number of a cell.
_ID = re.compile(r"[a-z2-7]{4,10}(#\d+)?")


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store holds, where there is one, and files that stand for the same."""

    _store: Store | None

    @property
    def store(self) -> Store:
        """The store; refused where there is none."""
        if self._store is None:
            raise BadInput(
                "Without a store nothing was saved that could be measured again. Name one with --store."
            )
        return self._store

    def benchmark(self, entry_id: str) -> Stored:
        """A benchmark of the store."""
        found = self.store.get(entry_id)
        if isinstance(found, Document):
            raise BadInput(f"{found.id} is a {found.kind}, not a benchmark. See it with: inferlab show {found.id}")
        return found

    def is_saved(self, name: str) -> bool:
        """Whether a name means a saved result rather than a model."""
        if saved.is_file(name):
            return True
        entry_id = name.partition("#")[0]
        known = self._store is not None and _ID.fullmatch(name) is not None and self._store.has(entry_id)
        return known and not Path(entry_id).exists()

    def result(self, name: str) -> Saved:
        """One result of a benchmark."""
        if saved.is_file(name):
            return saved.load(name)
        entry_id, hash_sign, number = name.partition("#")
        benchmark = self.benchmark(entry_id).benchmark
        results = [files.result(benchmark, one) for one in benchmark.outcomes]
        return saved.choose(name, results, number if hash_sign else None)

    def is_profile(self, name: str) -> bool:
        """Whether a name means a saved profile rather than a model."""
        if profile_files.is_file(name):
            return True
        return self.is_saved(name) and self.store.headings([name])[0].kind != BENCHMARK

    def profile(self, name: str) -> Profile:
        """A profile."""
        if profile_files.is_file(name):
            return profile_files.load(name)
        document = self._document(name, "profile", "a profile")
        return replace(profile_files.from_content(document.content, name), id=document.id)

    def optimization(self, name: str) -> Optimization:
        """An optimised version."""
        if profile_files.is_file(name):
            return optimization_files.load(name)
        document = self._document(name, "version", "an optimised version")
        return replace(optimization_files.from_content(document.content, name), id=document.id)

    def _document(self, entry_id: str, kind: str, called: str) -> Document:
        found = self.store.get(entry_id)
        if not isinstance(found, Document) or found.kind != kind:
            raise BadInput(f"{found.id} is not {called}. List them with: inferlab history")
        return found
