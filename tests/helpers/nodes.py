"""Nodes of a cluster that is not there."""

from __future__ import annotations

from dataclasses import replace

from inferlab import machine
from inferlab.fleet.nodes import Node
from inferlab.records import Machine

MACHINE = replace(machine.describe(), cpu="EPYC 9R14", instance_type=None, cpu_quota=None)


def a_node(name: str, found: Machine = MACHINE) -> Node:
    return Node(name, name, 2.0, replace(found, node=name), 2, 0)
