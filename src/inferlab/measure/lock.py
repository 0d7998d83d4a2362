"""One measurement at a time on a machine: a file lock that says who holds it."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferlab.machine import node_name
from inferlab.records import Event, Listener, ignore

_thread = threading.local()


@contextmanager
def measuring_alone(label: str, listener: Listener = ignore) -> Iterator[None]:
    """Hold the machine's measuring lock; wait for its holder where there is one, and say so.

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
            listener(Event("waiting", {"holder": os.pread(handle, 200, 0).decode("utf-8", "replace").strip()}))
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}: {label}\n".encode()[:200], 0)
        _thread.measures = True
        yield
    finally:
        _thread.measures = False
        os.close(handle)


def lock_file() -> Path:
    """The lock's path: in the folder that all users of the machine share, named by node."""
    node = re.sub(r"[^\w.-]", "_", node_name())
    return Path(tempfile.gettempdir()) / f"inferlab-{node}.lock"


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # Without O_CREAT first: Linux refuses it for other users' files in a shared folder.
        return os.open(path, flags)
    except FileNotFoundError:
        handle = os.open(path, flags | os.O_CREAT, 0o666)
        os.fchmod(handle, 0o666)  # the user's umask must not lock out the other users
        return handle
