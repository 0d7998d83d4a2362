"""What became of every layer with weights: how many are left, how many are zero, in which precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from inferlab.model.confined import confined
from inferlab.model.datasets import Data
from inferlab.model.describe import precision_name
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.onnx_graph import list_weights, packed_weights, zero_counts
from inferlab.profiling.loss import layers_to_prune, weight_elements
from inferlab.records import Finding, Model
from inferlab.records.optimization import ChangedLayer, Recipe

# Channels and blocks are whole, so a share is met only so well.
_ROUNDED = 0.02


def changed_layers(
    model: Model, pruned: Model, made: Model, recipe: Recipe, data: Data
) -> tuple[ChangedLayer, ...]:
    """The original's layers as they are in the model that was made of it.

    Zeros are those of the made model: INT8 rounds small weights to zero. Those of the pruned copy alone are kept
    beside them, since they say how far the pruning got.
    """
    shapes = {name: tuple(value.shape) for name, value in data.sets[0].items()}
    wanted = recipe.pruning.layers if recipe.pruning else {}
    after, stored = _zeros(pruned), _zeros(made)
    precisions = _precisions(made)
    changed = []
    for node in layers_to_prune(costs(model, shapes)):
        params = weight_elements(node)
        left, by_pruning = after.get(node.weight, (params, node.zero_fraction))
        changed.append(
            ChangedLayer(
                weight=node.weight,
                id=node.id,
                type=node.type,
                params=params,
                zeros_before=node.zero_fraction or 0.0,
                zeros_after=_stored_zeros(node.weight, left, stored, by_pruning or 0.0),
                zeros_by_pruning=by_pruning or 0.0,
                wanted=wanted.get(node.weight),
                params_after=left,
                precision=_precision(node.weight, precisions, made),
            )
        )
    return tuple(changed)


def fell_short(layers: Sequence[ChangedLayer], recipe: Recipe) -> tuple[Finding, ...]:
    """How far a pattern got that cannot take out all that was chosen."""
    meant = [(layer, layer.wanted) for layer in layers if layer.wanted is not None]
    total = sum(layer.params for layer, _ in meant)
    if recipe.pruning is None or not total:
        return ()
    wanted = sum(level * layer.params for layer, level in meant) / total
    # A channel that is gone counts like zeros.
    left = sum((1 - (layer.zeros_by_pruning or 0.0)) * layer.params_after for layer, _ in meant)
    reached = 1 - left / total
    if reached >= wanted - _ROUNDED:
        return ()
    data = {"wanted": wanted, "reached": reached, "pattern": recipe.pruning.pattern}
    return (Finding("pattern-fell-short", data),)


@confined(reads=["model"])
def _zeros(model: Model) -> dict[str, tuple[int, float]]:
    """The elements of every weight, and the share of them that is zero."""
    file = Path(model.path)
    return {
        weight.name: (weight.elements, zeros / max(1, weight.elements))
        for weight, zeros in zero_counts(parse_onnx(file), file.parent)
        if zeros is not None
    }


def _stored_zeros(weight: str, elements: int, stored: Mapping[str, tuple[int, float]], by_pruning: float) -> float:
    """The sparsity of a weight, or of what a quantiser made of it, where that can be counted."""
    if weight in stored:
        return stored[weight][1]
    made_of_it = [
        zeros for name, (count, zeros) in stored.items() if name.startswith(f"{weight}_") and count == elements
    ]
    return made_of_it[0] if made_of_it else by_pruning


@confined(reads=["model"])
def _precisions(model: Model) -> dict[str, str]:
    """The precision that every weight is stored in."""
    proto = parse_onnx(Path(model.path))
    packed = {name: f"INT{bits}" for name, bits in packed_weights(proto).items()}
    return {weight.name: precision_name(weight.type_name) for weight in list_weights(proto)} | packed


def _precision(weight: str, precisions: Mapping[str, str], made: Model) -> str:
    """The precision of a weight where it still has its name, or one that a quantiser made of it."""
    if weight in precisions:
        return precisions[weight]
    made_of_it = [kind for name, kind in precisions.items() if name.startswith(f"{weight}_")]
    whole = [kind for kind in made_of_it if kind.startswith("INT") and kind != "INT32"]
    return whole[0] if whole else made.precision
