"""How requests are issued: every stream repeats its call until a common deadline."""

from __future__ import annotations

import functools
import gc
import threading
import time
from typing import Any, Callable, Dict, List, Sequence, TypeVar

from . import counters
from .loop import MOST_SAMPLES, Taken, run_stream, set_deadline
from .pinning import pin

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


def in_pinned_thread(cpus: Sequence[int], work: Callable[[], Any]) -> Any:
    """Do the work in a thread bound to these CPUs, so that the threads an engine starts are bound too."""
    results: List[Any] = []
    errors: List[BaseException] = []

    def target() -> None:
        try:
            pin(cpus)
            results.append(work())
        except BaseException as error:  # raised again below, in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
