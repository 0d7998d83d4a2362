"""Where a project's model may come from: uploads, folders that the user allowed, and names that are fetched."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from inferlab.errors import BadInput, Conflict, NotThere, TooLarge, TooMany
from inferlab.settings import models_folder, versions_folder
from inferlab.store.rows import new_id
from inferlab.units import shortened

_FETCHED = ("hf", "zoo")
_URLS = ("https://", "http://")
_UPLOAD = re.compile(r"upload:([a-z2-7]{10})")
# Spaces stay: a model names the files of its external data.
_NAME = re.compile(r"[^A-Za-z0-9._+() -]+")
_LONGEST_NAME = 120
_LONGEST_ENDING = 20
#: What a model is loaded from, the first first; what lies beside it (.bin, .data) belongs to it.
MODEL_ENDINGS = (".onnx", ".gguf", ".xml", ".pt2", ".pt", ".torchscript", ".ts", ".pth")
#: A file with inputs by name, and perhaps labels.
DATA_ENDING = ".npz"
# What a folder of Hugging Face's has beside its config.json.
_WEIGHTS = {
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
}
# A folder with more is not for choosing by hand.
_MOST_LISTED = 500
# Uploads of which nothing was made yet, and files that are being sent at the same time.
_MOST_PENDING = 100
_MOST_ARRIVING = 8
_ABANDONED_S = 24 * 3600.0
# A file that is being received is written to more often; the server closes connections that are silent.
_CUT_OFF_S = 600.0
_WRITE_BYTES = 1 << 20
_disk = ThreadPoolExecutor(4, thread_name_prefix="inferlab-disk")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a folder that may be what is looked for."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What can be chosen in a folder that the user allowed, or in one below it."""

    path: str
    #: None for a folder that was itself allowed.
    parent: str | None
    folders: tuple[str, ...]
    files: tuple[ListedFile, ...]
    #: The folder itself is a model, as Hugging Face's are.
    is_model: bool
    #: There is more than is listed.
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Received:
    """A file of an upload as it lies on the disk."""

    path: Path
    size_bytes: int


@dataclass(slots=True, eq=False)
class Arriving:
    """A file of an upload that is on its way; all but its fields is called in threads, off the event loop."""

    part: Path
    target: Path
    #: What has come, or was announced.
    size_bytes: int = 0
    #: What the upload's other files have; None: not counted yet.
    there_bytes: int | None = None
    #: The same name is being sent once more.
    overtaken: bool = False
    _file: IO[bytes] | None = None

    def write(self, chunks: Sequence[bytes]) -> None:
        """Append to the file."""
        if self._file is None:
            self._file = self.part.open("xb")
        self._file.writelines(chunks)

    def close(self) -> int:
        """Finish the file; returns what it has."""
        assert self._file is not None
        self._file.close()
        return self.part.stat().st_size

    def discard(self) -> None:
        """Remove what is left of it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self.part.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class DataFile:
    """Data that was uploaded: inputs, perhaps with labels."""

    #: What it is called in a form, `upload:ID`.
    source: str
    name: str
    path: str
    size_bytes: int


class Sources:
    """What may be named over HTTP: nothing outside the folders that the user allowed."""

    def __init__(self, folders: Sequence[Path], most_bytes: int) -> None:
        self.folders = tuple(folder.resolve() for folder in folders)
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._arriving: list[Arriving] = []

    def resolve(self, source: str) -> str:
        """The source of a model as it can be measured from anywhere; refuses what may not be named."""
        text = source.strip()
        if not text:
            raise BadInput("No model was named: give a path, a URL, hf:org/name, zoo:STUB or demo:NAME.")
        if upload := _UPLOAD.fullmatch(text):
            return str(self.uploaded(upload[1]))
        if is_fetched(text) or text.startswith("demo:"):
            return text
        if "://" in text:
            raise BadInput(f"A model is fetched from an https:// address, not from {text.partition('://')[0]}://.")
        return str(self.below(text))

    def file(self, source: str) -> str:
        """The path of a file that is no model, such as data: an upload's only file, or an allowed path."""
        if upload := _UPLOAD.fullmatch(source.strip()):
            path = str(self.uploaded(upload[1]))
            self.adopt(path)
            return path
        return str(self.below(source))

    def shown(self, source: str) -> str:
        """The source of a model as users know it: an upload by its id, a version by its file."""
        return f"upload:{Path(source).parent.name}" if self.is_uploaded(source) else self.without_folder(source)

    def without_folder(self, text: str) -> str:
        """A sentence without the places where uploads and versions are kept."""
        for folder in (models_folder(), versions_folder(), versions_folder().resolve()):
            text = re.sub(rf"{re.escape(str(folder))}/[a-z2-7]{{10}}/", "", text)
            text = re.sub(rf"{re.escape(str(folder))}/[a-z2-7]{{10}}\b", "the upload", text)
        return text

    def below(self, path: str) -> Path:
        """A path below a folder that the user allowed, links followed; the refusal tells nothing about others."""
        try:
            target = Path(path).expanduser()
            resolved = target.resolve() if target.is_absolute() else self._relative(target)
        except (OSError, RuntimeError, ValueError):
            resolved = None
        if not path or resolved is None or not any(resolved.is_relative_to(folder) for folder in self.folders):
            places = ", ".join(map(str, self.folders)) or "none"
            raise BadInput(
                f"'{shortened(path, 200)}' is not below a folder from which models may be opened ({places}). "
                "Upload the file, or start inferlab with --folder and the folder that it is in."
            )
        return resolved

    def _relative(self, path: Path) -> Path | None:
        """A relative path counts from the first of the folders that has it."""
        candidates = [(folder / path).resolve() for folder in self.folders]
        return next(
            (candidate for candidate in candidates if candidate.exists()), candidates[0] if candidates else None
        )

    def listing(self, path: str, endings: Sequence[str] = MODEL_ENDINGS) -> Listing:
        """The folders, and the files of these endings, in a folder; links out of the allowed ones are left out."""
        folder = self.below(path)
        folders, files, names = list[str](), list[ListedFile](), set[str]()
        try:
            with os.scandir(folder) as items:
                for item in items:
                    if item.name.startswith(".") or (item.is_symlink() and not self._allows(Path(item.path))):
                        continue
                    names.add(item.name)
                    if item.is_dir():
                        folders.append(item.name)
                    elif item.is_file() and item.name.lower().endswith(tuple(endings)):
                        files.append(ListedFile(item.name, item.stat().st_size))
        except NotADirectoryError:
            raise BadInput(f"{path} is not a folder.") from None
        except OSError as error:
            raise BadInput(f"The folder {path} cannot be listed: {error.strerror or error}.") from error
        return Listing(
            str(folder),
            None if folder in self.folders else str(folder.parent),
            tuple(sorted(folders, key=str.lower)[:_MOST_LISTED]),
            tuple(sorted(files, key=lambda file: file.name.lower())[:_MOST_LISTED]),
            "config.json" in names and bool(names & _WEIGHTS),
            max(len(folders), len(files)) > _MOST_LISTED,
        )

    def _allows(self, path: Path) -> bool:
        try:
            self.below(str(path))
        except BadInput:
            return False
        return True

    # Uploads: a folder each, in which files are put one by one. Until something is made of it, an upload has a
    # second folder, for what is still on its way; by that it is known that it may be removed.

    def new_upload(self) -> str:
        """Make room for the files of one model; returns its name."""
        upload_id = new_id()
        try:
            self.sweep()
            pending = _pending_folder()
            if pending.is_dir() and sum(1 for _ in pending.iterdir()) >= _MOST_PENDING:
                raise TooMany(
                    f"{_MOST_PENDING} uploads are not in use. Make projects from them, remove "
                    "some, or try again tomorrow, when they have been deleted."
                )
            (pending / upload_id).mkdir(parents=True)
            (models_folder() / upload_id).mkdir(parents=True)
        except OSError as error:
            raise BadInput(f"The upload cannot be stored: {error.strerror or error}.") from error
        return upload_id

    async def receive(
        self, upload_id: str, name: str, chunks: AsyncIterator[bytes], size_bytes: int | None
    ) -> Received:
        """Write one file of an upload as it comes; what is too large, cut off, or overtaken leaves nothing behind.

        Where a name is sent twice at the same time, the request that came last wins, and the other is refused.
        """
        folder = self.folder(upload_id)
        target = folder / file_name(name)
        if not (_pending_folder() / upload_id).is_dir():
            raise Conflict("This upload is in use already. Start another.")
        arriving = Arriving(_pending_folder() / upload_id / f"{target.name}.{new_id()}", target)
        self._begin(arriving)
        try:
            if size_bytes is not None:
                self._grow(arriving, size_bytes, name)
            received = await self._write(arriving, chunks, name)
            if size_bytes is not None and received != size_bytes:
                raise BadInput(
                    f"The upload of {name} was cut off after {received} of {size_bytes} bytes. Try again."
                )
            return await _in_thread(self._finish, arriving, name)
        except OSError as error:
            raise BadInput(f"{name} could not be stored: {error.strerror or error}.") from error
        finally:
            with self._lock:
                self._arriving.remove(arriving)
                for other in self._arriving:
                    # It may be among the finished files now.
                    other.there_bytes = None
            await _in_thread(arriving.discard)

    def _begin(self, arriving: Arriving) -> None:
        with self._lock:
            if len(self._arriving) >= _MOST_ARRIVING:
                raise TooMany(f"{_MOST_ARRIVING} files are being sent already. Try again when one has arrived.")
            for other in self._arriving:
                other.overtaken = other.overtaken or other.target == arriving.target
            self._arriving.append(arriving)

    async def _write(self, arriving: Arriving, chunks: AsyncIterator[bytes], name: str) -> int:
        received, waiting, waiting_bytes = 0, list[bytes](), 0
        await _in_thread(arriving.write, waiting)
        async for chunk in chunks:
            received += len(chunk)
            self._grow(arriving, received, name)
            waiting.append(chunk)
            waiting_bytes += len(chunk)
            if waiting_bytes >= _WRITE_BYTES:
                await _in_thread(arriving.write, waiting)
                waiting, waiting_bytes = [], 0
        await _in_thread(arriving.write, waiting)
        return received

    def _grow(self, arriving: Arriving, size_bytes: int, name: str) -> None:
        """Count what a file has or will have; all files of an upload together, also those on their way."""
        with self._lock:
            if arriving.overtaken:
                raise _overtaken(name)
            arriving.size_bytes = max(arriving.size_bytes, size_bytes)
            folder = arriving.target.parent
            others = [other for other in self._arriving if other.target.parent == folder and not other.overtaken]
            replaced = {other.target for other in others}
            total = sum(other.size_bytes for other in others)
            if arriving.there_bytes is None or len(others) > 1:
                there = [file for file in folder.iterdir() if file not in replaced]
                arriving.there_bytes = sum(file.stat().st_size for file in there)
            if total + arriving.there_bytes > self.most_bytes:
                raise self._too_large(name)

    def _finish(self, arriving: Arriving, name: str) -> Received:
        size_bytes = arriving.close()
        with self._lock:
            if arriving.overtaken:
                raise _overtaken(name)
            arriving.part.replace(arriving.target)
        return Received(arriving.target, size_bytes)

    def sweep(self) -> None:
        """Remove what was begun and left: files on their way that a server did not live to finish, old uploads."""
        now_s = time.time()
        with self._lock:
            here = {arriving.part for arriving in self._arriving}
        with contextlib.suppress(FileNotFoundError):
            for upload in _pending_folder().iterdir():
                ages = [
                    now_s - folder.stat().st_mtime
                    for folder in (upload, models_folder() / upload.name)
                    if folder.is_dir()
                ]
                for part in upload.iterdir():
                    if part not in here and now_s - part.stat().st_mtime > _CUT_OFF_S:
                        part.unlink(missing_ok=True)
                if min(ages, default=0.0) > _ABANDONED_S and not any(part.parent == upload for part in here):
                    self.give_up(upload.name)

    def adopt(self, path: str) -> None:
        """Something was made of an upload: it stays until that is removed."""
        if self.is_uploaded(path):
            shutil.rmtree(_pending_folder() / Path(path).parent.name, ignore_errors=True)
            with contextlib.suppress(OSError):
                # Where it was the last one.
                _pending_folder().rmdir()

    def uploaded(self, upload_id: str) -> Path:
        """The file of an upload that is the model."""
        folder = self.folder(upload_id)
        files = sorted(file for file in folder.iterdir() if file.is_file())
        for ending in MODEL_ENDINGS:
            models = [file for file in files if file.suffix.lower() == ending]
            if len(models) > 1:
                raise BadInput(f"Several models were uploaded: {', '.join(f.name for f in models)}. Upload one.")
            if models:
                return models[0]
        if len(files) == 1:
            # What it is, its first bytes must tell.
            return files[0]
        raise BadInput(
            "None of the uploaded files is a model: upload an .onnx, .gguf, .xml with its .bin, .pt2 or .pt file."
        )

    def data_files(self) -> list[DataFile]:
        """The uploads that are data rather than models, newest first."""
        dated = []
        for folder in models_folder().glob("*/"):
            files = list(folder.iterdir()) if _UPLOAD.fullmatch(f"upload:{folder.name}") else []
            if len(files) == 1 and files[0].suffix.lower() == DATA_ENDING:
                status = files[0].stat()
                data = DataFile(f"upload:{folder.name}", files[0].name, str(files[0]), status.st_size)
                dated.append((status.st_mtime, data))
        return [data for _, data in sorted(dated, key=lambda pair: pair[0], reverse=True)]

    def discard(self, path: str) -> None:
        """Remove the files of an upload by the path of its model; other paths are left alone."""
        if self.is_uploaded(path):
            shutil.rmtree(Path(path).parent, ignore_errors=True)
            self.adopt(path)

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
            raise NotThere("There is no such upload. Start again.")
        return folder

    def _too_large(self, name: str) -> TooLarge:
        limit = f"{self.most_bytes / (1 << 30):.3g} GiB"
        return TooLarge(
            f"{name} is too large: an upload may have {limit}. Name its path on this machine instead, or start "
            "with: inferlab serve --max-upload 16G"
        )


def is_fetched(source: str) -> bool:
    """Whether a model comes from elsewhere, over the network."""
    text = source.strip()
    return text.startswith(_URLS) or text.partition(":")[0] in _FETCHED


def _pending_folder() -> Path:
    return models_folder() / ".pending"


def _overtaken(name: str) -> Conflict:
    return Conflict(f"{name} is being sent again; the earlier transfer was dropped.")


async def _in_thread(call: Callable[..., _Result], *arguments: object) -> _Result:
    """Call something that waits for the disk in one of a few threads of its own."""
    return await asyncio.get_running_loop().run_in_executor(_disk, call, *arguments)


def file_name(name: str) -> str:
    """The last part of a name that a browser sent, with harmless characters only."""
    last = re.split(r"[/\\]", name)[-1]
    stem, dot, ending = last.rpartition(".")
    stem, ending = (_NAME.sub("_", part).strip("._ ") for part in ((stem, ending) if dot else (last, "")))
    tail = f".{ending[-_LONGEST_ENDING:]}" if ending else ""
    return f"{(stem or 'model')[-(_LONGEST_NAME - len(tail)) :]}{tail}"
