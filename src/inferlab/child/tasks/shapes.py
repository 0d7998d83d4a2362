"""Run a model once and tell the types and shapes that every node really read and wrote."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

from .. import protocol  # noqa: TID252


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """Nodes by the number in their name; of several rounds of a loop the first counts."""
    import onnxruntime

    wanted = onnxruntime.SessionOptions()
    wanted.log_severity_level = 3
    wanted.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted.enable_profiling = True
    wanted.profile_file_prefix = os.path.join(arguments["folder"], "trace")
    session = onnxruntime.InferenceSession(arguments["model"], wanted, providers=["CPUExecutionProvider"])
    session.run(None, protocol.unpack_arrays(arguments["arrays"], blocks))
    with open(session.end_profiling(), encoding="utf-8") as file:
        return {"nodes": _nodes(json.load(file))}, []


def _nodes(events: List[Dict[str, Any]]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for event in events:
        name, told = event.get("name", ""), event.get("args", {})
        if not name.endswith("_kernel_time") or "output_type_shape" not in told:
            continue
        number = name[1 : -len("_kernel_time")]
        if number.isdigit() and number not in found:
            found[number] = {
                "inputs": _pairs(told.get("input_type_shape", [])),
                "outputs": _pairs(told["output_type_shape"]),
            }
    return found


def _pairs(told: List[Dict[str, List[int]]]) -> List[Any]:
    return [[dtype, dims] for one in told for dtype, dims in one.items()]
