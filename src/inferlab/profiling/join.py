"""Which nodes of a model's graph each executed layer covers: a pure function of names and of the graph's edges.

A layer that an engine put in by itself, to copy or reorder a tensor, covers no node: its time is the engine's own
and counts as not attributed, so that it can be seen beside the layers that it serves.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx import ModelProto

from inferlab.model import structure
from inferlab.model.confined import confined
from inferlab.model.flops.costs import NodeCost
from inferlab.model.onnx_graph import RANDOM, all_nodes

# They tell of shapes, which are fixed: engines compute them, and what follows from them, beforehand.
_OF_SHAPES = {"Shape", "Size"}
_LAYOUT = {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Expand"}
# What follows another layer's main node within that layer, where the engine names only its main nodes.
_FOLLOWING = _LAYOUT | {
    *("Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf"),
    *("Gelu", "Mish", "Softplus", "Softsign", "Softmax", "LogSoftmax", "Add", "Sub", "Mul", "Div", "Pow", "Sqrt"),
    *("Neg", "Abs", "Exp", "Log", "Reciprocal", "Sum", "Min", "Max", "Cast", "Dropout", "BatchNormalization"),
    *("LayerNormalization", "ReduceMean", "QuantizeLinear", "DequantizeLinear"),
}  # fmt: skip
# What convolutions do besides where an engine names a layer by its last node, activations apart.
_ACTIVATIONS = {"Relu", "Clip"}
_WITH_BODIES = {"If", "Loop", "Scan"}
#: Layers without names that stand for nodes of these types.
_STANDS_FOR = {"gather": {"Gather"}, "shuffle": _LAYOUT}


@dataclass(frozen=True, slots=True)
class ExecutedLayer:
    """One layer as the engine tells of it."""

    name: str
    type: str = ""
    kernel: str = ""
    #: Names of nodes, or of their outputs.
    covers: tuple[str, ...] = ()
    fallback: bool = False
    ns: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinResult:
    """What became of every node."""

    #: For each layer the nodes that it covers, by their place in the graph; no node is in two layers.
    nodes: tuple[tuple[int, ...], ...]
    #: For each layer without nodes the one that it is a part of: several were made of the same node.
    part_of: Mapping[int, int]
    #: Nodes that were computed when the model was loaded, or are in a branch that was not taken.
    folded: tuple[int, ...]


def read_layers(told: Iterable[Mapping[str, Any]]) -> tuple[ExecutedLayer, ...]:
    """The layers out of an engine's answer."""
    return tuple(
        ExecutedLayer(
            name=str(layer["name"]),
            type=str(layer.get("type", "")),
            kernel=str(layer.get("kernel", "")),
            covers=tuple(str(name) for name in layer.get("covers", ())),
            fallback=bool(layer.get("fallback", False)),
            ns=float(layer["ns"]),
        )
        for layer in told
    )


def join(
    layers: Sequence[ExecutedLayer],
    graph: Graph,
    unnamed: str = "after",
    seeds: Mapping[int, Sequence[int]] | None = None,
) -> JoinResult:
    """Give every node to the layer that executed it.

    Nodes that no layer names belong to the layer that uses what they compute, with unnamed="before" to the one
    that computed what they use, and with unnamed="activation" only activations do so.
    `seeds` are the nodes of each layer where they are known better than by its names.
    """
    if seeds is None:
        seeds = {number: graph.named(layer.covers, unnamed != "after") for number, layer in enumerate(layers)}
    owner: dict[int, int] = {}
    part_of: dict[int, int] = {}
    for number in range(len(layers)):
        mine = [node for node in seeds.get(number, ()) if owner.setdefault(node, number) == number]
        if not mine and seeds.get(number):
            part_of[number] = owner[seeds[number][0]]
    if not any(node in graph.inner for node in owner):
        _give_bodies(graph, owner)
    if unnamed == "before":
        _adopt(layers, graph, owner)
        _forwards(layers, graph, owner)
        _backwards(graph, owner)
    else:
        if unnamed == "activation":
            _activate(graph, owner)
        _backwards(graph, owner)
    _follow(graph, owner)
    covered: dict[int, list[int]] = defaultdict(list)
    for node in sorted(owner):
        covered[owner[node]].append(node)
    return JoinResult(
        nodes=tuple(tuple(covered.get(number, ())) for number in range(len(layers))),
        part_of=part_of,
        folded=tuple(number for number in range(len(graph.nodes)) if number not in owner),
    )


class Graph:
    """The edges between nodes, and what is known before any input is.

    `fed` are the model's inputs, `kept` its outputs. The nodes of branches and loops come behind the node that
    they are in; no edge leads out of them.
    """

    def __init__(self, nodes: Sequence[NodeCost], fed: Collection[str], kept: Collection[str]) -> None:
        self.nodes = nodes
        self.kept = frozenset(kept)
        self.maker: dict[str, int] = {}
        self.users: dict[str, list[int]] = defaultdict(list)
        self.by_name: dict[str, int] = {}
        self.fixed: set[int] = set()
        shared: set[str] = set()
        for number, node in enumerate(nodes):
            for tensor in filter(None, node.outputs):
                self.maker.setdefault(tensor, number)
            for tensor in dict.fromkeys(filter(None, node.inputs)):
                self.users[tensor].append(number)
            if node.name and self.by_name.setdefault(node.name, number) != number:
                shared.add(node.name)
        for name in shared:
            del self.by_name[name]
        for number, node in enumerate(nodes):
            known = all(
                self.maker[tensor] in self.fixed if tensor in self.maker else tensor not in fed
                for tensor in filter(None, node.inputs)
            )
            if (known and node.type not in RANDOM) or node.type in _OF_SHAPES:
                self.fixed.add(number)
        self.inner = self._inner()

    def _inner(self) -> dict[int, int]:
        """The nodes of branches and loops, each with the outermost node that it is in."""
        leading: set[int] = set()
        for number in reversed(range(len(self.nodes))):
            outputs = self.nodes[number].outputs
            if any(tensor in self.kept for tensor in outputs) or not leading.isdisjoint(self.after(number)):
                leading.add(number)
        inner: dict[int, int] = {}
        around: int | None = None
        for number, node in enumerate(self.nodes):
            if number not in leading and around is not None:
                inner[number] = around
            elif node.type in _WITH_BODIES:
                around = number
        return inner

    def named(self, names: Sequence[str], outputs_first: bool = False) -> list[int]:
        """The nodes that these names stand for; engines add parts to names after a slash."""
        tables = (self.maker, self.by_name) if outputs_first else (self.by_name, self.maker)
        nodes: list[int] = []
        for name in filter(None, names):
            rest = name
            while rest and not any(rest in table for table in tables):
                rest = rest.rpartition("/")[0]
            nodes += [table[rest] for table in tables if rest in table][:1]
        return list(dict.fromkeys(nodes))

    def before(self, number: int) -> list[int]:
        """The nodes whose outputs a node reads."""
        inputs = filter(None, self.nodes[number].inputs)
        return [self.maker[tensor] for tensor in inputs if tensor in self.maker]

    def after(self, number: int) -> list[int]:
        """The nodes that read a node's outputs."""
        outputs = filter(None, self.nodes[number].outputs)
        return [user for tensor in outputs for user in self.users.get(tensor, ())]


def _give_bodies(graph: Graph, owner: dict[int, int]) -> None:
    """Where no layer is within a branch or loop, all its nodes are in the layer that runs it as a whole.

    Otherwise those without a layer are in the branch that was not taken: nobody executed them.
    """
    for number, around in graph.inner.items():
        if number not in owner and around in owner:
            owner[number] = owner[around]


def _backwards(graph: Graph, owner: dict[int, int]) -> None:
    """What nobody named was fused into the first layer that uses it."""
    for number in reversed(range(len(graph.nodes))):
        if number not in owner and number not in graph.fixed and number not in graph.inner:
            layers = [owner[user] for user in graph.after(number) if user in owner]
            if layers:
                owner[number] = min(layers)


def _activate(graph: Graph, owner: dict[int, int]) -> None:
    """An activation that nobody named is a part of the layer whose result it reads."""
    for number, node in enumerate(graph.nodes):
        makers = [owner[maker] for maker in graph.before(number) if maker in owner]
        if number not in owner and node.type in _ACTIVATIONS and makers:
            owner[number] = max(makers)


def _follow(graph: Graph, owner: dict[int, int]) -> None:
    """What nobody uses either was fused into the last layer that it needs."""
    for number in range(len(graph.nodes)):
        if number not in owner and number not in graph.fixed and number not in graph.inner:
            layers = [owner[maker] for maker in graph.before(number) if maker in owner]
            if layers:
                owner[number] = max(layers)


def _forwards(layers: Sequence[ExecutedLayer], graph: Graph, owner: dict[int, int]) -> None:
    """What can follow within a layer does; what cannot was handed to the next layer that fell back."""
    fallbacks = [number for number, layer in enumerate(layers) if layer.fallback]
    for number, node in enumerate(graph.nodes):
        if number in owner or number in graph.fixed or number in graph.inner:
            continue
        makers = [owner[maker] for maker in graph.before(number) if maker in owner]
        latest = max(makers, default=-1)
        if node.type in _FOLLOWING:
            if makers:
                owner[number] = latest
        else:
            at = next((layer for layer in fallbacks if layer >= latest), None)
            if at is not None:
                owner[number] = at


def _adopt(layers: Sequence[ExecutedLayer], graph: Graph, owner: dict[int, int]) -> None:
    """Give layers that name nothing the nodes of their kind: the next in the graph, or behind the layer before."""
    for number, layer in enumerate(layers):
        types = _STANDS_FOR.get(layer.type, set())
        if layer.covers or not types:
            continue
        if layer.type == "gather":
            near: Iterable[int] = range(len(graph.nodes))
        else:
            near = _behind([place for place, holder in owner.items() if holder == number - 1], graph, owner)
        free = [node for node in near if node not in owner and node not in graph.fixed]
        wanted = [node for node in free if graph.nodes[node].type in types]
        for node in wanted[:1] if layer.type == "gather" else wanted:
            owner[node] = number


def _behind(starts: Sequence[int], graph: Graph, owner: Mapping[int, int]) -> list[int]:
    """The free nodes that follow within a layer."""
    following: dict[int, None] = {}
    waiting = list(starts)
    while waiting:
        for each in graph.after(waiting.pop()):
            if each not in owner and each not in following and graph.nodes[each].type in _FOLLOWING:
                following[each] = None
                waiting.append(each)
    return sorted(following)


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
    layers: Sequence[ExecutedLayer], content: bytes, graph: Graph
) -> tuple[tuple[ExecutedLayer, ...], dict[int, list[int]]]:
    """The layers with their kernels, and for each the nodes that it is known to cover.

    `content` is the optimised graph; its nodes have the names of the layers.
    """
    made = _read_nodes(content)
    known = _known_nodes(made, graph)
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, node in enumerate(made):
        places[node.name, node.op_type].append(place)
    seeds: dict[int, list[int]] = {}
    told: list[ExecutedLayer] = []
    for number, layer in enumerate(layers):
        here = places.get((layer.name, layer.type))
        if not here:
            told.append(layer)
            continue
        place = here.pop(0) if len(here) > 1 else here[0]
        domain = made[place].domain
        told.append(replace(layer, kernel=f"{domain}.{layer.type}" if domain else layer.type))
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
            next(
                (value.s.decode("utf-8", "replace") for value in node.attribute if value.name == "activation"), ""
            ),
        )
        for node in all_nodes(proto.graph)
    ]


def _known_nodes(made: Sequence[Optimised], graph: Graph) -> list[list[int]]:
    """For each optimised node those of the model that its name, its outputs and its extra inputs tell of."""
    same = [_same_node(node, graph) for node in made]
    taken = {number for number in same if number is not None}
    # What a tensor of the optimised graph was called in the model.
    was: dict[str, str] = {}
    known: list[list[int]] = []
    for node, number in zip(made, same, strict=True):
        if node.op_type in _REORDERS and node.output:
            was[node.output[0]] = was.get(node.input[0], node.input[0]) if node.input else ""
            known.append([])
            continue
        kept = [name for name in node.output if name in graph.maker]
        # An output whose node is still there belongs to a copy that was put behind it.
        own = [
            graph.maker[output]
            for output in kept
            if graph.maker[output] == number or graph.maker[output] not in taken
        ]
        covered = [] if number is None else [number]
        covered += [place for place in dict.fromkeys(own) if place != number]
        before = _BLOCKED.sub("", node.name) if _BLOCKED.search(node.name) else ""
        if not kept and before in graph.maker:
            covered += _extended(node, before, graph, was)
        elif not kept and number is not None and node.output:
            was[node.output[0]] = graph.nodes[number].outputs[0]
        known.append(covered)
    return known


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
