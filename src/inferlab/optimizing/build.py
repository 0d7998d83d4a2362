"""Carry out a recipe: make the optimised model, run it against the original, and only then give it its name."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto, TensorProto

from inferlab.errors import BadInput, EngineRefused
from inferlab.model.confined import confined
from inferlab.model.datasets import Data
from inferlab.model.onnx_file import data_files_of, parse_onnx, read_onnx
from inferlab.model.onnx_graph import all_tensors, data_place, external_files
from inferlab.optimizing import recipe_yaml
from inferlab.optimizing.changes import changed_layers, fell_short
from inferlab.profiling.copies import distance_between
from inferlab.profiling.loss import evaluate
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
            made = stamp(copy.model, Path(work) / "stamped", {METADATA_KEY: recipe_yaml.dump(recipe)})
            listener(Event("optimizing", {"step": "check"}))
            distance = _distance(made, model, data, num_cores)
            layers = changed_layers(model, copy.pruned, made, recipe, data)
            findings = (*far_off(distance), *fell_short(layers, recipe))
            put(gather(Path(made.path), target), recipe_yaml.dump(recipe), target)
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


# Offsets at which a data file can be mapped into memory.
_PAGE = 4096


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
