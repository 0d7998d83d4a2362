"""What each node takes in ONNX Runtime: its own trace of a session, read and added up."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import statistics
import time
from typing import Any, Callable, Dict, List, Tuple

_WARMUP = 3
_LEAST = 3
# A trace has about a kilobyte for every node of every run, and keeps a million events at most.
_MOST_RUNS = 1000
_SUFFIX = "_kernel_time"
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})
_GRAPH = "optimised.onnx"
_WEIGHTS = "weights.bin"


def look_on(options: Any, folder: str) -> None:
    """Let a session write its trace and its optimised graph into the folder."""
    options.enable_profiling = True
    options.profile_file_prefix = os.path.join(folder, "trace")
    options.optimized_model_filepath = os.path.join(folder, _GRAPH)
    # Only the graph is read again: its weights, which may be gigabytes, go nowhere where that is possible.
    with contextlib.suppress(OSError):
        os.symlink(os.devnull, os.path.join(folder, _WEIGHTS))
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "64")


def run(call: Callable[[], Any], seconds: float) -> Tuple[List[int], int]:
    """Run for a while; gives the time of each call after the warm-up, and how many calls that was."""
    clock = time.perf_counter_ns
    for _ in range(_WARMUP):
        call()
    walls_ns: List[int] = []
    end = clock() + int(seconds * 1e9)
    while len(walls_ns) < _LEAST or (clock() < end and len(walls_ns) < _MOST_RUNS):
        started = clock()
        call()
        walls_ns.append(clock() - started)
    return walls_ns, _WARMUP


def read(trace: str, folder: str, walls_ns: List[int], warmups: int) -> Dict[str, Any]:
    """The layers by the trace; of the runs after the warm-up the middle half by their time is averaged."""
    events, runs = _events(trace)
    begins = sorted(one["ts"] for one in runs)[warmups:]
    if any(one["op"] in _WITH_BODIES for one in events):
        _subtract_bodies(events)
    times: List[Dict[Tuple[str, int], float]] = [{} for _ in begins]
    seen: Dict[Tuple[str, int], Dict[str, Any]] = {}
    for one in events:
        place = bisect.bisect_right(begins, one["ts"]) - 1
        if place < 0:
            continue
        key = (one["name"], one["index"])
        seen.setdefault(key, one)
        # Whole microseconds, what is beyond them cut off: half of one on average.
        times[place][key] = times[place].get(key, 0.0) + one["dur"] + (0.5 if one["dur"] >= 0 else 0.0)
    chosen = _middle(times)
    with open(os.path.join(folder, _GRAPH), "rb") as file:
        graph = file.read()
    layers = []
    for key, one in seen.items():
        ns = 1000.0 * sum(each.get(key, 0.0) for each in chosen) / len(chosen)
        layers.append(
            {"name": key[0], "type": one["op"], "kernel": "", "covers": [], "fallback": False, "ns": max(0.0, ns)}
        )
    return {
        "layers": layers,
        "wall_ns": float(statistics.median(walls_ns)),
        "iterations": len(walls_ns),
        "graph": graph,
    }


def _events(trace: str) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """The executed nodes and the runs, in the order of the file, which has a line for each."""
    nodes, runs = [], []
    with open(trace, encoding="utf-8", errors="replace") as file:
        for line in file:
            if '"Node"' not in line and '"model_run"' not in line:
                continue
            event = json.loads(line.strip().rstrip(",").rstrip("]"))
            if event["name"] == "model_run":
                runs.append(event)
            elif event["cat"] == "Node" and event["name"].endswith(_SUFFIX):
                nodes.append(
                    {
                        "name": event["name"][: -len(_SUFFIX)],
                        "index": int(event["args"].get("node_index", 0)),
                        "op": event["args"].get("op_name", ""),
                        "ts": event["ts"],
                        "dur": event["dur"],
                    }
                )
    return nodes, runs


def _subtract_bodies(events: List[Dict[str, Any]]) -> None:
    """Leave to a branch or loop only what the nodes of its body do not take."""
    around: List[Tuple[int, Dict[str, Any]]] = []
    for one in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        while around and around[-1][0] <= one["ts"]:
            around.pop()
        end = one["ts"] + one["dur"]
        if around:
            around[-1][1]["dur"] -= one["dur"]
        if one["op"] in _WITH_BODIES:
            around.append((end, one))


def _middle(times: List[Dict[Tuple[str, int], float]]) -> List[Dict[Tuple[str, int], float]]:
    """The middle half of the runs: a disturbed one would stretch the layer that it happened to hit."""
    ordered = sorted((one for one in times if one), key=lambda one: sum(one.values()))
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter] or ordered
