"""A model by its source: found or (the built-in ones) made, told of what kind it is, and read for what it is."""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.files import whole_file
from inferlab.model.confined import confined
from inferlab.model.download import fetch
from inferlab.model.hub import fetch_onnx, resolve_stub
from inferlab.model.onnx_file import files_digest, read_onnx
from inferlab.model.shapes import open_inputs, with_fitted_shapes
from inferlab.records import Event, Kind, Listener, Model, engine_name, ignore
from inferlab.settings import cache_folder
from inferlab.worker import OPENVINO, TORCH, Launch, Worker, record_of

_TORCH_ENDINGS = frozenset({".pt", ".pth", ".pt2", ".torchscript", ".ts"})
# Weights that inferlab quantised; transformers, and so an export, does not load them.
_INT8_WEIGHTS = "model.int8.safetensors"
_NOT_FOR_FOLDERS = frozenset({"onnxruntime", "openvino", "mnn", "deepsparse", "executor", "llamacpp"})
# In the file names of the cache, so that a changed model never hides behind its older file.
# 1: the first.
_DEMO_VERSION = 1
_DATA = Path(__file__).parent / "data"
#: Every built-in model, with what it is. Only `digits` is trained.
DEMOS: dict[str, str] = {
    "mlp": "a perceptron of 64, 64 and 10 units: a few µs, mostly the engine's cost of a call",
    "mlp_medium": "a perceptron of 256, 256, 128, 128 and 10 units: about 15 µs on one core",
    "mobilenet_v1": "MobileNetV1 1.0 at 224 × 224: 4.2 million parameters",
    "mobilenet_v2": "MobileNetV2 1.0 at 224 × 224: 3.5 million parameters",
    "resnet50": "ResNet-50 at 224 × 224: 25.5 million parameters",
    "bert_base": "BERT-base, uncased: 12 layers of 768 units, 109 million parameters",
    "bert_3layer": "a BERT of 3 layers of 384 units: 17.4 million parameters",
    "digits": "a small CNN trained on scikit-learn's digits, with its held-back data",
}
#: Those that generate tokens (inferlab generate), in 32 bits: GGUF files, and folders with ONNX and safetensors.
GENERATIVE_DEMOS: dict[str, str] = {
    "llama": "a Llama of 6 layers of 288 units: 15.2 million parameters",
    "llama_tiny": "a Llama of 2 layers of 64 units: 0.1 million parameters",
    "bart": "an encoder–decoder (BART) of 3 and 3 layers of 256 units: 11.3 million parameters",
    "bart_tiny": "a BART of 2 and 2 layers of 64 units: 0.2 million parameters",
}


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model's file (for kind "transformers" its folder) on this machine."""

    kind: Kind
    path: Path


def locate(source: str, listener: Listener = ignore) -> LocatedModel:
    """Find a model by its path, URL, `hf:`, `zoo:` or `demo:` name, fetching or making it where needed."""
    prefix = source.partition(":")[0]
    if "://" in source:
        return _file(fetch(source, listener))
    if prefix == "hf":
        return _file(fetch_onnx(source, listener))
    if prefix == "zoo":
        return _file(resolve_stub(source, listener))
    if prefix == "demo":
        return _file(build_demo(source.removeprefix("demo:"), listener))
    return _path(source)


def _path(source: str) -> LocatedModel:
    if not source.strip():
        raise BadInput("No model was named: give a path, a URL, hf:org/name, zoo:STUB or demo:NAME.")
    try:
        path = Path(source).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        hint = f" Did you mean demo:{source}?" if source in (*DEMOS, *GENERATIVE_DEMOS) else ""
        raise BadInput(f"There is no file or folder {source!r}.{hint}") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{source!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if stat.S_ISDIR(mode):
        return _folder(path)
    if not stat.S_ISREG(mode):
        raise BadInput(f"{path} is neither a file nor a folder.")
    return _file(path)


def _folder(folder: Path) -> LocatedModel:
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise BadInput(f"The folder {folder} cannot be read: {error.strerror or error}.") from error
    onnx = [path for path in files if path.suffix.lower() == ".onnx"]
    preferred = [path for path in onnx if path.name == "model.onnx"]
    if len(preferred or onnx) == 1:
        return _file((preferred or onnx)[0])
    if onnx:
        listed = ", ".join(path.name for path in onnx)
        raise BadInput(f"The folder {folder} has several ONNX files: {listed}. Name one of them.")
    if any(path.name == "config.json" for path in files) and any(map(_is_weights, files)):
        return LocatedModel("transformers", folder)
    if any(path.name == "openvino_model.xml" for path in files):
        raise BadInput(
            f"The folder {folder} has an OpenVINO model: name its file openvino_model.xml. One that generates "
            f"tokens is measured with: inferlab generate {folder}"
        )
    raise BadInput(f"The folder {folder} has no ONNX file, and it is not a Hugging Face model either.")


def _is_weights(path: Path) -> bool:
    return path.suffix == ".safetensors" or re.fullmatch(r"pytorch_model.*\.bin", path.name) is not None


def _file(path: Path) -> LocatedModel:
    """Say of what kind a file is: by its first bytes where they tell, else by its ending."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    ending = path.suffix.lower()
    if not head:
        raise BadInput(f"{path} is empty.")
    if head.startswith(b"GGUF"):
        return LocatedModel("gguf", path)
    if head.startswith(b"PK\x03\x04"):
        return LocatedModel(_kind_of_zip(path), path)
    # Protocols 2 to 5. No ONNX file begins so: its fields have numbers below 16, hence tags below 0x80.
    if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
        raise _pickled(path)
    if ending in _TORCH_ENDINGS:
        raise BadInput(f"{path} is neither a TorchScript file nor a torch.export program, or it is cut off.")
    if ending == ".xml":
        return LocatedModel("openvino", _checked_ir(path, head))
    if ending == ".bin" and path.with_suffix(".xml").is_file():
        raise BadInput(
            f"{path} holds the weights of an OpenVINO model; name {path.with_suffix('.xml').name} instead."
        )
    if ending == ".gguf":
        raise BadInput(f"{path} is not a GGUF file, or it is damaged: it does not begin as one.")
    if ending == ".safetensors":
        raise BadInput(
            f"{path} holds weights without a model. Export its folder with: inferlab export {path.parent}"
        )
    return LocatedModel("onnx", path)


@confined(reads=["path"])
def _kind_of_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch puts everything into one folder, named after the file.
            names = [name.partition("/")[2] or name for name in archive.namelist()]
            names += archive.namelist()
    except (zipfile.BadZipFile, OSError, UnicodeError) as error:
        raise BadInput(f"{path} cannot be read: it is cut off or damaged ({error}).") from error
    # torch 2.7 and newer write models/*.json; before, it was serialized_exported_program.json.
    if any(re.fullmatch(r"models/[^/]+\.json|serialized_exported_program\.json", name) for name in names):
        return "torch-export"
    if any(name.startswith("data/aotinductor/") for name in names):
        raise BadInput(
            f"{path} is compiled by AOTInductor, which inferlab does not run; give the torch.export program."
        )
    if "constants.pkl" in names or any(name.startswith("code/") for name in names):
        return "torchscript"
    if "data.pkl" in names:
        raise _pickled(path)
    raise BadInput(f"{path} is a zip archive, but not one that PyTorch wrote; inferlab does not know its format.")


def _pickled(path: Path) -> BadInput:
    return BadInput(
        f"{path} is a pickled checkpoint, which inferlab does not load; "
        "export it with torch.export.save or inferlab export."
    )


def _checked_ir(path: Path, head: bytes) -> Path:
    if b"<net" not in head:
        raise BadInput(f"{path} is not an OpenVINO model: it has no <net> element.")
    weights = path.with_suffix(".bin")
    if not weights.is_file():
        raise BadInput(f"{path} lacks its weights: there is no {weights.name} beside it.")
    if not os.access(weights, os.R_OK):
        raise BadInput(f"{weights} cannot be read: permission denied.")
    return path


def read_model(name: str, listener: Listener = ignore, engines: Sequence[str] = ()) -> Model:
    """Find a model by its source and read what it is, unless none of the engines could run it."""
    located = locate(name, listener)
    if located.kind == "gguf":
        raise BadInput(f"{name} is a GGUF file, which generates tokens. Measure it with: inferlab generate {name}")
    if located.kind == "transformers" and engines and _NOT_FOR_FOLDERS.issuperset(map(engine_name, engines)):
        if (Path(located.path) / _INT8_WEIGHTS).is_file():
            raise BadInput(
                f"{name} is a Hugging Face folder in INT8, which only the engine torch runs (-e torch). For other "
                "engines export the folder that it was made from, and quantise the ONNX file: inferlab optimize "
                "model.onnx -o int8.onnx --int8 dynamic"
            )
        raise BadInput(
            f"{name} is a Hugging Face folder, which the engine torch runs (-e torch). "
            f"Export it first for other engines: inferlab export {name} -o model.onnx"
        )
    if located.kind == "onnx":
        model = read_onnx(located.path, name)
        return with_fitted_shapes(model) if open_inputs(model.inputs) else model
    return inspect_foreign(located.path, located.kind, name)


def names_generative(name: str) -> bool:
    """Whether a source can only mean a model that generates, as its name and files tell; fetches nothing."""
    if name.startswith("demo:"):
        return name.removeprefix("demo:") in GENERATIVE_DEMOS
    if "://" in name:
        return name.partition("?")[0].lower().endswith(".gguf")
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            from inferlab.child.engines import past_present  # late, both: most sources are no folders
            from inferlab.model.generative import is_genai

            return is_genai(path) or past_present.looks_generative(str(path))
        if not path.is_file():
            return name.lower().endswith(".gguf")
        with path.open("rb") as file:
            return file.read(4) == b"GGUF" or name.lower().endswith(".gguf")
    except (OSError, ValueError, RuntimeError):
        return False


def inspect_foreign(located_path: Path, kind: Kind, source: str) -> Model:
    """The model in an OpenVINO, torch.export or TorchScript file, or in a Hugging Face folder."""
    files = [located_path]
    described: list[Path] = []
    if kind == "openvino":
        weights = located_path.with_suffix(".bin")
        files += [weights] if weights.exists() else []
    if kind == "transformers":
        files, described = weight_files(located_path), [located_path / "config.json"]
    digest = files_digest([*described, *files])
    answer = _inspect_in_child(str(located_path), kind, digest)
    size_bytes = sum(file.stat().st_size for file in files)
    known = {"kind": kind, "source": source, "path": str(located_path), "digest": digest, "size_bytes": size_bytes}
    return record_of(Model, answer, **known)


@functools.lru_cache(maxsize=32)
def _inspect_in_child(path: str, kind: Kind, digest: str) -> Any:
    """What a child says of a model; asked once, for it takes seconds to load one."""
    with Worker(OPENVINO if kind == "openvino" else need_torch()) as worker:
        return worker.ask("inspect", model=path, kind=kind).data["model"]


def weight_files(folder: Path) -> list[Path]:
    """The files of a Hugging Face folder that its weights are loaded from."""
    for name in ("model.int8.safetensors", "model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            files = [folder / name for name in _indexed(index)]
            for file in files:
                if not file.is_file():
                    raise BadInput(f"{folder} lacks {file.name}, which its {index.name} names.")
            return files
    raise BadInput(
        f"{folder} has no weights that transformers loads: neither model.safetensors nor pytorch_model.bin."
    )


@confined(reads=["index"])
def _indexed(index: Path) -> list[str]:
    """The names of the files that an index of weights lists, without their folders."""
    try:
        parts = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        return [Path(part).name for part in parts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{index} cannot be read: it is cut off or damaged ({error}).") from error


def need_torch() -> Launch:
    """How to start a child with torch; a sentence where it is not installed."""
    from importlib.util import find_spec

    # Looks for it without importing it.
    if find_spec("torch") is None:
        raise BadInput(
            "This needs PyTorch, which is not installed. Install it with: pip install 'inferlab[torch]'"
        )
    return TORCH


def build_demo(name: str, listener: Listener = ignore) -> Path:
    """Make a built-in model, unless it is in the cache already, and return its file or folder."""
    if name not in DEMOS and name not in GENERATIVE_DEMOS:
        raise BadInput(
            f"There is no built-in model '{name}'. There are: {', '.join((*DEMOS, *GENERATIVE_DEMOS))}."
        )
    if name == "digits":
        return _DATA / "digits.onnx"
    ending = "" if name.startswith("bart") else ".gguf" if name in GENERATIVE_DEMOS else ".onnx"
    path = cache_folder() / "demo" / f"{name}-v{_DEMO_VERSION}{ending}"
    if path.exists():
        return path
    listener(Event("build", {"model": name}, 0.0))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in GENERATIVE_DEMOS:
            from inferlab.model import demo_generative

            demo_generative.write(name, path)
        else:
            from inferlab.model import demo_networks

            with whole_file(path) as file:
                file.write(demo_networks.make(name).SerializeToString())
    except OSError as error:
        raise BadInput(f"demo:{name} cannot be stored in {path.parent}: {error.strerror or error}.") from error
    listener(Event("build", {"model": name}, 1.0))
    return path


def digits_data() -> Path:
    """The held-back digits, as an .npz with `image` for the model and the true `labels`."""
    return _DATA / "digits.npz"
