"""The nodes of a Ray cluster as the place where plans are measured, and best configurations are searched."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from inferlab.engines import environments
from inferlab.engines.specs import has_environment
from inferlab.errors import BadInput
from inferlab.fleet import nodes
from inferlab.fleet.cluster import Cluster, joined
from inferlab.fleet.nodes import Crashed, Ended, Lost, MachineType, Node, Progress, Ready, SearchAnswer
from inferlab.fleet.parcels import pack_file, pack_model
from inferlab.fleet.remote import CellOrder, Payload
from inferlab.fleet.schedule import LOOK_S, Schedule, Slot
from inferlab.measure.cells import cells_of
from inferlab.measure.recommend import Search
from inferlab.measure.stats import cost_per_million
from inferlab.records import (
    Benchmark,
    Cell,
    Event,
    Failure,
    FleetRecommendation,
    Listener,
    MachineRecommendation,
    Model,
    Objective,
    Outcome,
    Plan,
    Recommendation,
    Run,
)
from inferlab.store import Saver
from inferlab.store.samples import pack_run


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


class Site:
    """The machine types of a cluster that a plan names, and what its nodes need to work."""

    def __init__(self, plan: Plan, model: Model, cluster: Cluster, listener: Listener) -> None:
        self._plan, self._cluster, self._listen = plan, cluster, listener
        self.parcels = [pack_model(model), *([pack_file(plan.input_file)] if plan.input_file else [])]
        # A licence that was agreed to here holds for the user's other machines.
        agreed = [
            engine for engine in plan.engines if has_environment(engine) and environments.interpreter_of(engine)
        ]
        data = self.parcels[1].parcel if plan.input_file else None
        self.payload = Payload(self.parcels[0].parcel, data, tuple(agreed))

    def types(self, only: Collection[str | None] | None = None) -> list[MachineType]:
        """The machine types to measure on, those alone where they are given; missing ones may be started."""
        machine_types = self._named(only) if self._plan.on else self._any(only)
        self._check(machine_types, only)
        return machine_types

    def spares(self, machine_type: str) -> list[Node]:
        """The nodes of a type that there are now."""
        if not self._plan.on:
            return [node for group in self._any({machine_type}) for node in group.nodes]
        listed = nodes.nodes_by_type(self._cluster.listed(), [machine_type])[machine_type]
        return self._cluster.ask(listed, self._listen)

    def _any(self, only: Collection[str | None] | None) -> list[MachineType]:
        """The machine types that there are; a node without CPUs for tasks is a head that shall not work."""
        listed = self._cluster.listed()
        workers = [node for node in listed if node.cpus] or listed
        types_there = nodes.machine_types_of(self._cluster.ask(workers, self._listen))
        return [machine_type for machine_type in types_there if only is None or machine_type.name in only]

    def _named(self, only: Collection[str | None] | None) -> list[MachineType]:
        on = [name for name in self._plan.on if only is None or name in only]
        nodes_by_name = nodes.nodes_by_type(self._cluster.listed(), on)
        lacking = [name for name, there in nodes_by_name.items() if len(there) < self._plan.nodes]
        if lacking and self._plan.wait_s:
            self._listen(Event("node-wait", {"types": lacking, "seconds": self._plan.wait_s}))
            self._cluster.start(lacking, self._plan.nodes, self._plan.wait_s)
            nodes_by_name = nodes.nodes_by_type(self._cluster.listed(), on)
        nodes.refuse_missing(nodes_by_name, self._cluster.listed())
        answered = {name: self._cluster.ask(there, self._listen) for name, there in nodes_by_name.items()}
        for name in [name for name, there in answered.items() if not there]:
            raise BadInput(f"No node of the cluster that offers {name} answers. Start it again: ray start")
        return [nodes.named_type(name, there) for name, there in answered.items()]

    def _check(self, machine_types: Sequence[MachineType], only: Collection[str | None] | None) -> None:
        names = [machine_type.name for machine_type in machine_types]
        for name in [name for name in only or () if name not in names]:
            raise BadInput(f"No node of the cluster is of type {name} now. Start one, and go on with --resume.")
        unknown = [name for name, _ in self._plan.prices if name not in names] if only is None else []
        if unknown:
            raise BadInput(
                f"{unknown[0]} has a price but is not a machine type here; there are: {', '.join(names)}."
            )
        for group in machine_types:
            if len(group.nodes) < self._plan.nodes:
                raise BadInput(
                    f"{self._plan.nodes} machines of each type are to measure, but the cluster has "
                    f"{len(group.nodes)} of {group.name}. Start more, or give --nodes {len(group.nodes)}."
                )
            self._listen(Event("machine-type", {"type": group.name, "nodes": [node.name for node in group.nodes]}))
            niced = [node for node in group.nodes if node.niceness > 0]
            if niced:
                self._listen(Event("node-niced", {"node": niced[0].name, "niceness": niced[0].niceness}))


class FleetSweep(Site):
    """A plan on its way through a cluster."""

    def __init__(
        self, plan: Plan, model: Model, cluster: Cluster, saver: Saver, listener: Listener, live: bool
    ) -> None:
        super().__init__(plan, model, cluster, listener)
        self._model, self._saver, self._live = model, saver, live
        self._types: list[MachineType] = []
        # The rest of what a schedule needs is the cluster's own.
        self.wait, self.cancel = cluster.wait, cluster.cancel

    def planned(self, only: Collection[str | None] | None = None) -> list[Cell]:
        """Every cell of the plan on every machine of every type; of some types alone where they are given."""
        self._types = self.types(only)
        count = self._plan.nodes
        numbers: Sequence[int | None] = [None] if count == 1 else range(1, count + 1)
        return [
            replace(cell, machine_type=kind.name, machine_number=number)
            for kind in self._types
            for cell in cells_of(self._plan, self._model, kind.nodes[0].usable_cores)
            for number in numbers
        ]

    def run(self, cells: Sequence[Cell], before: Sequence[Outcome]) -> Benchmark:
        """Measure what is not done or failed yet; Ctrl-C leaves the rest pending."""
        outcomes = {outcome.cell.id: outcome for outcome in before}
        waiting: dict[tuple[str | None, int | None], list[Cell]] = {}
        for cell in cells:
            if outcomes[cell.id].status in ("pending", "cancelled"):
                waiting.setdefault((cell.machine_type, cell.machine_number), []).append(cell)
        slots = [slot for kind in self._types for slot in self._slots(kind, waiting, outcomes)]
        schedule = Schedule(self, self._saver, self._listen, self._plan.seed)
        return Benchmark(self._plan, self._model, schedule.run(slots, before), self._saver.id)

    def _slots(
        self,
        kind: MachineType,
        waiting: dict[tuple[str | None, int | None], list[Cell]],
        outcomes: dict[str, Outcome],
    ) -> Iterator[Slot]:
        """A node for each machine of a type, the one that began its cells where it is there."""
        free = list(kind.nodes)
        for (name, _), cells in waiting.items():
            if name == kind.name:
                begun = {run.machine.node for cell in cells for run in outcomes[cell.id].runs}
                node = next((spare for spare in free if spare.name in begun), free[0])
                free.remove(node)
                yield Slot(kind.name, node, deque(cells))

    def make_ready(self, node: Node) -> None:
        """Send a node what it lacks."""
        self._cluster.make_ready(node, self.parcels, self.payload)

    def measure(self, node: Node, cell: Cell, before: Sequence[Run]) -> None:
        """Let a node measure a cell."""
        runs = tuple(map(pack_run, before))
        self._cluster.measure(node, CellOrder(self._plan, self._model, cell, self.payload, runs, self._live))


def search(cluster: Cluster, request: Search, listener: Listener) -> FleetRecommendation:
    """Search on one node of every machine type; Ctrl-C keeps what is known, and raises where that is nothing."""
    site = Site(request.plan, request.model, cluster, listener)
    nodes = {machine_type.name: machine_type.nodes[0] for machine_type in site.types()}
    answers: dict[str, Recommendation | Failure] = {}
    interrupted = False
    try:
        _search_all(cluster, site, request, {node.id: node for node in nodes.values()}, answers, listener)
    except KeyboardInterrupt:
        cluster.cancel()
        interrupted = True
        if not answers:
            raise
    by_type = {name: answers[node.id] for name, node in nodes.items() if node.id in answers}
    prices = dict(request.plan.prices)
    return fleet_recommendation(request.model, request.objective, prices, by_type, interrupted)


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


def _search_all(
    cluster: Cluster,
    site: Site,
    request: Search,
    nodes: Mapping[str, Node],
    answers: dict[str, Recommendation | Failure],
    listener: Listener,
) -> None:
    """Let all nodes search at the same time, and wait for their answers."""
    for node in nodes.values():
        cluster.make_ready(node, site.parcels, site.payload)
    while len(answers) < len(nodes):
        for message in cluster.wait(LOOK_S):
            if isinstance(message, Progress):
                if message.event.fraction is None:
                    listener(Event("on-node", {"node": message.node, "event": message.event}))
            elif isinstance(message, Ready):
                cluster.search(nodes[message.node_id], request, site.payload)
            elif isinstance(message, SearchAnswer):
                answers[message.node_id] = message.answer
            elif isinstance(message, Crashed | Lost):
                answers[message.node_id] = Failure("lost", message.cause)
            elif isinstance(message, Ended) and message.failure is not None:
                answers[message.node_id] = message.failure
