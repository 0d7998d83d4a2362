"""Write a copy of an ONNX model with fewer bits: prepare it, then quantise it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

from .. import protocol, quantizing  # noqa: TID252
from ..engines.base import BadOption  # noqa: TID252

Answer = Tuple[Dict[str, Any], List[Any]]

# Per-channel weights need the axis of DequantizeLinear, which came with this opset; and its IR version.
_OLDEST_OPSET = 13
_OLDEST_IR = 7
# Optimisers that put a product of another name in a product's place.
_RENAMING = ["MatMulAddFusion", "GemmTransposeFusion", "GemmSumFusion", "MatmulBNFusion"]


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """One step; `model` is a file whose nodes have names that tell them apart."""
    step, model, out = arguments["step"], arguments["model"], arguments["out"]
    if step == "prepare":
        source = model if arguments["scheme"] == "weights" else _converted(model, os.path.dirname(out))
        _prepare(source, out, arguments["exclude"])
        return {}, []
    inputs, _ = protocol.unpack_sets(arguments, blocks)
    options = quantizing.Options(
        arguments["per_channel"], arguments["bits"], arguments["reduce_range"], arguments["exclude"]
    )
    left_alone = quantizing.SCHEMES[arguments["scheme"]](model, out, inputs, options)
    _settle(arguments["original"], out)
    return {"left_alone": left_alone}, []


def _converted(model: str, folder: str) -> str:
    """A copy of an opset that can be quantised, or the model itself where its opset can."""
    import onnx

    opset = next(
        (one.version for one in onnx.load(model, load_external_data=False).opset_import if not one.domain), 0
    )
    if not 0 < opset < _OLDEST_OPSET:
        return model
    out = os.path.join(folder, "converted.onnx")
    try:
        onnx.save(onnx.version_converter.convert_version(onnx.load(model), _OLDEST_OPSET), out)
    except Exception as error:
        raise BadOption(
            "the model has opset {}, and its conversion to {}, which INT8 needs, failed: {}".format(
                opset, _OLDEST_OPSET, error
            )
        ) from error
    return out


def _prepare(model: str, out: str, exclude: List[str]) -> None:
    """A copy with constants and batch normalisation folded into the weights, shapes inferred."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = out
    if quantizing.tensor_bytes(model) > quantizing.LARGE_BYTES // 4:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "prepared.data"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    # Products that are to stay as they are must keep the names that they are excluded by.
    disabled = _RENAMING if exclude else []
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    _flatten_biases(out)
    onnx.shape_inference.infer_shapes_path(out, out)


def _flatten_biases(model: str) -> None:
    """Write biases of Gemm as vectors: the quantiser fails on those that are matrices of one row."""
    import onnx

    loaded = onnx.load(model, load_external_data=False)
    graph = loaded.graph
    read = [name for node in graph.node for name in node.input]
    biases = {node.input[2] for node in graph.node if node.op_type == "Gemm" and len(node.input) > 2}
    for tensor in graph.initializer:
        if (
            tensor.name in biases
            and read.count(tensor.name) == 1
            and len(tensor.dims) == 2
            and tensor.dims[0] == 1
        ):
            del tensor.dims[0]
    # Shapes are inferred again.
    del graph.value_info[:]
    with open(model, "wb") as file:
        file.write(loaded.SerializeToString())


def _settle(original: str, out: str) -> None:
    """Bring the copy's head back to what the original's was, and forget domains that no node is of."""
    import onnx

    before = onnx.load(original, load_external_data=False)
    made = onnx.load(out, load_external_data=False)
    made.ir_version = max(before.ir_version, _OLDEST_IR)
    domains = {""} | {node.domain for node in made.graph.node} | {one.domain for one in before.opset_import}
    kept = [one for one in made.opset_import if one.domain in domains]
    for field in ("opset_import", "metadata_props"):
        made.ClearField(field)
    made.opset_import.extend(kept)
    made.metadata_props.extend(before.metadata_props)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(made, field, getattr(before, field))
    made.graph.name = before.graph.name
    with open(out, "wb") as file:
        file.write(made.SerializeToString())
