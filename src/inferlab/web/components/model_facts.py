"""What a model is, in words for lists, for the new project and for its settings."""

from __future__ import annotations

from pathlib import Path

from inferlab.records import Dim, Model, TensorSpec
from inferlab.records.generation import GenerativeModel
from inferlab.settings import models_folder
from inferlab.units import plural, scaled, share, size

_KINDS = {
    "onnx": "ONNX",
    "openvino": "OpenVINO IR",
    "torch-export": "torch.export program",
    "torchscript": "TorchScript",
    "transformers": "Hugging Face folder",
    "gguf": "GGUF",
    "onnxruntime-genai": "ONNX Runtime GenAI folder",
    "openvino-genai": "OpenVINO GenAI folder",
}
# Chance makes some weights zero.
_FEW = 1e-4


def kind(model: Model) -> str:
    """The format of a model as people call it."""
    return _KINDS[model.kind]


def source(model: Model) -> str:
    """Where a model comes from as the user knows it: an upload by the name of its file."""
    path = Path(model.source)
    return f"{path.name} (uploaded)" if models_folder() in path.parents else model.source


def precision(model: Model) -> str:
    """In which numbers its weights are, and how that shows where they are quantised."""
    return f"{model.precision} ({model.quantization})" if model.quantization else model.precision


def parameters(model: Model) -> str:
    """How many parameters it has."""
    return "unknown" if model.parameters is None else scaled(model.parameters)


def zeros(model: Model) -> str:
    """Which share of its weights is zero."""
    if model.zero_fraction is None:
        return "an unknown share"
    return "less than 0.01 %" if 0 < model.zero_fraction < _FEW else share(model.zero_fraction)


def tensor(spec: TensorSpec) -> str:
    """An input or output: its name, type and shape."""
    dims = "of unknown rank" if spec.dims is None else f"[{', '.join(map(_dim, spec.dims))}]"
    return f"{spec.name}: {spec.dtype} {dims}"


def facts(model: Model, generative: GenerativeModel | None = None) -> list[tuple[str, str]]:
    """What is known of a model that was just analysed, and what of it as one that generates tokens."""
    only_generates = generative is not None and not model.inputs
    pairs = [
        ("Kind", kind(model)),
        *(_generates(generative) if generative is not None else ()),
        ("Inputs", "" if only_generates else "\n".join(map(tensor, model.inputs)) or "none"),
        ("Outputs", "" if only_generates else "\n".join(map(tensor, model.outputs)) or "none"),
        ("Opset", "" if model.opset is None else str(model.opset)),
        ("Parameters", parameters(model)),
        ("Size", size(model.size_bytes)),
        ("Precision", precision(model)),
        ("Zeros", "" if only_generates else f"{zeros(model)} of the weights"),
        ("Random", "the same inputs may give different outputs, which cannot be checked" if model.random else ""),
    ]
    return [(name, value) for name, value in pairs if value]


def _generates(model: GenerativeModel) -> list[tuple[str, str]]:
    """What a model is as one that generates tokens."""
    context = "no limit" if model.context is None else f"{model.context} tokens"
    return [
        (
            "Generates tokens",
            f"{model.architecture}, {plural(model.layers, 'layer')}, "
            f"{plural(model.heads, 'head')}, {plural(model.kv_heads, 'KV head')}",
        ),
        ("Context", f"{context}, vocabulary {model.vocabulary}"),
        ("KV cache", f"{size(model.kv_bytes_per_token())} per token in 16 bits"),
    ]


def origin(model: Model) -> list[tuple[str, str]]:
    """Where a model comes from, and which bytes it has."""
    return [("Source", source(model)), ("Path", model.path), ("Digest", f"sha256:{model.digest}")]


def _dim(dim: Dim) -> str:
    return "?" if dim is None else str(dim)
