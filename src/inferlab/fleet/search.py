"""The best configuration on each machine type of a cluster, all searched side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferlab.fleet.cluster import Cluster
from inferlab.fleet.joining import joined
from inferlab.fleet.messages import Crashed, Ended, Found, Heard, Lost, Message, Ready
from inferlab.fleet.nodes import Node
from inferlab.fleet.sweep import Site
from inferlab.measure.queueing import Objective
from inferlab.measure.recommend import Search
from inferlab.records import Event, Failure, Listener, Model, Plan

_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What was found on one machine of each type: a recommendation as JSON has it, or why there is none."""

    by_type: Mapping[str, dict[str, Any] | Failure]
    interrupted: bool


def search(plan: Plan, model: Model, objective: Objective | None, time_s: float, listener: Listener) -> Answers:
    """Search on one node of every machine type; Ctrl-C keeps what is known, and raises where that is nothing."""
    assert plan.cluster is not None
    with joined(plan.cluster) as cluster:
        site = Site(plan, model, cluster, listener)
        nodes = {one.name: one.nodes[0] for one in site.types()}
        party = _Party(cluster, site, Search(plan, model, objective, time_s), listener)
        interrupted = False
        try:
            party.run(nodes)
        except KeyboardInterrupt:
            cluster.cancel()
            interrupted = True
            if not party.answers:
                raise
        known = {name: party.answers[node.id] for name, node in nodes.items() if node.id in party.answers}
        return Answers(known, interrupted)


class _Party:
    """Nodes that search at the same time."""

    def __init__(self, cluster: Cluster, site: Site, wanted: Search, listener: Listener) -> None:
        self._cluster, self._site, self._wanted, self._listen = cluster, site, wanted, listener
        self._nodes: dict[str, Node] = {}
        self.answers: dict[str, dict[str, Any] | Failure] = {}

    def run(self, nodes: Mapping[str, Node]) -> None:
        """Wait for the answers of all."""
        for node in nodes.values():
            self._nodes[node.id] = node
            self._cluster.make_ready(node, self._site.parcels, self._site.luggage)
        while len(self.answers) < len(self._nodes):
            for message in self._cluster.wait(_LOOK_S):
                self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Heard):
            if message.event.fraction is None:
                self._listen(Event("on-node", {"node": message.node, "event": message.event}))
        elif isinstance(message, Ready):
            self._cluster.search(self._nodes[message.node_id], self._wanted, self._site.luggage)
        elif isinstance(message, Found):
            self.answers[message.node_id] = message.answer
        elif isinstance(message, Crashed | Lost):
            self.answers[message.node_id] = Failure("lost", message.cause)
        elif isinstance(message, Ended) and message.failure is not None:
            self.answers[message.node_id] = message.failure
