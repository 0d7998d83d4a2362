"""Fold constants and drop nodes that do nothing, by ONNX Runtime's optimiser at its basic level."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ..engines.base import BadOption  # noqa: TID252


def run(arguments: Dict[str, Any], _: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """Write the cleaned-up `model` to `out`."""
    import onnx_ir
    import onnx_ir.passes.common
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # The levels above it write operators of ONNX Runtime's own, which other engines do not have.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = arguments["out"]
    try:
        onnxruntime.InferenceSession(arguments["model"], options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise BadOption(str(error)) from error
    # ONNX Runtime keeps nodes whose outputs nobody reads.
    cleaned = onnx_ir.load(arguments["out"])
    onnx_ir.passes.common.RemoveUnusedNodesPass()(cleaned)
    onnx_ir.save(cleaned, arguments["out"])
    return {}, []
