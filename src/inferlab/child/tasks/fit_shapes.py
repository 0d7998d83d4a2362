"""Try shapes on a loaded model until one runs."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Tuple


def run(arguments: Dict[str, Any], _: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """The number of the first candidate that runs, None where none does, and what was said of the first one."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    # Optimising takes longer than trying.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(arguments["model"], settings, providers=["CPUExecutionProvider"])
    deadline = time.monotonic() + arguments["seconds"]
    reason = ""
    for number, shapes in enumerate(arguments["candidates"]):
        inputs = {one["name"]: _values(one, shapes[one["name"]]) for one in arguments["inputs"]}
        try:
            session.run(None, inputs)
        except Exception as error:
            reason = reason or " ".join(str(error).split())[:400]
        else:
            return {"number": number, "reason": reason}, []
        if time.monotonic() > deadline:
            break
    return {"number": None, "reason": reason}, []


def _values(spec: Dict[str, Any], shape: List[int]) -> Any:
    import numpy

    if spec["dtype"] == "string":
        return numpy.full(shape, "inferlab", object)
    if spec["dtype"].startswith("float"):
        return numpy.random.default_rng(0).random(shape, numpy.float32).astype(spec["dtype"])
    return numpy.full(shape, spec["fill"], spec["dtype"])
