"""Generating tokens with an engine: timed, behind requests that arrive on schedule, or forced for a check."""

from __future__ import annotations

import gc
import threading
import time
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import counters, loop, scenarios
from .engines.base import Engine

# Long enough for the threads of requests to be ready for the first.
_LEAD_NS = 3_000_000
_NEVER = -1
# So many of the most likely tokens have their probabilities compared; what they leave is rarely a hundredth.
_CANDIDATES = 64


class Generator:
    """A loaded model whose cache holds a context; every generation begins behind it."""

    def __init__(self, engine: Engine, context: Any) -> None:
        self._engine, self._context, self._depth = engine, context, int(context.shape[1])
        self._is_clean = False
        self._whole = "whole_sequences" in engine.capabilities
        self._remote = "remote" in engine.capabilities
        #: Tokens of the context that need not be computed with each prompt.
        self.cached_tokens = self._depth
        self._restore()

    def _restore(self) -> None:
        """Bring the cache back to the context."""
        if self._is_clean and self._engine.rewind(self._depth):
            return
        held = self._engine.begin(self._context)
        self.cached_tokens = self._depth if held is None else held
        self._is_clean = True

    def generate(
        self, prompts: Any, new_tokens: int, watch: List[int], memory: bool
    ) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Times and ids of all tokens; with `memory` also what is resident on the way, which takes its time."""
        cpu = time.process_time_ns
        self._restore()
        arrivals = _Arrivals(len(prompts), new_tokens, memory)
        resident: Dict[str, Any] = {}
        gc.collect()
        gc.disable()
        try:
            before = counters.read(watch)
            cpu_started = cpu()
            started = time.perf_counter_ns()
            (self._run_whole if self._whole else self._run_steps)(prompts, new_tokens, arrivals)
            cpu_ended = cpu()
            noise = counters.difference(before, counters.read(watch))
        finally:
            gc.enable()
        prefilled = arrivals.cpu_prefilled
        encoded_ns = self._engine.encoded_ns()
        if memory:
            resident["prefilled_memory_bytes"] = None if self._remote else arrivals.memory_bytes
            resident["decoded_memory_bytes"] = memory_bytes(self._engine)
            resident["cache_bytes"] = self._engine.cache_bytes()
        return (
            {
                # The CPU time of a server is not ours to know.
                "prefill_cpu_ns": 0 if self._remote else prefilled - cpu_started,
                "decode_cpu_ns": 0 if self._remote else cpu_ended - prefilled,
                "cached_tokens": self.cached_tokens,
                "encoder_ns": None if encoded_ns is None else encoded_ns - started,
                "counters": noise,
                "canary_ns": counters.canary_ns(),
                **resident,
            },
            arrivals.arrays(started),
        )

    def _run_steps(self, prompts: Any, new_tokens: int, arrivals: "_Arrivals") -> None:
        """The timed loop of an engine that is called for each token of all sequences."""
        engine, clock = self._engine, time.perf_counter_ns
        times, chosen = arrivals.steps, arrivals.chosen
        tokens = engine.prefill(prompts)
        times[0] = clock()
        arrivals.end_prefill()
        chosen.append(tokens)
        for number in range(1, new_tokens):
            tokens = engine.step(tokens)
            times[number] = clock()
            chosen.append(tokens)

    def _run_whole(self, prompts: Any, new_tokens: int, arrivals: "_Arrivals") -> None:
        """The same of an engine that tells of each token of each sequence when it is there."""
        self._engine.generate(prompts, new_tokens, arrivals.emit)

    def serve(self, requests: "Requests", sequences: int, seconds: float, deadline: List[int]) -> None:
        """Generate behind prompts that arrive at set moments, by the best means that the engine has.

        At once so many sequences at most, until all is done or the time is up. What is under way then stays
        unfinished, unless the engine serves one request after the other.
        """
        self._restore()
        gc.collect()
        gc.disable()
        try:
            start_ns = time.perf_counter_ns() + _LEAD_NS
            loop.set_deadline(deadline, start_ns + int(seconds * 1e9))
            if "continuous_batching" in self._engine.capabilities:
                self._serve_batched(requests, sequences, start_ns, deadline)
            elif "concurrent_requests" in self._engine.capabilities:
                self._serve_concurrently(requests, sequences, start_ns, deadline)
            else:
                self._serve_in_turn(requests, start_ns, deadline)
        finally:
            gc.enable()

    def _serve_batched(self, requests: "Requests", sequences: int, start_ns: int, deadline: List[int]) -> None:
        """Before every step of a batch, what has arrived joins those that decode, while there is room."""
        import numpy

        clock, wait = time.perf_counter_ns, scenarios.wait_spinning
        count, following = len(requests.prompts), 0
        free = list(range(sequences))
        running: Dict[int, int] = {}
        last: Dict[int, int] = {}
        free_ns = 0
        while following < count or running:
            due_ns = start_ns + requests.arrivals_ns[following] if not running else 0
            if not running and not scenarios.await_due(due_ns, deadline, clock, wait):
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
            tokens = self._engine.advance(pieces)
            free_ns = clock() - start_ns
            for (slot, _), token in zip(pieces, tokens):
                last[slot] = int(token)
                if requests.emit(running[slot], int(token), free_ns):
                    del running[slot]
                    self._engine.forget(slot, self._depth)
                    free.append(slot)

    def _serve_in_turn(self, requests: "Requests", start_ns: int, deadline: List[int]) -> None:
        """One request at a time, in the order of arrival."""
        numbers = iter(range(len(requests.prompts)))
        free = [0]

        def call() -> None:
            number = next(numbers)
            requests.submit(number, time.perf_counter_ns() - start_ns, free[0])
            self._complete(requests, number, start_ns)
            self._restore()
            free[0] = time.perf_counter_ns() - start_ns

        scenarios.serve(call, scenarios.from_memory(requests.arrivals_ns), start_ns, deadline)

    def _serve_concurrently(self, requests: "Requests", most: int, start_ns: int, deadline: List[int]) -> None:
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
            self._complete(requests, mine.number, start_ns)
            mine.free_ns = time.perf_counter_ns() - start_ns

        threads = min(most, len(requests.prompts))
        scenarios.serve_all([call] * threads, [[]] * threads, take, start_ns, deadline, len(requests.prompts))

    def _complete(self, requests: "Requests", number: int, start_ns: int) -> None:
        def emit(token: int) -> None:
            requests.emit(number, token, time.perf_counter_ns() - start_ns)

        self._engine.complete(requests.prompts[number], requests.new_tokens, emit)
        # One that ends early may tell so by ending.
        requests.finished[number] = 1
        encoded_ns = self._engine.encoded_ns()
        if encoded_ns is not None:
            requests.encoder_ns[number] = encoded_ns - start_ns

    def force_batched(self, prompts: Any, tokens: Any) -> Dict[str, Any]:
        """As `force`, but each sequence one step later than the last.

        So a prompt is computed beside others that decode, at positions of their own, as requests are.
        """
        import numpy

        self._restore()
        rows, positions = tokens.shape
        chosen = numpy.full((rows, positions), _NEVER, numpy.int64)
        for step in range(positions + rows - 1):
            pieces: List[Tuple[int, Any]] = []
            for row in range(rows):
                position = step - row
                if 0 <= position < positions:
                    pieces.append((row, prompts[row] if position == 0 else tokens[row, position - 1 : position]))
            for (row, _), token in zip(pieces, self._engine.advance(pieces)):
                chosen[row, step - row] = token
        for row in range(rows):
            self._engine.forget(row, self._depth)
        return {"token_ids": chosen}

    def force(self, prompts: Any, tokens: Any, candidates: Any) -> Dict[str, Any]:
        """What the engine would choose in place of each of the tokens [sequence, position] that follow prompts.

        And of candidates [sequence, position, rank], where it tells its logits, the logarithms of their
        probabilities.
        """
        import numpy

        self._restore()
        chosen, log_probabilities = [], []
        for number in range(tokens.shape[1]):
            chosen.append(numpy.array(self._next(prompts, tokens, number), numpy.int64))
            logits = self._engine.logits()
            if logits is not None:
                log_probabilities.append(_log_probabilities(logits, candidates[:, number]))
        stacked = {"token_ids": numpy.stack(chosen, axis=1)}
        if log_probabilities:
            stacked["log_probabilities"] = numpy.stack(log_probabilities, axis=1)
        return stacked

    def cache_growth(self) -> Optional[float]:
        """What the process grows with each token of room, as the engine measures it."""
        self._is_clean = False  # it may fill the cache with tokens of its own
        return self._engine.cache_growth()

    def sample(self, prompts: Any, positions: int, seed: int) -> Dict[str, Any]:
        """Draw tokens by their probabilities, and say what is the most likely one in place of each.

        `margins` is how far its logit is above the next, in standard deviations of all; `candidates` are the
        tokens that are most likely, with the logarithms of their probabilities.
        """
        import numpy

        self._restore()
        draw = numpy.random.default_rng(seed)
        drawn, likely, above, candidates, log_probabilities = [], [], [], [], []
        tokens = self._engine.prefill(prompts)
        for number in range(positions):
            logits: Any = self._engine.logits()
            likely.append(numpy.array(tokens))
            above.append(_margins(logits))
            candidates.append(numpy.argsort(-logits, axis=-1, kind="stable")[:, :_CANDIDATES])
            log_probabilities.append(_log_probabilities(logits, candidates[-1]))
            drawn.append(numpy.array([_draw(row, draw) for row in logits], numpy.int64))
            if number + 1 < positions:
                tokens = self._engine.step(drawn[-1])
        stacked = {
            "token_ids": drawn,
            "likely": likely,
            "margins": above,
            "candidates": candidates,
            "log_probabilities": log_probabilities,
        }
        return {name: numpy.stack(values, axis=1) for name, values in stacked.items()}

    def _next(self, prompts: Any, tokens: Any, number: int) -> Any:
        """The engine's choice behind prompts and the first so many tokens; asked for one after the other."""
        import numpy

        if self._whole:
            arrivals = _Arrivals(len(prompts), 1, False)
            given = numpy.concatenate([prompts, tokens[:, :number]], axis=1)
            self._engine.generate(given, 1, arrivals.emit)
            return arrivals.ids[:, 0]
        return self._engine.prefill(prompts) if number == 0 else self._engine.step(tokens[:, number - 1])


class _Arrivals:
    """When each token of each sequence was there; room for all of it is made before."""

    def __init__(self, sequences: int, new_tokens: int, memory: bool) -> None:
        import numpy

        self._new_tokens, self._memory = new_tokens, memory
        #: Of an engine that is called step by step: the moments, and the tokens of all sequences.
        self.steps = array("q", bytes(8 * new_tokens))
        self.chosen: List[Any] = []
        #: Of an engine that tells of each token: both [sequence, position], negative where there is none.
        self.times = numpy.full((sequences, new_tokens), -1, numpy.int64)
        self.ids = numpy.full((sequences, new_tokens), -1, numpy.int64)
        self._emitted = [0] * sequences
        self._beginning = sequences
        #: CPU time and resident memory when every sequence had its first token.
        self.cpu_prefilled = time.process_time_ns()
        self.memory_bytes: Optional[int] = None

    def emit(self, sequence: int, token: int) -> None:
        """A token is there; those beyond what was asked for are not counted."""
        moment = time.perf_counter_ns()
        number = self._emitted[sequence]
        if number >= self._new_tokens or token < 0:
            return
        self.times[sequence, number] = moment
        self.ids[sequence, number] = token
        self._emitted[sequence] = number + 1
        if number == 0:
            self._beginning -= 1
            if self._beginning == 0:
                self.end_prefill()

    def end_prefill(self) -> None:
        """Every sequence has its first token."""
        self.cpu_prefilled = time.process_time_ns()
        if self._memory:
            self.memory_bytes = counters.memory_bytes()["now"]

    def arrays(self, started_ns: int) -> Dict[str, Any]:
        """Moments after the start and ids, both [sequence, position]."""
        import numpy

        if not self.chosen:
            return {"token_ns": self.times - started_ns, "token_ids": self.ids}
        ids = numpy.stack(self.chosen, axis=1).astype(numpy.int64)
        moments = numpy.array(self.steps, numpy.int64) - started_ns
        return {"token_ns": numpy.repeat(moments[None], len(ids), axis=0), "token_ids": ids}


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
        #: When its encoder was done; not where the model has none.
        self.encoder_ns = numpy.full(count, _NEVER, numpy.int64)
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
            "encoder_ns": self.encoder_ns,
            "token_ns": self.token_ns,
            "token_ids": self.token_ids,
            "finished": self.finished,
        }


def split_prompts(joined: Any, lengths: Sequence[int]) -> List[Any]:
    """Prompts of any lengths, of tokens or of sound, out of one array that has them one behind the other."""
    import numpy

    ends = numpy.cumsum(lengths)
    return [joined[end - length : end] for end, length in zip(ends, lengths)]


def memory_bytes(engine: Engine) -> Optional[int]:
    """What is resident of an engine's process; None where it is not ours."""
    return None if "remote" in engine.capabilities else counters.memory_bytes()["now"]


def _draw(logits: Any, draw: Any) -> int:
    import numpy

    weights = numpy.exp(logits.astype(numpy.float64) - logits.max())
    return int(draw.choice(len(weights), p=weights / weights.sum()))


def _log_probabilities(logits: Any, candidates: Any) -> Any:
    """Of candidates [sequence, rank], by the logits [sequence, token]."""
    import numpy

    exact = logits.astype(numpy.float64)
    exact -= exact.max(axis=-1, keepdims=True)
    exact -= numpy.log(numpy.exp(exact).sum(axis=-1, keepdims=True))
    return numpy.take_along_axis(exact, candidates, axis=-1)


def _margins(logits: Any) -> Any:
    import numpy

    two = numpy.partition(logits, -2, axis=-1)[:, -2:]
    return ((two[:, 1] - two[:, 0]) / (logits.std(axis=-1) + 1e-30)).astype(numpy.float64)
