"""How requests are issued: every stream repeats its call until a common deadline."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, Callable, List, Optional, Sequence

from .loop import Taken, run_stream
from .pinning import pin

Call = Callable[[], Any]


def closed_loop(
    calls: Sequence[Call],
    groups: Sequence[Sequence[int]],
    start_ns: int,
    seconds: float,
    expected: Sequence[int],
    deadline: List[int],
) -> List[Taken]:
    """Run every call in a stream of its own from `start_ns` on for `seconds`.

    `groups` gives each stream the CPUs that it is bound to. One stream runs in the calling thread,
    several in threads of their own.
    """
    start_ns = max(start_ns, time.perf_counter_ns())
    deadline[0] = start_ns + int(seconds * 1e9)
    gc.collect()
    gc.disable()
    try:
        if len(calls) == 1:
            return [run_stream(calls[0], deadline, expected[0], start_ns)]
        return _threads(calls, groups, start_ns, expected, deadline)
    finally:
        gc.enable()


def _threads(
    calls: Sequence[Call],
    groups: Sequence[Sequence[int]],
    start_ns: int,
    expected: Sequence[int],
    deadline: List[int],
) -> List[Taken]:
    taken: List[Optional[Taken]] = [None] * len(calls)
    errors: List[BaseException] = []

    def stream(index: int) -> None:
        try:
            pin(groups[index])
            taken[index] = run_stream(calls[index], deadline, expected[index], start_ns)
        except BaseException as error:  # told to the main thread, which raises it
            errors.append(error)
            deadline[0] = 0

    threads = [threading.Thread(target=stream, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [one for one in taken if one is not None]


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
