"""Entries: what pages call them, the files that a browser saves of them, and those that were just removed."""

from __future__ import annotations

import gzip
import re
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inferlab.errors import BadInput, NotThere
from inferlab.measure.cells import jobs
from inferlab.measure.recommend import deployment
from inferlab.optimizing import recipes
from inferlab.records import Candidate, ComparisonSweep, Plan
from inferlab.records.optimization import Recipe
from inferlab.store.entries import Document, Entry, Stored
from inferlab.store.formats import GENERATION, MADE_OF_GENERATIONS, record_of
from inferlab.store.store import Store
from inferlab.views import results
from inferlab.views.command import program
from inferlab.workspace.engines import title
from inferlab.workspace.requests import last_part
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import discard_removed, files_of, is_ours, mark_removed, path_of, unmark_removed

if TYPE_CHECKING:
    from inferlab.workspace.workspace import Workspace


#: What entries, and the jobs that make them, are called.
NOUNS = {
    "benchmark": "Benchmark",
    "comparison": "Comparison",
    "capacity": "Capacity",
    "recommendation": "Recommendation",
    "generation": "Generation",
    "generation-comparison": "Comparison of generation",
    "generation-capacity": "Capacity of generation",
    "generation-recommendation": "Recommendation for generation",
    "profile": "Profile",
    "optimization": "Version",
    "install": "Installation",
}
#: Kinds of entries that have neither cells nor a name of what was measured.
WITHOUT_CELLS = ("capacity", "recommendation", *MADE_OF_GENERATIONS)


def entry_of(store: Store, entry_id: str, kinds: Collection[str], called: str) -> Entry:
    """The entry with this id; not there where it is of another kind than those that are `called` so."""
    entry = store.entry(entry_id)
    if entry.kind not in kinds:
        raise NotThere(f"{entry_id} is a {entry.kind}, not a {called}.")
    return entry


def given_name(entry: Entry) -> str:
    """The name that a user or a form gave an entry; empty where it has none."""
    if entry.kind == "profile":
        parts = (entry.brief.get("performance"), entry.brief.get("loss"))
        return next((str(part["name"]) for part in parts if part), "")
    return str(entry.brief.get("name") or "")


def name_of(entry: Entry, model: str = "") -> str:
    """What an entry is called: its own name, else "ResNet-50 on OpenVINO, 2 cores, batch 1".

    `model` stands for the model's name; by default it is the last part of its source.
    """
    # The title of a comparison has both of its sides.
    about = model or ("" if entry.kind == "comparison" else last_part(entry.title))
    return given_name(entry) or (f"{about} on " if about else "") + measured_on(entry)


def reference_to(entry: Entry) -> str:
    """What tells an entry from others of its project: its own name, else what and when was measured."""
    return given_name(entry) or f"{measured_on(entry)}, {entry.created_at.astimezone():%d %b %H:%M}"


def measured_on(entry: Entry) -> str:
    """The engines, core counts and batch sizes of an entry."""
    if entry.kind in WITHOUT_CELLS:
        return NOUNS[entry.kind]
    brief, cells = entry.brief, [cell.cell for cell in entry.cells]
    if entry.kind == GENERATION:
        engines, cores, batches = (brief.get(name, ()) for name in ("engine", "num_cores", "batch_size"))
    else:
        # The card of a comparison shows B, which is compared with A.
        engines = (brief.get("labels") or [])[::-1] or [cell.engine for cell in cells]
        cores, batches = [cell.num_cores for cell in cells], [cell.batch_size for cell in cells]
    nothing = NOUNS[GENERATION] if entry.kind == GENERATION else entry.kind
    words = [" vs ".join(dict.fromkeys(map(title, engines))) or nothing]
    words += [f"{_listed(cores)} {'core' if set(cores) == {1} else 'cores'}"] if cores else []
    words += [f"batch {_listed(batches)}"] if batches else []
    words += ["generation"] if entry.kind == GENERATION else []
    return ", ".join(words)


def _listed(values: Iterable[int]) -> str:
    *others, last = map(str, sorted(set(values)))
    return f"{', '.join(others)} and {last}" if others else last


#: How long an entry can be put back.
KEPT_S = 600.0
_MOST = 20


@dataclass(frozen=True, slots=True)
class _Removed:
    """An entry as a file that travels, compressed."""

    project_id: str | None
    lines: bytes
    removed_at: float


class Trash:
    """Keeps the last entries that were removed, for some minutes, in memory; the files of versions on the disk."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._removed: OrderedDict[str, _Removed] = OrderedDict()
        self._lock = threading.Lock()
        # What an earlier server did not live to remove.
        discard_removed(KEPT_S)

    def remove(self, entry_id: str) -> str:
        """Remove an entry from the store; its whole id puts it back."""
        entry = self._store.entry(entry_id)
        lines = gzip.compress(b"".join(self._store.export([entry.id])), compresslevel=1)
        self._store.remove(entry.id)
        with self._lock:
            self._removed[entry.id] = _Removed(entry.project_id, lines, self._clock())
            while len(self._removed) > _MOST:
                self._removed.popitem(last=False)
        if model_path := path_of(entry):
            mark_removed(model_path)
            later = threading.Timer(KEPT_S + 1, discard_removed, (KEPT_S,))
            later.daemon = True
            later.start()
        return entry.id

    def put_back(self, entry_id: str) -> None:
        """Put an entry back that was removed a moment ago."""
        with self._lock:
            removed = self._removed.pop(entry_id, None)
        if removed is None or self._clock() - removed.removed_at > KEPT_S:
            raise NotThere(f"{entry_id} was removed too long ago to be put back.")
        try:
            self._import(entry_id, removed)
        except BaseException:
            # It can be tried again.
            with self._lock:
                self._removed[entry_id] = removed
            raise

    def _import(self, entry_id: str, removed: _Removed) -> None:
        with tempfile.NamedTemporaryFile(suffix=".jsonl.gz") as file:
            file.write(removed.lines)
            file.flush()
            self._store.import_file(Path(file.name))
        if removed.project_id is not None and self._store.projects.has(removed.project_id):
            self._store.projects.take(removed.project_id, entry_id)
        unmark_removed(path_of(self._store.entry(entry_id)))


Part = Literal["model", "data"]
_TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html", "md": "text/markdown"}


@dataclass(frozen=True, slots=True)
class Export:
    """A file to be saved."""

    name: str
    media_type: str
    text: str


def export(store: Store, entry_id: str, ending: str) -> Export:
    """An entry as JSON, CSV, HTML or Markdown."""
    if ending not in _TYPES:
        raise BadInput(f"An entry is exported as {', '.join(_TYPES)}, not as {ending!r}.")
    entry = store.get(entry_id)
    text = results.render_entry(entry, f".{ending}")
    about = entry.benchmark.model.source if isinstance(entry, Stored) else _about(entry)
    return Export(f"{_slug(about)}-{entry.id}.{ending}", _TYPES[ending], text)


def _about(document: Document) -> str:
    """What a document is of: the model where it names one."""
    if document.kind == "comparison":
        models = next((result.models for result in _sweep(document).results if result.models), None)
        return models[0].source if models else document.title
    return document.title


def _sweep(document: Document) -> ComparisonSweep:
    record = record_of(document)
    assert isinstance(record, ComparisonSweep)
    return record


def _slug(text: str) -> str:
    last = re.split(r"[/\\:]", text)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")[:60] or "inferlab"


def model_file(workspace: Workspace, version_id: str, part: Part = "model") -> Path:
    """The file of a version, or that of weights which lie beside it; only what was made, and still is as it was.

    What the store says of a path is not enough: an entry may have been imported from anywhere.
    """
    version = workspace.versions.get(version_id)
    if not is_ours(version.path):
        workspace.sources.below(version.path)
    if version.trouble:
        raise BadInput(version.trouble)
    files = files_of(Path(version.path))
    if part == "model":
        return files[0]
    if len(files) < 2:
        raise NotThere(f"All weights of the version '{version.name}' are in its model file.")
    return files[1]


def recipe(workspace: Workspace, version_id: str) -> Export:
    """The recipe of a version as YAML."""
    version = workspace.versions.opened(version_id)
    name = f"{Path(version.optimized.path).stem}.recipe.yaml"
    return Export(name, "application/yaml", recipes.dump(shown_recipe(version.recipe, workspace.sources)))


def shown_recipe(source: Recipe, sources: Sources) -> Recipe:
    """A recipe without the places on this machine where we keep what was uploaded or made."""
    return replace(source, model=sources.without_folder(source.model), data=sources.without_folder(source.data))


def code_sample(workspace: Workspace, version_id: str, engine: str) -> Export:
    """Python that runs a version on an engine, one request at a time, on the cores that it was measured on."""
    version = workspace.versions.get(version_id)
    model = workspace.versions.readable(version)
    workspace.engines.refuse(engine, model)
    measured = next((row for row in version.measured if row["engine"] == engine), {})
    plan = Plan(
        version.path,
        engines=(engine,),
        scenarios=("sync",),
        num_cores=(measured.get("num_cores"),),
        batch_sizes=(measured.get("batch_size"),),
    )
    job, *_ = jobs(plan, model)
    name = Path(version.path).name
    settings = replace(deployment(job), model_path=name)
    cell = job.cell
    text = program(Candidate(engine, cell.num_cores, 1, cell.batch_size), settings)
    return Export(f"{Path(name).stem}-{engine}.py", "text/x-python", text)
