"""Carry out a recipe: make the optimised model, run it against the original, and only then give it its name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.confined import confined
from inferlab.errors import BadInput, EngineRefused
from inferlab.model import sparsity
from inferlab.model.datasets import Data
from inferlab.model.graph import parse_onnx, read_onnx
from inferlab.optimizing import yaml
from inferlab.optimizing.asked import CHANNEL
from inferlab.optimizing.calibration import inputs_for
from inferlab.optimizing.changes import changed_layers, fell_short
from inferlab.optimizing.placing import gather, put
from inferlab.profiling.loss import evaluate
from inferlab.records import Event, Finding, Listener, Model, ignore
from inferlab.records.optimization import ChangedLayer, Distance, Pruning, Quantization, Recipe
from inferlab.transform.stamp import stamp

#: Under this name the recipe stands in the model's metadata.
METADATA_KEY = "inferlab.recipe"
#: Above these a model counts as damaged: the power of the change over that of the outputs (at 0.25 the change has
#: half the amplitude of the outputs), or, where there are labels, the drop of the accuracy.
DISTANCE_LIMIT, ACCURACY_LIMIT = 0.25, 0.1
#: The finding that says so.
FAR_OFF = "outputs-far-off"
_UNUSED = "nothing used it, so the clean-up removed it"


@dataclass(frozen=True, slots=True)
class Made:
    """A model that a recipe gave, and what became of the original's layers."""

    model: Model
    recipe: Recipe
    layers: tuple[ChangedLayer, ...]
    #: Operators and nodes that could not be changed, and why.
    left_alone: Mapping[str, str]
    distance: Distance
    findings: tuple[Finding, ...] = ()


def make(
    model: Model,
    recipe: Recipe,
    data: Data,
    target: Path,
    listener: Listener = ignore,
    num_cores: int | None = None,
) -> Made:
    """Carry out a recipe that names every weight with its level; `data` is what both models are run on.

    Nothing is to be seen of it before it is done: files are made in a folder beside the target, which lies on the
    same file system, and take their names at the end, the model last.
    """
    if model.kind != "onnx":
        raise BadInput(
            f"Only ONNX models can be optimised; {model.source} is of the kind {model.kind}. "
            "inferlab export writes one."
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".inferlab-", dir=target.parent) as work:
            steps = _Steps(model, recipe, data, Path(work), listener)
            steps.run()
            made = stamp(steps.model, Path(work) / "stamped", {METADATA_KEY: yaml.dump(recipe)})
            listener(Event("optimizing", {"step": "check"}))
            distance = _distance(made, model, data, num_cores)
            layers = changed_layers(model, steps.pruned, made, recipe, data)
            findings = (*far_off(distance), *fell_short(layers, recipe))
            put(gather(Path(made.path), target), yaml.dump(recipe), target)
    except OSError as error:
        raise BadInput(
            f"The optimised model cannot be written to {target.parent}: {error.strerror or error}."
        ) from error
    done = read_onnx(target.resolve(), str(target.resolve()))
    return Made(done, recipe, layers, steps.left_alone, distance, findings)


class _Steps:
    """The model on its way, each step a copy of the one before.

    The clean-up comes first: it leaves the weights as they are, and a graph without detours is one through which
    channels can be followed and whose operators a quantiser knows. Quantising comes last: its ranges are those of
    the weights that are left, and a zero stays a zero in INT8, while weights that were rounded to a few values
    could not be put in an order any more.
    """

    def __init__(self, model: Model, recipe: Recipe, data: Data, work: Path, listener: Listener) -> None:
        self._original, self._recipe, self._data = model, recipe, data
        self._work, self._tell_all = work, listener
        self.model = model
        #: The model after pruning, which still has the original's names.
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


def far_off(found: Distance) -> tuple[Finding, ...]:
    """A warning where the model does not do its work any more: by its accuracy, or else by its outputs."""
    if found.accuracy is not None and found.original_accuracy is not None:
        if found.original_accuracy - found.accuracy <= ACCURACY_LIMIT:
            return ()
        data = {"accuracy": found.accuracy, "original_accuracy": found.original_accuracy}
        return (Finding(FAR_OFF, {**data, "limit": ACCURACY_LIMIT}),)
    if found.relative_power is None or found.relative_power <= DISTANCE_LIMIT:
        return ()
    data = {"distance": found.relative_power, "generated": found.generated}
    return (Finding(FAR_OFF, {**data, "limit": DISTANCE_LIMIT}),)


@confined(reads=["model"])
def _weights(model: Model) -> list[str]:
    """The names of all parameters."""
    return [one.name for one in sparsity.weights(parse_onnx(Path(model.path)))]


@confined(reads=["model"])
def _node_names(model: Model) -> list[str]:
    """The names of the main graph's nodes, and of what they read and make."""
    nodes = parse_onnx(Path(model.path)).graph.node
    return sorted({name for node in nodes for name in (node.name, *node.input, *node.output)})


def _distance(made: Model, model: Model, data: Data, num_cores: int | None) -> Distance:
    """Run both models on the same inputs; a model that does not run, or gives no numbers, is not kept."""
    found = evaluate(made, model, data, num_cores)
    if found.broken:
        raise EngineRefused(
            f"The optimised model gives outputs that are not numbers where those of {model.source} are, so it was "
            "not kept. Prune less, or leave layers out."
        )
    return Distance(
        relative_power=None if model.random else found.relative_power,
        items=data.items,
        generated=data.generated,
        loss_rise=None if data.labels is None else found.loss,
        accuracy=found.accuracy,
        original_accuracy=found.dense_accuracy,
    )
