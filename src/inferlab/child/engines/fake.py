"""A scripted engine: latencies and failures to order, for tests and demonstrations."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, Sequence, Set, Tuple

from .base import BadOption, Engine, LoadOptions, Options


class Fake(Engine):
    """Waits instead of computing, and fails when told to."""

    capabilities = frozenset({"native_streams", "shared_streams"})
    kinds = frozenset({"onnx", "openvino", "torch-export", "torchscript"})

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Options: latency_us, spin, load_s, fail (what), at (load, or the number of a run), outputs."""
        given = Options(options.options)
        self._latency_ns = int(given.number("latency_us", 100) * 1000)
        self._spin = given.flag("spin", False)
        self._fail = given.text("fail", "never", ("never", "abort", "exit", "hang", "raise", "memory"))
        self._at = given.text("at", "load")
        self._outputs = given.text("outputs", "none", ("none", "zeros"))
        load_s = given.number("load_s", 0)
        self._take_more(given)
        given.finish()
        if self._at != "load" and not self._at.isdigit():
            raise BadOption("at={} is not possible; at takes load or the number of a run".format(self._at))
        time.sleep(load_s)
        self._runs = 0
        if self._at == "load":
            self._fail_now()
        return {"latency_us": self._latency_ns / 1000, "threads": options.threads}

    def _take_more(self, given: Options) -> None:
        """Options that only some take."""

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """A call that takes its time and computes nothing."""
        fails_at = -1 if self._at == "load" or self._fail == "never" else int(self._at)

        def call() -> None:
            self._runs += 1
            if self._runs == fails_at:
                self._fail_now()
            if not self._spin:
                time.sleep(self._latency_ns / 1e9)
                return
            end = time.perf_counter_ns() + self._latency_ns
            while time.perf_counter_ns() < end:
                pass

        return call

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Nothing, or zeros for the first output: fast but wrong."""
        return None if self._outputs == "none" else [0.0]

    def _fail_now(self) -> None:
        if self._fail == "abort":
            os.write(2, b"fake: assertion failed, as ordered\n")
            os.abort()
        if self._fail == "exit":
            os._exit(7)
        if self._fail == "hang":
            while True:
                time.sleep(60)
        if self._fail == "raise":
            raise RuntimeError("fake: refused, as ordered")
        if self._fail == "memory":
            raise MemoryError("fake: no memory left, as ordered")


class FakeGenerator(Fake):
    """Waits for tokens instead of computing them; each is the one before plus one, of seven."""

    capabilities = frozenset({"generation", "continuous_batching"})
    kinds = frozenset({"gguf"})

    def _take_more(self, given: Options) -> None:
        """Options, each a fault to order.

        prefix_cache: a prompt that was seen before takes no time. eos_after: a sequence ends after so many tokens.
        misread: each so-manieth token is another, as of weights that were misread. copies_first: a batch has the
        tokens of its first sequence only. holds_lock_ms: a thread keeps the interpreter from all others for so
        long, again and again.
        """
        self._prefix_cache = given.flag("prefix_cache", False)
        self._eos_after = int(given.number("eos_after", 0))
        self._misread = int(given.number("misread", 0))
        self._copies_first = given.flag("copies_first", False)
        held_us = int(given.number("holds_lock_ms", 0) * 1000)
        self._seen: Set[bytes] = set()
        self._emitted: Dict[int, int] = {}
        if held_us:
            threading.Thread(target=_hold_lock, args=(held_us,), daemon=True).start()

    def begin(self, context: Any) -> None:
        """There is nothing to fill."""
        self._emitted = {}

    def rewind(self, depth: int) -> bool:
        """There is nothing to forget."""
        self._emitted = {}
        return True

    def forget(self, sequence: int, depth: int) -> None:
        """The next request of this sequence begins again."""
        self._emitted[sequence] = 0

    def prefill(self, prompts: Any) -> Any:
        """Wait for every token of the prompt, unless it was seen before and prefixes are cached."""
        self._wait(self._uncached(prompts))
        return self._next(list(enumerate(prompts[:, -1])))

    def step(self, tokens: Any) -> Any:
        """Wait for one token."""
        self._wait(1)
        return self._next(list(enumerate(tokens)))

    def advance(self, pieces: Sequence[Tuple[int, Any]]) -> Any:
        """Wait for the longest piece."""
        self._wait(max(self._uncached(tokens) if len(tokens) > 1 else 1 for _, tokens in pieces))
        return self._next([(number, tokens[-1]) for number, tokens in pieces])

    def _uncached(self, prompts: Any) -> int:
        """How many tokens of prompts [..., position] have to be computed."""
        known = self._prefix_cache and prompts.tobytes() in self._seen
        self._seen.add(prompts.tobytes())
        return 0 if known else prompts.shape[-1]

    def _wait(self, tokens: int) -> None:
        self._runs += 1
        if self._at == str(self._runs):
            self._fail_now()
        time.sleep(tokens * self._latency_ns / 1e9)

    def _next(self, last: Sequence[Tuple[int, int]]) -> Any:
        import numpy

        tokens = []
        for number, token in last:
            emitted = self._emitted[number] = self._emitted.get(number, 0) + 1
            wrong = self._misread and emitted % self._misread == 0
            chosen = (int(token) + (3 if wrong else 1)) % 7
            tokens.append(-1 if 0 < self._eos_after < emitted else chosen)
        if self._copies_first:
            tokens = [tokens[0]] * len(tokens)
        return numpy.array(tokens, numpy.int64)


def _hold_lock(held_us: int) -> None:
    """Sleep with the interpreter's lock in hand, as a badly written extension does."""
    import ctypes

    holding = ctypes.PyDLL(None)
    while True:
        holding.usleep(held_us)
        time.sleep(0.001)
