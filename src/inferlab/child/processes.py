"""Processes: bound to CPUs, ended with their parent or by it, forked for sessions or what takes memory."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from typing import Any, BinaryIO, Callable, Dict, List, Sequence, Set, Tuple

from . import protocol
from .engines.base import BadOption


def pin(cpus: Sequence[int]) -> bool:
    """Bind the calling thread, and the threads it will start, to these CPUs; False where that cannot be."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        return False
    os.sched_setaffinity(0, cpus)
    return True


_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# A process that starts others faster than we end them is not chased for ever.
_MOST_ROUNDS = 50


def prctl(option: int, value: int) -> None:
    """Ask Linux for something that concerns the calling process or thread; elsewhere nothing happens."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def die_with_parent() -> None:
    """Ask Linux to kill us when the parent dies: a hung engine would never notice the closed pipe."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Ask Linux to make us the parent of every descendant that loses its own, so that it can be found."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


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
        processes = descendants_of(process)
        if not processes:
            return
        _kill(processes)


def end_marked(mark: str) -> None:
    """End all processes that carry a mark (NAME=VALUE) in their environment, whoever their parent is now."""
    needle = mark.encode()
    for _ in range(_MOST_ROUNDS):
        processes = [process for process in _processes() if needle in _environment(process) and _parent(process)]
        if not processes:
            return
        _kill(processes)


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
    processes: List[int] = []
    seen: Set[int] = {0}
    waiting = [root]
    while waiting:
        for process in children.get(waiting.pop(), []):
            if process not in seen:
                seen.add(process)
                processes.append(process)
                waiting.append(process)
    return processes


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


# A process that has imported an engine forks a process for every session: importing once serves them all.

_MADV_POPULATE_READ = 22
_PRESENT = 63

#: Where pages lie, from and to.
Ranges = List[Tuple[int, int]]


def forkable() -> bool:
    """Whether a fork of this process is like this process: it has no other threads, and gets the same pages."""
    if not sys.platform.startswith("linux") or len(os.listdir("/proc/self/task")) > 1:
        return False
    return _populate(_file_pages()[:1])


def fork_for_each_session(requests: BinaryIO, answers: BinaryIO) -> bool:
    """Fork a process whenever a session begins and tell when it has ended well; True in the forked process.

    A session that ends otherwise ends this process in the same way.
    """
    pages = _file_pages()
    running = [0]
    signal.signal(signal.SIGINT, lambda *_: os.kill(running[0], signal.SIGINT) if running[0] else None)
    while True:
        select.select([requests], [], [])
        running[0] = os.fork()
        if not running[0]:
            _populate(pages)
            return True
        status = os.waitpid(running[0], 0)[1]
        running[0] = 0
        if os.WIFSIGNALED(status):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        elif status:
            os._exit(os.WEXITSTATUS(status))
        try:
            protocol.send(answers, {"ok": True}, [])
        except OSError:
            return False  # the parent is gone


def _file_pages() -> Ranges:
    """The pages of files that this process has in memory.

    Linux does not hand these on to a fork: it finds them as it goes, and they would count as its model's memory.
    """
    size = os.sysconf("SC_PAGE_SIZE")
    ranges: Ranges = []
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        for line in maps.read().splitlines():
            fields = line.split()
            if fields[4] == "0" or not fields[1].startswith("r"):
                continue  # of no file, or not to be read
            start, end = (int(address, 16) for address in fields[0].split("-"))
            pagemap.seek(start // size * 8)
            for number, entry in enumerate(protocol.numbers(pagemap.read((end - start) // size * 8))):
                if not (entry >> _PRESENT) & 1:
                    continue
                page = start + number * size
                if ranges and ranges[-1][1] == page:
                    ranges[-1] = (ranges[-1][0], page + size)
                else:
                    ranges.append((page, page + size))
    return ranges


def _populate(ranges: Ranges) -> bool:
    """Have these pages in memory; False where the system has no such call."""
    import ctypes

    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return all(advise(start, end - start, _MADV_POPULATE_READ) == 0 for start, end in ranges)


def in_fork(work: Callable[[], Any], failure: str) -> Any:
    """Do what takes memory in a fork, so that the process's peak of memory is the engine's own.

    It answers with plain data. What it refuses is refused here; where it fails otherwise, the log says why.
    """
    with tempfile.TemporaryFile() as file:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                try:
                    answer = {"answer": work()}
                except BadOption as refusal:
                    answer = {"refused": str(refusal)}
                file.write(json.dumps(answer).encode())
                file.flush()
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(code)
        if os.waitpid(process, 0)[1] != 0:
            raise RuntimeError(failure)
        file.seek(0)
        answer = json.loads(file.read())
    if "refused" in answer:
        raise BadOption(answer["refused"])
    return answer["answer"]
