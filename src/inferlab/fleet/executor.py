"""The nodes of a Ray cluster as the place where plans are measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from inferlab.errors import BadInput
from inferlab.fleet.joining import joined
from inferlab.fleet.search import search
from inferlab.fleet.sweep import FleetSweep
from inferlab.measure.recommend import Search
from inferlab.records import FleetRecommendation, Listener, Model, Plan
from inferlab.store import Saver


class Ray:
    """Measures on the nodes of a cluster, one cell at a time on each."""

    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def sweep(
        self, plan: Plan, model: Model, saver: Saver, listener: Listener, live: bool
    ) -> Iterator[FleetSweep]:
        """The cells of a plan on every machine type, side by side."""
        with joined(self._address) as cluster:
            yield FleetSweep(plan, model, cluster, saver, listener, live)

    def recommend(self, request: Search, listener: Listener) -> FleetRecommendation:
        """The best configuration on each machine type, the cheapest first; all search side by side."""
        with joined(self._address) as cluster:
            return search(cluster, request, listener)

    def compare(self, *_: Any) -> NoReturn:
        """Arms of a comparison alternate within one machine."""
        self._refuse("A comparison")

    def capacity(self, *_: Any) -> NoReturn:
        """A capacity is that of one machine."""
        self._refuse("A capacity")

    def profile(self, *_: Any) -> NoReturn:
        """A profile is that of one machine."""
        self._refuse("A profile")

    def _refuse(self, what: str) -> NoReturn:
        raise BadInput(f"{what} is measured on one machine. Run the command there, without --cluster.")
