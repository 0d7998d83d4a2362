"""Measure a limit of this machine: the quickest run of a model made of products, or how fast memory streams."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from .. import counters
from ..engines import find
from ..engines.base import LoadOptions, times_ns
from ..processes import pin
from ..protocol import Answer


def run(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """`what` is "model", which answers with the shortest run in ns, or "memory", with bytes a second.

    What disturbed it meanwhile stands beside it, as for a window.
    """
    call = _call(arguments) if arguments["what"] == "model" else None
    before, began = counters.read(arguments["cpus"]), time.perf_counter_ns()
    answer: Dict[str, Any] = {}
    if call is not None:
        # A limit is what is reached when nothing disturbs.
        answer["best_ns"] = min(times_ns(call, arguments["seconds"], warmup=0))
    else:
        answer["bytes_per_second"] = _bandwidth(arguments)
    answer["seconds"] = (time.perf_counter_ns() - began) / 1e9
    answer["counters"] = counters.difference(before, counters.read(arguments["cpus"]))
    return answer, []


def _call(arguments: Dict[str, Any]) -> Callable[[], Any]:
    import numpy

    engine = find(arguments["engine"])()
    shape = arguments["shape"]
    threads, cpus = arguments["threads"], arguments["cpus"]
    pinning = "core" if cpus else "none"
    options = LoadOptions("onnx", cpus, threads, threads, pinning=pinning, shapes={"x": shape})
    engine.load(arguments["model"], options)
    values = numpy.random.default_rng(0).random(shape, numpy.float32)
    if arguments["dtype"] != "float32":
        values = (values * 100).astype(arguments["dtype"])
    call: Callable[[], Any] = engine.bind({"x": values})
    return call


def _bandwidth(arguments: Dict[str, Any]) -> float:
    """The faster of copying and of reading, every thread on arrays of its own; a copy reads and writes."""
    import numpy

    threads, cpus = arguments["threads"], arguments["cpus"]
    elements = max(1 << 20, arguments["bytes"] // (8 * threads))
    arrays: List[Any] = [None] * threads
    works: List[Tuple[Callable[[Any, Any], Any], int]] = [
        (lambda source, target: numpy.copyto(target, source), 2),
        (lambda source, target: source.max(), 1),
    ]
    barrier = threading.Barrier(threads + 1)
    rounds = [0]  # which work comes next; -1 ends all

    def stream(number: int) -> None:
        if cpus:
            pin([cpus[number % len(cpus)]])
        # Filled by the thread that reads it, so that it lies in that thread's own memory.
        arrays[number] = (numpy.ones(elements, numpy.float32), numpy.ones(elements, numpy.float32))
        source, target = arrays[number]
        barrier.wait()
        while True:
            barrier.wait()
            if rounds[0] < 0:
                return
            works[rounds[0]][0](source, target)
            barrier.wait()

    def turn() -> None:
        barrier.wait()
        barrier.wait()

    streams = [threading.Thread(target=stream, args=(number,), daemon=True) for number in range(threads)]
    for each in streams:
        each.start()
    barrier.wait()
    best = 0.0
    for index, (_, passes) in enumerate(works):
        rounds[0] = index
        shortest_ns = min(times_ns(turn, arguments["seconds"] / len(works), warmup=0))
        best = max(best, passes * 4 * elements * threads / shortest_ns * 1e9)
    rounds[0] = -1
    barrier.wait()
    return best
