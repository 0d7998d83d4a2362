"""Generating tokens with an engine: the timed loop, and what a check needs to know of each position."""

from __future__ import annotations

import gc
import time
from array import array
from typing import Any, Dict, List, Tuple

from . import counters, serving
from .engines.base import Engine


class Generator:
    """A loaded model whose cache holds a context; every generation begins behind it."""

    def __init__(self, engine: Engine, context: Any) -> None:
        self._engine, self._context = engine, context
        self._is_clean = False
        self._restore()

    def _restore(self) -> None:
        """Bring the cache back to the context."""
        depth = self._context.shape[1]
        if self._is_clean and self._engine.rewind(depth):
            return
        self._engine.begin(self._context)
        self._is_clean = True

    def generate(
        self, prompts: Any, new_tokens: int, watch: List[int], memory: bool
    ) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Times and ids of all tokens; with `memory` also what is resident on the way, which takes its time."""
        import numpy

        engine, clock, cpu = self._engine, time.perf_counter_ns, time.process_time_ns
        self._restore()
        times = array("q", bytes(8 * new_tokens))
        chosen: List[Any] = []
        resident: Dict[str, Any] = {}
        gc.collect()
        gc.disable()
        try:
            before = counters.read(watch)
            cpu_started = cpu()
            started = clock()
            tokens = engine.prefill(prompts)
            times[0] = clock()
            cpu_prefilled = cpu()
            chosen.append(tokens)
            if memory:
                resident["prefilled_memory_bytes"] = counters.memory_bytes()["now"]
            for number in range(1, new_tokens):
                tokens = engine.step(tokens)
                times[number] = clock()
                chosen.append(tokens)
            cpu_ended = cpu()
            noise = counters.difference(before, counters.read(watch))
        finally:
            gc.enable()
        if memory:
            resident["decoded_memory_bytes"] = counters.memory_bytes()["now"]
            resident["cache_bytes"] = engine.cache_bytes()
        return (
            {
                "prefill_cpu_ns": cpu_prefilled - cpu_started,
                "decode_cpu_ns": cpu_ended - cpu_prefilled,
                "counters": noise,
                "canary_ns": counters.canary_ns(),
                **resident,
            },
            {
                "token_ns": numpy.array(times, numpy.int64) - started,
                "token_ids": numpy.stack(chosen, axis=1).astype(numpy.int64),
            },
        )

    def serve(self, requests: serving.Requests, sequences: int, seconds: float, deadline: List[int]) -> None:
        """Generate behind prompts that arrive at set moments, so many sequences at once at most."""
        depth = self._context.shape[1]
        serving.serve_requests(self._engine, self._restore, depth, sequences, requests, seconds, deadline)

    def force_batched(self, prompts: Any, tokens: Any) -> Dict[str, Any]:
        """As `force`, but as requests are computed that do not begin together."""
        self._restore()
        depth = self._context.shape[1]
        return {"token_ids": serving.force_batched(self._engine, depth, prompts, tokens)}

    def force(self, prompts: Any, tokens: Any, margins: bool) -> Dict[str, Any]:
        """What the engine would choose in place of each of the tokens [sequence, position] that follow prompts.

        With `margins` also how far the chosen logits are above the next, in standard deviations of all.
        """
        import numpy

        self._restore()
        chosen, above = [], []
        for number in range(tokens.shape[1]):
            step = self._engine.prefill(prompts) if number == 0 else self._engine.step(tokens[:, number - 1])
            chosen.append(numpy.array(step))
            if margins:
                above.append(_margins(self._engine.logits()))
        found = {"token_ids": numpy.stack(chosen, axis=1).astype(numpy.int64)}
        if margins:
            found["margins"] = numpy.stack(above, axis=1)
        return found


def _margins(logits: Any) -> Any:
    import numpy

    two = numpy.partition(logits, -2, axis=-1)[:, -2:]
    return ((two[:, 1] - two[:, 0]) / (logits.std(axis=-1) + 1e-30)).astype(numpy.float64)
