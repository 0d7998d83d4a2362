"""Resolve SparseZoo stubs, now that SparseZoo is gone."""

from __future__ import annotations

import os
import re
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.model.download import fetch
from inferlab.records import Listener, ignore
from inferlab.settings import config_file, zoo_mirror


def resolve(source: str, listener: Listener = ignore) -> Path:
    """Find the model of a stub: in the mirror folder, in SparseZoo's own cache, at the mirror URL."""
    stub = _parse(source)
    mirror = zoo_mirror()
    at_url = mirror is not None and "://" in mirror
    if mirror is not None and not at_url:
        folder = Path(mirror).expanduser()
        if not folder.is_dir():
            raise BadInput(f"The zoo mirror {mirror} is neither a folder nor a URL. Mend {_where_to_name_it()}.")
        if found := _model_in(folder / stub):
            return found
    if found := _in_sparsezoo_cache(stub):
        return found
    if mirror is not None and at_url:
        return fetch(f"{mirror.rstrip('/')}/{stub}/model.onnx", listener, trusted=True)
    raise BadInput(_not_found(source, stub, mirror))


def _parse(source: str) -> str:
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
