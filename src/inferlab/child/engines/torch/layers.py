"""What each operator of a torch model takes.

A torch.export program runs as Python that is generated from its graph, so the clock is read between its lines:
two per cent on a model of a millisecond, and nothing is left over between the layers. Modules and TorchScript have
no such lines; there torch.profiler tells the times of the operators that they call, and what the calls take
without any profiler, less the operators, is Python's or the interpreter's own time: a layer of its own.
"""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any, Callable, Dict, List, Sequence, Tuple

from ..base import BadOption

Call = Callable[[], Any]
_WARMUP = 3
_LEAST = 3
_TURNS = 16
# The profiler keeps about half a kilobyte of each event until it is stopped.
_MOST_EVENTS = 100_000
_HOST = "between operators"


def program_times(graph: Any, bind: Callable[[Callable[..., Any]], Call], seconds: float) -> Dict[str, Any]:
    """The times of a graph's nodes that compute tensors; `bind` makes a call of what stands in for the graph."""
    import numpy
    import torch

    from .walk import is_layer, node_path, node_type

    stamps: List[int] = []
    keep, clock = stamps.append, time.perf_counter_ns

    def inferlab_stamp() -> None:
        keep(clock())

    with warnings.catch_warnings():
        # torch warns of itself where a graph knows the structure of its arguments.
        warnings.simplefilter("ignore")
        stamped = copy.deepcopy(graph.graph)
    nodes = [node for node in stamped.nodes if is_layer(node)]
    for node in nodes:
        with stamped.inserting_after(node):
            stamped.call_function(inferlab_stamp)
    call = bind(torch.fx.GraphModule(graph, stamped).forward)
    for _ in range(_WARMUP):
        call()
    del stamps[:]
    totals, iterations = numpy.zeros(len(nodes) + 1, numpy.int64), 0

    def added_up() -> Any:
        taken = numpy.diff(numpy.array(stamps).reshape(-1, len(nodes) + 2), axis=1).sum(0)
        del stamps[:]
        return taken

    end = time.perf_counter() + seconds
    while iterations < _LEAST or time.perf_counter() < end:
        inferlab_stamp()
        call()
        inferlab_stamp()
        iterations += 1
        # Seldom: adding up after every call would leave its caches cold.
        if len(stamps) > _MOST_EVENTS:
            totals += added_up()
    totals += added_up()
    layers = [
        _layer(node_path(node) or node.name, node_type(node), str(node.target), [node.name], total / iterations)
        for node, total in zip(nodes, totals.tolist())
    ]
    return {"layers": layers, "wall_ns": int(totals.sum()) / iterations, "iterations": iterations}


def called_times(call: Call, walk: Callable[[], List[Dict[str, Any]]], seconds: float) -> Dict[str, Any]:
    """The times of the operators that a module calls; `walk` tells which they are."""
    import numpy
    import torch

    walked = walk()
    with torch.inference_mode():
        for _ in range(_WARMUP):
            call()
        first = _profiled(call, 1)
        names = [name for name, _ in first.operators]
        most = max(1, _MOST_EVENTS // max(1, first.events))
        block = int(min(most, max(1, seconds * 1e9 / _TURNS / max(1, first.wall_ns))))
        totals, wall_ns, clean_ns, iterations = numpy.zeros(len(names)), 0, 0, 0
        end = time.perf_counter() + seconds
        while iterations < _LEAST or time.perf_counter() < end:
            # In turn with plain calls, so that both see the same machine.
            profile = _profiled(call, block)
            if [name for name, _ in profile.operators] != names * block:
                raise BadOption("its operators vary from call to call, so they cannot be timed one by one")
            totals += numpy.array([ns for _, ns in profile.operators]).reshape(block, -1).sum(0)
            wall_ns += profile.wall_ns
            clean_ns += _timed(call, block)
            iterations += block
    joined = _join(names, walked)
    layers = []
    for name, total, node in zip(names, totals.tolist(), joined):
        kind = name.split("::")[-1].rstrip("_") if node is None else node["type"]
        where = name if node is None else node["name"] or node["id"]
        layers.append(_layer(where, kind, name, [node["id"]] if node else [], total / iterations))
    host_ns = (clean_ns - float(totals.sum())) / iterations
    if host_ns > 0:
        layers.append(_layer(_HOST, "host", "", [], host_ns))
    return {"layers": layers, "wall_ns": wall_ns / iterations, "iterations": iterations}


class _Profiled:
    """What the profiler saw of some calls."""

    def __init__(self, operators: List[Tuple[str, int]], events: int, wall_ns: int) -> None:
        self.operators, self.events, self.wall_ns = operators, events, wall_ns


def _profiled(call: Call, count: int) -> _Profiled:
    """The operators that are called by no other one, with their times, over some calls."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        wall_ns = _timed(call, count)
    events = [event for event in profile.profiler.kineto_results.events() if "::" in event.name()]
    operators: List[Tuple[str, int]] = []
    end = 0
    # Threads of an operator's own run within it.
    for operation in sorted(events, key=lambda event: (event.start_ns(), -event.duration_ns())):
        if operation.start_ns() >= end:
            operators.append((operation.name(), operation.duration_ns()))
            end = operation.start_ns() + operation.duration_ns()
    return _Profiled(operators, len(events), wall_ns)


def _timed(call: Call, count: int) -> int:
    started = time.perf_counter_ns()
    for _ in range(count):
        call()
    return time.perf_counter_ns() - started


def _join(names: Sequence[str], walked: List[Dict[str, Any]]) -> List[Any]:
    """For each operator that was timed the one that was recorded, None where there is none."""
    import difflib

    recorded = [node["kernel"].replace(".", "::", 1).split(".")[0] for node in walked]
    if recorded == list(names):
        return list(walked)
    joined: List[Any] = [None] * len(names)
    # What an optimised module runs in a form of its own is not seen while it is recorded.
    for block in difflib.SequenceMatcher(None, names, recorded, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            joined[block.a + offset] = walked[block.b + offset]
    return joined


def _layer(name: str, kind: str, kernel: str, covers: List[str], ns: float) -> Dict[str, Any]:
    return {"name": name, "type": kind, "kernel": kernel, "covers": covers, "fallback": False, "ns": ns}
