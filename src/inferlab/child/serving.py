"""Requests for tokens that arrive on schedule, whether or not the last one is done."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

from . import loop, server
from .engines.base import Engine

Clock = Callable[[], int]
Wait = Callable[[int], None]

# Long enough for the threads of requests to be ready for the first.
_LEAD_NS = 3_000_000
_NEVER = -1


class Requests:
    """What arrives when, and what became of each; moments are in nanoseconds after the start."""

    def __init__(self, prompts: Sequence[Any], arrivals_ns: Sequence[int], new_tokens: int) -> None:
        import numpy

        self.prompts, self.arrivals_ns, self.new_tokens = prompts, arrivals_ns, new_tokens
        count = len(prompts)
        #: When the engine began with it.
        self.submitted_ns = numpy.full(count, _NEVER, numpy.int64)
        #: For how long it had arrived and the engine was free to take it, but nobody gave it to the engine.
        self.late_ns = numpy.zeros(count, numpy.int64)
        self.token_ns = numpy.full((count, new_tokens), _NEVER, numpy.int64)
        self.token_ids = numpy.full((count, new_tokens), _NEVER, numpy.int64)
        self.emitted = [0] * count
        #: Whether its last token came, or the engine ended it; not where the deadline came first.
        self.finished = numpy.zeros(count, numpy.int8)

    def submit(self, number: int, moment_ns: int, free_ns: int) -> None:
        """The engine gets a request, which it could have had since `free_ns` if it had arrived by then."""
        self.submitted_ns[number] = moment_ns
        self.late_ns[number] = max(0, moment_ns - max(self.arrivals_ns[number], free_ns))

    def emit(self, number: int, token: int, moment_ns: int) -> bool:
        """Take a token; whether the request is done with it."""
        emitted = self.emitted[number]
        if token >= 0 and emitted < self.new_tokens:
            self.token_ns[number, emitted] = moment_ns
            self.token_ids[number, emitted] = token
            self.emitted[number] += 1
        done = token < 0 or self.emitted[number] >= self.new_tokens
        self.finished[number] = done
        return done

    def arrays(self) -> Dict[str, Any]:
        """What became of them."""
        return {
            "submitted_ns": self.submitted_ns,
            "late_ns": self.late_ns,
            "token_ns": self.token_ns,
            "token_ids": self.token_ids,
            "finished": self.finished,
        }


def serve_requests(
    engine: Engine,
    restore: Callable[[], None],
    depth: int,
    sequences: int,
    requests: Requests,
    seconds: float,
    deadline: List[int],
) -> None:
    """Serve by the best means that the engine has, until all is done or the time is up.

    What is under way then stays unfinished, unless the engine serves one request after the other.
    """
    restore()
    gc.collect()
    gc.disable()
    try:
        start_ns = time.perf_counter_ns() + _LEAD_NS
        loop.set_deadline(deadline, start_ns + int(seconds * 1e9))
        if "continuous_batching" in engine.capabilities:
            serve_batched(engine, depth, sequences, requests, start_ns, deadline)
        elif "concurrent_requests" in engine.capabilities:
            _serve_concurrently(engine, sequences, requests, start_ns, deadline)
        else:
            _serve_in_turn(engine, restore, requests, start_ns, deadline)
    finally:
        gc.enable()


def serve_batched(
    engine: Engine,
    depth: int,
    sequences: int,
    requests: Requests,
    start_ns: int,
    deadline: List[int],
    clock: Clock = time.perf_counter_ns,
    wait: Wait = server.wait_spinning,
) -> None:
    """Continuous batching: before every step, what has arrived joins those that decode, while there is room."""
    import numpy

    count, following = len(requests.prompts), 0
    free = list(range(sequences))
    running: Dict[int, int] = {}
    last: Dict[int, int] = {}
    free_ns = 0
    while following < count or running:
        if not running and not _await(start_ns + requests.arrivals_ns[following], deadline, clock, wait):
            return
        now = clock()
        if now >= deadline[0]:
            return
        pieces = [(slot, numpy.array([last[slot]], numpy.int64)) for slot in running]
        while free and following < count and start_ns + requests.arrivals_ns[following] <= now:
            slot = free.pop(0)
            running[slot] = following
            requests.submit(following, now - start_ns, free_ns)
            pieces.append((slot, requests.prompts[following]))
            following += 1
        if not pieces:
            continue  # a wait that ended too early
        tokens = engine.advance(pieces)
        free_ns = clock() - start_ns
        for (slot, _), token in zip(pieces, tokens):
            last[slot] = int(token)
            if requests.emit(running[slot], int(token), free_ns):
                del running[slot]
                engine.forget(slot, depth)
                free.append(slot)


def _await(due_ns: int, deadline: List[int], clock: Clock, wait: Wait) -> bool:
    """Wait in steps, because a signal may bring the deadline forward; False where that comes first."""
    while due_ns < deadline[0]:
        now = clock()
        if now >= due_ns:
            return True
        wait(min(due_ns, now + 100_000_000))
    return False


def _serve_in_turn(
    engine: Engine, restore: Callable[[], None], requests: Requests, start_ns: int, deadline: List[int]
) -> None:
    """One request at a time, in the order of arrival."""
    numbers = iter(range(len(requests.prompts)))
    free = [0]

    def call() -> None:
        number = next(numbers)
        requests.submit(number, time.perf_counter_ns() - start_ns, free[0])
        _complete(engine, requests, number, start_ns)
        restore()
        free[0] = time.perf_counter_ns() - start_ns

    server.serve(call, server.from_memory(requests.arrivals_ns), start_ns, deadline)


def _serve_concurrently(engine: Engine, most: int, requests: Requests, start_ns: int, deadline: List[int]) -> None:
    """Requests in threads of their own, so many at most: the engine decides what it computes together."""
    numbers = iter(range(len(requests.prompts)))
    taking = threading.Lock()
    mine = threading.local()

    def take() -> int:
        with taking:
            mine.number = next(numbers, None)
        return -1 if mine.number is None else int(requests.arrivals_ns[mine.number])

    def call() -> None:
        requests.submit(mine.number, time.perf_counter_ns() - start_ns, getattr(mine, "free_ns", 0))
        _complete(engine, requests, mine.number, start_ns)
        mine.free_ns = time.perf_counter_ns() - start_ns

    threads = min(most, len(requests.prompts))
    server.serve_all([call] * threads, [[]] * threads, take, start_ns, deadline, len(requests.prompts))


def _complete(engine: Engine, requests: Requests, number: int, start_ns: int) -> None:
    def emit(token: int) -> None:
        requests.emit(number, token, time.perf_counter_ns() - start_ns)

    engine.complete(requests.prompts[number], requests.new_tokens, emit)
    # One that ends early may tell so by ending.
    requests.finished[number] = 1


def force_batched(engine: Engine, depth: int, prompts: Any, tokens: Any) -> Any:
    """What the engine chooses in place of tokens [sequence, position], each sequence one step later than the last.

    So a prompt is computed beside others that decode, at positions of their own, as requests are.
    """
    import numpy

    rows, positions = tokens.shape
    chosen = numpy.full((rows, positions), _NEVER, numpy.int64)
    for step in range(positions + rows - 1):
        pieces: List[Tuple[int, Any]] = []
        for row in range(rows):
            position = step - row
            if 0 <= position < positions:
                pieces.append((row, prompts[row] if position == 0 else tokens[row, position - 1 : position]))
        for (row, _), token in zip(pieces, engine.advance(pieces)):
            chosen[row, step - row] = token
    for row in range(rows):
        engine.forget(row, depth)
    return chosen


def split_prompts(tokens: Any, lengths: Sequence[int]) -> List[Any]:
    """Prompts of any lengths out of one array that has them one behind the other."""
    import numpy

    ends = numpy.cumsum(lengths)
    return [tokens[end - length : end] for end, length in zip(ends, lengths)]
