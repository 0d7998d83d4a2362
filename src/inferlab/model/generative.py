"""Models that generate: found by their source and read for their shape, without an engine."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inferlab.codec import parse_json, read_text
from inferlab.errors import BadInput
from inferlab.model.confined import confined
from inferlab.model.gguf import GgufFile, read_gguf
from inferlab.model.onnx_file import files_digest
from inferlab.model.reading import locate, weight_files
from inferlab.records import Listener, ignore
from inferlab.records.generation import GenerativeModel, TensorGroup

_LONGEST_HEADER = 100 << 20
# How families of transformers call the same.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
    "vocabulary": ("vocab_size",),
}
_GENERATES = ("ForCausalLM", "LMHeadModel")


def read_generative(name: str, listener: Listener = ignore) -> GenerativeModel:
    """Find a model by its source and read what it is; refuses what does not generate tokens."""
    located = locate(name, listener)
    if located.kind == "gguf":
        return _of_gguf(located.path, name)
    if located.kind == "transformers":
        return _of_folder(located.path, name)
    raise BadInput(
        f"{name} is a model of kind {located.kind}, which inferlab generate does not run; it takes GGUF files and "
        "Hugging Face folders. Measure it with: inferlab benchmark"
    )


def _of_gguf(path: Path, source: str) -> GenerativeModel:
    file = read_gguf(path)
    architecture = file.texts.get("general.architecture", "")
    if not architecture:
        raise BadInput(f"{source} is a GGUF file that names no architecture, so it cannot be loaded.")

    def number(key: str, default: int | None = None) -> int:
        value = file.numbers.get(f"{architecture}.{key}", default)
        if value is None:
            raise BadInput(
                f"{source} is a GGUF file of the architecture '{architecture}', which is no language model that "
                f"inferlab knows: it has no {architecture}.{key}."
            )
        return int(value)

    layers, hidden = number("block_count"), number("embedding_length")
    heads = _per_layer(file, f"{architecture}.attention.head_count", layers, 0)
    if not max(heads, default=0):
        number("attention.head_count")
        raise BadInput(f"{source} has no attention heads, so it cannot be a language model that inferlab knows.")
    kv_heads = _per_layer(file, f"{architecture}.attention.head_count_kv", layers, max(heads))
    usual = hidden // max(heads)
    key_size, value_size = number("attention.key_length", usual), number("attention.value_length", usual)
    groups = _groups((one.type, one.parameters, one.size_bytes) for one in file.tensors)
    return GenerativeModel(
        kind="gguf",
        source=source,
        path=str(path),
        digest=files_digest([path]),
        size_bytes=path.stat().st_size,
        architecture=architecture,
        parameters=sum(group.parameters for group in groups),
        layers=layers,
        heads=max(heads),
        kv_heads=max(kv_heads),
        kv_values_per_token=sum(kv_heads) * (key_size + value_size),
        context=number("context_length"),
        vocabulary=number("vocab_size", file.lengths.get("tokenizer.ggml.tokens")),
        precision=_main_type(groups),
        tensors=groups,
    )


def _per_layer(file: GgufFile, key: str, layers: int, default: int) -> list[int]:
    """A number that layers may have each of its own."""
    if key in file.lists:
        return [int(value) for value in file.lists[key]]
    return [int(file.numbers.get(key, default))] * layers


def _groups(tensors: Iterable[tuple[str, int, int]]) -> tuple[TensorGroup, ...]:
    """Tensors by type, those with most parameters first."""
    found: dict[str, TensorGroup] = {}
    for kind, parameters, size_bytes in tensors:
        before = found.get(kind, TensorGroup(kind, 0, 0, 0))
        found[kind] = TensorGroup(
            kind, before.tensors + 1, before.parameters + parameters, before.size_bytes + size_bytes
        )
    return tuple(sorted(found.values(), key=lambda group: -group.parameters))


def _main_type(groups: tuple[TensorGroup, ...]) -> str:
    if not groups:
        raise BadInput("The model has no tensors.")
    return groups[0].type


def _of_folder(folder: Path, source: str) -> GenerativeModel:
    config = _read_config(folder)
    architecture = next(iter(config.get("architectures") or [""]), "") or str(config.get("model_type", ""))
    text = config.get("text_config") or config
    if config.get("is_encoder_decoder"):
        raise BadInput(
            f"{source} is an encoder–decoder ({architecture}); inferlab generate measures decoder-only models."
        )
    if not architecture.endswith(_GENERATES):
        raise BadInput(
            f"{source} is a {architecture}, which does not generate text. Measure it with: inferlab benchmark"
        )

    def number(what: str) -> int:
        for name in _NAMES[what]:
            if isinstance(text.get(name), int) and text[name] > 0:
                return int(text[name])
        raise BadInput(f"{source} cannot be read: its config.json has no {_NAMES[what][0]}.")

    layers, heads, hidden = number("layers"), number("heads"), number("hidden")
    kv_heads = text.get("num_key_value_heads") or heads
    head_size = text.get("head_dim") or hidden // heads
    if not isinstance(kv_heads, int) or not isinstance(head_size, int):
        raise BadInput(f"{source} cannot be read: its config.json has no numbers of heads.")
    files = weight_files(folder)
    if any(file.suffix != ".safetensors" for file in files):
        raise BadInput(f"{source} has pickled weights; save it again as safetensors to measure it.")
    groups = _groups(tensor for file in files for tensor in _read_safetensors(file))
    return GenerativeModel(
        kind="transformers",
        source=source,
        path=str(folder),
        digest=files_digest([folder / "config.json", *files]),
        size_bytes=sum(file.stat().st_size for file in files),
        architecture=architecture,
        parameters=sum(group.parameters for group in groups),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        kv_values_per_token=layers * kv_heads * head_size * 2,
        context=number("context"),
        vocabulary=number("vocabulary"),
        precision=_main_type(groups),
        tensors=groups,
    )


@confined(reads=["folder"])
def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        content = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"{file} is not a configuration.")
    return content


@confined(reads=["path"])
def _read_safetensors(path: Path) -> list[tuple[str, int, int]]:
    """The type, the parameters and the bytes of every tensor; each lies within the file."""
    whole = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(_LONGEST_HEADER, whole):
                raise ValueError("its header is longer than the file")
            header: Mapping[str, Any] = json.loads(file.read(length))
        found = []
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            parameters = 1
            for dim in tensor["shape"]:
                parameters *= int(dim)
            begin, end = tensor["data_offsets"]
            if 8 + length + end > whole:
                raise ValueError("a tensor lies beyond its end")
            found.append((str(tensor["dtype"]), parameters, int(end - begin)))
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: it is cut off or damaged ({error}).") from error
    return found
