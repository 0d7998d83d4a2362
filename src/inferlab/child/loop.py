"""The measuring loop: two readings of the clock and two stores around each call, nothing else."""

from __future__ import annotations

import time
from array import array
from typing import Any, Callable, List, NamedTuple

# A stream keeps at most this many samples (16 bytes each), so that an empty call cannot fill the memory.
MOST_SAMPLES = 10_000_000
_SMALLEST_BUFFER = 4096


class Taken(NamedTuple):
    """The samples of one stream."""

    starts: "array[int]"
    ends: "array[int]"
    #: The stream stopped because it had MOST_SAMPLES, not because its time was over.
    full: bool


def fill(
    call: Callable[[], Any],
    clock: Callable[[], int],
    deadline: List[int],
    starts: "array[int]",
    ends: "array[int]",
    first: int,
) -> int:
    """Call again and again, from index `first` until the deadline or the end of the arrays.

    Returns how many samples the arrays then hold. The deadline is a list of one number because a
    signal may bring it forward while the loop runs.
    """
    index = first
    size = len(starts)
    while index < size:
        started = clock()
        call()
        ended = clock()
        starts[index] = started
        ends[index] = ended
        index += 1
        if ended >= deadline[0]:
            break
    return index


def run_stream(
    call: Callable[[], Any],
    deadline: List[int],
    expected: int,
    start_ns: int = 0,
    clock: Callable[[], int] = time.perf_counter_ns,
    most: int = MOST_SAMPLES,
) -> Taken:
    """Measure from `start_ns` until the deadline; `expected` sizes the arrays so that they seldom have to grow."""
    size = min(most, max(_SMALLEST_BUFFER, expected))
    starts, ends = array("q", bytes(8 * size)), array("q", bytes(8 * size))
    wait_until(start_ns)
    count = 0
    while True:
        count = fill(call, clock, deadline, starts, ends, count)
        if count < len(starts) or ends[count - 1] >= deadline[0] or len(starts) >= most:
            break
        more = bytes(8 * min(len(starts), most - len(starts)))
        starts.frombytes(more)
        ends.frombytes(more)
    full = count >= most and ends[count - 1] < deadline[0]
    del starts[count:], ends[count:]
    return Taken(starts, ends, full)


def harness_cost_ns(rounds: int = 2000) -> float:
    """What the loop adds to each sample: its median with a call that does nothing."""
    size = rounds
    starts, ends = array("q", bytes(8 * size)), array("q", bytes(8 * size))
    fill(_nothing, time.perf_counter_ns, [1 << 62], starts, ends, 0)
    spans = sorted(end - start for start, end in zip(starts, ends))
    return float(spans[size // 2])


def wait_until(moment_ns: int) -> None:
    """Sleep, then spin the last millisecond, so that several streams start together."""
    while True:
        left = moment_ns - time.perf_counter_ns()
        if left <= 0:
            return
        if left > 1_000_000:
            time.sleep((left - 1_000_000) / 1e9)


def set_deadline(deadline: List[int], moment_ns: int) -> None:
    """Set when a slice ends, which is at once if it was cut short before it began: then a second number is not 0.

    The number is looked at afterwards, because the signal that sets it may come at any moment.
    """
    deadline[0] = moment_ns
    if any(deadline[1:]):
        deadline[0] = 0


def _nothing() -> None:
    return None
