"""Files that a browser saves: entries, and of a version the model, its recipe and programs that run it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inferlab.errors import BadInput, NotThere
from inferlab.measure.cells import jobs
from inferlab.measure.recommend import deployment
from inferlab.optimizing import recipe_yaml
from inferlab.records import Candidate, ComparisonSweep, Plan
from inferlab.records.optimization import Recipe
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import record_of
from inferlab.store.store import Store
from inferlab.views import results
from inferlab.views.deployment import program
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import files_of, is_ours

if TYPE_CHECKING:
    from inferlab.workspace.workspace import Workspace

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
    return Export(name, "application/yaml", recipe_yaml.dump(shown_recipe(version.recipe, workspace.sources)))


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
