"""The best configuration on each machine type of a cluster, all searched side by side."""

from __future__ import annotations

from collections.abc import Mapping

from inferlab.fleet.cluster import Cluster
from inferlab.fleet.messages import Crashed, Ended, Found, Heard, Lost, Message, Ready
from inferlab.fleet.nodes import Node
from inferlab.fleet.sweep import Site
from inferlab.measure.headline import cost_per_million
from inferlab.measure.recommend import Search
from inferlab.records import (
    Event,
    Failure,
    FleetRecommendation,
    Listener,
    MachineRecommendation,
    Model,
    Objective,
    Recommendation,
)

_LOOK_S = 1.0


def search(cluster: Cluster, request: Search, listener: Listener) -> FleetRecommendation:
    """Search on one node of every machine type; Ctrl-C keeps what is known, and raises where that is nothing."""
    site = Site(request.plan, request.model, cluster, listener)
    nodes = {machine_type.name: machine_type.nodes[0] for machine_type in site.types()}
    party = _Party(cluster, site, request, listener)
    interrupted = False
    try:
        party.run(nodes)
    except KeyboardInterrupt:
        cluster.cancel()
        interrupted = True
        if not party.answers:
            raise
    answers = {name: party.answers[node.id] for name, node in nodes.items() if node.id in party.answers}
    prices = dict(request.plan.prices)
    return fleet_recommendation(request.model, request.objective, prices, answers, interrupted)


def fleet_recommendation(
    model: Model,
    objective: Objective | None,
    prices: Mapping[str, float],
    answers: Mapping[str, Recommendation | Failure],
    interrupted: bool,
) -> FleetRecommendation:
    """What was found on one machine of each type, in the order in which one would take it."""
    machines = [_priced(name, prices.get(name), answer) for name, answer in answers.items()]
    return FleetRecommendation(model, objective, tuple(sorted(machines, key=_rank)), interrupted)


def _priced(name: str, price: float | None, answer: Recommendation | Failure) -> MachineRecommendation:
    if isinstance(answer, Failure):
        return MachineRecommendation(name, price, None, answer)
    best = answer.recommended
    priced = best is not None and best.figures is not None and price is not None
    cost = cost_per_million(best.figures.items_per_sec, price) if priced else None  # type: ignore[union-attr,arg-type]
    return MachineRecommendation(name, price, answer, cost_per_million=cost)


def _rank(machine: MachineRecommendation) -> tuple[int, float, float]:
    """The cheapest first, then the fastest without a price; last those that have nothing to offer."""
    best = machine.recommendation.recommended if machine.recommendation else None
    if best is None or best.figures is None:
        return 2, 0.0, 0.0
    cost = machine.cost_per_million
    return (1 if cost is None else 0), cost.value if cost else 0.0, -best.figures.items_per_sec.value


class _Party:
    """Nodes that search at the same time."""

    def __init__(self, cluster: Cluster, site: Site, request: Search, listener: Listener) -> None:
        self._cluster, self._site, self._request, self._listen = cluster, site, request, listener
        self._nodes: dict[str, Node] = {}
        self.answers: dict[str, Recommendation | Failure] = {}

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
            self._cluster.search(self._nodes[message.node_id], self._request, self._site.luggage)
        elif isinstance(message, Found):
            self.answers[message.node_id] = message.answer
        elif isinstance(message, Crashed | Lost):
            self.answers[message.node_id] = Failure("lost", message.cause)
        elif isinstance(message, Ended) and message.failure is not None:
            self.answers[message.node_id] = message.failure
