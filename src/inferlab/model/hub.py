"""Models that others host: stubs of SparseZoo, repositories of the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from inferlab.errors import BadInput
from inferlab.model.download import Budget, external_files, fetch, inside
from inferlab.records import Event, Listener, ignore
from inferlab.settings import cache_folder, config_file, download_limits, zoo_mirror


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
    repo_id, file = _parse_repository(source)
    hub = _hub_library()
    files, offline = _list_files(hub, repo_id)
    chosen = _choose_file(repo_id, file, files)
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
    repo_id, file = _parse_repository(f"hf:{repo_id.removeprefix('hf:')}", fewest=1)
    if file:
        raise BadInput(f"hf:{repo_id}/{file} is one file; give the repository, hf:{repo_id}.")
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
        cached = [
            path
            for path in folder.rglob("*")
            if path.is_file() and ".cache" not in path.parts[len(folder.parts) :]
        ]
        if not cached:
            raise
        return [path.relative_to(folder).as_posix() for path in cached], True


def _choose_file(repo_id: str, wanted_file: str, files: Sequence[str]) -> str:
    onnx = sorted(name for name in files if name.lower().endswith(".onnx"))
    listed = ", ".join(onnx)
    if wanted_file:
        if wanted_file not in files:
            there = f" Its ONNX files: {listed}." if onnx else ""
            raise BadInput(f"hf:{repo_id} has no file '{wanted_file}'.{there}")
        return wanted_file
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
        def __init__(self, *positional: Any, **named: Any) -> None:
            self._counts_bytes = named.get("unit") == "B"
            super().__init__(*positional, **{**named, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self._counts_bytes:
                budget.expect(f"hf:{what}", self.total)
                budget.take(f"hf:{what}", int(n or 0))
                budget.check(f"hf:{what}")
                data = {"url": f"hf:{what}", "received_bytes": self.n, "total_bytes": self.total}
                listener(Event("download", data, min(1.0, self.n / self.total) if self.total else None))

    return Progress
