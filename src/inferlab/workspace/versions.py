"""Versions: optimised models of a project, where their files lie, and whether these are still what was made."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from inferlab.errors import BadInput, InferlabError, NotThere
from inferlab.lab import Lab, read_model
from inferlab.model.onnx_file import digest_of
from inferlab.records import Model
from inferlab.records.optimization import Optimization
from inferlab.settings import versions_folder
from inferlab.store.entries import Entry
from inferlab.store.rows import new_id
from inferlab.store.store import Store
from inferlab.workspace.entries import entry_of

#: The kind of entry that a version is.
VERSION = "version"
#: What is shown in place of a version's name for the model as it is.
ORIGINAL = "original"
_ID = re.compile(r"[a-z2-7]{10}")
# Beside the files of a version that was removed; its age says when they go.
_REMOVED = ".removed"
_LONGEST_STEM = 60
FileState = Literal["there", "gone", "changed"]


@dataclass(frozen=True, slots=True)
class Version:
    """A version as lists show it."""

    entry: Entry
    name: str
    #: Where its file lies, and the digest that it had when it was made.
    path: str
    digest: str
    size_bytes: int
    parameters: int | None
    zero_fraction: float | None
    precision: str
    pattern: str
    scheme: str
    #: As `optimizing.records` has them, as JSON values.
    distance: Mapping[str, Any] | None
    measured: tuple[Mapping[str, Any], ...]
    problems: tuple[str, ...]
    interrupted: bool
    file: FileState = "there"

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self.entry.id

    @property
    def trouble(self) -> str:
        """Why it cannot be measured or downloaded; empty where it can."""
        return {
            "there": "",
            "gone": f"The file of the version '{self.name}' is gone. Make it again from its recipe.",
            "changed": f"The file of the version '{self.name}' is no longer the one that was made. Make it again "
            "from its recipe.",
        }[self.file]


@dataclass(slots=True)
class Versions:
    """The versions in a store; safe to share between threads."""

    store: Store
    #: Digests of files that were read before, by the path, size and time of their parts.
    _digests: dict[tuple[object, ...], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_project(self, project_id: str) -> list[Version]:
        """All versions of a project, newest first; also those of its model that the command line made."""
        return [self._version(entry) for entry in self.entries(project_id)]

    def entries(self, project_id: str) -> list[Entry]:
        """The same, without a look at the files."""
        entries = self.store.history(1000, project_id=project_id, kinds=(VERSION,))
        return [entry for entry in entries if entry.brief.get("optimized")]

    def names(self, project_id: str) -> dict[str, str]:
        """The names of a project's versions by the digests of their models."""
        return {entry.brief["optimized"]["digest"]: entry.brief["name"] for entry in self.entries(project_id)}

    def get(self, version_id: str) -> Version:
        """The version with this id."""
        return self._version(self._entry(version_id))

    def opened(self, version_id: str) -> Optimization:
        """All that is known of a version."""
        # By its whole id: what looks like the name of a file would be opened.
        return Lab(self.store).saved_optimization(self._entry(version_id).id)

    def model(self, version_id: str, project_id: str) -> Model:
        """The model of a project's version, to be measured; refused where it is not what was made."""
        version = self.get(version_id)
        if not self.store.projects.belongs(project_id, version.id):
            raise NotThere(f"{version_id} is not a version of this project.")
        return self.readable(version)

    @staticmethod
    def readable(version: Version) -> Model:
        """The model of a version; refused where it is not what was made."""
        if version.trouble:
            raise BadInput(version.trouble)
        return read_model(version.path)

    def _entry(self, version_id: str) -> Entry:
        entry = entry_of(self.store, version_id, (VERSION,), "version")
        if not entry.brief.get("optimized"):
            raise NotThere(
                f"The version {version_id} was saved by another version of inferlab, and this one cannot read it."
            )
        return entry

    def _version(self, entry: Entry) -> Version:
        brief, optimized = entry.brief, entry.brief["optimized"]
        return Version(
            entry=entry,
            name=brief["name"],
            **optimized,
            **{name: brief[name] for name in ("pattern", "scheme", "distance", "interrupted")},
            measured=tuple(brief["measured"]),
            problems=tuple(brief["problems"]),
            file=self._state(optimized["path"], optimized["digest"]),
        )

    def _state(self, path: str, digest: str) -> FileState:
        file = Path(path)
        try:
            parts = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in files_of(file)]
            if not parts:
                return "gone"
            key = (path, *parts)
            with self._lock:
                digest_now = self._digests.get(key)
            if digest_now is None:
                digest_now = digest_of(file)
                with self._lock:
                    self._digests[key] = digest_now
        except (OSError, InferlabError):
            return "changed" if file.exists() else "gone"
        return "there" if digest_now == digest else "changed"


def path_of(entry: Entry) -> str:
    """Where the model of an entry lies that is a version; empty for all others."""
    optimized = entry.brief.get("optimized") if entry.kind == VERSION else None
    return str(optimized["path"]) if optimized else ""


def files_of(model: Path) -> list[Path]:
    """The file of a version and, where its weights lie beside it, theirs."""
    return [file for file in (model, model.with_name(f"{model.name}.data")) if file.is_file()]


def new_file(name: str) -> Path:
    """Where a version of this name is written: a folder of its own."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_LONGEST_STEM]
    return _home() / new_id() / f"{stem or 'model'}.onnx"


def is_ours(path: str) -> bool:
    """Whether a file lies where versions of the pages do."""
    folder = Path(path).parent
    return folder.parent == _home() and bool(_ID.fullmatch(folder.name))


def discard(path: str) -> None:
    """Remove the files of a version by the path of its model; what lies elsewhere is the user's and stays."""
    if is_ours(path):
        shutil.rmtree(Path(path).parent, ignore_errors=True)


def mark_removed(path: str) -> None:
    """Let the files of a version go some time after it was removed, unless it is put back."""
    if is_ours(path) and Path(path).parent.is_dir():
        (Path(path).parent / _REMOVED).touch()


def unmark_removed(path: str) -> None:
    """Let the files of a version stay that was put back."""
    if is_ours(path):
        (Path(path).parent / _REMOVED).unlink(missing_ok=True)


def discard_removed(kept_s: float) -> None:
    """Remove the files of all versions that were removed so long ago, by whichever server."""
    for mark in _home().glob(f"*/{_REMOVED}"):
        try:
            old = time.time() - mark.stat().st_mtime > kept_s
        except OSError:
            continue
        if old:
            discard(str(mark.parent / "model"))


def _home() -> Path:
    """Links followed, as the paths of models are."""
    return versions_folder().resolve()
