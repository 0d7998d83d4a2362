"""Which nodes of a model stand behind those of the graph that ONNX Runtime made of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx import ModelProto

from inferlab.confined import confined
from inferlab.model import structure
from inferlab.model.tensors import numbered
from inferlab.profiling.join import Executed, Graph

# A node in the blocked layout is called after the output that it had before, which is now called "reorder…";
# a number makes a second node of that name unique.
_BLOCKED = re.compile(r"_nchwc(_token_\d+)?$")
_TOKEN = re.compile(r"_token_\d+$")
_REORDERS = {"ReorderInput", "ReorderOutput"}
# The tensor that a fused convolution adds to its result.
_ADDEND = 3


@dataclass(frozen=True, slots=True)
class Optimised:
    """A node of the graph that an engine made of the model."""

    name: str
    op_type: str
    domain: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    #: What is fused behind it.
    activation: str = ""


def optimised_seeds(
    layers: Sequence[Executed], content: bytes, graph: Graph
) -> tuple[tuple[Executed, ...], dict[int, list[int]]]:
    """The layers with their kernels, and for each the nodes that it is known to cover.

    `content` is the optimised graph; its nodes have the names of the layers.
    """
    made = _read_nodes(content)
    known = _known_nodes(made, graph)
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, node in enumerate(made):
        places[node.name, node.op_type].append(place)
    seeds: dict[int, list[int]] = {}
    told: list[Executed] = []
    for number, one in enumerate(layers):
        here = places.get((one.name, one.type))
        if not here:
            told.append(one)
            continue
        place = here.pop(0) if len(here) > 1 else here[0]
        domain = made[place].domain
        told.append(replace(one, kernel=f"{domain}.{one.type}" if domain else one.type))
        seeds[number] = known[place]
    return tuple(told), seeds


@confined(reads=[])
def _read_nodes(content: bytes) -> list[Optimised]:
    """The nodes of an optimised graph, in order."""
    proto = ModelProto.FromString(content)
    structure.check_text(proto)
    return [
        Optimised(
            node.name,
            node.op_type,
            node.domain,
            tuple(node.input),
            tuple(node.output),
            next((one.s.decode("utf-8", "replace") for one in node.attribute if one.name == "activation"), ""),
        )
        for node in numbered(proto.graph)
    ]


def _known_nodes(made: Sequence[Optimised], graph: Graph) -> list[list[int]]:
    """For each optimised node those of the model that its name, its outputs and its extra inputs tell of."""
    same = [_same_node(node, graph) for node in made]
    taken = {number for number in same if number is not None}
    # What a tensor of the optimised graph was called in the model.
    was: dict[str, str] = {}
    found: list[list[int]] = []
    for node, number in zip(made, same, strict=True):
        if node.op_type in _REORDERS and node.output:
            was[node.output[0]] = was.get(node.input[0], node.input[0]) if node.input else ""
            found.append([])
            continue
        kept = [one for one in node.output if one in graph.maker]
        # An output whose node is still there belongs to a copy that was put behind it.
        own = [graph.maker[one] for one in kept if graph.maker[one] == number or graph.maker[one] not in taken]
        covered = [] if number is None else [number]
        covered += [one for one in dict.fromkeys(own) if one != number]
        before = _BLOCKED.sub("", node.name) if _BLOCKED.search(node.name) else ""
        if not kept and before in graph.maker:
            covered += _extended(node, before, graph, was)
        elif not kept and number is not None and node.output:
            was[node.output[0]] = graph.nodes[number].outputs[0]
        found.append(covered)
    return found


def _same_node(node: Optimised, graph: Graph) -> int | None:
    """The model's node that this one still is, in another layout or in INT8 (QLinearConv), by its name."""
    number = graph.by_name.get(node.name, graph.by_name.get(_TOKEN.sub("", node.name)))
    return number if number is not None and node.op_type.endswith(graph.nodes[number].type) else None


def _extended(node: Optimised, tensor: str, graph: Graph, was: dict[str, str]) -> list[int]:
    """The nodes from the one that computed `tensor` on that were fused into a blocked one behind it.

    The addition shows as an input, the activation as an attribute.
    """
    covered = [graph.maker[tensor]]
    activation = node.activation
    if graph.nodes[covered[0]].type == activation:
        activation = ""
    addend = node.input[_ADDEND] if node.op_type == "Conv" and len(node.input) > _ADDEND else ""
    for wanted, other in (("Add", was.get(addend, addend)), (activation, "")):
        last = graph.nodes[covered[-1]].outputs[0]
        for user in graph.users.get(last, ()) if wanted and (other or wanted != "Add") else ():
            types = ("Add", "Sum") if wanted == "Add" else (wanted,)
            if graph.nodes[user].type in types and (not other or other in graph.nodes[user].inputs):
                covered.append(user)
                break
    for output in node.output[:1]:
        was[output] = graph.nodes[covered[-1]].outputs[0]
    return covered
