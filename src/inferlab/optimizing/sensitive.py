"""Which layers lose most by quantising: each is tried alone, as far as time allows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inferlab.errors import EngineFailed, EngineRefused
from inferlab.model.costs import Costs, NodeCost
from inferlab.model.datasets import ITEMS, Data
from inferlab.optimizing.calibration import inputs_for
from inferlab.optimizing.choose import not_quantized
from inferlab.profiling.loss import evaluate, layers_to_prune, weight_elements
from inferlab.records import Event, Finding, Listener, Model
from inferlab.records.optimization import Quantization, Recipe
from inferlab.transform.quantize import quantize

# Trying a layer takes about a second on a small model, and some on a large one.
_LONGEST_S = 180.0


def keep_sensitive(
    recipe: Recipe, model: Model, costs: Costs, data: Data, folder: Path, listener: Listener
) -> tuple[Recipe, tuple[Finding, ...]]:
    """The recipe with the layers excluded that move the outputs most when they alone are quantised.

    The largest layers are tried first, on a few inputs, for three minutes at most; those whose turn has not come
    are quantised. What the recipe leaves out anyway does not count. A recipe that was carried out before has its
    exclusions already.
    """
    wanted = recipe.quantization
    if wanted is None or not wanted.keep_sensitive or recipe.digest:
        return recipe, ()
    layers = sorted(layers_to_prune(costs), key=lambda node: -weight_elements(node))
    out = {node.id for node in not_quantized(wanted, costs.nodes)}
    candidates = [node for node in layers if node.id not in out]
    few = _few(data)
    losses: dict[str, float] = {}
    began = time.monotonic()
    for number, node in enumerate(candidates):
        if time.monotonic() - began > _LONGEST_S:
            break
        told = {"layers": len(candidates), "weight": node.weight}
        listener(Event("sensitivity", told, number / len(candidates)))
        loss = _alone(node, layers, recipe, wanted, model, few, folder)
        if loss is not None:
            losses[node.weight] = loss
    kept = sorted(losses, key=lambda weight: -losses[weight])[: wanted.keep_sensitive]
    data_of = {"layers": kept, "losses": [losses[weight] for weight in kept], "tried": len(losses)}
    findings = (Finding("kept-sensitive", {**data_of, "of": len(candidates)}),)
    excluded = tuple(dict.fromkeys((*wanted.exclude, *kept)))
    return replace(recipe, quantization=replace(wanted, exclude=excluded)), findings


def _alone(
    node: NodeCost,
    layers: Sequence[NodeCost],
    recipe: Recipe,
    wanted: Quantization,
    model: Model,
    data: Data,
    folder: Path,
) -> float | None:
    """How far the outputs move when this layer alone is quantised; None where it cannot be."""
    others = [other.weight for other in layers if other.weight != node.weight]
    with tempfile.TemporaryDirectory(prefix=".inferlab-", dir=folder) as place:
        try:
            copy = quantize(
                model,
                inputs_for(recipe, model, data) if wanted.scheme == "static" else (),
                Path(place),
                scheme=wanted.scheme,
                per_channel=wanted.per_channel,
                bits=wanted.bits,
                exclude=others,
                reduce_range=wanted.reduce_range,
            )
            return evaluate(copy.model, model, data).relative_power
        except (EngineRefused, EngineFailed):
            return None


def _few(data: Data) -> Data:
    """As many sets as hold a few items."""
    count = next((n for n in range(1, len(data.sets)) if sum(data.rows[:n]) >= ITEMS), len(data.sets))
    labels = None if data.labels is None else data.labels[:count]
    return replace(data, sets=data.sets[:count], rows=data.rows[:count], labels=labels)
