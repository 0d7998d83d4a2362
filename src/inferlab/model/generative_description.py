"""What a model that generates is: by its configuration, in the words of many families, and by its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from inferlab.codec import parse_json, read_text
from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.generative_files import Decoders, StoredTensor
from inferlab.model.onnx_file import files_digest
from inferlab.model.reading import weight_files
from inferlab.records.generation import GenerativeModel, TensorGroup

Config = Mapping[str, Any]

# How families of transformers call the same; of encoder–decoders the decoder's comes first.
_NAMES = {
    "layers": (
        *("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers"),
        *("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    ),
    "heads": (
        *("decoder_attention_heads", "decoder_num_attention_heads"),
        *("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ),
    "kv_heads": ("decoder_num_key_value_heads", "num_key_value_heads"),
    "head_size": ("head_dim", "d_kv", "head_size"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "context": ("max_target_positions", "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "vocabulary": ("vocab_size",),
    "encoder_layers": ("encoder_layers", "encoder_num_hidden_layers", "num_layers"),
}
_GENERATES = ("ForCausalLM", "LMHeadModel")
_TRANSLATES = ("ForConditionalGeneration",)


def make_model(
    kind: Literal["gguf", "transformers", "onnx", "ort", "onnxruntime-genai", "openvino-genai"],
    source: str,
    path: Path,
    files: Sequence[Path],
    tensors: Iterable[StoredTensor],
    described: Sequence[Path] = (),
    **fields: Any,
) -> GenerativeModel:
    """A model with what its files and tensors tell; `described` has the files that say the rest."""
    groups: dict[str, TensorGroup] = {}
    for tensor in tensors:
        before = groups.get(tensor.type, TensorGroup(tensor.type, 0, 0, 0))
        groups[tensor.type] = TensorGroup(
            tensor.type,
            before.tensors + 1,
            before.parameters + tensor.parameters,
            before.size_bytes + tensor.size_bytes,
        )
    if not groups:
        raise BadInput("The model has no tensors.")
    ranked = tuple(sorted(groups.values(), key=lambda group: -group.parameters))
    return GenerativeModel(
        kind=kind,
        source=source,
        path=str(path),
        digest=files_digest([*described, *files]),
        size_bytes=sum(file.stat().st_size for file in files),
        parameters=sum(group.parameters for group in ranked),
        precision=ranked[0].type,
        tensors=ranked,
        **fields,
    )


def model_of_decoders(
    kind: Literal["onnx", "ort", "onnxruntime-genai"],
    source: str,
    path: Path,
    graphs: Decoders,
    described: Sequence[Path],
    heads: int | None,
    **fields: Any,
) -> GenerativeModel:
    """A model whose graphs say what its cache is; a folder may have its weights for PyTorch beside them."""
    torch_weights = path.is_dir() and has_torch_weights(path)
    return make_model(
        kind,
        source,
        path,
        graphs.files,
        graphs.tensors,
        [*described, *(weight_files(path) if torch_weights else [])],
        layers=graphs.layers,
        heads=heads or graphs.heads,
        kv_heads=graphs.kv_heads,
        kv_values_per_token=graphs.kv_values_per_token,
        torch_weights=torch_weights,
        **fields,
    )


def has_torch_weights(folder: Path) -> bool:
    """Whether a folder has safetensors with their configuration."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def generating_architecture(config: Config, source: str, otherwise: str) -> str:
    """The architecture of a configuration; refuses those that do not generate text."""
    architecture = architecture_of(config)
    if not architecture.endswith(_TRANSLATES if config.get("is_encoder_decoder") else _GENERATES):
        raise BadInput(f"{source} is a {architecture}, which does not generate text. Measure it with: {otherwise}")
    return architecture


def architecture_of(config: Config) -> str:
    """The class that a configuration names, or its family; empty where it says neither."""
    named = config.get("architectures") or [""]
    return str(named[0] if isinstance(named, list) else "") or str(config.get("model_type", ""))


def number_of(config: Config, what: str) -> int | None:
    """A number of a configuration by one of its names."""
    for name in _NAMES[what]:
        if isinstance(config.get(name), int) and config[name] > 0:
            return int(config[name])
    return None


def required_number(config: Config, what: str, source: str) -> int:
    """A number that a configuration must have."""
    value = number_of(config, what)
    if value is None:
        raise BadInput(f"{source} cannot be read: its config.json has no {_NAMES[what][-1]}.")
    return value


def read_beside(folder: Path, name: str) -> Config:
    """A configuration of a folder; empty where it has none of this name."""
    return read_config(folder / name) if (folder / name).is_file() else {}


@confined(reads=["file"])
def read_config(file: Path) -> dict[str, Any]:
    """A configuration, which must be a JSON object."""
    try:
        content = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"{file} is not a configuration.")
    return content
