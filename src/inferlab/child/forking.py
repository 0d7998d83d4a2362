"""A process that has imported an engine forks a process for every session: importing once serves them all."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import BinaryIO, List, Tuple

from . import protocol

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
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return all(advise(start, end - start, _MADV_POPULATE_READ) == 0 for start, end in ranges)
