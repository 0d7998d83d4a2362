"""What each layer takes in DeepSparse, as it is or with imposed sparsity: its own analysis of a fresh engine."""

from __future__ import annotations

import re
import statistics
import time
from typing import Any, Callable, Dict, Optional

_WARMUP = 3
_LEAST = 5
_NUMBER = re.compile(r"[_ ]\d+$")
_SPARSE = re.compile(r"-[\d.]+%")


def call_s(call: Callable[[], Any]) -> float:
    """About what an inference takes."""
    call()
    started = time.perf_counter()
    call()
    return max(1e-6, time.perf_counter() - started)


def analysis(settings: Dict[str, Any], seconds: float, call_s: float, imposed: Optional[float]) -> Any:
    """An engine that analyses as many inferences as fill the time: it cannot be stopped early."""
    from deepsparse.engine import DebugAnalysisEngine

    return DebugAnalysisEngine(
        num_iterations=max(_LEAST, int(seconds / call_s) - _WARMUP),
        num_warmup_iterations=_WARMUP,
        imposed_ks=imposed,
        **settings,
    )


def read(found: Dict[str, Any], supported: float) -> Dict[str, Any]:
    """The layers, with their mean times brought to the median inference.

    DeepSparse names a layer's main nodes by their outputs; activations and the like behind them belong to it. What
    it does not support runs in its embedded ONNX Runtime, in layers called naive; of these it also has some that
    only copy the inputs and outputs.
    """
    totals = found["iteration_times"]
    factor = statistics.median(totals) / statistics.mean(totals) if sum(totals) else 1.0
    layers = []
    for one in found["layer_info"]:
        name, covers = one["name"], one["canonical_name"]
        layers.append(
            {
                "name": name,
                "type": _NUMBER.sub("", _SPARSE.sub("", name)),
                "kernel": _NUMBER.sub("", name),
                "covers": [] if covers == "<none>" else [part for part in covers.split(",") if part],
                "fallback": supported < 1.0 and ("Naive" in name or "ORT" in name),
                "ns": 1e6 * one["average_run_time_in_ms"] * factor,
            }
        )
    return {
        "layers": layers,
        "wall_ns": 1e6 * statistics.median(totals),
        "iterations": len(totals),
        "unnamed": "before",
    }
