"""How requests are issued: a stream repeats its call until a deadline, or serves what arrives on schedule."""

from __future__ import annotations

import functools
import gc
import os
import struct
import threading
import time
from array import array
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Sequence, TypeVar

from . import counters
from .loop import MOST_SAMPLES, Taken, run_stream, set_deadline
from .processes import pin, prctl

Call = Callable[[], Any]
Result = TypeVar("Result")

# Long enough for every thread to be there when the first call begins.
_THREADS_LEAD_NS = 3_000_000


def closed_loop(
    calls: Sequence[Call],
    groups: Sequence[Sequence[int]],
    start_ns: int,
    seconds: float,
    expected: Sequence[int],
    deadline: List[int],
    most: int = MOST_SAMPLES,
) -> List[Taken]:
    """Run every call in a stream of its own from `start_ns` (or now) on for `seconds`.

    `groups` gives each stream the CPUs that it is bound to. One stream runs in the calling thread,
    several in threads of their own.
    """
    gc.collect()
    # What is left need not be looked at again: short windows that follow each other have no time for that.
    gc.freeze()
    gc.disable()
    try:
        start_ns = max(start_ns, time.perf_counter_ns() + (_THREADS_LEAD_NS if len(calls) > 1 else 0))
        set_deadline(deadline, start_ns + int(seconds * 1e9))
        works = [
            functools.partial(run_stream, call, deadline, size, start_ns, most=most)
            for call, size in zip(calls, expected)
        ]
        return [works[0]()] if len(works) == 1 else side_by_side(works, groups, deadline)
    finally:
        gc.enable()


def side_by_side(
    works: Sequence[Callable[[], Result]], groups: Sequence[Sequence[int]], deadline: List[int]
) -> List[Result]:
    """Do every work in a thread of its own, bound to its CPUs; what one raises ends all and is raised here."""
    results: Dict[int, Result] = {}
    errors: List[BaseException] = []

    def stream(index: int) -> None:
        try:
            pin(groups[index])
            results[index] = works[index]()
        except BaseException as error:  # told to the main thread, which raises it
            errors.append(error)
            deadline[0] = 0
        finally:
            counters.remember_thread()

    threads = [threading.Thread(target=stream, args=(index,), daemon=True) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(works))]


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
_PR_SET_TIMERSLACK, _LEAST_SLACK_NS = 29, 1


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
        if due > ended and not await_due(due, deadline, clock, wait):
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


def await_due(due_ns: int, deadline: List[int], clock: Clock, wait: Wait) -> bool:
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
    """Serve in a thread beside others; Linux is not to delay the ends of its sleeps to join them with others."""
    prctl(_PR_SET_TIMERSLACK, _LEAST_SLACK_NS)
    return serve(call, take, start_ns, deadline, wait=wait_yielding, expected=expected)
