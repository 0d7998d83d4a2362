"""A changed copy of a model: its record, and how its files come to stand in a folder, whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from inferlab.child.pruning import count_nan
from inferlab.errors import BadInput
from inferlab.files import new_folders, whole_file
from inferlab.model.confined import confined
from inferlab.model.onnx_file import parse_onnx, read_onnx
from inferlab.model.onnx_graph import all_tensors, type_name
from inferlab.model.weights import FLOATS, external_files, list_weights, stored_values
from inferlab.records import Model

# Protobuf holds no more than 2 GB in one message.
LARGE_BYTES = 1_500_000_000


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
        with whole_file(target) as made:
            made.write(proto.SerializeToString())
    return read_onnx(target, str(target))


def bring_in(proto: ModelProto, original: Path) -> None:
    """Take what the tensors of a model have in other files into the graph itself."""
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            content = stored_values(tensor, original.parent).tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = content


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
        if weight.type_name in FLOATS and (wrong := count_nan(stored_values(weight.stored, path.parent))):
            raise not_a_number(weight.name, wrong, done)


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
