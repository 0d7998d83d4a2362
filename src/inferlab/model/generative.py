"""Models that generate: found by their source and read for their shape, without an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, Literal, cast

from inferlab.child.engines import past_present
from inferlab.codec import parse_json, read_text
from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.model.confined import confined
from inferlab.model.generative_files import (
    Decoders,
    GgufFile,
    StoredTensor,
    read_decoders,
    read_gguf,
    read_ir,
    read_safetensors,
    special_tokens,
)
from inferlab.model.onnx_file import files_digest
from inferlab.model.reading import locate, weight_files
from inferlab.records import Listener, ignore
from inferlab.records.generation import Encoder, GenerativeModel, TensorGroup

Config = Mapping[str, Any]

# The files by which folders of ONNX Runtime GenAI and of OpenVINO GenAI are known.
_GENAI_CONFIG = "genai_config.json"
_OPENVINO_GRAPH = "openvino_model.xml"
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
_USUAL_RATE = 16000
# Moonshine's own program takes less than this; more takes memory with the square of its length.
_LONGEST_SAMPLES_S = 64.0
# Whisper has a frame each 10 ms, and half as many positions.
_SECONDS_PER_POSITION = 0.02


def read_generative(name: str, listener: Listener = ignore) -> GenerativeModel:
    """Find a model by its source and read what it is; refuses what does not generate tokens."""
    folder = _folder(name, listener)
    if folder is not None and (folder / _GENAI_CONFIG).is_file():
        return _of_onnxruntime_genai(folder, name)
    if folder is not None and _is_openvino_genai(folder):
        return _of_openvino_genai(folder, name)
    if folder is not None and past_present.looks_generative(str(folder)):
        return _of_graphs(folder, name)
    if folder is not None and _has_torch_weights(folder):
        return _of_folder(folder, name)
    located = locate(name, listener)
    if located.kind == "gguf":
        return _of_gguf(located.path, name)
    if located.kind == "transformers":
        return _of_folder(located.path, name)
    if located.kind == "onnx":
        return _of_graphs(located.path, name)
    raise BadInput(
        f"{name} is a model of kind {located.kind}, which inferlab generate does not run; it takes GGUF files, "
        "Hugging Face, ONNX Runtime GenAI and OpenVINO GenAI folders, and ONNX with past and present. "
        "Measure it with: inferlab benchmark"
    )


def names_generative(name: str) -> bool:
    """Whether a source can only mean a model that generates, as its name and files tell; fetches nothing."""
    if name.startswith("demo:"):
        return name.removeprefix("demo:") in reading.GENERATIVE_DEMOS
    if "://" in name:
        return name.partition("?")[0].lower().endswith(".gguf")
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return _is_genai(path) or past_present.looks_generative(str(path))
        if not path.is_file():
            return name.lower().endswith(".gguf")
        with path.open("rb") as file:
            return file.read(4) == b"GGUF" or name.lower().endswith(".gguf")
    except (OSError, ValueError, RuntimeError):
        return False


def _folder(name: str, listener: Listener) -> Path | None:
    """The folder that a source names, if it names one."""
    if name.startswith("demo:"):
        path = reading.build_demo(name.removeprefix("demo:"), listener)
        return path if path.is_dir() else None
    try:
        path = Path(name).expanduser()
        return path if path.is_dir() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _has_torch_weights(folder: Path) -> bool:
    """Whether a folder has safetensors with their configuration."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def names_genai_folder(name: str) -> bool:
    """Whether a source is a folder of ONNX Runtime GenAI or of OpenVINO GenAI, by its files."""
    try:
        return _is_genai(Path(name).expanduser())
    except (OSError, ValueError, RuntimeError):
        return False


def _is_genai(path: Path) -> bool:
    return (path / _GENAI_CONFIG).is_file() or _is_openvino_genai(path)


def _is_openvino_genai(folder: Path) -> bool:
    """Whether a folder has OpenVINO's graph of a model alone: weights of torch beside it may be of any model."""
    return (folder / _OPENVINO_GRAPH).is_file() and not _has_torch_weights(folder)


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
    return _make_model(
        "gguf",
        source,
        path,
        [path],
        file.tensors,
        architecture=architecture,
        layers=layers,
        heads=max(heads),
        kv_heads=max(kv_heads),
        kv_values_per_token=sum(kv_heads) * (key_size + value_size),
        context=number("context_length"),
        vocabulary=number("vocab_size", file.lengths.get("tokenizer.ggml.tokens")),
    )


def _per_layer(file: GgufFile, key: str, layers: int, default: int) -> list[int]:
    """A number that layers may have each of its own."""
    if key in file.lists:
        return [int(value) for value in file.lists[key]]
    return [int(file.numbers.get(key, default))] * layers


def _make_model(
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


def _of_folder(folder: Path, source: str) -> GenerativeModel:
    config = _read_config(folder / "config.json")
    architecture = _generating(config, source, "inferlab benchmark")
    text = config.get("text_config") or config
    has_encoder = bool(config.get("is_encoder_decoder"))
    layers, heads, hidden = (_needed(text, what, source) for what in ("layers", "heads", "hidden"))
    kv_heads = _number(text, "kv_heads") or heads
    head_size = _number(text, "head_size") or hidden // heads
    files = weight_files(folder)
    if any(file.suffix != ".safetensors" for file in files):
        raise BadInput(f"{source} has pickled weights; save it again as safetensors to measure it.")
    tensors = [tensor for file in files for tensor in read_safetensors(file)]
    encoder = None
    if has_encoder:
        of_encoder = [
            tensor.parameters for tensor in tensors if tensor.name.removeprefix("model.").startswith("encoder.")
        ]
        encoder = _encoder(folder, config, _takes(config), sum(of_encoder), source)
    return _make_model(
        "transformers",
        source,
        folder,
        files,
        tensors,
        [folder / "config.json"],
        architecture=architecture,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        kv_values_per_token=layers * kv_heads * head_size * 2,
        # An encoder–decoder may tell distances of tokens only, and then has no limit.
        context=_number(text, "context") if has_encoder else _needed(text, "context", source),
        vocabulary=_needed(text, "vocabulary", source),
        encoder=encoder,
    )


def _of_decoders(
    kind: Literal["onnx", "ort", "onnxruntime-genai"],
    source: str,
    path: Path,
    graphs: Decoders,
    described: Sequence[Path],
    heads: int | None,
    **fields: Any,
) -> GenerativeModel:
    """A model whose graphs say what its cache is; a folder may have its weights for PyTorch beside them."""
    torch_weights = path.is_dir() and _has_torch_weights(path)
    return _make_model(
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


def _of_onnxruntime_genai(folder: Path, source: str) -> GenerativeModel:
    """A graph with its cache as inputs, by the configuration that ONNX Runtime GenAI loads it with."""
    config = _read_config(folder / _GENAI_CONFIG)
    model = _section(config, "model", source)
    decoder = _section(model, "decoder", source)
    file = _genai_graph(folder, model, decoder, source)
    context = model.get("context_length")
    vocabulary = _number(model, "vocabulary")
    if not isinstance(context, int) or context < 1 or vocabulary is None:
        raise BadInput(f"{source} cannot be read: its {_GENAI_CONFIG} has no context_length or no vocab_size.")
    graphs = read_decoders(file, source, _number(decoder, "head_size"))
    if graphs.takes or graphs.is_ort:
        raise BadInput(f"{source} cannot be read: its {file.name} is not an ONNX graph of a decoder.")
    if graphs.vocabulary not in (None, vocabulary):
        raise BadInput(
            f"{source} cannot be read: its {_GENAI_CONFIG} names a vocabulary of {vocabulary}, "
            f"and {file.name} has {graphs.vocabulary}."
        )
    described = [folder / _GENAI_CONFIG]
    if _has_torch_weights(folder):
        described.append(folder / "config.json")
    return _of_decoders(
        "onnxruntime-genai",
        source,
        folder,
        graphs,
        described,
        _number(decoder, "heads"),
        architecture=str(model.get("type") or "decoder"),
        context=context,
        vocabulary=vocabulary,
    )


def _section(config: Config, name: str, source: str) -> Config:
    section = config.get(name)
    if not isinstance(section, dict):
        raise BadInput(f"{source} cannot be read: its {_GENAI_CONFIG} has no section '{name}'.")
    return section


def _genai_graph(folder: Path, model: Config, decoder: Config, source: str) -> Path:
    """The file of the decoder; refuses models of several parts, and what would run code or leave the folder."""
    parts = sorted(name for name, part in model.items() if name != "decoder" and isinstance(part, dict))
    if parts or "pipeline" in decoder:
        raise BadInput(
            f"{source} has more parts than a decoder ({', '.join(parts or ['pipeline'])}), "
            "which inferlab generate does not run from an ONNX Runtime GenAI folder."
        )
    session = decoder.get("session_options") or {}
    if not isinstance(session, dict) or "custom_ops_library" in session:
        raise BadInput(f"{source} asks for operators of its own (custom_ops_library), which is code: not loaded.")
    providers = session.get("provider_options") or []
    names = [name for provider in providers for name in provider] if isinstance(providers, list) else ["?"]
    if any(str(name).lower() != "cpu" for name in names):
        raise BadInput(f"{source} is built for {', '.join(map(str, names))}; inferlab measures on CPUs.")
    name = decoder.get("filename")
    if not isinstance(name, str) or not name or "\0" in name or PureWindowsPath(name).name != name:
        raise BadInput(
            f"{source} cannot be read: its {_GENAI_CONFIG} names the graph {name!r}, "
            "which is no file of the folder."
        )
    if not (folder / name).is_file():
        raise BadInput(f"{source} is incomplete: it has no {name}, which its {_GENAI_CONFIG} names.")
    return folder / name


def _of_openvino_genai(folder: Path, source: str) -> GenerativeModel:
    """A graph that keeps its cache as states; the configuration says what it does not."""
    graph = folder / _OPENVINO_GRAPH
    if not (folder / "config.json").is_file():
        raise BadInput(
            f"{source} has no config.json, which OpenVINO GenAI folders have. Measure the graph alone with: "
            f"inferlab benchmark {graph}"
        )
    config = _read_config(folder / "config.json")
    architecture = _generating(config, source, f"inferlab benchmark {graph}")
    text = config.get("text_config") or config
    ir = read_ir(graph)
    if not ir.states:
        raise BadInput(
            f"{source} cannot generate: its {graph.name} keeps no keys and values. Export it for the task "
            "text-generation-with-past."
        )
    return _make_model(
        "openvino-genai",
        source,
        folder,
        [graph, graph.with_suffix(".bin")],
        ir.tensors,
        [folder / "config.json"],
        architecture=architecture,
        layers=_needed(text, "layers", source),
        heads=_needed(text, "heads", source),
        kv_heads=max(heads for heads, _ in ir.states),
        kv_values_per_token=sum(heads * size for heads, size in ir.states),
        context=_needed(text, "context", source),
        vocabulary=_needed(text, "vocabulary", source),
    )


def _generating(config: Config, source: str, otherwise: str) -> str:
    """The architecture of a configuration; refuses those that do not generate text."""
    architecture = _architecture(config)
    if not architecture.endswith(_TRANSLATES if config.get("is_encoder_decoder") else _GENERATES):
        raise BadInput(f"{source} is a {architecture}, which does not generate text. Measure it with: {otherwise}")
    return architecture


def _of_graphs(path: Path, source: str) -> GenerativeModel:
    """ONNX graphs that take their cache as inputs; a configuration beside them says what graphs do not."""
    home = path if path.is_dir() else path.parent
    if not path.is_dir() and path.parent.name == "onnx" and not (home / "config.json").is_file():
        home = path.parent.parent
    config = _read_config(home / "config.json") if (home / "config.json").is_file() else {}
    graphs = read_decoders(path, source)
    text = config.get("text_config") or config
    vocabulary = graphs.vocabulary or _number(text, "vocabulary")
    if vocabulary is None:
        raise BadInput(f"{source} cannot be read: neither its output logits nor a config.json has a vocabulary.")
    encoder = None
    if graphs.takes:
        takes = cast(Literal["tokens", "samples", "features"], graphs.takes)
        encoder = _encoder(home, config, takes, graphs.encoder_parameters, source, graphs.bands)
    usual = "encoder–decoder" if encoder else "decoder"
    return _of_decoders(
        "ort" if graphs.is_ort else "onnx",
        source,
        path,
        graphs,
        [home / "config.json"] if config else [],
        _number(text, "heads"),
        architecture=_architecture(config) or f"{usual} with past and present",
        context=_number(text, "context"),
        vocabulary=vocabulary,
        encoder=encoder,
    )


def _encoder(
    folder: Path,
    config: Config,
    takes: Literal["tokens", "samples", "features"],
    parameters: int,
    source: str,
    bands: int | None = None,
) -> Encoder:
    """The encoder by its configuration; what no file says of the tokens, a tokenizer may."""
    generation = _beside(folder, "generation_config.json")
    special = {} if "decoder_start_token_id" in {**config, **generation} else special_tokens(folder)
    start = _token(generation, config, "decoder_start_token_id", "bos_token_id")
    start = special.get("<s>") if start is None else start
    if start is None:
        raise BadInput(
            f"{source} does not say with which token its decoder begins: put a config.json with "
            "decoder_start_token_id beside it."
        )
    end = _token(generation, config, "eos_token_id")
    features = _beside(folder, "preprocessor_config.json")
    rate = features.get("sampling_rate")
    longest_s = None
    if takes == "features":
        longest_s = int(config.get("max_source_positions") or 1500) * _SECONDS_PER_POSITION
    elif takes == "samples":
        longest_s = _LONGEST_SAMPLES_S
    return Encoder(
        takes=takes,
        parameters=parameters,
        start_tokens=(start, *(_forced_tokens(generation) if takes == "features" else ())),
        end_token=special.get("</s>") if end is None else end,
        layers=_number(config, "encoder_layers"),
        sampling_rate=None if takes == "tokens" else rate if isinstance(rate, int) and rate > 0 else _USUAL_RATE,
        bands=(bands or int(config.get("num_mel_bins") or 80)) if takes == "features" else None,
        longest_s=longest_s,
    )


def _forced_tokens(generation: Config) -> tuple[int, ...]:
    """What Whisper's decoder is told before its first word: English, to transcribe, no times."""
    try:
        if "lang_to_id" in generation:
            language = generation["lang_to_id"].get("<|en|>")
            tokens = [language, generation["task_to_id"]["transcribe"], generation.get("no_timestamps_token_id")]
        else:
            forced = [token for _, token in generation.get("forced_decoder_ids") or ()]
            tokens = forced or [generation.get("no_timestamps_token_id")]
        return tuple(int(token) for token in tokens if token is not None)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"generation_config.json cannot be read: it is damaged ({error}).") from error


def _takes(config: Config) -> Literal["tokens", "samples", "features"]:
    """What the encoder of a folder takes, by its family."""
    if str(config.get("model_type", "")).startswith("moonshine"):
        return "samples"
    return "features" if "num_mel_bins" in config else "tokens"


def _architecture(config: Config) -> str:
    named = config.get("architectures") or [""]
    return str(named[0] if isinstance(named, list) else "") or str(config.get("model_type", ""))


def _number(config: Config, what: str) -> int | None:
    """A number of a configuration by one of its names."""
    for name in _NAMES[what]:
        if isinstance(config.get(name), int) and config[name] > 0:
            return int(config[name])
    return None


def _needed(config: Config, what: str, source: str) -> int:
    value = _number(config, what)
    if value is None:
        raise BadInput(f"{source} cannot be read: its config.json has no {_NAMES[what][-1]}.")
    return value


def _token(generation: Config, config: Config, *names: str) -> int | None:
    """A token id; the first of several."""
    for name in names:
        for place in (generation, config):
            value = place.get(name)
            value = value[0] if isinstance(value, list) and value else value
            if isinstance(value, int) and value >= 0:
                return value
    return None


def _beside(folder: Path, name: str) -> Config:
    return _read_config(folder / name) if (folder / name).is_file() else {}


@confined(reads=["file"])
def _read_config(file: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise BadInput(f"{file} is not a configuration.")
    return content
