"""The inputs that ranges are found on: which they are is part of the recipe, so that it can be repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.model import demo
from inferlab.model.datasets import ITEMS, Data, generate_data, load_data
from inferlab.records import Finding, Model, Shape
from inferlab.records.optimization import Recipe
from inferlab.transform.quantize import needs_reduced_range

# Of the user's data, so many items are enough to find ranges on where nobody says.
_MOST = 128
_DIGITS = "demo:digits"


def load(name: str, model: Model) -> Data:
    """The user's data, in sets whose size does not depend on what is measured."""
    return load_data(_file(name), model.inputs, model.outputs)


def settle(
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
        items = min(quantization.calibration_items or _MOST, load(data_file, model).items)
        name = data_file if data_file == _DIGITS else Path(data_file).name
        done, findings = replace(recipe, data=name, data_digest=_digest(data_file), shapes={}), ()
    return replace(done, quantization=replace(quantization, calibration_items=items)), findings


def inputs_for(recipe: Recipe, model: Model, data: Data) -> list[dict[str, Any]]:
    """The sets of inputs to find ranges on: generated ones where the recipe has their shapes, else the data's."""
    assert recipe.quantization is not None
    items = recipe.quantization.calibration_items or _MOST
    if recipe.shapes:
        data = generate_data(model.inputs, recipe.shapes, items, recipe.seed)
    found: list[dict[str, Any]] = []
    for one, rows in zip(data.sets, data.rows, strict=True):
        if items <= 0:
            break
        found.append(dict(one))
        items -= rows
    return found


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
    return str(demo.digits_data()) if name == _DIGITS else name


def _digest(name: str) -> str:
    try:
        with Path(_file(name)).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"The data {name} cannot be read: {error.strerror or error}.") from error
