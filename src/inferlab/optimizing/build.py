"""Carry out a recipe: make the optimised model, run it against the original, and only then give it its name.

With it, what became of every layer with weights: how many are left, how many are zero, in which precision.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, TensorProto

from inferlab.errors import BadInput, EngineRefused
from inferlab.model.confined import confined
from inferlab.model.describe import precision_name
from inferlab.model.flops.count import costs
from inferlab.model.inputs import Data
from inferlab.model.onnx_file import data_files_of, parse_onnx, read_onnx
from inferlab.model.onnx_graph import (
    all_tensors,
    data_place,
    external_files,
    list_weights,
    packed_weights,
    zero_counts,
)
from inferlab.optimizing import recipes
from inferlab.profiling.copies import distance_between
from inferlab.profiling.loss import evaluate, layers_to_prune, weight_elements
from inferlab.records import Event, Finding, Listener, Model, ignore
from inferlab.records.optimization import ChangedLayer, Distance, Recipe
from inferlab.transform.copies import apply_recipe, stamp

#: Under this name the recipe stands in the model's metadata.
METADATA_KEY = "inferlab.recipe"
#: Above these a model counts as damaged: the power of the change over that of the outputs (at 0.25 the change has
#: half the amplitude of the outputs), or, where there are labels, the drop of the accuracy.
DISTANCE_LIMIT, ACCURACY_LIMIT = 0.25, 0.1
#: The finding that says so.
FAR_OFF = "outputs-far-off"
# Offsets at which a data file can be mapped into memory.
_PAGE = 4096
# Channels and blocks are whole, so a share is met only so well.
_ROUNDED = 0.02


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model that a recipe gave, and what became of the original's layers."""

    model: Model
    recipe: Recipe
    layers: tuple[ChangedLayer, ...]
    #: Operators and nodes that could not be changed, and why.
    left_alone: Mapping[str, str]
    distance: Distance
    findings: tuple[Finding, ...] = ()


def build_model(
    model: Model,
    recipe: Recipe,
    data: Data,
    target: Path,
    listener: Listener = ignore,
    num_cores: int | None = None,
) -> BuiltModel:
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
            copy = apply_recipe(model, recipe, data, Path(work), listener)
            made = stamp(copy.model, Path(work) / "stamped", {METADATA_KEY: recipes.dump(recipe)})
            listener(Event("optimizing", {"step": "check"}))
            distance = _distance(made, model, data, num_cores)
            layers = changed_layers(model, copy.pruned, made, recipe, data)
            findings = (*far_off(distance), *fell_short(layers, recipe))
            put(gather(Path(made.path), target), recipes.dump(recipe), target)
    except OSError as error:
        raise BadInput(
            f"The optimised model cannot be written to {target.parent}: {error.strerror or error}."
        ) from error
    done = read_onnx(target.resolve(), str(target.resolve()))
    return BuiltModel(done, recipe, layers, copy.left_alone, distance, findings)


def far_off(distance: Distance) -> tuple[Finding, ...]:
    """A warning where the model no longer works: by its accuracy, or else by its outputs."""
    if distance.accuracy is not None and distance.original_accuracy is not None:
        if distance.original_accuracy - distance.accuracy <= ACCURACY_LIMIT:
            return ()
        data = {"accuracy": distance.accuracy, "original_accuracy": distance.original_accuracy}
        return (Finding(FAR_OFF, {**data, "limit": ACCURACY_LIMIT}),)
    if distance.relative_power is None or distance.relative_power <= DISTANCE_LIMIT:
        return ()
    data = {"distance": distance.relative_power, "generated": distance.generated}
    return (Finding(FAR_OFF, {**data, "limit": DISTANCE_LIMIT}),)


def _distance(made: Model, model: Model, data: Data, num_cores: int | None) -> Distance:
    """Run both models on the same inputs; a model that does not run, or gives no numbers, is not kept."""
    evaluated = evaluate(made, model, data, num_cores)
    if evaluated.broken:
        raise EngineRefused(
            f"The optimised model gives outputs that are not numbers where those of {model.source} are, so it was "
            "not kept. Prune less, or leave layers out."
        )
    return distance_between(evaluated, model, data)


def recipe_file(target: Path) -> Path:
    """The recipe beside a model: out.onnx → out.recipe.yaml."""
    return target.with_name(f"{target.stem}.recipe.yaml")


def data_file(target: Path) -> Path:
    """The weights beside a model that is too large for one file: out.onnx → out.onnx.data."""
    return target.with_name(f"{target.name}.data")


def check_target(out: str, model: Model) -> Path:
    """The file that is to be written, refused before anything is made where that could not be."""
    target = Path(out)
    if target.is_dir():
        raise BadInput(f"{target} is a folder. Give the name of a file, such as {target / 'model.onnx'}.")
    if target.suffix.lower() != ".onnx":
        raise BadInput(f"The output file must end in .onnx, not '{target.name}'.")
    if not target.parent.is_dir():
        raise BadInput(f"The folder of {target} does not exist. Make it first: mkdir -p {target.parent}")
    original = Path(model.path)
    own = [original, *data_files_of(original).values()] if model.kind == "onnx" else [original]
    written = (target, recipe_file(target), data_file(target))
    if any(new.exists() and old.exists() and new.samefile(old) for new in written for old in own):
        raise BadInput(f"{target} would be written over the model itself. Give -o another name.")
    writable = os.access(target.parent, os.W_OK) and (not target.exists() or os.access(target, os.W_OK))
    if not writable or (target.exists() and not target.is_file()):
        raise BadInput(f"{target} cannot be written. Choose another folder, or change its permissions.")
    return target


@confined(reads=["made"], writes=["made"])
def gather(made: Path, target: Path) -> list[Path]:
    """Make the files of a model that is done ready to be renamed; the last of them is the model's.

    Its data files become one, named after the target: under their own names they could be the original's.
    """
    proto = parse_onnx(made)
    files = external_files(proto, made.parent, made)
    if not files:
        return [made]
    whole = made.parent / ".data" / data_file(target).name
    whole.parent.mkdir()
    offsets: dict[str, int] = {}
    with whole.open("wb") as out:
        for file in files:
            out.write(b"\0" * (-out.tell() % _PAGE))
            offsets[str(file.relative_to(made.parent))] = out.tell()
            with file.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 22)
    _point_to(proto, data_file(target).name, offsets)
    made.write_bytes(proto.SerializeToString())
    return [whole, made]


def put(files: list[Path], recipe: str, target: Path) -> None:
    """Give everything its name: the recipe, the data, and last the model, which is whole when it is there."""
    *data, model = files
    beside = model.with_name(recipe_file(target).name)
    beside.write_text(recipe, encoding="utf-8")
    for file in (*files, beside):
        with file.open("rb+") as written:
            os.fsync(written.fileno())
    if data:
        # The model that was there before does not fit the new data.
        target.unlink(missing_ok=True)
    beside.replace(recipe_file(target))
    for file in data:
        file.replace(target.with_name(file.name))
    model.replace(target)


def _point_to(proto: ModelProto, name: str, offsets: dict[str, int]) -> None:
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            location, offset, length = data_place(tensor)
            values = {"location": name, "offset": offsets[str(Path(location))] + offset, "length": length}
            del tensor.external_data[:]
            for key, value in values.items():
                if value is not None:
                    tensor.external_data.add(key=key, value=str(value))


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
