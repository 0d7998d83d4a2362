"""Where a project's model may come from: uploads, folders that the user allowed, and names that are fetched."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import BadInput, NotThere, TooLarge
from inferlab.settings import models_folder, versions_folder
from inferlab.store.rows import new_id
from inferlab.units import shortened

_FETCHED = ("hf", "zoo", "demo")
_URLS = ("https://", "http://")
_UPLOAD = re.compile(r"upload:([a-z2-7]{10})")
# Spaces stay: a model names the files of its external data.
_NAME = re.compile(r"[^A-Za-z0-9._+() -]+")
_LONGEST_NAME = 120
_LONGEST_ENDING = 20
#: What a model is loaded from, the first first; what lies beside it (.bin, .data) belongs to it.
MODEL_ENDINGS = (".onnx", ".xml", ".pt2", ".pt", ".torchscript", ".ts", ".pth")
# What a folder of Hugging Face's has beside its config.json.
_WEIGHTS = {
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
}
# A folder with more is not for choosing by hand.
_MOST_LISTED = 500


@dataclass(frozen=True, slots=True)
class Listing:
    """What can be chosen in a folder that the user allowed, or in one below it."""

    path: str
    #: None for a folder that was itself allowed.
    parent: str | None
    folders: tuple[str, ...]
    #: Names and sizes in bytes of the files that may be what is looked for.
    files: tuple[tuple[str, int], ...]
    #: The folder itself is a model, as Hugging Face's are.
    is_model: bool
    #: There is more than is listed.
    is_cut: bool


class Sources:
    """What may be named over HTTP: nothing outside the folders that the user allowed."""

    def __init__(self, folders: Sequence[Path], most_bytes: int) -> None:
        self.folders = tuple(folder.resolve() for folder in folders)
        self.most_bytes = most_bytes

    def resolve(self, source: str) -> str:
        """The source of a model as it can be measured from anywhere; refuses what may not be named."""
        text = source.strip()
        if not text:
            raise BadInput("No model was named: give a path, a URL, hf:org/name, zoo:STUB or demo:NAME.")
        if found := _UPLOAD.fullmatch(text):
            return str(self.uploaded(found[1]))
        if text.startswith(_URLS) or text.partition(":")[0] in _FETCHED:
            return text
        if "://" in text:
            raise BadInput(f"A model is fetched from an https:// address, not from {text.partition('://')[0]}://.")
        return str(self.below(text))

    def file(self, source: str) -> str:
        """The path of a file that is no model, such as data: an upload's only file, or an allowed path."""
        if found := _UPLOAD.fullmatch(source.strip()):
            return str(self.uploaded(found[1]))
        return str(self.below(source))

    def shown(self, source: str) -> str:
        """The source of a model as users know it: an upload by its id, a version by its file."""
        return f"upload:{Path(source).parent.name}" if self.is_uploaded(source) else self.without_folder(source)

    def without_folder(self, text: str) -> str:
        """A sentence without the places where uploads and versions are kept."""
        for folder in (models_folder(), versions_folder(), versions_folder().resolve()):
            text = re.sub(rf"{re.escape(str(folder))}/[a-z2-7]{{10}}/", "", text)
        return text

    def below(self, path: str) -> Path:
        """A path below a folder that the user allowed, links followed; the refusal tells nothing about others."""
        try:
            asked = Path(path).expanduser()
            found = asked.resolve() if asked.is_absolute() else self._relative(asked)
        except (OSError, RuntimeError, ValueError):
            found = None
        if not path or found is None or not any(found.is_relative_to(folder) for folder in self.folders):
            places = ", ".join(map(str, self.folders)) or "none"
            raise BadInput(
                f"'{shortened(path, 200)}' is not below a folder from which models may be opened ({places}). "
                "Upload the file, or start inferlab with --folder and the folder that it is in."
            )
        return found

    def _relative(self, path: Path) -> Path | None:
        """A relative path counts from the first of the folders that has it."""
        candidates = [(folder / path).resolve() for folder in self.folders]
        return next((one for one in candidates if one.exists()), candidates[0] if candidates else None)

    def listing(self, path: str, endings: Sequence[str] = MODEL_ENDINGS) -> Listing:
        """The folders, and the files of these endings, in a folder; links out of the allowed ones are left out."""
        folder = self.below(path)
        folders, files, names = list[str](), list[tuple[str, int]](), set[str]()
        try:
            with os.scandir(folder) as found:
                for one in found:
                    if one.name.startswith(".") or (one.is_symlink() and not self._allows(Path(one.path))):
                        continue
                    names.add(one.name)
                    if one.is_dir():
                        folders.append(one.name)
                    elif one.is_file() and one.name.lower().endswith(tuple(endings)):
                        files.append((one.name, one.stat().st_size))
        except NotADirectoryError:
            raise BadInput(f"{path} is no folder.") from None
        except OSError as error:
            raise BadInput(f"The folder {path} cannot be listed: {error.strerror or error}.") from error
        return Listing(
            str(folder),
            None if folder in self.folders else str(folder.parent),
            tuple(sorted(folders, key=str.lower)[:_MOST_LISTED]),
            tuple(sorted(files, key=lambda file: file[0].lower())[:_MOST_LISTED]),
            "config.json" in names and bool(names & _WEIGHTS),
            max(len(folders), len(files)) > _MOST_LISTED,
        )

    def _allows(self, path: Path) -> bool:
        try:
            self.below(str(path))
        except BadInput:
            return False
        return True

    # Uploads: a folder each, in which files are put one by one.

    def new_upload(self) -> str:
        """Make room for the files of one model; returns its name."""
        upload_id = new_id()
        try:
            (models_folder() / upload_id).mkdir(parents=True)
        except OSError as error:
            raise BadInput(f"The upload cannot be stored: {error.strerror or error}.") from error
        return upload_id

    async def receive(self, upload_id: str, name: str, chunks: AsyncIterator[bytes], size: int | None) -> Path:
        """Write one file of an upload as it comes; what is too large, or cut off, leaves nothing behind."""
        folder = self.folder(upload_id)
        target = folder / file_name(name)
        taken = sum(file.stat().st_size for file in folder.iterdir() if file != target)
        if size is not None and taken + size > self.most_bytes:
            raise self._too_large(name)
        part = target.with_name(f"{target.name}.part")
        received = 0
        try:
            with part.open("wb") as file:
                async for chunk in chunks:
                    received += len(chunk)
                    if taken + received > self.most_bytes:
                        raise self._too_large(name)
                    file.write(chunk)
            if size is not None and received != size:
                raise BadInput(f"The upload of {name} was cut off after {received} of {size} bytes. Try again.")
            part.replace(target)
        except OSError as error:
            raise BadInput(f"{name} could not be stored: {error.strerror or error}.") from error
        finally:
            part.unlink(missing_ok=True)
        return target

    def uploaded(self, upload_id: str) -> Path:
        """The file of an upload that is the model."""
        folder = self.folder(upload_id)
        files = sorted(file for file in folder.iterdir() if file.is_file())
        for ending in MODEL_ENDINGS:
            found = [file for file in files if file.suffix.lower() == ending]
            if len(found) > 1:
                raise BadInput(f"Several models were uploaded: {', '.join(f.name for f in found)}. Upload one.")
            if found:
                return found[0]
        if len(files) == 1:
            # What it is, its first bytes must tell.
            return files[0]
        raise BadInput(
            "None of the uploaded files is a model: upload an .onnx, .xml with its .bin, .pt2 or .pt file."
        )

    def discard(self, path: str) -> None:
        """Remove the files of an upload by the path of its model; other paths are left alone."""
        if self.is_uploaded(path):
            shutil.rmtree(Path(path).parent, ignore_errors=True)

    def is_uploaded(self, path: str) -> bool:
        """Whether a model lies where uploads are kept."""
        folder = Path(path).parent
        return folder.parent == models_folder() and bool(_UPLOAD.fullmatch(f"upload:{folder.name}"))

    def give_up(self, upload_id: str) -> None:
        """Remove the files of an upload of which no project was made."""
        self.discard(str(models_folder() / upload_id / "model"))

    def folder(self, upload_id: str) -> Path:
        """Where the files of an upload are."""
        folder = models_folder() / upload_id
        if not _UPLOAD.fullmatch(f"upload:{upload_id}") or not folder.is_dir():
            raise NotThere("There is no such upload. Begin again.")
        return folder

    def _too_large(self, name: str) -> TooLarge:
        limit = f"{self.most_bytes / (1 << 30):.3g} GiB"
        return TooLarge(
            f"{name} is too large: an upload may have {limit}. Name its path on this machine instead, or start "
            "with: inferlab serve --max-upload 16G"
        )


def file_name(name: str) -> str:
    """The last part of a name that a browser sent, with harmless characters only."""
    last = re.split(r"[/\\]", name)[-1]
    stem, dot, ending = last.rpartition(".")
    stem, ending = (_NAME.sub("_", part).strip("._ ") for part in ((stem, ending) if dot else (last, "")))
    tail = f".{ending[-_LONGEST_ENDING:]}" if ending else ""
    return f"{(stem or 'model')[-(_LONGEST_NAME - len(tail)) :]}{tail}"
