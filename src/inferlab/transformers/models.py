"""From what the user names to models on this machine: folders, files, ids, configurations, modules, INT8."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Kind, Listener

# As the Hub has them: NAME or ORG/NAME.
_ID = re.compile(r"(hf:)?[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILES = (".onnx", ".pt", ".pt2", ".pth", ".ts", ".torchscript", ".xml", ".bin", ".safetensors")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_TEXT = ("input_ids", "attention_mask", "token_type_ids")
# Sizes to trace a module with; both stay free.
_TRACED = (2, 16)


@dataclass(frozen=True, slots=True)
class Source:
    """One model: its name in the results and where it is, or why it cannot be had."""

    name: str
    path: str = ""
    kind: Kind | None = None
    #: What to train, where it is another file: a module in training mode.
    training_path: str = ""
    problem: str = ""


@contextmanager
def opened(
    models: Sequence[Any], configs: Sequence[Any], base: bool, training: bool, listener: Listener
) -> Iterator[list[Source]]:
    """The models for PyTorch, each found, fetched or written down for as long as they are measured."""
    with TemporaryDirectory(prefix="inferlab-") as folder:
        sources = []
        for number, (name, model, config) in enumerate(zip(names_of(models), models, configs, strict=True)):
            own = Path(folder) / str(number)
            own.mkdir()
            try:
                if isinstance(model, str):
                    sources.append(_from_text(name, model, config, own, listener))
                else:
                    sources.append(_from_module(name, model, base, training, own))
            except InferlabError as error:
                sources.append(Source(name, problem=str(error)))
        yield sources


def names_of(models: Sequence[Any]) -> list[str]:
    """A name for every model, no two alike: as it was written, or its class with a number from the second on."""
    names: list[str] = []
    for model in models:
        name = plain = model if isinstance(model, str) else type(model).__name__
        number = 1
        while name in names or (name != model and name in models):
            number += 1
            name = f"{plain} ({number})"
        names.append(name)
    return names


def _from_text(name: str, text: str, config: Any, own: Path, listener: Listener) -> Source:
    from inferlab.model import hub, reading

    here = Path(text).expanduser().exists()
    if config is not None and not here:
        _make_from_config(config, own)
        return Source(name, str(own), "transformers")
    if not here and _ID.fullmatch(text) and not text.endswith(_FILES):
        try:
            return Source(name, str(hub.fetch_transformers(text, listener)), "transformers")
        except BadInput as error:
            raise BadInput(f"There is no folder or file {text!r} here, and {_lowered(str(error))}") from error
    located = reading.locate(text, listener)
    return Source(name, text, located.kind)


def _lowered(sentence: str) -> str:
    return sentence if sentence.startswith("hf:") else sentence[:1].lower() + sentence[1:]


def _make_from_config(config: Any, own: Path) -> None:
    """A folder with random weights, as Hugging Face's benchmark measured what is only configured."""
    from inferlab.model.reading import need_torch
    from inferlab.worker import run_task

    if not hasattr(config, "to_json_string"):
        raise BadInput(f"configs takes configurations of transformers, not a {type(config).__name__}.")
    arguments = {"config": json.loads(config.to_json_string(use_diff=False)), "out": str(own)}
    run_task(need_torch(), "torch_models.from_config", arguments)


def _from_module(name: str, module: Any, base: bool, training: bool, own: Path) -> Source:
    """Write a module as torch.export programs: it travels as a graph, never as a pickle."""
    from inferlab.model.export import save_module

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise BadInput(f"A {type(module).__name__} is not a model: give a folder, a file, an id or an nn.Module.")
    if base and hasattr(module, "base_model_prefix"):
        module = module.base_model
    inputs = _example_inputs(torch, module)
    save_module(module, own / "module.pt2", inputs, dynamic=True)
    if training:
        save_module(module, own / "training.pt2", inputs, dynamic=True, training=True)
    training_path = str(own / "training.pt2") if training else ""
    return Source(name, str(own / "module.pt2"), "torch-export", training_path)


def _example_inputs(torch: Any, module: Any) -> dict[str, Any]:
    """Whole numbers of batch × sequence, for the inputs of a text model or for all that a module must be given."""
    parameters = inspect.signature(module.forward).parameters.values()
    taken = [parameter.name for parameter in parameters if parameter.name in _TEXT]
    if hasattr(module, "base_model_prefix"):
        from inferlab.child.engines.torch.folders import describe_inputs

        taken = [describe_input["name"] for describe_input in describe_inputs(module)]
    elif not taken:
        taken = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty and parameter.kind in _NAMED
        ]
    if not taken:
        raise BadInput(f"The forward of {type(module).__name__} takes no inputs that could be made.")
    return {name: (torch.ones if "mask" in name else torch.zeros)(_TRACED, dtype=torch.int64) for name in taken}


# What a tokenizer or image processor needs; weights and code are not copied.
_COMPANIONS = ("*.json", "*.txt", "*.model", "*.jinja")
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Quantized:
    """An INT8 copy that was written, loaded again and compared with the original."""

    path: str
    #: Linear layers and embeddings that became INT8.
    layers: int
    #: The weights' bytes, and those of the original.
    size_bytes: int
    original_bytes: int
    #: The RMS of the outputs' difference over the RMS of the original's outputs, of the worst output.
    error: float


def quantize(folder: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> Quantized:
    """Write an INT8 copy of a Hugging Face folder: linear layers (dynamic quantisation) and embeddings.

    The copy has safetensors and config.json like the original, and runs on the engine torch.
    """
    from inferlab.model.reading import need_torch, weight_files
    from inferlab.worker import run_task

    source, out = Path(folder), Path(out_folder)
    if not (source / "config.json").is_file():
        raise BadInput(f"{source} has no config.json, so it is not a Hugging Face folder.")
    if not out.absolute().parent.is_dir():
        raise BadInput(
            f"The folder {out.absolute().parent} does not exist. Make it first, or choose another place."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is there already and not empty. Choose another folder, or remove it first.")
    weights = weight_files(source)
    # Beside it, so that the last step is a rename and a half-written folder is never seen.
    scratch = Path(tempfile.mkdtemp(prefix=".inferlab-int8-", dir=out.absolute().parent))
    try:
        arguments = {"source": str(source.resolve()), "out": str(scratch)}
        answer = run_task(need_torch(), "torch_models.write_int8", arguments, patience_s=_PATIENCE_S)
        for pattern in _COMPANIONS:
            for file in source.glob(pattern):
                if file.name != "config.json" and not file.name.endswith(".index.json"):
                    shutil.copyfile(file, scratch / file.name)
        scratch.chmod(0o755)
        scratch.replace(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Quantized(
        path=str(out),
        layers=answer["layers"],
        size_bytes=sum(file.stat().st_size for file in weight_files(out)),
        original_bytes=sum(file.stat().st_size for file in weights),
        error=answer["error"],
    )
