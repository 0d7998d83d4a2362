"""One measurement of a user at a time on a machine: a file lock that says who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferlab.machine import node_name
from inferlab.records import Event, Listener, ignore
from inferlab.units import one_line, shortened

_thread = threading.local()
_LONGEST = 200


@contextmanager
def measuring_alone(label: str, listener: Listener = ignore) -> Iterator[None]:
    """Hold the user's measuring lock on this machine; wait for its holder where there is one, and say so.

    A measurement that is part of another one of the same thread holds it already.
    """
    if getattr(_thread, "measures", False):
        yield
        return
    try:
        handle = _open(lock_file())
    except OSError as error:
        listener(Event("unlocked", {"file": str(lock_file()), "reason": error.strerror}))
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            listener(Event("waiting", {"holder": _holder(handle)}))
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}: {label}\n".encode()[:_LONGEST], 0)
        _thread.measures = True
        yield
    finally:
        _thread.measures = False
        os.close(handle)


def lock_file() -> Path:
    """The lock's path, named by node: in the user's runtime folder, or else in a folder of the user's own."""
    node = re.sub(r"[^\w.-]", "_", node_name())
    return _folder() / f"inferlab-{node}.lock"


def _folder() -> Path:
    """A folder that no other user can write to; what others measure is noticed by the load that it makes."""
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if place.startswith("/") and Path(place).is_dir() and _is_ours(Path(place).stat()):
            return Path(place)
    return Path(tempfile.gettempdir()) / f"inferlab-{os.geteuid()}"


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid()


def _open(path: Path) -> int:
    folder = path.parent
    if not folder.exists():
        folder.mkdir(mode=0o700)
    # In a folder that all users share, another one may have made a folder or a link of this name before.
    if not stat.S_ISDIR(folder.lstat().st_mode) or not _is_ours(folder.lstat()):
        raise PermissionError(errno.EPERM, f"{folder} belongs to another user")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.fchmod(handle, 0o600)
    return handle


def _holder(handle: int) -> str:
    """What the file says, which need not be true: whoever runs as this user can write to it."""
    return one_line(shortened(os.pread(handle, _LONGEST, 0).decode("utf-8", "replace").strip(), 100))
