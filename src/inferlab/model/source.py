"""Find the file of a model, whatever way the user named it, and say of what kind it is."""

from __future__ import annotations

import os
import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path

from inferlab.confined import confined
from inferlab.errors import BadInput
from inferlab.model import demo, download, hub, zoo
from inferlab.model.hub import fetch_transformers
from inferlab.records import Kind, Listener, ignore

__all__ = ["Located", "fetch_transformers", "locate"]

_TORCH_ENDINGS = frozenset({".pt", ".pth", ".pt2", ".torchscript", ".ts"})


@dataclass(frozen=True, slots=True)
class Located:
    """A model's file (for kind "transformers" its folder) on this machine."""

    kind: Kind
    path: Path


def locate(source: str, listener: Listener = ignore) -> Located:
    """Find a model by its path, URL, `hf:`, `zoo:` or `demo:` name, fetching or making it where needed."""
    prefix = source.partition(":")[0]
    if "://" in source:
        return _file(download.fetch(source, listener))
    if prefix == "hf":
        return _file(hub.fetch_onnx(source, listener))
    if prefix == "zoo":
        return _file(zoo.resolve(source, listener))
    if prefix == "demo":
        return Located("onnx", demo.build(source.removeprefix("demo:"), listener))
    return _path(source)


def _path(source: str) -> Located:
    if not source.strip():
        raise BadInput("No model was named: give a path, a URL, hf:org/name, zoo:STUB or demo:NAME.")
    try:
        path = Path(source).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        hint = f" Did you mean demo:{source}?" if source in demo.NAMES else ""
        raise BadInput(f"There is no file or folder {source!r}.{hint}") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{source!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if stat.S_ISDIR(mode):
        return _folder(path)
    if not stat.S_ISREG(mode):
        raise BadInput(f"{path} is neither a file nor a folder.")
    return _file(path)


def _folder(folder: Path) -> Located:
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
        return Located("transformers", folder)
    raise BadInput(f"The folder {folder} has no ONNX file, and it is not a Hugging Face model either.")


def _is_weights(path: Path) -> bool:
    return path.suffix == ".safetensors" or re.fullmatch(r"pytorch_model.*\.bin", path.name) is not None


def _file(path: Path) -> Located:
    """Say of what kind a file is: by its first bytes where they tell, else by its ending."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from error
    ending = path.suffix.lower()
    if not head:
        raise BadInput(f"{path} is empty.")
    if head.startswith(b"PK\x03\x04"):
        return Located(_kind_of_zip(path), path)
    # Protocols 2 to 5. No ONNX file begins so: its fields have numbers below 16, hence tags below 0x80.
    if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
        raise _pickled(path)
    if ending in _TORCH_ENDINGS:
        raise BadInput(f"{path} is neither a TorchScript file nor a torch.export program, or it is cut off.")
    if ending == ".xml":
        return Located("openvino", _checked_ir(path, head))
    if ending == ".bin" and path.with_suffix(".xml").is_file():
        raise BadInput(
            f"{path} holds the weights of an OpenVINO model; name {path.with_suffix('.xml').name} instead."
        )
    if ending == ".safetensors":
        raise BadInput(
            f"{path} holds weights without a model. Export its folder with: inferlab export {path.parent}"
        )
    return Located("onnx", path)


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
