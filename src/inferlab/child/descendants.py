"""Processes that a process started, directly or not, also those that left its group and session."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Dict, List, Set

# A process that starts others faster than we end them is not chased for ever.
_MOST_ROUNDS = 50


def die_with_parent() -> None:
    """Ask Linux to kill us when the parent dies: a hung engine would never notice the closed pipe."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Ask Linux to make us the parent of every descendant that loses its own, so that it can be found."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def have_children() -> bool:
    """Whether this process has children; True where the system does not say."""
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/{}/children".format(task)) as file:
                if file.read().strip():
                    return True
    except OSError:
        return True
    return False


def end_descendants(process: int) -> None:
    """End all that a living process has started; the process itself goes on."""
    for _ in range(_MOST_ROUNDS):
        found = descendants_of(process)
        if not found:
            return
        _kill(found)


def end_marked(mark: str) -> None:
    """End all processes that carry a mark (NAME=VALUE) in their environment, whoever their parent is now."""
    needle = mark.encode()
    for _ in range(_MOST_ROUNDS):
        found = [process for process in _processes() if needle in _environment(process) and _parent(process)]
        if not found:
            return
        _kill(found)


def _kill(processes: List[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            continue
    time.sleep(0.001)  # until they are gone, or zombies that nobody counts


def _processes() -> List[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit()]


def descendants_of(root: int) -> List[int]:
    """All processes that a process started, directly or not, and that have not ended."""
    children: Dict[int, List[int]] = {}
    for process in _processes():
        children.setdefault(_parent(process), []).append(process)
    found: List[int] = []
    seen: Set[int] = {0}
    waiting = [root]
    while waiting:
        for process in children.get(waiting.pop(), []):
            if process not in seen:
                seen.add(process)
                found.append(process)
                waiting.append(process)
    return found


def _parent(process: int) -> int:
    """The parent's number; 0 for a process that has ended."""
    try:
        with open("/proc/{}/stat".format(process)) as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return 0
    if state in "ZX" and not _has_threads(process):
        return 0
    return int(parent)


def _has_threads(process: int) -> bool:
    """Whether a process goes on although its first thread has ended."""
    try:
        return len(os.listdir("/proc/{}/task".format(process))) > 1
    except OSError:
        return False


def _environment(process: int) -> bytes:
    try:
        with open("/proc/{}/environ".format(process), "rb") as file:
            return b"\0" + file.read()
    except OSError:
        return b""
