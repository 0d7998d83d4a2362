"""Write an INT8 copy of an ONNX model: static quantisation with QuantizeLinear and DequantizeLinear nodes."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .. import scoring, sets  # noqa: TID252
from ..engines.base import BadOption  # noqa: TID252
from .evaluate import outputs

Answer = Tuple[Dict[str, Any], List[Any]]

# Per-channel weights need the axis of DequantizeLinear, which came with this opset.
_OLDEST_OPSET = 13
_PRODUCTS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
# Protobuf holds no more than 2 GB in one message, and quantising needs room for copies.
_LARGE_BYTES = 1_500_000_000


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """One step: prepare a copy, quantise it, or check what was written."""
    step, model, out = arguments["step"], arguments["model"], arguments["out"]
    if step == "prepare":
        _prepare(model, out)
        return {}, []
    inputs, _ = sets.unpack(arguments, blocks)
    if step == "quantize":
        _quantize(model, out, inputs, arguments["reduce_range"])
    else:
        _check(model, out, inputs)
    return {}, []


def _prepare(model: str, out: str) -> None:
    """A copy of an opset that can be quantised, batch normalisation folded into the weights, shapes inferred."""
    import onnx
    import onnxruntime

    opset = next(
        (one.version for one in onnx.load(model, load_external_data=False).opset_import if not one.domain), 0
    )
    source = model
    if 0 < opset < _OLDEST_OPSET:
        source = os.path.join(os.path.dirname(out), "converted.onnx")
        try:
            onnx.save(onnx.version_converter.convert_version(onnx.load(model), _OLDEST_OPSET), source)
        except Exception as error:
            raise BadOption(
                "the model has opset {}, and its conversion to {}, which INT8 needs, failed: {}".format(
                    opset, _OLDEST_OPSET, error
                )
            ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = out
    if _size(model) > _LARGE_BYTES // 4:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "prepared.data"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    onnx.shape_inference.infer_shapes_path(out, out)


def _quantize(model: str, out: str, inputs: List[Dict[str, Any]], reduce_range: bool) -> None:
    """Quantise all that may gain; where an operator stands in the way, only products of matrices and kernels."""
    import onnx
    from onnxruntime import quantization

    operators = {node.op_type for node in onnx.load(model, load_external_data=False).graph.node}
    if not operators & set(_PRODUCTS):
        raise BadOption("the model has no convolution and no product of matrices, so INT8 would gain nothing")
    # Between convolutions all should stay INT8; elsewhere only the products gain.
    wanted: List[Optional[List[str]]] = [None, _PRODUCTS] if "Conv" in operators else [_PRODUCTS]
    for number, types in enumerate(wanted):
        try:
            quantization.quantize_static(
                model,
                out,
                _Reader(inputs),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=types,
                per_channel=True,
                reduce_range=reduce_range,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                use_external_data_format=_size(model) > _LARGE_BYTES,
                extra_options={"MatMulConstBOnly": True},
            )
            break
        except Exception as error:
            if number == len(wanted) - 1:
                raise BadOption("it cannot be quantised: {}: {}".format(type(error).__name__, error)) from error
    made = onnx.load(out, load_external_data=False).graph.node
    if not any(node.op_type == "DequantizeLinear" for node in made):
        raise BadOption("none of its operators could be quantised")


def _check(model: str, out: str, inputs: List[Dict[str, Any]]) -> None:
    """Load what was written and run it: its outputs must be numbers, and shaped as the original's."""
    try:
        found = outputs(out, inputs[:1])
    except Exception as error:
        raise BadOption("its INT8 copy does not run: {}".format(error)) from error
    dense = outputs(model, inputs[:1])
    if scoring.changes(dense, found, scoring.finite(scoring.powers(dense))) is None:
        raise BadOption("its INT8 copy gives outputs that are not numbers, or of another shape")


def _size(model: str) -> int:
    """The bytes of a model's tensors, wherever they are stored."""
    import onnx

    loaded = onnx.load(model, load_external_data=False)
    return sum(math.prod(one.dims) * 4 for one in loaded.graph.initializer)


class _Reader:
    """Hands the calibration inputs over, one set after the other, as onnxruntime wants them."""

    def __init__(self, inputs: List[Dict[str, Any]]) -> None:
        self._inputs = inputs
        self._left: Iterator[Dict[str, Any]] = iter(inputs)

    def get_next(self) -> Optional[Dict[str, Any]]:
        """The next set, or None at the end."""
        return next(self._left, None)

    def __len__(self) -> int:
        return len(self._inputs)
