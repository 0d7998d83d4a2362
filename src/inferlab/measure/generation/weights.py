"""In which precision an engine runs the weights of a model, and whether it needs a copy of its own for that."""

from __future__ import annotations

from inferlab.engines import registry
from inferlab.records import Finding, engine_name
from inferlab.records.generation import GenerationCell, GenerativeModel

#: The engine of the reference, which runs the weights of a GGUF file in 32 bits.
REFERENCE = "torch"
# Engines that run folders of their own format, which their child makes of a Hugging Face folder.
_OWN_FORMATS = frozenset({"openvino-genai", "onnxruntime-genai"})
# Bytes of a parameter, with the scales of its block.
_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.1, "int4": 0.6}
_QUANTIZED = frozenset({"int8", "int4"})
_SAME = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
# Bytes of a number in the cache, where it is not 16 bits.
_CACHE_BYTES = {
    REFERENCE: 4.0,
    "onnxruntime": 4.0,
    "openvino": 4.0,
    "onnxruntime-genai": 4.0,
    "openvino-genai": 1.2,
}


def is_unpacked(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether the weights of a GGUF file are unpacked to 32 bits before the engine gets them."""
    if model.kind != "gguf":
        return False
    engine = engine_name(cell.engine)
    if engine != "openvino-genai":
        return engine in (REFERENCE, "onnxruntime-genai")
    reading = dict(cell.engine_options).get("gguf", "auto")
    # It reads no file that has nothing but 32-bit weights.
    return reading == "converted" or (reading == "auto" and {tensor.type for tensor in model.tensors} == {"F32"})


def is_converted(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether the engine runs a copy of the model in its own format."""
    own = engine_name(cell.engine) in _OWN_FORMATS
    return own and (model.kind == "transformers" or is_unpacked(cell, model))


def weights_in_force(cell: GenerationCell, model: GenerativeModel) -> str | None:
    """The type of the weights that the engine runs; None where it runs them as the file has them."""
    if is_converted(cell, model):
        return dict(cell.engine_options).get("weights", "fp32")
    return "fp32" if is_unpacked(cell, model) else None


def runs_torch_weights(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether torch runs the weights that lie beside ONNX graphs."""
    return engine_name(cell.engine) == REFERENCE and model.torch_weights


def needed_bytes(cell: GenerationCell, model: GenerativeModel) -> float:
    """What weights and cache take in memory at least; of a server's, nothing is taken here."""
    if registry.is_server(cell.engine):
        return 0.0
    weights = weights_in_force(cell, model)
    loaded = float(model.size_bytes) if weights is None else model.parameters * _BYTES.get(weights, 4.0)
    tokens = cell.batch_size * (cell.depth + cell.prompt_tokens + cell.new_tokens)
    return loaded + tokens * model.kv_bytes_per_token(_CACHE_BYTES.get(engine_name(cell.engine), 2.0))


def precision_findings(cell: GenerationCell, model: GenerativeModel) -> list[Finding]:
    """The same model in another precision must not be ranked with the file as it is and nobody told."""
    weights = weights_in_force(cell, model)
    if weights is None or _SAME.get(model.precision) == weights:
        return []
    code = "requantized" if weights in _QUANTIZED else "dequantized"
    return [Finding(code, {"engine": cell.engine, "precision": model.precision, "weights": weights})]
