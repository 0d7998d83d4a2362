"""Which layers a recipe means: by name or regular expression, without the first and the last unless asked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from inferlab.errors import BadInput
from inferlab.model.costs import NodeCost
from inferlab.records.optimization import Pruning, Quantization

FIRST = "not pruned: it is the first layer"
LAST = "not pruned: it is the last layer"
EXCLUDED = "not pruned: it was excluded"
NOT_INCLUDED = "not pruned: it was not included"
GROUPED = "not pruned: it is a grouped convolution, which gains nothing from zeros"


def choose(
    pruning: Pruning, nodes: Sequence[NodeCost], everything: Sequence[NodeCost]
) -> tuple[list[NodeCost], dict[str, str]]:
    """The layers that are to be pruned, and by the others' weights why they are not.

    `nodes` can be pruned; names may also mean other nodes of the graph, of which nothing follows.
    What `include` names by its whole name, or `layers` in any way, may also be the first, the last or grouped.
    """
    included = matcher(pruning.include, everything, "include")
    excluded = matcher(pruning.exclude, everything, "exclude")
    asked = set(levels_by_weight(pruning.layers, nodes))
    named = {node.weight for node in nodes if {node.weight, node.id, node.name} & set(pruning.include)}
    ends = {} if pruning.ends or not nodes else {nodes[-1].weight: LAST, nodes[0].weight: FIRST}
    chosen: list[NodeCost] = []
    left: dict[str, str] = {}
    for node in nodes:
        weight = node.weight
        if weight in asked:
            chosen.append(node)
        elif excluded(node):
            left[weight] = EXCLUDED
        elif pruning.include and not included(node):
            left[weight] = NOT_INCLUDED
        elif weight in ends and weight not in named:
            left[weight] = ends[weight]
        elif node.groups > 1 and weight not in named:
            left[weight] = GROUPED
        else:
            chosen.append(node)
    return chosen, left


def not_quantized(wanted: Quantization, nodes: Sequence[NodeCost]) -> list[NodeCost]:
    """The nodes that a recipe keeps out of quantising."""
    included = matcher(wanted.include, nodes, "quantization.include")
    excluded = matcher(wanted.exclude, nodes, "quantization.exclude")
    return [node for node in nodes if excluded(node) or (wanted.include and not included(node))]


def levels_by_weight(layers: Mapping[str, float], nodes: Sequence[NodeCost]) -> dict[str, float]:
    """The level of every weight that `layers` names, by its own name, its node's, or a regular expression.

    A whole name goes before an expression; of several expressions the last counts.
    """
    found: dict[str, float] = {}
    exact: dict[str, float] = {}
    for key, level in layers.items():
        meant = _meant(key, nodes, "layers")
        whole = [node for node in meant if key in _names(node)]
        (exact if whole else found).update({node.weight: level for node in meant})
    return found | exact


def matcher(patterns: Iterable[str], nodes: Sequence[NodeCost], key: str) -> Callable[[NodeCost], bool]:
    """Whether a node is one of those that the patterns mean; each of them must mean some node."""
    meant = {node.id for pattern in patterns for node in _meant(pattern, nodes, key)}
    return lambda node: node.id in meant


def _meant(pattern: str, nodes: Sequence[NodeCost], key: str) -> list[NodeCost]:
    """The nodes of that very name, else those that the whole of an expression fits."""
    same = [node for node in nodes if pattern in _names(node)]
    if same:
        return same
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise BadInput(
            f"'{pattern}' in {key} is no name of a layer and no regular expression: {error}."
        ) from error
    found = [node for node in nodes if any(expression.fullmatch(name) for name in _names(node))]
    if not found:
        names = [name for node in nodes for name in _names(node)]
        near = difflib.get_close_matches(pattern, names, n=1) or names[:1]
        hint = f" Its layers are called like '{near[0]}'." if near else ""
        raise BadInput(f"The model has no layer '{pattern}', which {key} names.{hint}")
    return found


def _names(node: NodeCost) -> tuple[str, ...]:
    return tuple(name for name in (node.weight, node.id, node.name) if name)
