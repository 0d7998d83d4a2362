"""From what a recipe aims at to what it does: every weight with its level."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.child.pruning import count_nan, how_many, magnitude_bits
from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.onnx_graph import element_count, list_weights, stored_values
from inferlab.profiling.channel_shares import best_shares
from inferlab.profiling.loss import layers_to_prune, weight_elements
from inferlab.profiling.zeros import estimate
from inferlab.records import Finding, Model
from inferlab.records.optimization import CHANNEL, Pruning, Quantization, Recipe
from inferlab.records.profile import LossProfile, PerformanceProfile
from inferlab.transform.copies import not_a_number
from inferlab.transform.patterns import as_floats, parse_groups
from inferlab.version import __version__

# A target counts as reached if no more than this share is missing: weights are whole.
_NEARLY = 0.005


@dataclass(frozen=True, slots=True)
class ResolvedRecipe:
    """A recipe that names every weight with its level, and what is to be known of it."""

    recipe: Recipe
    #: By weight, why a layer that could be pruned is not.
    left_alone: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def resolve(
    recipe: Recipe,
    costs: Costs,
    loss: LossProfile | None,
    performance: PerformanceProfile | None,
    model: Model,
) -> ResolvedRecipe:
    """The recipe as it will be carried out on this model; one that was carried out before says all itself.

    A recipe with a digest was: its levels are taken as they are. The profiles are needed for a loss budget.
    """
    recipe = _with_exclusions(recipe, costs)
    pruning = recipe.pruning
    if pruning is None:
        return ResolvedRecipe(_for(recipe, model), findings=_other(recipe, model))
    nodes, sparse = _dense(layers_to_prune(costs), model)
    if not nodes:
        raise BadInput(f"{model.source} has no layer with weights that could be pruned.")
    if recipe.digest:
        return _as_before(recipe, pruning, nodes, model)
    chosen, left = choose(pruning, nodes, costs.nodes)
    left |= sparse
    if not chosen:
        reasons = ", ".join(reason.removeprefix("not pruned: ") for reason in dict.fromkeys(left.values()))
        raise BadInput(
            f"No layer of {model.source} is left to be pruned ({reasons}). Choose others with --include and "
            "--exclude; --ends takes the first and the last layer too."
        )
    fixed = levels_by_weight(pruning.layers, nodes)
    levels, findings = _levels(pruning, chosen, fixed, loss, performance, model)
    chosen_levels = {node.weight: levels[node.weight] for node in chosen if levels.get(node.weight)}
    if not chosen_levels:
        raise BadInput(_nothing(pruning, model))
    done = replace(recipe, pruning=replace(pruning, layers=chosen_levels))
    return ResolvedRecipe(_for(done, model), left, (*findings, *_missed(pruning, chosen, levels, fixed)))


def _for(recipe: Recipe, model: Model) -> Recipe:
    """The recipe with the model that it is for, by names that do not depend on where its files are."""
    name = model.source if model.source.startswith(("demo:", "zoo:", "hf:")) else Path(model.path).name
    return replace(recipe, model=name, digest=model.digest, inferlab=__version__)


def _as_before(recipe: Recipe, pruning: Pruning, nodes: Sequence[NodeCost], model: Model) -> ResolvedRecipe:
    known = {node.weight for node in nodes}
    missing = [name for name in pruning.layers if name not in known]
    if missing:
        raise BadInput(
            f"The recipe was made for {recipe.model or 'another model'}: {model.source} has no weight "
            f"'{missing[0]}' that could be pruned ({len(missing)} of {len(pruning.layers)} are missing). To "
            "aim at the same target, remove digest and pruning.layers from the recipe."
        )
    return ResolvedRecipe(_for(recipe, model), {}, _other(recipe, model))


def _other(recipe: Recipe, model: Model) -> tuple[Finding, ...]:
    """Whether the recipe was carried out before on another model."""
    if recipe.digest in ("", model.digest):
        return ()
    return (Finding("other-model", {"model": recipe.model}),)


@confined(reads=["model"])
def _dense_weights(model: Model) -> list[str]:
    stored = list_weights(parse_onnx(Path(model.path)))
    return [item.name for item in stored if item.elements == element_count(item.stored)]


def _dense(nodes: Sequence[NodeCost], model: Model) -> tuple[list[NodeCost], dict[str, str]]:
    """The layers whose weights are stored densely, and by the others' weights why they cannot be pruned."""
    dense = set(_dense_weights(model))
    left = {
        node.weight: "not pruned: its weight is not stored densely" for node in nodes if node.weight not in dense
    }
    return [node for node in nodes if node.weight in dense], left


def _with_exclusions(recipe: Recipe, costs: Costs) -> Recipe:
    """The recipe with every node that is not to be quantised by its name, or by its weight's where it has one."""
    quantization = recipe.quantization
    if quantization is None or recipe.digest or not (quantization.include or quantization.exclude):
        return recipe
    out = not_quantized(quantization, costs.nodes)
    names = tuple(dict.fromkeys(node.weight or node.id for node in out))
    return replace(recipe, quantization=replace(quantization, include=(), exclude=names))


def _levels(
    pruning: Pruning,
    chosen: Sequence[NodeCost],
    fixed: Mapping[str, float],
    loss: LossProfile | None,
    performance: PerformanceProfile | None,
    model: Model,
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    """The level of every chosen weight; those in `fixed` go before everything else."""
    groups = None if pruning.pattern == CHANNEL else parse_groups(pruning.pattern)
    weights = [node.weight for node in chosen]
    findings: tuple[Finding, ...] = ()
    if groups is not None:
        alike = round(groups[0] / groups[1], DIGITS)
        levels = dict.fromkeys(weights, alike) if not pruning.layers or pruning.sparsity else {}
    elif pruning.budget is not None:
        levels, findings = _from_estimate(pruning, weights, fixed, loss, performance)
    elif pruning.sparsity is None:
        levels = {}
    elif pruning.scope == "global":
        levels = global_levels(model, weights, pruning.sparsity, pruning.minimum, pruning.maximum, fixed)
    else:
        levels = dict.fromkeys(weights, min(max(pruning.sparsity, pruning.minimum), pruning.maximum))
    return {**levels, **fixed}, findings


def _from_estimate(
    pruning: Pruning,
    weights: Sequence[str],
    fixed: Mapping[str, float],
    loss: LossProfile | None,
    performance: PerformanceProfile | None,
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    """Where the estimate gains most within the budget: time, or zeros where zeros gain no time.

    Of channels it goes by the losses of groups of them; an older loss profile has none, and speaks for zeros.
    """
    if loss is None:
        raise BadInput("A loss budget needs a loss profile, and there is none of this model.")
    assert pruning.budget is not None
    free = frozenset(weight for weight in weights if weight not in fixed)
    most = pruning.maximum
    if pruning.pattern == CHANNEL and loss.groups:
        best = best_shares(performance, loss, pruning.budget, free, most)
        return _at_least(pruning.minimum, {} if best is None else best.shares, free), ()
    chosen = estimate(performance, loss, pruning.budget, free, most)
    findings: tuple[Finding, ...] = ()
    if chosen is not None and chosen.gained == "time" and not chosen.levels and performance is not None:
        by_size = estimate(None, loss, pruning.budget, free, most)
        if by_size is not None and by_size.levels:
            chosen, findings = by_size, (Finding("zeros-gain-nothing", {"engine": performance.engine}),)
    return _at_least(pruning.minimum, {} if chosen is None else chosen.levels, free), findings


def _at_least(minimum: float, levels: Mapping[str, float], free: Collection[str]) -> dict[str, float]:
    """The levels, none of the weights that are free below the minimum."""
    if minimum <= 0:
        return dict(levels)
    return {weight: max(minimum, levels.get(weight, 0.0)) for weight in free}


def _missed(
    pruning: Pruning, chosen: Sequence[NodeCost], levels: Mapping[str, float], fixed: Mapping[str, float]
) -> tuple[Finding, ...]:
    """How far a target was reached that the limits keep out of reach."""
    if pruning.sparsity is None:
        return ()
    counted = [node for node in chosen if pruning.scope == "global" or node.weight not in fixed]
    total = sum(map(weight_elements, counted))
    zeros = sum(levels.get(node.weight, 0.0) * weight_elements(node) for node in counted)
    if not total or zeros / total >= pruning.sparsity - _NEARLY:
        return ()
    data = {"wanted": pruning.sparsity, "reached": zeros / total, "maximum": pruning.maximum}
    return (Finding("target-not-reached", data),)


def _nothing(pruning: Pruning, model: Model) -> str:
    if pruning.budget is not None:
        return (
            f"No layer of {model.source} can be pruned within a loss of {pruning.budget:g}: every level costs "
            "more. Give a larger --budget."
        )
    return f"No layer of {model.source} would be pruned: every level that was given is 0."


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
    by_weight: dict[str, float] = {}
    exact: dict[str, float] = {}
    for key, level in layers.items():
        meant = _meant(key, nodes, "layers")
        whole = [node for node in meant if key in _names(node)]
        (exact if whole else by_weight).update({node.weight: level for node in meant})
    return by_weight | exact


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
            f"'{pattern}' in {key} is neither the name of a layer nor a valid regular expression: {error}."
        ) from error
    meant = [node for node in nodes if any(expression.fullmatch(name) for name in _names(node))]
    if not meant:
        names = [name for node in nodes for name in _names(node)]
        near = difflib.get_close_matches(pattern, names, n=1) or names[:1]
        hint = f" Its layers are called like '{near[0]}'." if near else ""
        raise BadInput(f"The model has no layer '{pattern}', which {key} names.{hint}")
    return meant


def _names(node: NodeCost) -> tuple[str, ...]:
    return tuple(name for name in (node.weight, node.id, node.name) if name)


Array = np.ndarray[Any, Any]
# As many digits as tell a million weights apart, and as people can read.
DIGITS = 6


@confined(reads=["model"])
def global_levels(
    model: Model, weights: list[str], target: float, minimum: float, maximum: float, fixed: Mapping[str, float]
) -> dict[str, float]:
    """The share of every weight's smallest elements that makes `target` of all of them together zero.

    No share lies outside the limits; those in `fixed` are as they say and count. Where equal magnitudes stand at
    the threshold, the first layers' go.
    """
    sizes = _sorted_bits(model, weights)
    limits = {
        name: (how_many(len(bits), fixed.get(name, minimum)), how_many(len(bits), fixed.get(name, maximum)))
        for name, bits in sizes.items()
    }
    wanted = how_many(sum(map(len, sizes.values())), target)

    def counts(threshold: int, side: Any) -> dict[str, int]:
        below = {name: int(np.searchsorted(bits, np.uint32(threshold), side)) for name, bits in sizes.items()}
        return {name: min(max(below[name], limits[name][0]), limits[name][1]) for name in below}

    # The bits of a float's magnitude sort as it does.
    low, high = 0, 0x7F800000
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if sum(counts(middle, "right").values()) >= wanted else (middle + 1, high)
    fewest, most = counts(low, "left"), counts(low, "right")
    missing = wanted - sum(fewest.values())
    for name in fewest:
        more = min(max(0, missing), most[name] - fewest[name])
        fewest[name] += more
        missing -= more
    shares = {name: round(count / len(sizes[name]), DIGITS) for name, count in fewest.items()}
    # A count is whole, a limit is kept.
    return {name: min(max(share, minimum), maximum) for name, share in shares.items()} | dict(fixed)


def _sorted_bits(model: Model, names: list[str]) -> dict[str, Array]:
    """The magnitudes of each weight as the bits of 32-bit floats, in their order."""
    file = Path(model.path)
    stored = {weight.name: weight.stored for weight in list_weights(parse_onnx(file))}
    return {name: _bits(name, stored_values(stored[name], file.parent)) for name in names}


def _bits(name: str, values: Array) -> Array:
    if wrong := count_nan(values):
        raise not_a_number(name, wrong, "pruned")
    bits: Array = np.sort(magnitude_bits(as_floats(values).astype(np.float32)))
    return bits
