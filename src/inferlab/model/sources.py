"""Find the file of a model, whatever way the user named it, and say of what kind it is."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from inferlab.errors import BadInput
from inferlab.model import demo
from inferlab.model.confined import confined
from inferlab.model.download import Budget, external_files, fetch, inside
from inferlab.records import Event, Kind, Listener, ignore
from inferlab.settings import cache_folder, config_file, download_limits, zoo_mirror

_TORCH_ENDINGS = frozenset({".pt", ".pth", ".pt2", ".torchscript", ".ts"})


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
        return _file(demo.build(source.removeprefix("demo:"), listener))
    return _path(source)


def _path(source: str) -> LocatedModel:
    if not source.strip():
        raise BadInput("No model was named: give a path, a URL, hf:org/name, zoo:STUB or demo:NAME.")
    try:
        path = Path(source).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        hint = f" Did you mean demo:{source}?" if source in (*demo.NAMES, *demo.GENERATIVE) else ""
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


def resolve_stub(source: str, listener: Listener = ignore) -> Path:
    """Find the model of a stub: in the mirror folder, in SparseZoo's own cache, at the mirror URL."""
    stub = _parse_stub(source)
    mirror = zoo_mirror()
    at_url = mirror is not None and "://" in mirror
    if mirror is not None and not at_url:
        folder = Path(mirror).expanduser()
        if not folder.is_dir():
            raise BadInput(
                f"The zoo mirror {mirror} is neither a folder nor a URL. Correct {_where_to_name_it()}."
            )
        if file := _model_in(folder / stub):
            return file
    if file := _in_sparsezoo_cache(stub):
        return file
    if mirror is not None and at_url:
        return fetch(f"{mirror.rstrip('/')}/{stub}/model.onnx", listener, trusted=True)
    raise BadInput(_not_found(source, stub, mirror))


def _parse_stub(source: str) -> str:
    """The stub's path, without its query (`?recipe=…` chooses training files, not the model)."""
    stub = source.removeprefix("zoo:").split("?")[0].strip("/")
    if source.startswith("zoo:/") or not all(
        re.fullmatch(r"[\w.+-]+", part) and part.strip(".") for part in stub.split("/")
    ):
        raise BadInput(f"'{source}' is not a SparseZoo stub: it must read zoo:NAME or zoo:domain/task/…/name.")
    return stub


def _model_in(folder: Path) -> Path | None:
    return next(
        (path for path in (folder / "model.onnx", folder / "deployment" / "model.onnx") if path.is_file()), None
    )


def _sparsezoo_cache() -> Path:
    return Path(os.environ.get("SPARSEZOO_MODELS_PATH") or "~/.cache/sparsezoo").expanduser()


def _in_sparsezoo_cache(stub: str) -> Path | None:
    # SparseZoo 1.8 kept a model in <namespace>/<name>, where the name is the new-style stub, or in <model id>.
    # What name an old-style stub (a path) stood for, only its server knew.
    cache = _sparsezoo_cache()
    folders = [cache / stub]
    if "/" not in stub and cache.is_dir():
        folders += sorted(cache.glob(f"*/{stub}"))
    return next((path for folder in folders if (path := _model_in(folder))), None)


def _where_to_name_it() -> str:
    return f"INFERLAB_ZOO, or zoo_mirror in {config_file()}"


def _not_found(source: str, stub: str, mirror: str | None) -> str:
    looked = f"neither the mirror {mirror} nor" if mirror else "no mirror is named and"
    has = "has" if mirror else "does not have"
    return (
        f"{source} cannot be fetched: SparseZoo reached its end of life with DeepSparse in June 2025, so a stub "
        f"resolves only in a mirror or in SparseZoo's own cache; {looked} {_sparsezoo_cache()} {has} it. "
        f"Name a folder or URL that has {stub}/model.onnx in {_where_to_name_it()}."
    )


# What transformers needs to build a model again. Pickled weights and Python code are left where they are.
_TRANSFORMERS_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors")
_PREFERRED = ("model.onnx", "onnx/model.onnx")
_UNREACHABLE = "the Hugging Face Hub cannot be reached. Check the network."


def fetch_onnx(source: str, listener: Listener = ignore) -> Path:
    """Fetch the ONNX file that `hf:org/name[/file]` names, with its external data."""
    repo_id, wanted = _parse_repository(source)
    hub = _hub_library()
    files, offline = _list_files(hub, repo_id)
    chosen = _choose_file(repo_id, wanted, files)
    path = _fetch_file(hub, repo_id, chosen, offline, listener)
    if path.suffix.lower() == ".xml":
        _fetch_file(hub, repo_id, str(PurePosixPath(chosen).with_suffix(".bin")), offline, listener)
    elif path.suffix.lower() == ".onnx":
        try:
            companions = external_files(path)
        except BadInput as error:
            raise BadInput(f"{source} cannot be used: {error}") from None
        for name in companions:
            _fetch_file(hub, repo_id, str(PurePosixPath(chosen).parent / name), offline, listener)
    return path


def fetch_transformers(repo_id: str, listener: Listener = ignore) -> Path:
    """Fetch the configuration, tokenizer and safetensors of a repository; old ones have no organisation."""
    repo_id, wanted = _parse_repository(f"hf:{repo_id.removeprefix('hf:')}", fewest=1)
    if wanted:
        raise BadInput(f"hf:{repo_id}/{wanted} is one file; give the repository, hf:{repo_id}.")
    hub = _hub_library()
    with _asking(f"hf:{repo_id}"):
        folder = hub.snapshot_download(
            repo_id,
            local_dir=_repository_folder(repo_id),
            allow_patterns=list(_TRANSFORMERS_FILES),
            ignore_patterns=["*/*"],
            tqdm_class=_progress(hub, repo_id, listener),
        )
    path = Path(folder)
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise BadInput(f"hf:{repo_id} has no config.json with safetensors beside it, so it cannot be loaded.")
    return path


def _parse_repository(source: str, fewest: int = 2) -> tuple[str, str]:
    """The repository and, if given, the file."""
    parts = source.removeprefix("hf:").split("/")
    if len(parts) < fewest or not all(parts) or not inside("/".join(parts)) or "." in parts:
        raise BadInput(
            f"'{source}' does not name a model on the Hugging Face Hub: write hf:org/name or hf:org/name/file."
        )
    return "/".join(parts[:2]), "/".join(parts[2:])


def _hub_library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise BadInput(
            "Models on the Hugging Face Hub need huggingface_hub. Install it with: pip install 'inferlab[hub]'"
        ) from error
    return huggingface_hub


def _repository_folder(repo_id: str) -> Path:
    # Not the Hub library's own cache: there all files are links to a folder elsewhere, and onnx 1.23 and
    # OpenVINO 2026.4 refuse external data behind such links. What that cache holds is copied, not downloaded.
    return cache_folder() / "hub" / repo_id.replace("/", "--")


def _list_files(hub: Any, repo_id: str) -> tuple[list[str], bool]:
    """The files in a repository; without a network (then True) those of it that are here."""
    try:
        with _asking(f"hf:{repo_id}"):
            return [file.rfilename for file in hub.HfApi().model_info(repo_id).siblings or ()], False
    except BadInput as error:
        if not _offline(error.__cause__):
            raise
        folder = _repository_folder(repo_id)
        here = [
            path
            for path in folder.rglob("*")
            if path.is_file() and ".cache" not in path.parts[len(folder.parts) :]
        ]
        if not here:
            raise
        return [path.relative_to(folder).as_posix() for path in here], True


def _choose_file(repo_id: str, wanted: str, files: Sequence[str]) -> str:
    onnx = sorted(name for name in files if name.lower().endswith(".onnx"))
    listed = ", ".join(onnx)
    if wanted:
        if wanted not in files:
            there = f" Its ONNX files: {listed}." if onnx else ""
            raise BadInput(f"hf:{repo_id} has no file '{wanted}'.{there}")
        return wanted
    candidates: tuple[str, ...] = (*_PREFERRED, *(onnx if len(onnx) == 1 else ()))
    for name in candidates:
        if name in files:
            return name
    if onnx:
        raise BadInput(f"hf:{repo_id} has several ONNX files: {listed}. Name one: hf:{repo_id}/{onnx[0]}")
    raise BadInput(f"hf:{repo_id} has no ONNX file. Export it with: inferlab export hf:{repo_id}")


def _fetch_file(hub: Any, repo_id: str, name: str, offline: bool, listener: Listener) -> Path:
    if offline:
        # A file that is here is whole: the library keeps what it has not finished in a folder of its own.
        if (path := _repository_folder(repo_id) / name).is_file():
            return path
        raise BadInput(f"hf:{repo_id}/{name} cannot be fetched: {_UNREACHABLE}")
    with _asking(f"hf:{repo_id}/{name}"):
        bar = _progress(hub, f"{repo_id}/{name}", listener)
        return Path(hub.hf_hub_download(repo_id, name, local_dir=_repository_folder(repo_id), tqdm_class=bar))


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turn whatever the Hub's library raises into one sentence."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # its HTTP library, hence its errors, changes with its version
        raise BadInput(f"{what} cannot be fetched: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return "access to it must be granted. Ask for it on its page, then log in with: hf auth login"
    if kind == "RepositoryNotFoundError":
        return "there is no such repository, or it is private (then log in with: hf auth login)."
    if kind in ("EntryNotFoundError", "RemoteEntryNotFoundError"):
        return "there is no such file in the repository."
    if _offline(error):
        return _UNREACHABLE
    lines = str(error).strip().splitlines()
    return f"{lines[0] if lines else kind}".rstrip(".") + "."


def _offline(error: BaseException | None) -> bool:
    """Whether nobody answered, as against an answer that says no."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & {"ConnectionError", "TransportError", "LocalEntryNotFoundError", "TimeoutError"})


def _progress(hub: Any, what: str, listener: Listener) -> type:
    """A progress bar that draws nothing, tells the listener, and ends what is too large or takes too long."""
    budget = Budget(download_limits())

    class Progress(hub.utils.tqdm):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            self._counts_bytes = named.get("unit") == "B"
            super().__init__(*given, **{**named, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._counts_bytes:
                budget.expect(f"hf:{what}", self.total)
                budget.take(f"hf:{what}", int(n or 0))
                budget.check(f"hf:{what}")
                data = {"url": f"hf:{what}", "received_bytes": self.n, "total_bytes": self.total}
                listener(Event("download", data, min(1.0, self.n / self.total) if self.total else None))

    return Progress
