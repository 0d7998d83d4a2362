"""Write a copy of an ONNX model with fewer bits, by ONNX Runtime's quantisers, and say what stays as it is."""

from __future__ import annotations

import math
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set

from .. import protocol
from ..engines.base import BadOption
from ..engines.onnxruntime import external_weights, session_options
from ..protocol import Answer

PRODUCTS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
# Protobuf holds no more than 2 GB in one message, and quantising needs room for copies.
LARGE_BYTES = 1_500_000_000
# So many neighbours among what an output is a sum over share a scale; ONNX Runtime and OpenVINO both run it.
_BLOCK = 32
_FLOATS = (1, 10, 11, 16)
_HALF_MOST = 65504.0
# What they compute goes by their constants. Elsewhere a constant beyond FP16 only stands for "never", as masks of
# attention do, and cut off it still does; in FP32 it would become infinite afterwards.
_MEASURED = {*PRODUCTS, "BatchNormalization", "InstanceNormalization", "LayerNormalization", "Div"}
# What ONNX Runtime's quantisers put between a Gemm's name and that of the MatMul that takes its place.
_MATMUL = "_MatMul"
_EXCLUDED = "it was excluded"
_NO_CONSTANT = "it multiplies activations: no factor is a constant"

Sets = List[Dict[str, Any]]
Reasons = Dict[str, str]


class Options(NamedTuple):
    """What a scheme may be told."""

    per_channel: bool
    bits: int
    #: 7 bits for weights: without VNNI, sums of products of 8 bits may overflow.
    reduce_range: bool
    #: Names of nodes that stay as they are.
    exclude: List[str]


def static(model: str, out: str, inputs: Sets, options: Options) -> Reasons:
    """QuantizeLinear and DequantizeLinear around all that may gain, ranges of activations as on the inputs."""
    from onnxruntime import quantization
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    nodes = _load(model).graph.node
    operators = _with_products(nodes)
    # Between convolutions all should stay INT8; elsewhere only the products gain. Where an operator stands in the
    # way, only the products are quantised too.
    between = "Conv" in operators
    attempts: List[Optional[List[str]]] = [None, PRODUCTS] if between else [PRODUCTS]
    # What follows a product computes in floats there: a range for its outputs would only cost accuracy.
    extra = {"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": [] if between else PRODUCTS}
    for number, types in enumerate(attempts):
        try:
            quantization.quantize_static(
                model,
                out,
                _Reader(inputs),
                quant_format=quantization.QuantFormat.QDQ,
                op_types_to_quantize=types,
                per_channel=options.per_channel,
                reduce_range=options.reduce_range,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                nodes_to_exclude=options.exclude,
                use_external_data_format=tensor_bytes(model) > LARGE_BYTES,
                extra_options=extra,
            )
            break
        except Exception as error:
            if number == len(attempts) - 1:
                raise _cannot(error) from error
    quantized_nodes = _load(out).graph.node
    done = _between_integers(quantized_nodes)
    _refuse_nothing(done)
    # An activation that the range of a product's outputs already cuts off is gone.
    done |= {node.name for node in nodes} - {node.name for node in quantized_nodes}
    why = "ONNX Runtime's quantiser leaves it in floats" if types is None else "only products gain from INT8 here"
    taken = {*QDQRegistry, *QLinearOpsRegistry} if types is None else set(PRODUCTS)
    return {**_untouched_products(model, done, options.exclude), **_untouched_operators(model, done, taken, why)}


def dynamic(model: str, out: str, _: Sets, options: Options) -> Reasons:
    """Weights in INT8, ranges of activations found while the model runs."""
    from onnxruntime import quantization

    _with_products(_load(model).graph.node)
    _keep_tied(model)
    try:
        quantization.quantize_dynamic(
            model,
            out,
            per_channel=options.per_channel,
            reduce_range=options.reduce_range,
            weight_type=quantization.QuantType.QInt8,
            nodes_to_exclude=_with_matmuls(options.exclude),
            use_external_data_format=tensor_bytes(model) > LARGE_BYTES,
            extra_options={"MatMulConstBOnly": True},
        )
    except Exception as error:
        raise _cannot(error) from error
    done = _replaced(model, out)
    _refuse_nothing(done)
    return _untouched_products(model, done, options.exclude)


def weights(model: str, out: str, _: Sets, options: Options) -> Reasons:
    """Weights of products of matrices in 8 or 4 bits, in blocks with a scale each; computing stays in floats."""
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel

    try:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    except ImportError as error:
        raise BadOption(
            "storing weights in fewer bits needs a package that is missing: {}".format(error)
        ) from error

    _with_products(_load(model).graph.node)
    _keep_tied(model)
    whole = ONNXModel(onnx.load(model))
    whole.replace_gemm_with_matmul()
    quantizer = MatMulNBitsQuantizer(
        whole.model,
        bits=options.bits,
        block_size=_BLOCK,
        is_symmetric=True,
        nodes_to_exclude=_with_matmuls(options.exclude),
        op_types_to_quantize=("MatMul",),
    )
    try:
        quantizer.process()
    except Exception as error:
        raise _cannot(error) from error
    quantizer.model.save_model_to_file(out, tensor_bytes(model) > LARGE_BYTES)
    done = _replaced(model, out)
    why = "only weights of products of matrices can be stored in fewer bits"
    if not done:
        raise BadOption("{}, and it has none that could be, or all were excluded".format(why))
    return _untouched_products(model, done, options.exclude, why)


def half(model: str, out: str, _: Sets, options: Options) -> Reasons:
    """All that may be in half precision; what goes in and comes out stays as it was."""
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel
    from onnxruntime.transformers import float16

    beyond = _beyond_half(model)
    excluded = [*options.exclude, *beyond]
    try:
        converted = float16.convert_float_to_float16(model, keep_io_types=True, node_block_list=excluded)
    except Exception as error:
        raise _cannot(error) from error
    whole = ONNXModel(converted)
    whole.topological_sort()
    large = tensor_bytes(model) // 2 > LARGE_BYTES
    onnx.save(whole.model, out, save_as_external_data=large, location=os.path.basename(out) + ".data")
    nodes = _load(model).graph.node
    reasons = dict.fromkeys(beyond, "FP16 cannot hold its constants")
    reasons.update({node.name: _EXCLUDED for node in nodes if node.name in options.exclude})
    blocked = sorted({node.op_type for node in nodes} & set(float16.DEFAULT_OP_BLOCK_LIST))
    return {**reasons, **dict.fromkeys(blocked, "engines do not run it in FP16")}


SCHEMES: Dict[str, Callable[[str, str, Sets, Options], Reasons]] = {
    "static": static,
    "dynamic": dynamic,
    "weights": weights,
    "fp16": half,
}


def tensor_bytes(model: str) -> int:
    """The bytes of a model's tensors as floats, wherever they are stored."""
    return sum(math.prod(tensor.dims) * 4 for tensor in _load(model).graph.initializer)


def _load(model: str) -> Any:
    import onnx

    return onnx.load(model, load_external_data=False)


def _beyond_half(model: str) -> List[str]:
    """The nodes that FP16 would give other constants: the converter cuts off at the largest number.

    Constants of theirs that are nodes become initializers: only such stay in FP32 for those that read them.
    """
    import numpy
    import onnx

    def beyond(tensor: Any) -> bool:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            return False
        values = numpy.abs(onnx.numpy_helper.to_array(tensor, os.path.dirname(model)))
        return bool(((values > _HALF_MOST) & numpy.isfinite(values)).any())

    loaded = _load(model)
    graph = loaded.graph
    large = {tensor.name for tensor in graph.initializer if beyond(tensor)}
    constants = [
        node
        for node in graph.node
        if node.op_type == "Constant" and node.attribute[0].name == "value" and beyond(node.attribute[0].t)
    ]
    large.update(node.output[0] for node in constants)
    nodes = [node for node in graph.node if node.op_type in _MEASURED and large & set(node.input)]
    read = {name for node in nodes for name in node.input}
    lifted = [node for node in constants if node.output[0] in read]
    for node in lifted:
        graph.initializer.add().CopyFrom(node.attribute[0].t)
        graph.initializer[-1].name = node.output[0]
        graph.node.remove(node)
    if lifted:
        onnx.save(loaded, model)
    return [node.name for node in nodes]


def _with_products(nodes: Iterable[Any]) -> Set[str]:
    """The operators, some of which are products."""
    operators = {node.op_type for node in nodes}
    if not operators & set(PRODUCTS):
        raise BadOption(
            "the model has no convolution and no product of matrices, so fewer bits would gain nothing"
        )
    return operators


def _refuse_nothing(done: Set[str]) -> None:
    if not done:
        raise BadOption("none of its operators could be quantised, or all were excluded")


def _cannot(error: Exception) -> BadOption:
    return BadOption("it cannot be quantised: {}: {}".format(type(error).__name__, error))


def _with_matmuls(names: List[str]) -> List[str]:
    return [*names, *(name + _MATMUL for name in names)]


def _keep_tied(model: str) -> None:
    """Hide weights that a Gemm shares with others from the quantisers: they would turn them for all of them."""
    import onnx

    loaded = _load(model)
    graph = loaded.graph
    readers: Dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    fixed = {tensor.name for tensor in graph.initializer}
    tied = [
        node
        for node in graph.node
        if node.op_type == "Gemm" and node.input[1] in fixed and readers[node.input[1]] > 1
    ]
    if not tied:
        return
    for number, node in enumerate(tied):
        alias = "{}_tied_{}".format(node.input[1], number)
        graph.node.insert(0, onnx.helper.make_node("Identity", [node.input[1]], [alias], name=alias))
        node.input[1] = alias
    onnx.save(loaded, model)


def _between_integers(nodes: Iterable[Any]) -> Set[str]:
    """The nodes whose inputs are dequantised for them, and activations that engines fuse with such a node."""
    dequantized = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    quantized = {node.input[0] for node in nodes if node.op_type == "QuantizeLinear"}
    names = set()
    for node in nodes:
        if node.op_type in PRODUCTS:
            done = dequantized >= set(node.input[:2])
        else:
            fused = node.op_type in ("Relu", "Clip") and bool(quantized & set(node.output))
            done = fused or bool(dequantized & set(node.input))
        if done:
            names.add(node.name)
    return names


def _replaced(model: str, out: str) -> Set[str]:
    """The nodes of a model for which others stand in its copy."""
    left = {node.name for node in _load(out).graph.node if node.op_type in PRODUCTS}
    return {
        node.name
        for node in _load(model).graph.node
        if node.op_type in PRODUCTS and not {node.name, node.name + _MATMUL} & left
    }


def _untouched_products(
    model: str, done: Set[str], exclude: List[str], why: str = "ONNX Runtime's quantiser does not take it as it is"
) -> Reasons:
    """The convolutions and products of matrices that are as they were, by name, and why."""
    graph = _load(model).graph
    fixed = {tensor.name for tensor in graph.initializer}
    fixed |= {name for node in graph.node if node.op_type in ("Constant", "Identity") for name in node.output}
    reasons: Reasons = {}
    for node in graph.node:
        if node.op_type in PRODUCTS and node.name not in done:
            constant = bool(fixed & set(node.input[:2]))
            reasons[node.name] = _EXCLUDED if node.name in exclude else why if constant else _NO_CONSTANT
    return reasons


def _untouched_operators(model: str, done: Set[str], taken: Set[str], why: str) -> Reasons:
    """The other operators that compute floats of which no node was quantised; `taken` are those that can be."""
    graph = _load(model).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
    touched = {node.op_type for node in graph.node if node.name in done} & taken
    untouched = {
        node.op_type
        for node in graph.node
        if node.op_type not in PRODUCTS
        and node.op_type not in ("Constant", "Cast", "Identity")
        and any(kinds.get(name) in _FLOATS for name in node.output)
    }
    return dict.fromkeys(sorted(untouched - touched), why)


class _Reader:
    """Hands the calibration inputs over, one set after the other, as onnxruntime wants them."""

    def __init__(self, inputs: Sets) -> None:
        self._inputs = inputs
        self._left: Iterator[Dict[str, Any]] = iter(inputs)

    def get_next(self) -> Optional[Dict[str, Any]]:
        """The next set, or None at the end."""
        return next(self._left, None)

    def __len__(self) -> int:
        return len(self._inputs)


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
    options = Options(arguments["per_channel"], arguments["bits"], arguments["reduce_range"], arguments["exclude"])
    left_alone = SCHEMES[arguments["scheme"]](model, out, inputs, options)
    _settle(arguments["original"], out)
    return {"left_alone": left_alone}, []


def _converted(model: str, folder: str) -> str:
    """A copy of an opset that can be quantised, or the model itself where its opset can."""
    import onnx

    opset = next((entry.version for entry in _load(model).opset_import if not entry.domain), 0)
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

    large = tensor_bytes(model) > LARGE_BYTES // 4
    entries = external_weights("prepared.data", 1024) if large else {}
    options = session_options(0, "basic", entries, optimized_model_filepath=out)
    # Products that are to stay as they are must keep the names that they are excluded by.
    disabled = _RENAMING if exclude else []
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    _flatten_biases(out)
    onnx.shape_inference.infer_shapes_path(out, out)


def _flatten_biases(model: str) -> None:
    """Write biases of Gemm as vectors: the quantiser fails on those that are matrices of one row."""
    import onnx

    loaded = _load(model)
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
    onnx.save(loaded, model)


def _settle(original: str, out: str) -> None:
    """Bring the copy's head back to what the original's was, and forget domains that no node is of."""
    import onnx

    before, copy = _load(original), _load(out)
    copy.ir_version = max(before.ir_version, _OLDEST_IR)
    domains = {"", *(node.domain for node in copy.graph.node), *(entry.domain for entry in before.opset_import)}
    imports = [entry for entry in copy.opset_import if entry.domain in domains]
    for field in ("opset_import", "metadata_props"):
        copy.ClearField(field)
    copy.opset_import.extend(imports)
    copy.metadata_props.extend(before.metadata_props)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(copy, field, getattr(before, field))
    copy.graph.name = before.graph.name
    onnx.save(copy, out)
