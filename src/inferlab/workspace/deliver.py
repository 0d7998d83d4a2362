"""What a user takes away of a version: the model, its recipe, and programs that run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from inferlab.errors import BadInput, NotThere
from inferlab.measure.cells import jobs
from inferlab.measure.recommend import deployment
from inferlab.optimizing import yaml
from inferlab.records import Candidate, Plan
from inferlab.records.optimization import Recipe
from inferlab.views.deployment import program
from inferlab.workspace.exports import Export
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import files_of, is_ours
from inferlab.workspace.workspace import Workspace

Part = Literal["model", "data"]


def model_file(workspace: Workspace, version_id: str, part: Part = "model") -> Path:
    """The file of a version, or that of weights which lie beside it; only what was made, and still is as it was.

    What the store says of a path is not enough: an entry may have been imported from anywhere.
    """
    found = workspace.versions.get(version_id)
    if not is_ours(found.path):
        workspace.sources.below(found.path)
    if found.trouble:
        raise BadInput(found.trouble)
    files = files_of(Path(found.path))
    if part == "model":
        return files[0]
    if len(files) < 2:
        raise NotThere(f"All weights of the version '{found.name}' are in its model file.")
    return files[1]


def recipe(workspace: Workspace, version_id: str) -> Export:
    """The recipe of a version as YAML."""
    found = workspace.versions.opened(version_id)
    name = f"{Path(found.optimized.path).stem}.recipe.yaml"
    return Export(name, "application/yaml", yaml.dump(shown_recipe(found.recipe, workspace.sources)))


def shown_recipe(found: Recipe, sources: Sources) -> Recipe:
    """A recipe without the places on this machine where we keep what was uploaded or made."""
    return replace(found, model=sources.without_folder(found.model), data=sources.without_folder(found.data))


def code_sample(workspace: Workspace, version_id: str, engine: str) -> Export:
    """Python that runs a version on an engine, one request at a time, on the cores that it was measured on."""
    version = workspace.versions.get(version_id)
    model = workspace.versions.readable(version)
    workspace.engines.refuse(engine, model)
    known = next((one for one in version.measured if one["engine"] == engine), {})
    plan = Plan(
        version.path,
        engines=(engine,),
        scenarios=("sync",),
        num_cores=(known.get("num_cores"),),
        batch_sizes=(known.get("batch_size"),),
    )
    job, *_ = jobs(plan, model)
    name = Path(version.path).name
    found = replace(deployment(job), model_path=name)
    cell = job.cell
    text = program(Candidate(engine, cell.num_cores, 1, cell.batch_size), found)
    return Export(f"{Path(name).stem}-{engine}.py", "text/x-python", text)
