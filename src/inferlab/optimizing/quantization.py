"""The inputs that ranges are found on: which they are is part of the recipe, so that it can be repeated."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from inferlab.errors import BadInput, EngineFailed, EngineRefused
from inferlab.model import reading
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.inputs import ITEMS, Data, load_data
from inferlab.optimizing.levels import not_quantized
from inferlab.profiling.copies import first_sets
from inferlab.profiling.loss import evaluate, layers_to_prune, weight_elements
from inferlab.records import Event, Finding, Listener, Model, Shape
from inferlab.records.optimization import Quantization, Recipe
from inferlab.transform.copies import MOST_CALIBRATION_ITEMS, inputs_for
from inferlab.transform.quantize import needs_reduced_range, quantize

_DIGITS = "demo:digits"


def load(name: str, model: Model) -> Data:
    """The user's data, in sets whose size does not depend on what is measured."""
    return load_data(_file(name), model.inputs, model.outputs)


def fix_calibration(
    recipe: Recipe, data_file: str | None, model: Model, shapes: Mapping[str, Shape], seed: int
) -> tuple[Recipe, tuple[Finding, ...]]:
    """The recipe with the inputs that it finds ranges on; one that was carried out before keeps its own.

    Whether weights have 7 or 8 bits is decided here too, so that another CPU repeats it.
    """
    quantization = recipe.quantization
    if quantization is not None and quantization.scheme in ("static", "dynamic"):
        reduced = quantization.reduce_range
        quantization = replace(quantization, reduce_range=needs_reduced_range() if reduced is None else reduced)
        recipe = replace(recipe, quantization=quantization)
    if quantization is None or quantization.scheme != "static":
        return replace(recipe, data="", data_digest="", shapes={}), ()
    if recipe.digest:
        return recipe, _as_before(recipe, data_file)
    if data_file is None:
        items = quantization.calibration_items or ITEMS
        done = replace(recipe, seed=seed, shapes=dict(shapes), data="", data_digest="")
        findings: tuple[Finding, ...] = (Finding("generated-inputs", {"items": items}),)
    else:
        items = min(quantization.calibration_items or MOST_CALIBRATION_ITEMS, load(data_file, model).items)
        name = data_file if data_file == _DIGITS else Path(data_file).name
        done, findings = replace(recipe, data=name, data_digest=_digest(data_file), shapes={}), ()
    return replace(done, quantization=replace(quantization, calibration_items=items)), findings


def _as_before(recipe: Recipe, data_file: str | None) -> tuple[Finding, ...]:
    if recipe.shapes:
        items = recipe.quantization.calibration_items if recipe.quantization else 0
        return (Finding("generated-inputs", {"items": items}),)
    if data_file is None:
        raise BadInput(
            f"The recipe found its ranges on {recipe.data or 'data of the user'}. Name that file with --data."
        )
    return () if _digest(data_file) == recipe.data_digest else (Finding("other-data", {"data": recipe.data}),)


def data_name(recipe: Recipe, data_file: str | None) -> str | None:
    """The user's data, or what a recipe used that is always there."""
    return _DIGITS if data_file is None and recipe.data == _DIGITS else data_file


def _file(name: str) -> str:
    return str(reading.digits_data()) if name == _DIGITS else name


def _digest(name: str) -> str:
    try:
        with Path(_file(name)).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"The data {name} cannot be read: {error.strerror or error}.") from error


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
    few = first_sets(data)
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
    with tempfile.TemporaryDirectory(prefix=".inferlab-", dir=folder) as place:
        try:
            copy = quantize(
                model,
                inputs_for(recipe, model, data) if wanted.scheme == "static" else (),
                Path(place),
                replace(wanted, exclude=tuple(other.weight for other in layers if other.weight != node.weight)),
            )
            return evaluate(copy.model, model, data).relative_power
        except (EngineRefused, EngineFailed):
            return None
