"""ONNX Runtime made slower on purpose: after each call it spins for a share of the call's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from inferlab_child.engines.base import LoadOptions
from inferlab_child.engines.onnxruntime import OnnxRuntime

# Both arms spin as long as it takes to get to the first look at the clock, or short spins would be over before it.
_BASE_NS = 1000


class Slowed(OnnxRuntime):  # type: ignore[misc]
    """Takes one more option, slower=SHARE."""

    def load(self, model: str, options: LoadOptions) -> dict[str, Any]:
        """Load as ONNX Runtime does."""
        given = dict(options.options)
        self._share = float(given.pop("slower"))
        settings: dict[str, Any] = super().load(model, options._replace(options=given))
        return {**settings, "slower": self._share}

    def bind(self, inputs: dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """The call, and then the spin."""
        call = super().bind(inputs, stream)
        share, clock = self._share, time.perf_counter_ns

        def slowed() -> Any:
            started = clock()
            returned = call()
            ended = clock()
            end = ended + _BASE_NS + int((ended - started + _BASE_NS) * share)
            while clock() < end:
                pass
            return returned

        self._inside = {slowed: call, **getattr(self, "_inside", {})}
        return slowed

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """Those of the call inside."""
        return super().outputs(self._inside[call], returned)
