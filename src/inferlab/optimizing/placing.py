"""Where an optimised model goes: files that appear together, the model last, and never over the original."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from onnx import ModelProto, TensorProto

from inferlab.confined import confined
from inferlab.errors import BadInput
from inferlab.model.graph import data_files_of, parse_onnx
from inferlab.model.sparsity import external_files, place, tensors
from inferlab.records import Model

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
    for tensor in tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            location, offset, length = place(tensor)
            values = {"location": name, "offset": offsets[str(Path(location))] + offset, "length": length}
            del tensor.external_data[:]
            for key, value in values.items():
                if value is not None:
                    tensor.external_data.add(key=key, value=str(value))
