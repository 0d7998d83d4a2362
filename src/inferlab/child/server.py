"""The server scenario: requests arrive on schedule, whether or not the last one is done."""

from __future__ import annotations

import functools
import gc
import os
import struct
import sys
import time
from array import array
from typing import Any, Callable, Iterable, List, NamedTuple, Sequence

from .scenarios import side_by_side

Call = Callable[[], Any]
#: Gives the next request's arrival in nanoseconds after the start, or a negative number after the last.
Take = Callable[[], int]
Clock = Callable[[], int]
Wait = Callable[[int], None]

_SMALLEST_BUFFER = 4096
_TICKET = struct.Struct("q")
# A signal that brings the deadline forward is noticed within this time.
_LONGEST_WAIT_NS = 100_000_000
# A virtual CPU that sleeps is given back late: 60 µs as a rule, milliseconds when its host is busy. Spinning
# 0.2 ms before a request, 1 in 15 was begun more than 0.1 ms late; spinning through, 1 in 80.
_SPIN_NS = 5_000_000
# With the least timer slack nine sleeps of ten end within 0.1 ms, with the default one within 0.2 ms.
_YIELD_NS = 100_000
_LEAST_SLACK_NS = 1


class Served(NamedTuple):
    """The requests that one stream served: when each was due, begun and done."""

    scheduled: "array[int]"
    starts: "array[int]"
    ends: "array[int]"


def wait_spinning(moment_ns: int) -> None:
    """Sleep, then spin the rest: for a stream that has the process to itself."""
    left = moment_ns - time.perf_counter_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.perf_counter_ns() < moment_ns:
        pass


def wait_yielding(moment_ns: int) -> None:
    """Sleep, in ever shorter steps: spinning would keep the interpreter's lock from the other streams."""
    while True:
        left = moment_ns - time.perf_counter_ns()
        if left <= 0:
            return
        time.sleep((left - _YIELD_NS) / 1e9 if left > _YIELD_NS else 0)


def serve(
    call: Call,
    take: Take,
    start_ns: int,
    deadline: List[int],
    clock: Clock = time.perf_counter_ns,
    wait: Wait = wait_spinning,
    expected: int = 0,
) -> Served:
    """Serve requests one at a time, none before it is due; those left at the deadline stay unserved.

    The deadline is a list of one number because a signal may bring it forward. `expected` sizes the
    arrays: growing them in mid-queue would make requests wait.
    """
    size = max(_SMALLEST_BUFFER, expected)
    scheduled, starts, ends = array("q", bytes(8 * size)), array("q", bytes(8 * size)), array("q", bytes(8 * size))
    index = 0
    ended = clock()
    while ended < deadline[0]:
        offset = take()
        if offset < 0:
            break
        due = start_ns + offset
        if index == size:
            size *= 2
            for times in (scheduled, starts, ends):
                times.frombytes(bytes(8 * index))
        if due > ended and not _await(due, deadline, clock, wait):
            break
        started = clock()
        call()
        ended = clock()
        scheduled[index] = due
        starts[index] = started
        ends[index] = ended
        index += 1
    del scheduled[index:], starts[index:], ends[index:]
    return Served(scheduled, starts, ends)


def _await(due_ns: int, deadline: List[int], clock: Clock, wait: Wait) -> bool:
    """Wait for a request; False as soon as it is known to come too late."""
    while due_ns < deadline[0]:
        now = clock()
        if due_ns - now <= _LONGEST_WAIT_NS:
            wait(due_ns)
            return due_ns < deadline[0]
        wait(now + _LONGEST_WAIT_NS)
    return False


def from_memory(offsets: Iterable[int]) -> Take:
    """A queue for the streams of one process; the interpreter's lock makes each step of the iterator whole."""
    return functools.partial(next, iter(offsets), -1)


def from_descriptor(descriptor: int) -> Take:
    """A queue for several processes: an inherited descriptor of a file of 64-bit offsets, read one at a time.

    The file must be one on a disk or in tmpfs: for these Linux locks the position that the processes
    share. For a memfd it does not, and two processes get the same request.
    """

    def take() -> int:
        ticket = os.read(descriptor, _TICKET.size)
        return int(_TICKET.unpack(ticket)[0]) if ticket else -1

    return take


def serve_all(
    calls: Sequence[Call],
    groups: Sequence[Sequence[int]],
    take: Take,
    start_ns: int,
    deadline: List[int],
    expected: int = 0,
) -> List[Served]:
    """Serve one queue with every call in a stream of its own, until it is empty or the deadline has passed.

    `groups` gives each stream the CPUs that it is bound to. One stream runs in the calling thread,
    several in threads of their own.
    """
    gc.collect()
    gc.disable()
    try:
        if len(calls) == 1:
            return [serve(calls[0], take, start_ns, deadline, expected=expected)]
        works = [functools.partial(_serve_beside, call, take, start_ns, deadline, expected) for call in calls]
        return side_by_side(works, groups, deadline)
    finally:
        gc.enable()


def _serve_beside(call: Call, take: Take, start_ns: int, deadline: List[int], expected: int) -> Served:
    """Serve in a thread beside others."""
    _sleep_exactly()
    return serve(call, take, start_ns, deadline, wait=wait_yielding, expected=expected)


def _sleep_exactly() -> None:
    """Ask Linux not to delay the ends of this thread's sleeps in order to join them with others."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    PR_SET_TIMERSLACK = 29
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(_LEAST_SLACK_NS), 0, 0, 0)
