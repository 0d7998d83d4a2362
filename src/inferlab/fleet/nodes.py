"""The nodes of a cluster as plain data, which of them belong to which machine type, and what they say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from inferlab.errors import BadInput
from inferlab.records import Event, Failure, Machine, Recommendation, Run

#: What machines of one type have in common; memory differs a little from one to the next.
ALIKE = {
    "cpu": "CPU",
    "architecture": "architecture",
    "instruction_sets": "instruction sets",
    "physical_cores": "physical cores",
    "logical_cpus": "logical CPUs",
    "numa_nodes": "NUMA nodes",
    "cpu_quota": "CPU quota",
    "instance_type": "instance type",
}


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node as the cluster lists it, before it was asked anything."""

    id: str
    host: str
    #: CPUs that the cluster may hand out on it.
    cpus: float
    #: Names that a user may call its type by: resources, labels as values and as KEY=VALUE.
    offers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Node:
    """A node that told what it is."""

    id: str
    #: Names its measuring lock, and tells it from other nodes of the same machine.
    name: str
    cpus: float
    machine: Machine
    usable_cores: int
    #: How far its processes stand back for others: 0 is as usual.
    niceness: int


@dataclass(frozen=True, slots=True)
class MachineType:
    """Nodes that are alike, under the name that the user or they themselves gave."""

    name: str
    nodes: tuple[Node, ...]


def nodes_by_type(listed: Sequence[ListedNode], on: Sequence[str]) -> dict[str, list[ListedNode]]:
    """The nodes that offer each of these types; a type may have none."""
    return {name: [node for node in listed if name in node.offers] for name in on}


def refuse_missing(nodes_by_name: Mapping[str, Collection[object]], listed: Sequence[ListedNode]) -> None:
    """Refuse types that no node offers, and say what there is."""
    missing = [name for name, nodes in nodes_by_name.items() if not nodes]
    if missing:
        offered = sorted({name for node in listed for name in node.offers}) or ["nothing"]
        raise BadInput(
            f"No node of the cluster offers {', '.join(missing)}. Its nodes offer {', '.join(offered)}. Start "
            "some with ray start --resources '{\"NAME\": 1}', or let an autoscaler start them: --wait SECONDS"
        )


def node_names(listed: Iterable[ListedNode]) -> dict[str, str]:
    """The name of each node: that of its host, or with a part of its id where a host has several."""
    hosts = [node.host for node in listed]
    return {node.id: node.host if hosts.count(node.host) == 1 else f"{node.host}-{node.id[:8]}" for node in listed}


def named_type(name: str, nodes: Sequence[Node]) -> MachineType:
    """The nodes that a user calls so; refused where they are not alike."""
    for node in nodes[1:]:
        if differences := unlike(nodes[0].machine, node.machine):
            raise BadInput(
                f"The nodes of '{name}' differ, so they cannot be one machine type: {nodes[0].name} "
                f"and {node.name} differ in {', '.join(differences)}. Give them names of their own."
            )
    return MachineType(name, tuple(nodes))


def machine_types_of(nodes: Sequence[Node]) -> list[MachineType]:
    """The machine types that there are, by what the nodes told: named by instance type, or else by CPU."""
    groups: list[list[Node]] = []
    for node in nodes:
        group = next((alike for alike in groups if not unlike(alike[0].machine, node.machine)), None)
        if group is None:
            groups.append([node])
        else:
            group.append(node)
    names = [_own_name(group[0].machine) for group in groups]
    numbered = [
        name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]
    return [MachineType(name, tuple(group)) for name, group in zip(numbered, groups, strict=True)]


def unlike(a: Machine, b: Machine) -> list[str]:
    """In what two machines differ that matters, in words."""
    return [word for name, word in ALIKE.items() if getattr(a, name) != getattr(b, name)]


def _own_name(machine: Machine) -> str:
    # Lists have commas between their names.
    return (machine.instance_type or machine.cpu).replace(",", " ")


@dataclass(frozen=True, slots=True)
class Progress:
    """A node says what it does."""

    node: str
    event: Event


@dataclass(frozen=True, slots=True)
class Ready:
    """A node has the model, and the engines but for those with a problem."""

    node_id: str
    problems: dict[str, str]


@dataclass(frozen=True, slots=True)
class Measured:
    """A process of the cell that a node measures is done."""

    node_id: str
    run: Run


@dataclass(frozen=True, slots=True)
class Ended:
    """The cell that a node measures is done, or failed."""

    node_id: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Crashed:
    """What measured on a node is gone, the node perhaps not."""

    node_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is gone."""

    node_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A node's answer to a search, or why there is none."""

    node_id: str
    answer: Recommendation | Failure


Message = Progress | Ready | Measured | Ended | Crashed | Lost | SearchAnswer
