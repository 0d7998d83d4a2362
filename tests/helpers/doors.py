"""Functions of tests that run confined; a confined process finds them by their module."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.errors import Damaged, NotThere
from inferlab.model.confined import confined


@confined(reads=["path"])
def read_text(path: Path, other: Path) -> str:
    """Read a file that need not be the one that may be read."""
    return other.read_text(encoding="utf-8")


@confined(reads=["path"], writes=["folder"])
def write_text(path: Path, folder: Path, other: Path) -> int:
    """Write a file that need not lie where may be written."""
    return other.write_text("written", encoding="utf-8")


@confined(reads=["path"])
def connect(path: Path, port: int) -> str:
    """Reach for a server on this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


@confined(reads=["path"])
def behave(path: Path, how: str) -> str:
    """End in one of the ways in which readers end."""
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        os._exit(3)
    if how == "hang":
        time.sleep(600)
    if how == "spin":
        while True:
            pass
    if how == "memory":
        return str(len(bytearray(3 << 30)))
    if how == "damaged":
        raise Damaged("its tail is missing")
    if how == "not there":
        raise NotThere("There is no such thing.")
    if how == "fault":
        return {"a": "b"}["c"]
    if how == "pid":
        return f"{os.getpid()} {os.getppid()}"
    return how


@confined(reads=["path"])
def double(path: Path, values: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Twice of an array."""
    return values * 2


@confined(reads=["path"])
def lie(path: Path) -> int:
    """Answer with something else than is announced."""
    return "not a number"  # type: ignore[return-value]
