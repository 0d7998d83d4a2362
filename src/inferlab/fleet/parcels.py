"""Files that travel to a node or in a bundle: listed with their digests here, written once and checked there."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model.download import inside
from inferlab.records import Model
from inferlab.settings import cache_folder

#: Files travel in pieces, so that none has to fit into memory.
PIECE_BYTES = 64 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of a parcel."""

    #: Relative to the parcel's folder, with slashes.
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files that belong together, and the one (or the folder) that a user would name."""

    main: str
    files: tuple[PackedFile, ...]

    @property
    def digest(self) -> str:
        """The hash of all that is in it."""
        text = "\n".join(f"{file.name}\0{file.size_bytes}\0{file.sha256}" for file in self.files)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def size_bytes(self) -> int:
        """What travels."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Packed:
    """A parcel that is here, ready to be sent."""

    parcel: Parcel
    #: Where each of its files lies.
    sources: tuple[Path, ...]

    def pieces(self) -> Iterator[bytes]:
        """The content of all files, one after the other, in pieces."""
        for source in self.sources:
            with source.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece


def pack_model(model: Model) -> Packed:
    """A model with all files that it consists of."""
    path = Path(model.path)
    if model.kind == "transformers":
        from inferlab.model.reading import weight_files

        described = sorted(file for file in path.glob("*.json") if file.is_file())
        return _pack("", {file.name: file for file in (*described, *weight_files(path))})
    files = {path.name: path}
    if model.kind == "onnx":
        files |= _external(path)
    if model.kind == "openvino":
        weights = path.with_suffix(".bin")
        files[weights.name] = weights
    return _pack(path.name, files)


def pack_file(file: str) -> Packed:
    """One file."""
    path = Path(file)
    return _pack(path.name, {path.name: path})


def _external(path: Path) -> dict[str, Path]:
    """The files that hold weights of an ONNX model, by the names that it calls them by."""
    from inferlab.model.onnx_file import data_files_of

    return data_files_of(path)


def _pack(main: str, files: Mapping[str, Path]) -> Packed:
    packed = []
    for name, file in files.items():
        try:
            packed.append(PackedFile(name, file.stat().st_size, _sha256(file)))
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror or error}.") from error
    return Packed(Parcel(main, tuple(packed)), tuple(files.values()))


def place(parcel: Parcel) -> Path:
    """Where a parcel is kept on the machine that this runs on, whether or not it is there."""
    return cache_folder() / "fleet" / parcel.digest[:32]


def find(parcel: Parcel) -> Path | None:
    """The path that a user would name, if the whole parcel is here and is what it should be."""
    folder = place(parcel)
    whole = all(_is(folder / file.name, file) for file in parcel.files)
    return folder / parcel.main if whole else None


def unpack(parcel: Parcel, next_piece: Callable[[], bytes]) -> Path:
    """Write a parcel whole or not at all, checked against its digests; returns the path that a user would name.

    A file may have changed since it was packed: `next_piece` gives an empty piece where there are no more.
    """
    folder = place(parcel)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
        try:
            for file in parcel.files:
                _write(_inside(part, file.name), file, next_piece)
            _put(part, parcel)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise BadInput(f"The model cannot be kept in {folder.parent}: {error.strerror or error}.") from error
    return folder / parcel.main


def _inside(folder: Path, name: str) -> Path:
    if not inside(name):
        raise BadInput(f"A file that was sent is called {name!r}, which leads out of its folder.")
    return folder / name


def _write(path: Path, expected: PackedFile, next_piece: Callable[[], bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    total, left = hashlib.sha256(), expected.size_bytes
    with path.open("wb") as file:
        while left > 0 and (piece := next_piece()):
            file.write(piece)
            total.update(piece)
            left -= len(piece)
    if total.hexdigest() != expected.sha256:
        raise BadInput(f"{expected.name} was damaged on its way: its digest differs.")


def _put(part: Path, parcel: Parcel) -> None:
    """Move a whole parcel to its place; what another process put there meanwhile, and may use, stays."""
    folder = place(parcel)
    with contextlib.suppress(OSError):
        part.rename(folder)
        return
    if find(parcel) is not None:
        return
    damaged = part.with_name(f"{part.name}.old")
    folder.rename(damaged)
    part.rename(folder)
    shutil.rmtree(damaged, ignore_errors=True)


def _is(path: Path, expected: PackedFile) -> bool:
    try:
        return path.stat().st_size == expected.size_bytes and _sha256(path) == expected.sha256
    except OSError:
        return False


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
