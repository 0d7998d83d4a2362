"""From what a recipe aims at to what it does: every weight with its level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from inferlab.confined import confined
from inferlab.errors import BadInput
from inferlab.model import sparsity
from inferlab.model.costs import Costs, NodeCost
from inferlab.model.graph import parse_onnx
from inferlab.optimizing.asked import CHANNEL
from inferlab.optimizing.choose import choose, levels_by_weight, not_quantized
from inferlab.optimizing.thresholds import DIGITS, global_levels
from inferlab.profiling.estimate import estimate
from inferlab.profiling.loss import layers_to_prune, weight_elements
from inferlab.records import Finding, Model
from inferlab.records.optimization import Pruning, Recipe
from inferlab.records.profile import LossProfile, PerformanceProfile
from inferlab.transform.patterns import parse_groups
from inferlab.version import __version__

# A target counts as reached if no more than this share is missing: weights are whole.
_NEARLY = 0.005


@dataclass(frozen=True, slots=True)
class Resolved:
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
) -> Resolved:
    """The recipe as it will be carried out on this model; one that was carried out before says all itself.

    A recipe with a digest was: its levels are taken as they are. The profiles are needed for a loss budget.
    """
    recipe = _with_exclusions(recipe, costs)
    pruning = recipe.pruning
    if pruning is None:
        return Resolved(_for(recipe, model), findings=_other(recipe, model))
    nodes, sparse = _dense(layers_to_prune(costs), model)
    if not nodes:
        raise BadInput(f"{model.source} has no layer with weights that could be pruned.")
    if recipe.digest:
        return _as_before(recipe, pruning, nodes, model)
    chosen, left = choose(pruning, nodes, costs.nodes)
    left |= sparse
    if not chosen:
        reasons = ", ".join(one.removeprefix("not pruned: ") for one in dict.fromkeys(left.values()))
        raise BadInput(
            f"No layer of {model.source} is left to be pruned ({reasons}). Choose others with --include and "
            "--exclude; --ends takes the first and the last layer too."
        )
    fixed = levels_by_weight(pruning.layers, nodes)
    levels, findings = _levels(pruning, chosen, fixed, loss, performance, model)
    found = {node.weight: levels[node.weight] for node in chosen if levels.get(node.weight)}
    if not found:
        raise BadInput(_nothing(pruning, model))
    done = replace(recipe, pruning=replace(pruning, layers=found))
    return Resolved(_for(done, model), left, (*findings, *_missed(pruning, chosen, levels, fixed)))


def _for(recipe: Recipe, model: Model) -> Recipe:
    """The recipe with the model that it is for, by names that do not depend on where its files are."""
    name = model.source if model.source.startswith(("demo:", "zoo:", "hf:")) else Path(model.path).name
    return replace(recipe, model=name, digest=model.digest, inferlab=__version__)


def _as_before(recipe: Recipe, pruning: Pruning, nodes: Sequence[NodeCost], model: Model) -> Resolved:
    known = {node.weight for node in nodes}
    missing = [name for name in pruning.layers if name not in known]
    if missing:
        raise BadInput(
            f"The recipe was made for {recipe.model or 'another model'}: {model.source} has no weight "
            f"'{missing[0]}' that could be pruned ({len(missing)} of {len(pruning.layers)} are missing). To "
            "aim at the same target, remove digest and pruning.layers from the recipe."
        )
    return Resolved(_for(recipe, model), {}, _other(recipe, model))


def _other(recipe: Recipe, model: Model) -> tuple[Finding, ...]:
    """Whether the recipe was carried out before on another model."""
    if recipe.digest in ("", model.digest):
        return ()
    return (Finding("other-model", {"model": recipe.model}),)


@confined(reads=["model"])
def _dense_weights(model: Model) -> list[str]:
    stored = sparsity.weights(parse_onnx(Path(model.path)))
    return [one.name for one in stored if one.elements == sparsity.elements(one.stored)]


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
    """Where the estimate gains most within the budget: time, or zeros where zeros gain no time."""
    if loss is None:
        raise BadInput("A loss budget needs a loss profile, and there is none of this model.")
    assert pruning.budget is not None
    free = frozenset(weight for weight in weights if weight not in fixed)
    most = pruning.maximum
    found = estimate(performance, loss, pruning.budget, free, most)
    findings: tuple[Finding, ...] = ()
    if found is not None and found.gained == "time" and not found.levels and performance is not None:
        by_size = estimate(None, loss, pruning.budget, free, most)
        if by_size is not None and by_size.levels:
            found, findings = by_size, (Finding("zeros-gain-nothing", {"engine": performance.engine}),)
    levels = {} if found is None else dict(found.levels)
    if pruning.minimum > 0:
        levels = {weight: max(pruning.minimum, levels.get(weight, 0.0)) for weight in free}
    return levels, findings


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
