"""Carry out a recipe on a model: cleaned up, then pruned, then quantised, each step a copy of the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab.model.confined import confined
from inferlab.model.datasets import Data, generate_data
from inferlab.model.onnx_file import parse_onnx
from inferlab.model.weights import list_weights
from inferlab.records import Event, Listener, Model
from inferlab.records.optimization import CHANNEL, Pruning, Quantization, Recipe
from inferlab.transform.copies import Copy

#: Of the user's data, so many items are enough to find ranges on where nobody says.
MOST_CALIBRATION_ITEMS = 128
_UNUSED = "nothing used it, so the clean-up removed it"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRecipe(Copy):
    """What a recipe made of a model."""

    #: The model after pruning, which still has the original's names.
    pruned: Model


def apply_recipe(
    model: Model,
    recipe: Recipe,
    data: Data,
    work: Path,
    listener: Listener,
    meanwhile: Callable[[], object] | None = None,
) -> AppliedRecipe:
    """Do what a recipe says that names every weight with its level; files stay in the folder `work`.

    `data` is what ranges are found on where the recipe does not say how its inputs were generated. `meanwhile` is
    called while a child quantises.
    """
    steps = _Steps(model, recipe, data, work, listener, meanwhile)
    steps.run()
    return AppliedRecipe(steps.model, steps.left_alone, pruned=steps.pruned)


class _Steps:
    """The model on its way.

    The clean-up comes first: it leaves the weights as they are, and a graph without detours is one through which
    channels can be followed and whose operators a quantiser knows. Quantising comes last: its ranges are those of
    the weights that are left, and a zero stays a zero in INT8, while weights that were rounded to a few values
    could not be put in an order any more.
    """

    def __init__(
        self,
        model: Model,
        recipe: Recipe,
        data: Data,
        work: Path,
        listener: Listener,
        meanwhile: Callable[[], object] | None,
    ) -> None:
        self._original, self._recipe, self._data = model, recipe, data
        self._work, self._tell_all, self._meanwhile = work, listener, meanwhile
        self.model = model
        self.pruned = model
        self.left_alone: dict[str, str] = {}

    def run(self) -> None:
        """Do what the recipe says."""
        if self._recipe.cleanup:
            self._clean_up()
        if self._recipe.pruning is not None:
            self._prune(self._recipe.pruning)
        self.pruned = self.model
        if self._recipe.quantization is not None:
            self._quantize(self._recipe.quantization)

    def _clean_up(self) -> None:
        from inferlab.transform.cleanup import clean_up

        self._tell("cleanup")
        copy = clean_up(self.model, self._folder("clean"), self._listener)
        self.model = self._named(copy.model)
        self.left_alone.update(copy.left_alone)

    def _prune(self, pruning: Pruning) -> None:
        stored = set(_weights(self.model))
        levels = {name: level for name, level in pruning.layers.items() if name in stored}
        self.left_alone.update(dict.fromkeys(pruning.layers.keys() - levels.keys(), _UNUSED))
        self._tell("prune", layers=len(levels))
        if pruning.pattern == CHANNEL:
            from inferlab.transform.channels import prune_channels

            copy = prune_channels(self.model, levels, self._folder("pruned"), self._listener)
            self.model = self._named(copy.model)
            self.left_alone.update(copy.left_alone)
        else:
            from inferlab.transform.prune import prune

            self.model = self._named(prune(self.model, levels, self._folder("pruned"), pruning.pattern))

    def _quantize(self, wanted: Quantization) -> None:
        from inferlab.transform.quantize import quantize

        self._tell("quantize", scheme=wanted.scheme)
        # What the clean-up removed need not be left out any more.
        there = set(_node_names(self.model))
        copy = quantize(
            self.model,
            # All but static are only run once on them.
            inputs_for(self._recipe, self._original, self._data)
            if wanted.scheme == "static"
            else self._data.sets[:1],
            self._folder("quantized"),
            self._listener,
            scheme=wanted.scheme,
            per_channel=wanted.per_channel,
            bits=wanted.bits,
            exclude=[name for name in wanted.exclude if name in there],
            reduce_range=wanted.reduce_range,
            meanwhile=self._meanwhile,
        )
        self.model = self._named(copy.model)
        self.left_alone.update(copy.left_alone)

    def _named(self, model: Model) -> Model:
        """A copy under the name that the user knows, for messages."""
        return replace(model, source=self._original.source)

    def _folder(self, name: str) -> Path:
        return self._work / name

    def _tell(self, step: str, **data: object) -> None:
        self._tell_all(Event("optimizing", {"step": step, **data}))

    def _listener(self, event: Event) -> None:
        """Pass on how far a step is; that it begins was told."""
        if event.fraction is not None:
            self._tell_all(event)


@confined(reads=["model"])
def _weights(model: Model) -> list[str]:
    """The names of all parameters."""
    return [weight.name for weight in list_weights(parse_onnx(Path(model.path)))]


@confined(reads=["model"])
def _node_names(model: Model) -> list[str]:
    """The names of the main graph's nodes, and of what they read and make."""
    nodes = parse_onnx(Path(model.path)).graph.node
    return sorted({name for node in nodes for name in (node.name, *node.input, *node.output)})


def inputs_for(recipe: Recipe, model: Model, data: Data) -> list[dict[str, Any]]:
    """The sets of inputs to find ranges on: generated ones where the recipe has their shapes, else the data's."""
    assert recipe.quantization is not None
    items = recipe.quantization.calibration_items or MOST_CALIBRATION_ITEMS
    if recipe.shapes:
        data = generate_data(model.inputs, recipe.shapes, items, recipe.seed)
    calibration_sets: list[dict[str, Any]] = []
    for inputs, rows in zip(data.sets, data.rows, strict=True):
        if items <= 0:
            break
        calibration_sets.append(dict(inputs))
        items -= rows
    return calibration_sets
