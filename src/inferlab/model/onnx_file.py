"""Read an ONNX file into a Model, and write changed copies of it.

What looks into a file runs in a confined process (the doors), where onnx is imported; callers need it not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

from inferlab.errors import BadInput, Damaged
from inferlab.model.confined import confined, damaged
from inferlab.model.shapes import batch_axis
from inferlab.records import Model

if TYPE_CHECKING:
    from onnx import ModelProto


_LARGEST_FILE = 2**31 - 1  # protobuf reads no more
_BLOCK = 1 << 20


@confined(reads=["path"])
def read_onnx(path: Path, source: str) -> Model:
    """Read what a model is: its inputs, outputs, weights and precision."""
    from inferlab.model import describe
    from inferlab.model.onnx_graph import external_files, list_weights, zero_fraction

    content = _content(path)
    proto = _parse(path, content)
    try:
        files = external_files(proto, path.parent, path)
        inputs = describe.input_specs(proto, path.parent)
        quantization, precision = describe.precision(proto)
        return Model(
            kind="onnx",
            source=source,
            path=str(path),
            digest=files_digest(files, content),
            inputs=inputs,
            outputs=tuple(describe.tensor_spec(output) for output in proto.graph.output),
            size_bytes=len(content) + sum(file.stat().st_size for file in files),
            opset=describe.opset(proto),
            parameters=sum(weight.elements for weight in list_weights(proto)),
            zero_fraction=zero_fraction(proto, path.parent),
            precision=precision,
            quantization=quantization,
            random=describe.is_random(proto, path.parent),
        )
    except Damaged as error:
        raise damaged(path, error) from error
    except BadInput:
        raise
    except (ValueError, OverflowError, OSError) as error:
        raise damaged(path, error) from error


@confined(reads=["path"])
def digest_of(path: Path) -> str:
    """The digest of an ONNX file as `read_onnx` gives it, without a look at its weights."""
    from inferlab.model.onnx_graph import external_files

    content = _content(path)
    return files_digest(external_files(_parse(path, content), path.parent, path), content)


def parse_onnx(path: Path) -> ModelProto:
    """The graph of an ONNX file; weights in other files are not read."""
    return _parse(path, _content(path))


@confined(reads=["path"])
def data_locations(path: Path) -> list[str]:
    """The names of the files in which an ONNX file keeps weights, each checked to be there and long enough."""
    from inferlab.model.onnx_graph import external_files, external_names

    proto = parse_onnx(path)
    external_files(proto, path.parent, path)
    return external_names(proto)


def data_files_of(path: Path) -> dict[str, Path]:
    """The files that hold weights of an ONNX model, by the names that it calls them by; all inside its folder."""
    # The process that read the names is not trusted to have checked them.
    return {name: data_file_inside(name, path.parent, path) for name in data_locations(path)}


@confined(reads=["path"])
def has_unique_names(path: Path) -> bool:
    """Whether every node can be told by its name, in lists with commas too."""
    from inferlab.model.onnx_graph import bodies

    names = [node.name for body in bodies(parse_onnx(path)) for node in body.node]
    return len(set(names)) == len(names) and not any(not name or "," in name for name in names)


def unique_name(output: str) -> str:
    """A name for the node with this first output."""
    return "n" + hashlib.sha256(output.encode()).hexdigest()[:16]


def rewrite(
    model: Model,
    target_folder: Path,
    batch: tuple[int, int] | None,
    newest_ir: int | None,
    copy_data: bool,
    unique_names: bool = False,
) -> Path:
    """Write a copy of a model with another batch size, an older IR version, unique names, or only for itself.

    Data files come to stand beside the copy: as hard links where that is possible and `copy_data` is not set.
    """
    original = Path(model.path)
    target = target_folder / original.name
    assert not (target.exists() and target.samefile(original)), "a copy never takes its original's place"
    target_folder.mkdir(parents=True, exist_ok=True)
    for name, file in data_files_of(original).items():
        place_beside(file, target_folder / name, copy_data)
    target.unlink(missing_ok=True)
    _write_changed(model, target_folder, batch, newest_ir, unique_names)
    return target


@confined(reads=["model"], writes=["target_folder"])
def _write_changed(
    model: Model, target_folder: Path, batch: tuple[int, int] | None, newest_ir: int | None, unique_names: bool
) -> None:
    """Write the graph of a model's copy."""
    from inferlab.model import describe
    from inferlab.model.onnx_graph import bodies, first_output

    original = Path(model.path)
    proto = parse_onnx(original)
    if batch is not None:
        batched = {spec.name for spec in model.inputs if batch_axis(spec, model.inputs) == 0}
        describe.set_batch(proto.graph, batched, *batch)
    if newest_ir is not None and proto.ir_version > newest_ir:
        proto.ir_version = newest_ir
    if unique_names:
        for body in bodies(proto):
            for node in body.node:
                node.name = unique_name(first_output(node))
    (target_folder / original.name).write_bytes(proto.SerializeToString())


def _content(path: Path) -> bytes:
    try:
        if not path.exists():
            raise BadInput(f"There is no file {path}. Check the path of the model.")
        if not path.is_file():
            raise BadInput(f"{path} is not a file. Give the path of an ONNX file.")
        if path.stat().st_size > _LARGEST_FILE:
            raise BadInput(
                f"{path} has more than 2 GB in one file, which ONNX does not allow. "
                "Save the model with its weights as external data."
            )
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"The model file {path} cannot be read: {error.strerror or error}.") from error


def _parse(path: Path, content: bytes) -> ModelProto:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import ModelProto

    from inferlab.model import structure

    if not content:
        raise BadInput(f"The model file {path} is empty. Download or export it again.")
    if content.startswith(b"version https://git-lfs"):
        raise BadInput(f"{path} is a Git LFS pointer, not the model itself. Fetch the model with: git lfs pull")
    try:
        proto: ModelProto = ModelProto.FromString(content)
    except (DecodeError, RuntimeError) as error:
        if content.startswith(b"\x08"):  # the tag of the IR version, with which ONNX files begin
            raise BadInput(_cut_off(path, content)) from error
        raise BadInput(f"{path} is not an ONNX model. Give an ONNX file, or export the model to one.") from error
    if not proto.HasField("graph") and not proto.ir_version:
        raise BadInput(f"{path} is not an ONNX model. Give an ONNX file, or export the model to one.")
    if not proto.graph.node or not proto.graph.output or not proto.opset_import:
        raise BadInput(_cut_off(path, content))
    try:
        structure.check(proto)
    except Damaged as error:
        raise damaged(path, error) from error
    return proto


def _cut_off(path: Path, content: bytes) -> str:
    return (
        f"The ONNX file {path} is cut off or damaged: it ends after {len(content):,} bytes without a whole model. "
        "Download or export it again."
    )


def files_digest(files: Iterable[Path], content: bytes = b"") -> str:
    """A hash of files, one after the other, behind what was read of another."""
    total = hashlib.sha256(content)
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                total.update(block)
    return total.hexdigest()


def place_beside(file: Path, target: Path, copy: bool) -> None:
    """Let a file stand at another place too: as a hard link where that is possible and no copy is asked for."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if not copy:
        try:
            os.link(file.resolve(), target)
            return
        except OSError:
            pass  # another file system, or one without hard links
    shutil.copyfile(file, target)


def data_file_inside(location: str, folder: Path, model_file: Path | None = None) -> Path:
    """The data file that a model names, if it exists and lies in the model's folder.

    A model file that is a link (as in Hugging Face's cache) may have its data beside the file it points to.
    """
    if "\0" in location:
        raise Damaged("the name of one of its data files is not text")
    roots = [folder.resolve()]
    if model_file is not None and model_file.is_symlink():
        roots.append(model_file.resolve().parent)
    path = folder / location
    foreign = PureWindowsPath(location).is_absolute() or PureWindowsPath(location).drive
    outside = foreign or Path(location).is_absolute() or ".." in PureWindowsPath(location).parts
    if outside or not any(path.resolve().is_relative_to(root) for root in roots):
        raise BadInput(
            f"The model keeps weights in '{location}', which lies outside its folder {folder.resolve()}. "
            "Such a file is not read: move it beside the model and export the model again."
        )
    if not path.is_file():
        raise BadInput(
            f"The model keeps weights in '{location}', which is missing from {folder.resolve()}. "
            "Put it beside the model file."
        )
    return path
