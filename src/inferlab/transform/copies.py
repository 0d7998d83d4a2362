"""Changed copies of a model: how their files come to stand in a folder, whole or not at all; all of a recipe."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto

from inferlab.child.pruning import count_nan
from inferlab.errors import BadInput
from inferlab.files import new_folders, whole_file
from inferlab.model.confined import confined
from inferlab.model.inputs import Data, generate_data
from inferlab.model.onnx_file import parse_onnx, read_onnx
from inferlab.model.onnx_graph import (
    FLOATS,
    all_tensors,
    external_files,
    list_weights,
    put_values,
    stored_values,
    type_name,
)
from inferlab.records import Event, Listener, Model
from inferlab.records.optimization import CHANNEL, Recipe

# Protobuf holds no more than 2 GB in one message.
LARGE_BYTES = 1_500_000_000
#: Of the user's data, so many items are enough to find ranges on where nobody says.
MOST_CALIBRATION_ITEMS = 128
_UNUSED = "nothing used it, so the clean-up removed it"


@dataclass(frozen=True, slots=True)
class Copy:
    """A changed copy of a model, and what in it could not be changed."""

    model: Model
    #: By the node's name, its first output, its operator or its weight: why it is as it was.
    left_alone: Mapping[str, str] = field(default_factory=dict)


def target_of(model: Model, folder: Path, done: str) -> Path:
    """The file that a copy of an ONNX model is written to; `done` says what can be done to ONNX models only."""
    if model.kind != "onnx":
        raise BadInput(f"Only ONNX models can be {done}; {model.source} is of the kind {model.kind}.")
    original = Path(model.path)
    target = folder / original.name
    if folder.resolve() in (original.resolve().parent, original.parent.resolve()):
        raise BadInput(f"{target} is the model itself. Choose another folder for its copy.")
    return target


@contextmanager
def writing(folder: Path, what: str) -> Iterator[None]:
    """Make the folder and turn a full disk, or one that may not be written to, into one sentence."""
    try:
        with new_folders(folder):
            yield
    except OSError as error:
        raise BadInput(f"The {what} copy cannot be written to {folder}: {error.strerror or error}.") from error


def write(proto: ModelProto, original: Path, target: Path, what: str) -> Model:
    """Write a changed graph and copies of the data files that it still reads, the model file last."""
    with writing(target.parent, what):
        for file in external_files(proto, original.parent, original):
            beside = target.parent / file.relative_to(original.parent)
            beside.parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as source, whole_file(beside) as copy:
                shutil.copyfileobj(source, copy, 1 << 22)
        with whole_file(target) as file_out:
            file_out.write(proto.SerializeToString())
    return read_onnx(target, str(target))


def bring_in(proto: ModelProto, original: Path) -> None:
    """Take what the tensors of a model have in other files into the graph itself."""
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            put_values(tensor, stored_values(tensor, original.parent).tobytes())


def save(proto: ModelProto, path: Path) -> None:
    """Write a model whose weights are in memory; where they are too many for one file, into one beside it."""
    size = sum(len(tensor.raw_data) for tensor in all_tensors(proto))
    large = size > LARGE_BYTES
    onnx.save(proto, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)


@contextmanager
def staged(target: Path, what: str) -> Iterator[Path]:
    """An empty folder to make a copy's files in; they move beside the target at the end, the model file last.

    It lies in the target's folder, so that a move is a rename and a half-written file is never seen.
    """
    with (
        writing(target.parent, what),
        tempfile.TemporaryDirectory(prefix=".inferlab-copy-", dir=target.parent) as place,
    ):
        out = Path(place) / "out"
        out.mkdir()
        yield out
        for file in sorted(out.iterdir(), key=lambda file: file.name == target.name):
            file.replace(target.parent / file.name)


def check_prunable(name: str, level: float, tensor: TensorProto | None) -> None:
    """Refuse a level that is no share, and a weight that is not there or does not hold floats."""
    if not 0 <= level <= 1:
        raise BadInput(f"The weight '{name}' cannot be pruned to {level:g}: a level lies between 0 and 1.")
    if tensor is None:
        raise BadInput(f"The model has no weight '{name}' that is stored densely, so it cannot be pruned.")
    kind = type_name(tensor.data_type)
    if kind not in FLOATS:
        raise BadInput(f"The weight '{name}' is of the type {kind}; only floats can be pruned.")


def refuse_nan(proto: ModelProto, path: Path, done: str) -> None:
    """A weight that is not a number would spread: nothing sound can be made of the model."""
    for weight in list_weights(proto):
        if weight.type_name in FLOATS:
            check_numbers(weight.name, stored_values(weight.stored, path.parent), done)


def check_numbers(name: str, stored: Any, done: str) -> None:
    """Refuse a weight's elements as they are stored where some are not numbers."""
    if wrong := count_nan(stored):
        raise not_a_number(name, wrong, done)


def not_a_number(name: str, count: int, done: str) -> BadInput:
    """What is said of a weight with values that are not numbers."""
    return BadInput(
        f"The weight '{name}' has {count:,} values that are not numbers (NaN), so it cannot be {done}. "
        "Export the model again from sound weights."
    )


@confined(reads=["model"], writes=["folder"])
def stamp(model: Model, folder: Path, metadata: Mapping[str, str]) -> Model:
    """Write a copy into `folder` with these notes in its metadata; an older note of the same name goes."""
    target = target_of(model, folder, "given notes")
    proto = parse_onnx(Path(model.path))
    kept = [entry for entry in proto.metadata_props if entry.key not in metadata]
    proto.ClearField("metadata_props")
    proto.metadata_props.extend(kept)
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return write(proto, Path(model.path), target, "finished")


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
) -> AppliedRecipe:
    """Do what a recipe says that names every weight with its level; files stay in the folder `work`.

    `data` is what ranges are found on where the recipe does not say how its inputs were generated.

    The clean-up comes first: it leaves the weights as they are, and a graph without detours is one through which
    channels can be followed and whose operators a quantiser knows. Quantising comes last: its ranges are those of
    the weights that are left, and a zero stays a zero in INT8, while weights that were rounded to a few values
    could not be put in an order any more.
    """
    from inferlab.transform.channels import prune_channels
    from inferlab.transform.cleanup import clean_up
    from inferlab.transform.prune import prune
    from inferlab.transform.quantize import quantize

    left_alone: dict[str, str] = {}

    def tell(step: str, **more: object) -> None:
        listener(Event("optimizing", {"step": step, **more}))

    def progress(event: Event) -> None:
        """Pass on how far a step is; that it begins was told."""
        if event.fraction is not None:
            listener(event)

    def taken(copy: Copy) -> Model:
        """A copy under the name that the user knows, for messages."""
        left_alone.update(copy.left_alone)
        return replace(copy.model, source=model.source)

    current = model
    if recipe.cleanup:
        tell("cleanup")
        current = taken(clean_up(current, work / "clean", progress))
    if recipe.pruning is not None:
        stored = set(_weights(current))
        levels = {name: level for name, level in recipe.pruning.layers.items() if name in stored}
        left_alone.update(dict.fromkeys(recipe.pruning.layers.keys() - levels.keys(), _UNUSED))
        tell("prune", layers=len(levels))
        folder, pattern = work / "pruned", recipe.pruning.pattern
        if pattern == CHANNEL:
            current = taken(prune_channels(current, levels, folder, progress))
        else:
            current = taken(Copy(prune(current, levels, folder, pattern)))
    pruned = current
    if recipe.quantization is not None:
        scheme, excluded = recipe.quantization.scheme, recipe.quantization.exclude
        tell("quantize", scheme=scheme)
        # All but static are only run once on them.
        inputs = inputs_for(recipe, model, data) if scheme == "static" else data.sets[:1]
        # What the clean-up removed need not be left out any more.
        node_names = set(_node_names(current))
        left = replace(recipe.quantization, exclude=tuple(name for name in excluded if name in node_names))
        current = taken(quantize(current, inputs, work / "quantized", left, progress))
    return AppliedRecipe(current, left_alone, pruned=pruned)


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
