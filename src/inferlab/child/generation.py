"""Generating tokens with an engine: the timed loop, and what a check needs to know of each position."""

from __future__ import annotations

import gc
import time
from array import array
from typing import Any, Dict, List, Optional, Tuple

from . import counters, serving
from .engines.base import Engine


class Generator:
    """A loaded model whose cache holds a context; every generation begins behind it."""

    def __init__(self, engine: Engine, context: Any) -> None:
        self._engine, self._context = engine, context
        self._is_clean = False
        self._whole = "whole_sequences" in engine.capabilities
        self._remote = "remote" in engine.capabilities
        #: Tokens of the context that need not be computed with each prompt.
        self.cached_tokens = int(context.shape[1])
        self._restore()

    def _restore(self) -> None:
        """Bring the cache back to the context."""
        depth = self._context.shape[1]
        if self._is_clean and self._engine.rewind(depth):
            return
        held = self._engine.begin(self._context)
        self.cached_tokens = depth if held is None else held
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

    def serve(self, requests: serving.Requests, sequences: int, seconds: float, deadline: List[int]) -> None:
        """Generate behind prompts that arrive at set moments, so many sequences at once at most."""
        depth = self._context.shape[1]
        serving.serve_requests(self._engine, self._restore, depth, sequences, requests, seconds, deadline)

    def force_batched(self, prompts: Any, tokens: Any) -> Dict[str, Any]:
        """As `force`, but as requests are computed that do not begin together."""
        self._restore()
        depth = self._context.shape[1]
        return {"token_ids": serving.force_batched(self._engine, depth, prompts, tokens)}

    def force(self, prompts: Any, tokens: Any) -> Dict[str, Any]:
        """What the engine would choose in place of each of the tokens [sequence, position] that follow prompts."""
        import numpy

        self._restore()
        chosen = [numpy.array(self._next(prompts, tokens, number)) for number in range(tokens.shape[1])]
        return {"token_ids": numpy.stack(chosen, axis=1).astype(numpy.int64)}

    def cache_growth(self) -> Optional[float]:
        """What the process grows with each token of room, as the engine measures it."""
        self._is_clean = False  # it may fill the cache with tokens of its own
        return self._engine.cache_growth()

    def sample(self, prompts: Any, positions: int, seed: int) -> Dict[str, Any]:
        """Draw tokens by their probabilities, and say what is the most likely one in place of each.

        `margins` is how far its logit is above the next, in standard deviations of all.
        """
        import numpy

        self._restore()
        draw = numpy.random.default_rng(seed)
        drawn, likely, above = [], [], []
        tokens = self._engine.prefill(prompts)
        for number in range(positions):
            logits = self._engine.logits()
            likely.append(numpy.array(tokens))
            above.append(_margins(logits))
            drawn.append(numpy.array([_draw(row, draw) for row in logits], numpy.int64))
            if number + 1 < positions:
                tokens = self._engine.step(drawn[-1])
        stacked = {"token_ids": drawn, "likely": likely, "margins": above}
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


def memory_bytes(engine: Engine) -> Optional[int]:
    """What is resident of an engine's process; None where it is not ours."""
    return None if "remote" in engine.capabilities else counters.memory_bytes()["now"]


def _draw(logits: Any, draw: Any) -> int:
    import numpy

    weights = numpy.exp(logits.astype(numpy.float64) - logits.max())
    return int(draw.choice(len(weights), p=weights / weights.sum()))


def _margins(logits: Any) -> Any:
    import numpy

    two = numpy.partition(logits, -2, axis=-1)[:, -2:]
    return ((two[:, 1] - two[:, 0]) / (logits.std(axis=-1) + 1e-30)).astype(numpy.float64)
