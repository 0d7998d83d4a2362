"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when all is written, also when two processes write it at once."""
    made = path.with_name(f".inferlab-{os.urandom(8).hex()}")
    try:
        with os.fdopen(_create(made, path), "wb") as file:
            yield file
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


@contextmanager
def new_folders(*folders: Path) -> Iterator[None]:
    """Make these folders; those that were not there and are empty when an error passes are removed again."""
    missing = [one for folder in folders for one in (folder, *folder.parents) if not one.exists()]
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def _create(made: Path, path: Path) -> int:
    """A new file with the permissions of the one that is replaced, or those that the system gives a new one."""
    # The system applies the umask: to ask for it is to change it, for all threads.
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    if path.exists():
        os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
    return handle
