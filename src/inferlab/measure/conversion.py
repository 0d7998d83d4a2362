"""A model in its engine's own format: made by a child, kept in the cache; of several files the fastest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput, EngineFailed, InferlabError
from inferlab.files import whole_file
from inferlab.records import Event, Listener
from inferlab.settings import cache_folder
from inferlab.worker import Launch, Worker

# The cache keeps what was used last, up to this size in all.
_CACHE_BYTES = 8_000_000_000
_LOCK = "lock"
_FILES = "files.json"
# A conversion that is under way; one that was killed is found by this and removed.
_UNFINISHED = ".inferlab-"


@dataclass(frozen=True, slots=True)
class Converted:
    """A file that the engine loads, and the engine's options that it was made by, each of them decided."""

    path: Path
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Conversion:
    """What is converted, and how."""

    launch: Launch
    #: The ONNX file.
    source: Path
    options: Mapping[str, str]
    #: All that the files depend on: of the model, of the engine.
    identity: Sequence[Any]
    #: All that their speed depends on besides: threads, shapes, machine.
    conditions: Sequence[Any]
    patience_s: float


@contextmanager
def converted(
    conversion: Conversion, call_s: Callable[[Converted], float], listener: Listener
) -> Iterator[Converted]:
    """The file to load, which stays where it is meanwhile; `call_s` measures what an inference takes with one.

    Nothing is converted twice at once, and what a killed process left behind is never taken for a model.
    """
    with files_of(conversion, listener) as folder:
        yield _fastest(conversion, folder, call_s, listener)


@contextmanager
def files_of(conversion: Conversion, listener: Listener) -> Iterator[Path]:
    """The folder with all files, which are made unless they are there, and stay where they are meanwhile."""
    home, folder = _places(conversion)
    try:
        with _locked(home):
            for abandoned in home.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            if not (folder / _FILES).is_file():
                listener(Event("converting", {"engine": conversion.launch.name}))
                _convert(conversion, home, folder)
            os.utime(folder)
            in_use = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(in_use, fcntl.LOCK_SH)
            with contextlib.suppress(OSError):
                _prune(home)
    except OSError as error:
        raise BadInput(
            f"The model cannot be converted for '{conversion.launch.name}' in {home}: {error.strerror}. "
            "INFERLAB_CACHE names another folder."
        ) from error
    try:
        yield folder
    finally:
        os.close(in_use)


def is_made(conversion: Conversion) -> bool:
    """Whether its files are there already."""
    return (_places(conversion)[1] / _FILES).is_file()


def remembered(conversion: Conversion) -> Mapping[str, str] | None:
    """The options that were decided when this was converted and measured before; None where it was not."""
    _, folder = _places(conversion)
    try:
        files = _files(folder)
        return files[0 if len(files) == 1 else _remembered_choice(conversion, folder)].options
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _places(conversion: Conversion) -> tuple[Path, Path]:
    """The folder of all conversions, and in it that of this one."""
    home = cache_folder() / "converted"
    return home, home / _key([conversion.launch.name, dict(conversion.options), *conversion.identity])


def _convert(conversion: Conversion, home: Path, folder: Path) -> None:
    """Let a child of its own write the files into a new folder, which takes its name when all are there."""
    unfinished = home / f"{_UNFINISHED}{os.urandom(8).hex()}"
    unfinished.mkdir()
    try:
        with Worker(conversion.launch, patience_s=conversion.patience_s) as worker:
            answer = worker.ask(
                "convert", model=str(conversion.source), out=str(unfinished), options=dict(conversion.options)
            )
        files = answer.data["files"]
        if not files or not all(_is_plain(unfinished, str(file["file"])) for file in files):
            raise EngineFailed(f"Engine '{conversion.launch.name}' wrote no file that can be loaded.")
        (unfinished / _FILES).write_text(json.dumps(files), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _is_plain(folder: Path, name: str) -> bool:
    """Whether it is a file within the folder: a link could lead to files that the engine may not read."""
    path = folder / name
    return Path(name).name == name and path.is_file() and not path.is_symlink()


def _fastest(
    conversion: Conversion, folder: Path, call_s: Callable[[Converted], float], listener: Listener
) -> Converted:
    """The only file, or the one that was faster here once; measured forth and back in fresh processes."""
    files = _files(folder)
    if len(files) == 1:
        return files[0]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
        return files[_remembered_choice(conversion, folder)]
    listener(Event("choosing", {"engine": conversion.launch.name, "files": len(files)}))
    seconds = [math.inf] * len(files)
    for number in (*range(len(files)), *reversed(range(len(files)))):
        with contextlib.suppress(InferlabError):
            seconds[number] = min(seconds[number], call_s(files[number]))
    fastest = seconds.index(min(seconds))
    ms = {files[number].path.stem: second * 1e3 for number, second in enumerate(seconds) if math.isfinite(second)}
    listener(Event("chosen", {"engine": conversion.launch.name, "chosen": files[fastest].path.stem, "ms": ms}))
    if ms:
        with contextlib.suppress(OSError), whole_file(_choice_file(conversion, folder)) as out:
            out.write(json.dumps({"fastest": fastest, "ms": ms}).encode())
    return files[fastest]


def _files(folder: Path) -> list[Converted]:
    return [
        Converted(folder / str(file["file"]), file["options"])
        for file in json.loads((folder / _FILES).read_text(encoding="utf-8"))
    ]


def _choice_file(conversion: Conversion, folder: Path) -> Path:
    return folder / f"fastest-{_key(conversion.conditions)}.json"


def _remembered_choice(conversion: Conversion, folder: Path) -> int:
    """The number of the file that was the fastest under these conditions; raises where that is not known."""
    return int(json.loads(_choice_file(conversion, folder).read_text(encoding="utf-8"))["fastest"])


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    handle = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _prune(home: Path) -> None:
    """Remove what was used longest ago and nobody uses now, where all of it is too large."""
    folders = [path for path in home.iterdir() if path.is_dir() and not path.name.startswith(_UNFINISHED)]
    total = 0
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True):
        total += sum(file.stat().st_size for file in folder.iterdir())
        if total > _CACHE_BYTES:
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(handle)


def _key(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
