"""What each layer takes in OpenVINO: its counters, with the names of the nodes that it fused."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

_WARMUP = 3
_LEAST = 3


def measure(compiled: Any, request: Any, call: Callable[[], Any], seconds: float) -> Dict[str, Any]:
    """Run a fresh model for a while and tell what its layers took, brought to the median inference.

    The counters are means over all inferences: those of the warm-up are taken out, and a mean of disturbed ones is
    no median, which the clean time is.
    """
    clock = time.perf_counter_ns
    for _ in range(_WARMUP):
        call()
    cold = {one.node_name: _mean_ns(one) for one in request.profiling_info}
    walls_ns: List[int] = []
    end = clock() + int(seconds * 1e9)
    while len(walls_ns) < _LEAST or clock() < end:
        started = clock()
        call()
        walls_ns.append(clock() - started)
    count = len(walls_ns)
    middle = float(statistics.median(walls_ns))
    factor = middle / statistics.mean(walls_ns)
    names = {
        op.get_friendly_name(): _text(op.get_rt_info(), "originalLayersNames")
        for op in compiled.get_runtime_model().get_ops()
    }
    layers = []
    for one in request.profiling_info:
        if not str(one.status).endswith("EXECUTED"):
            continue
        ns = (_mean_ns(one) * (count + _WARMUP) - cold.get(one.node_name, 0.0) * _WARMUP) / count
        layers.append(
            {
                "name": one.node_name,
                "type": one.node_type,
                "kernel": one.exec_type,
                "covers": [name for name in names.get(one.node_name, "").split(",") if name],
                "fallback": False,
                "ns": max(0.0, ns) * factor,
            }
        )
    return {"layers": layers, "wall_ns": middle, "iterations": count}


def _mean_ns(counter: Any) -> float:
    """Whole microseconds, what is beyond them cut off: half of one on average."""
    return float(1e9 * counter.real_time.total_seconds() + 500.0)


def _text(info: Any, key: str) -> str:
    try:
        value = info[key]
    except (KeyError, RuntimeError):
        return ""
    return str(value.astype(str) if hasattr(value, "astype") else value)
