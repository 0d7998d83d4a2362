"""The files beside a model that hold its weights: only those that lie inside its folder."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath

from inferlab.errors import BadInput, Damaged


def inside(location: str, folder: Path, model_file: Path | None = None) -> Path:
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
