"""Where a project's model may come from: uploads, folders that the user allowed, and names that are fetched."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.settings import models_folder
from inferlab.store.rows import new_id

_FETCHED = ("hf", "zoo", "demo")
_URLS = ("https://", "http://")
_UPLOAD = re.compile(r"upload:([a-z2-7]{10})")
_NAME = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 120
_LONGEST_ENDING = 20
# What a model is loaded from, the first first; what lies beside it (.bin, .data) belongs to it.
_MAIN = (".onnx", ".xml", ".pt2", ".pt", ".torchscript", ".ts", ".pth")


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

    def below(self, path: str) -> Path:
        """A path below a folder that the user allowed, links followed; nothing is said about others."""
        try:
            asked = Path(path).expanduser()
            real = asked.resolve() if asked.is_absolute() else self._relative(asked)
        except (OSError, RuntimeError, ValueError):
            real = None
        if real is None or not any(real == folder or folder in real.parents for folder in self.folders):
            allowed = ", ".join(map(str, self.folders)) or "none"
            raise BadInput(
                f"{path} does not lie in a folder that may be opened ({allowed}). Upload the file, or start with: "
                "inferlab serve --folder DIR"
            )
        return real

    def _relative(self, path: Path) -> Path | None:
        """A relative path counts from the first of the folders that has it."""
        candidates = [(folder / path).resolve() for folder in self.folders]
        return next((one for one in candidates if one.exists()), candidates[0] if candidates else None)

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
        folder = self._folder(upload_id)
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
        folder = self._folder(upload_id)
        files = sorted(file for file in folder.iterdir() if file.is_file())
        for ending in _MAIN:
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
        folder = Path(path).parent
        if folder.parent == models_folder() and _UPLOAD.fullmatch(f"upload:{folder.name}"):
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, upload_id: str) -> Path:
        folder = models_folder() / upload_id
        if not _UPLOAD.fullmatch(f"upload:{upload_id}") or not folder.is_dir():
            raise BadInput("There is no such upload. Begin again.")
        return folder

    def _too_large(self, name: str) -> BadInput:
        limit = f"{self.most_bytes / (1 << 30):.3g} GiB"
        return BadInput(
            f"{name} is too large: an upload may have {limit}. Name its path on this machine instead, or start "
            "with: inferlab serve --max-upload 16G"
        )


def file_name(name: str) -> str:
    """The last part of a name that a browser sent, with harmless characters only."""
    last = re.split(r"[/\\]", name)[-1]
    stem, dot, ending = last.rpartition(".")
    stem, ending = (_NAME.sub("_", part).strip("._") for part in ((stem, ending) if dot else (last, "")))
    tail = f".{ending[-_LONGEST_ENDING:]}" if ending else ""
    return f"{(stem or 'model')[-(_LONGEST_NAME - len(tail)) :]}{tail}"
