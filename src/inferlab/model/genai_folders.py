"""Folders of ONNX Runtime GenAI and of OpenVINO GenAI: found by their files, and what models they hold."""

from __future__ import annotations

from pathlib import Path, PureWindowsPath

from inferlab.errors import BadInput
from inferlab.model.generative_description import (
    Config,
    generating_architecture,
    has_torch_weights,
    make_model,
    model_of_decoders,
    number_of,
    read_config,
    required_number,
)
from inferlab.model.generative_files import read_decoders, read_ir
from inferlab.records.generation import GenerativeModel

# The files by which folders of ONNX Runtime GenAI and of OpenVINO GenAI are known.
_GENAI_CONFIG = "genai_config.json"
_OPENVINO_GRAPH = "openvino_model.xml"


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
