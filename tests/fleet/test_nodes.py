"""Which nodes make a machine type, without any cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.fleet.nodes import (
    ListedNode,
    machine_types_of,
    named_type,
    node_names,
    nodes_by_type,
    refuse_missing,
)
from tests.helpers.nodes import MACHINE, a_node


def listed(name: str, *offers: str, host: str = "") -> ListedNode:
    return ListedNode(f"{name}-0123456789", host or name, 2.0, frozenset(offers))


def test_nodes_are_found_by_their_resources_and_labels() -> None:
    nodes = [listed("n1", "c7i", "zone=a", "a"), listed("n2", "c7g"), listed("n3", "c7i")]
    assert nodes_by_type(nodes, ["c7i", "zone=a", "none"]) == {
        "c7i": [nodes[0], nodes[2]],
        "zone=a": [nodes[0]],
        "none": [],
    }
    with pytest.raises(
        BadInput, match=r"No node of the cluster offers m7a. Its nodes offer a, c7g, c7i, zone=a\."
    ):
        refuse_missing(nodes_by_type(nodes, ["c7i", "m7a"]), nodes)


def test_nodes_without_names_are_told_apart_by_cpu_and_named_by_it_or_by_the_instance_type() -> None:
    other = replace(MACHINE, cpu="Xeon 8488C")
    cloud = replace(other, instance_type="c7i.large")
    nodes = [a_node("n1"), a_node("n2", other), a_node("n3"), a_node("n4", cloud)]
    assert [(one.name, [node.name for node in one.nodes]) for one in machine_types_of(nodes)] == [
        ("EPYC 9R14", ["n1", "n3"]),
        ("Xeon 8488C", ["n2"]),
        ("c7i.large", ["n4"]),
    ]
    # Of the same name but not alike: they are two types.
    halved = [a_node("n1"), a_node("n2", replace(MACHINE, physical_cores=MACHINE.physical_cores + 1))]
    assert [one.name for one in machine_types_of(halved)] == ["EPYC 9R14 #1", "EPYC 9R14 #2"]


def test_nodes_under_one_name_that_are_not_alike_are_refused_and_memory_does_not_count() -> None:
    more = replace(MACHINE, memory_bytes=1)
    assert [node.name for node in named_type("c7i", [a_node("n1"), a_node("n2", more)]).nodes] == ["n1", "n2"]
    with pytest.raises(BadInput, match="n1 and n3 differ in CPU, physical cores"):
        named_type("c7i", [a_node("n1"), a_node("n3", replace(MACHINE, cpu="Xeon", physical_cores=96))])


def test_a_node_is_called_by_its_host_and_several_on_a_host_are_told_apart() -> None:
    nodes = [listed("n1", host="vm"), listed("n2", host="vm"), listed("n3", host="big")]
    assert node_names(nodes) == {nodes[0].id: "vm-n1-01234", nodes[1].id: "vm-n2-01234", nodes[2].id: "big"}
