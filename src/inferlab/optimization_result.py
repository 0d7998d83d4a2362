"""What the Python API hands out of an optimised version: the record with the views that people ask for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab import views
from inferlab.optimizing import recipe_yaml
from inferlab.records.optimization import Front, Optimization
from inferlab.results import checked_path, frame
from inferlab.store.formats import content_of
from inferlab.units import escape_controls
from inferlab.views import files, tables
from inferlab.views import optimization as render
from inferlab.views.results import render as render_result

if TYPE_CHECKING:
    from inferlab.results import StrPath


class OptimizationResult:
    """An optimised model, the recipe that made it, and what it cost and gained."""

    def __init__(self, record: Optimization) -> None:
        #: All that is known, as frozen records.
        self.record = record

    def __str__(self) -> str:
        return escape_controls(self.table())

    def __repr__(self) -> str:
        found = [f"{one.engine} {one.speedup:.3g}x" for one in self.record.measured]
        return f"<OptimizationResult of {self.record.model.source}: {', '.join([self.record.name, *found])}>"

    @property
    def id(self) -> str:
        """Its name in the store; empty where it was not saved."""
        return self.record.id

    @property
    def path(self) -> Path:
        """The optimised model."""
        return Path(self.record.optimized.path)

    @property
    def recipe(self) -> str:
        """The recipe as YAML, as it stands beside the model."""
        return recipe_yaml.dump(self.record.recipe)

    @property
    def speedups(self) -> dict[str, float]:
        """By engine, how many times as fast as the original it is."""
        return {one.engine: one.speedup for one in self.record.measured}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why an engine that was asked for has no comparison."""
        return self.record.problems

    @property
    def front(self) -> Front | None:
        """What was tried before it, where a goal was searched for."""
        return self.record.search

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(render.lines(self.record))

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer with weights."""
        return [asdict(layer) for layer in self.record.layers]

    def to_frame(self) -> Any:
        """The layers as a pandas DataFrame."""
        rows = self.rows()
        return frame(rows, list(rows[0]) if rows else [])

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON values."""
        return content_of(self.record)

    def to_json(self) -> str:
        """The same text that `inferlab optimize -x version.json` writes."""
        return render_result(self.record, ".json")

    def save(self, path: StrPath) -> None:
        """Write the report to a .json, .csv, .md or .html file; the model has been written already."""
        views.write(self.record, checked_path(path, files.ENDINGS))

    def _repr_html_(self) -> str:
        return tables.notebook(render.summary(self.record))
