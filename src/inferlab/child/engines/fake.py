"""A scripted engine: latencies and failures to order, for tests and demonstrations."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict

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
        given.finish()
        if self._at != "load" and not self._at.isdigit():
            raise BadOption("at={} is not possible; at takes load or the number of a run".format(self._at))
        time.sleep(load_s)
        self._runs = 0
        if self._at == "load":
            self._fail_now()
        return {"latency_us": self._latency_ns / 1000, "threads": options.threads}

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
