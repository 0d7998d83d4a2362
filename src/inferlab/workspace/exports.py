"""Files that a browser saves: entries, and of a version the model, its recipe and programs that run it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inferlab.errors import BadInput, NotThere
from inferlab.measure.cells import jobs
from inferlab.measure.recommend import deployment
from inferlab.optimizing import yaml
from inferlab.profile_result import ProfileResult
from inferlab.records import Candidate, Comparison, ComparisonSweep, Plan
from inferlab.records.optimization import Recipe
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import record_of
from inferlab.store.record_files import PROFILES
from inferlab.store.store import Store
from inferlab.views import files, flat, profile_report, stored
from inferlab.views.deployment import program
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import files_of, is_ours

if TYPE_CHECKING:
    from inferlab.workspace.workspace import Workspace

Part = Literal["model", "data"]
_TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html"}


@dataclass(frozen=True, slots=True)
class Export:
    """A file to be saved."""

    name: str
    media_type: str
    text: str


def export(store: Store, entry_id: str, ending: str) -> Export:
    """An entry as JSON, CSV or HTML."""
    if ending not in _TYPES:
        raise BadInput(f"An entry is exported as {', '.join(_TYPES)}, not as {ending!r}.")
    found = store.get(entry_id)
    text = _benchmark(found, ending) if isinstance(found, Stored) else _document(found, ending)
    about = found.benchmark.model.source if isinstance(found, Stored) else _about(found)
    return Export(f"{_slug(about)}-{found.id}.{ending}", _TYPES[ending], text)


def _about(found: Document) -> str:
    """What a document is of: the model where it names one."""
    if found.kind == "comparison":
        models = next((one.models for one in _sweep(found).results if one.models), None)
        return models[0].source if models else found.title
    return found.title


def _benchmark(found: Stored, ending: str) -> str:
    if ending == "csv":
        return flat.to_csv(flat.rows(found.benchmark))
    if ending == "json":
        return files.to_json(found.benchmark)
    from inferlab.views import benchmark_report  # late: it draws charts

    return benchmark_report.report(found.benchmark)


def _document(found: Document, ending: str) -> str:
    if ending == "json":
        return stored.to_json(found)
    if found.kind == "profile":
        profile = PROFILES.from_content(found.content, found.id)
        return profile_report.report(profile) if ending == "html" else _csv(ProfileResult(profile).rows())
    if found.kind == "comparison":
        sweep = _sweep(found)
        if ending == "csv":
            return _csv(map(_row, sweep.results))
        from inferlab.views import comparison_html  # late: it draws charts

        return comparison_html.report(found.title, sweep)
    raise BadInput(f"A {found.kind} is exported as json, not as {ending}.")


def _sweep(found: Document) -> ComparisonSweep:
    record = record_of(found)
    assert isinstance(record, ComparisonSweep)
    return record


def _row(comparison: Comparison) -> dict[str, Any]:
    """A comparison as a row of a table."""
    cell = comparison.cells[0] if comparison.cells else None
    return {
        "a": comparison.labels[0],
        "b": comparison.labels[1],
        **{name: getattr(cell, name, None) for name in ("num_cores", "batch_size", "scenario")},
        "ratio": comparison.ratio.value,
        "low": comparison.ratio.low,
        "high": comparison.ratio.high,
        "level": comparison.ratio.level,
        "verdict": comparison.verdict,
        "margin": comparison.margin,
        "paired": bool(comparison.pairs),
        "pairs": len(comparison.pairs),
        "seconds": comparison.seconds,
        "outputs_match": comparison.outputs_match,
    }


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: flat.spreadsheet_cell(_plain(value)) for name, value in row.items()} for row in listed)
    return text.getvalue()


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _slug(text: str) -> str:
    last = re.split(r"[/\\:]", text)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")[:60] or "inferlab"


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
