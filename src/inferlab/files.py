"""Files and folders that appear whole or not at all, and temporary ones that vanish with their process."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: folders are removed by their owner only
    fcntl = None  # type: ignore[assignment]

_PREFIX = "inferlab-scratch-"


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when all is written, also when two processes write it at once."""
    unfinished = path.with_name(f".inferlab-{os.urandom(8).hex()}")
    try:
        with os.fdopen(_create(unfinished, path), "wb") as file:
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def new_folders(*folders: Path) -> Iterator[None]:
    """Make these folders; those that were not there and are empty when an error passes are removed again."""
    missing = [place for folder in folders for place in (folder, *folder.parents) if not place.exists()]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _create(unfinished: Path, path: Path) -> int:
    """A new file with the permissions of the one that is replaced, or those that the system gives a new one."""
    # The system applies the umask: to ask for it is to change it, for all threads.
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    if path.exists():
        os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
    return handle


class Scratch:
    """A folder of this process; others see by a lock, which ends with the process, whether its owner lives."""

    def __init__(self) -> None:
        _remove_abandoned(tempfile.gettempdir())
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX)
            self._handle = _lock(self.path, wait=True)
            # Somebody who looked for abandoned folders may have taken it before it had its lock.
            if Path(self.path).exists():
                return
            self.remove()

    def empty(self) -> None:
        """Remove what is in the folder."""
        with contextlib.suppress(OSError):
            Path(self.path).chmod(0o700)
        for entry in os.scandir(self.path):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if Path(self.path).exists():
            _remove(self.path)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@functools.cache  # once in a process is enough
def _remove_abandoned(parent: str) -> None:
    """Remove the user's scratch folders whose owners were killed."""
    for path in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if own and (handle := _lock(str(path))) is not None:
                _remove(str(path))
                os.close(handle)


def _lock(path: str, wait: bool = False) -> int | None:
    """A handle that holds the folder's lock; None where another has it, it is gone, or folders have no locks."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove(folder: str) -> None:
    """Remove a folder, also where what lies in it was made unreadable."""
    shutil.rmtree(folder, ignore_errors=True)
    if not Path(folder).exists():
        return
    for parent, names, _ in os.walk(folder):
        for path in [Path(parent), *(Path(parent) / name for name in names)]:
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
