"""Models that generate: found by their source and read for their shape, without an engine."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath
from typing import Literal, cast

from inferlab.child.engines import past_present
from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.model.generative_description import (
    Config,
    architecture_of,
    generating_architecture,
    has_torch_weights,
    make_model,
    model_of_decoders,
    number_of,
    read_beside,
    read_config,
    required_number,
)
from inferlab.model.generative_files import (
    GgufFile,
    read_decoders,
    read_gguf,
    read_ir,
    read_safetensors,
    special_tokens,
)
from inferlab.model.reading import locate, weight_files
from inferlab.records import Listener, ignore
from inferlab.records.generation import Encoder, GenerativeModel

# The files by which folders of ONNX Runtime GenAI and of OpenVINO GenAI are known.
_GENAI_CONFIG = "genai_config.json"
_OPENVINO_GRAPH = "openvino_model.xml"
_USUAL_RATE = 16000
# Moonshine's own program takes less than this; more takes memory with the square of its length.
_LONGEST_SAMPLES_S = 64.0
# Whisper has a frame each 10 ms, and half as many positions.
_SECONDS_PER_POSITION = 0.02


def read_generative(name: str, listener: Listener = ignore) -> GenerativeModel:
    """Find a model by its source and read what it is; refuses what does not generate tokens."""
    folder = _folder(name, listener)
    if folder is not None and is_onnxruntime_genai(folder):
        return read_onnxruntime_genai(folder, name)
    if folder is not None and is_openvino_genai(folder):
        return read_openvino_genai(folder, name)
    if folder is not None and past_present.looks_generative(str(folder)):
        return _of_graphs(folder, name)
    if folder is not None and has_torch_weights(folder):
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
    return make_model(
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


def _of_folder(folder: Path, source: str) -> GenerativeModel:
    config = read_config(folder / "config.json")
    architecture = generating_architecture(config, source, "inferlab benchmark")
    text = config.get("text_config") or config
    has_encoder = bool(config.get("is_encoder_decoder"))
    layers, heads, hidden = (required_number(text, what, source) for what in ("layers", "heads", "hidden"))
    kv_heads = number_of(text, "kv_heads") or heads
    head_size = number_of(text, "head_size") or hidden // heads
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
    return make_model(
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
        context=number_of(text, "context") if has_encoder else required_number(text, "context", source),
        vocabulary=required_number(text, "vocabulary", source),
        encoder=encoder,
    )


def _of_graphs(path: Path, source: str) -> GenerativeModel:
    """ONNX graphs that take their cache as inputs; a configuration beside them says what graphs do not."""
    home = path if path.is_dir() else path.parent
    if not path.is_dir() and path.parent.name == "onnx" and not (home / "config.json").is_file():
        home = path.parent.parent
    config = read_config(home / "config.json") if (home / "config.json").is_file() else {}
    graphs = read_decoders(path, source)
    text = config.get("text_config") or config
    vocabulary = graphs.vocabulary or number_of(text, "vocabulary")
    if vocabulary is None:
        raise BadInput(f"{source} cannot be read: neither its output logits nor a config.json has a vocabulary.")
    encoder = None
    if graphs.takes:
        takes = cast(Literal["tokens", "samples", "features"], graphs.takes)
        encoder = _encoder(home, config, takes, graphs.encoder_parameters, source, graphs.bands)
    usual = "encoder–decoder" if encoder else "decoder"
    return model_of_decoders(
        "ort" if graphs.is_ort else "onnx",
        source,
        path,
        graphs,
        [home / "config.json"] if config else [],
        number_of(text, "heads"),
        architecture=architecture_of(config) or f"{usual} with past and present",
        context=number_of(text, "context"),
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
    generation = read_beside(folder, "generation_config.json")
    special = {} if "decoder_start_token_id" in {**config, **generation} else special_tokens(folder)
    start = _token(generation, config, "decoder_start_token_id", "bos_token_id")
    start = special.get("<s>") if start is None else start
    if start is None:
        raise BadInput(
            f"{source} does not say with which token its decoder begins: put a config.json with "
            "decoder_start_token_id beside it."
        )
    end = _token(generation, config, "eos_token_id")
    features = read_beside(folder, "preprocessor_config.json")
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
        layers=number_of(config, "encoder_layers"),
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


def _token(generation: Config, config: Config, *names: str) -> int | None:
    """A token id; the first of several."""
    for name in names:
        for place in (generation, config):
            value = place.get(name)
            value = value[0] if isinstance(value, list) and value else value
            if isinstance(value, int) and value >= 0:
                return value
    return None


def names_genai_folder(name: str) -> bool:
    """Whether a source is a folder of ONNX Runtime GenAI or of OpenVINO GenAI, by its files."""
    try:
        return is_genai(Path(name).expanduser())
    except (OSError, ValueError, RuntimeError):
        return False


def is_genai(path: Path) -> bool:
    """Whether a folder is of ONNX Runtime GenAI or of OpenVINO GenAI, by its files."""
    return is_onnxruntime_genai(path) or is_openvino_genai(path)


def is_onnxruntime_genai(folder: Path) -> bool:
    """Whether a folder has the configuration that ONNX Runtime GenAI loads."""
    return (folder / _GENAI_CONFIG).is_file()


def is_openvino_genai(folder: Path) -> bool:
    """Whether a folder has OpenVINO's graph of a model alone: weights of torch beside it may be of any model."""
    return (folder / _OPENVINO_GRAPH).is_file() and not has_torch_weights(folder)


def read_onnxruntime_genai(folder: Path, source: str) -> GenerativeModel:
    """A graph with its cache as inputs, by the configuration that ONNX Runtime GenAI loads it with."""
    config = read_config(folder / _GENAI_CONFIG)
    model = _section(config, "model", source)
    decoder = _section(model, "decoder", source)
    file = _genai_graph(folder, model, decoder, source)
    context = model.get("context_length")
    vocabulary = number_of(model, "vocabulary")
    if not isinstance(context, int) or context < 1 or vocabulary is None:
        raise BadInput(f"{source} cannot be read: its {_GENAI_CONFIG} has no context_length or no vocab_size.")
    graphs = read_decoders(file, source, number_of(decoder, "head_size"))
    if graphs.takes or graphs.is_ort:
        raise BadInput(f"{source} cannot be read: its {file.name} is not an ONNX graph of a decoder.")
    if graphs.vocabulary not in (None, vocabulary):
        raise BadInput(
            f"{source} cannot be read: its {_GENAI_CONFIG} names a vocabulary of {vocabulary}, "
            f"and {file.name} has {graphs.vocabulary}."
        )
    described = [folder / _GENAI_CONFIG]
    if has_torch_weights(folder):
        described.append(folder / "config.json")
    return model_of_decoders(
        "onnxruntime-genai",
        source,
        folder,
        graphs,
        described,
        number_of(decoder, "heads"),
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


def read_openvino_genai(folder: Path, source: str) -> GenerativeModel:
    """A graph that keeps its cache as states; the configuration says what it does not."""
    graph = folder / _OPENVINO_GRAPH
    if not (folder / "config.json").is_file():
        raise BadInput(
            f"{source} has no config.json, which OpenVINO GenAI folders have. Measure the graph alone with: "
            f"inferlab benchmark {graph}"
        )
    config = read_config(folder / "config.json")
    architecture = generating_architecture(config, source, f"inferlab benchmark {graph}")
    text = config.get("text_config") or config
    ir = read_ir(graph)
    if not ir.states:
        raise BadInput(
            f"{source} cannot generate: its {graph.name} keeps no keys and values. Export it for the task "
            "text-generation-with-past."
        )
    return make_model(
        "openvino-genai",
        source,
        folder,
        [graph, graph.with_suffix(".bin")],
        ir.tensors,
        [folder / "config.json"],
        architecture=architecture,
        layers=required_number(text, "layers", source),
        heads=required_number(text, "heads", source),
        kv_heads=max(heads for heads, _ in ir.states),
        kv_values_per_token=sum(heads * size for heads, size in ir.states),
        context=required_number(text, "context", source),
        vocabulary=required_number(text, "vocabulary", source),
    )
