"""What the Python API hands out of a profile: the record with the views that people ask for."""

from __future__ import annotations

from dataclasses import asdict
from numbers import Real
from typing import TYPE_CHECKING, Any

from inferlab import views
from inferlab.errors import BadInput
from inferlab.profiling.diff import LayerDiff, diff
from inferlab.profiling.estimate import BUDGET, with_estimate
from inferlab.records.profile import Profile, PruningEstimate
from inferlab.results import checked_path, frame
from inferlab.units import escape_controls
from inferlab.views import files, profile_tables, tables
from inferlab.views import profile as render
from inferlab.views.charts import profiles as charts
from inferlab.views.results import render as render_result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from inferlab.results import StrPath


class ProfileResult:
    """Where a model's time goes, what pruning would buy and what it would cost."""

    def __init__(self, record: Profile) -> None:
        #: All that is known, as frozen records.
        self.record = record

    def __str__(self) -> str:
        return escape_controls(self.table())

    def __repr__(self) -> str:
        found = self.record.performance
        parts = [] if found is None else [f"{found.engine}, {found.ms_per_batch:.4g} ms/batch"]
        return (
            f"<ProfileResult of {self.record.model.source}: {', '.join([*parts, f'{len(self.rows())} layers'])}>"
        )

    @property
    def id(self) -> str:
        """Its name in the store; empty where it was not saved."""
        return self.record.id

    @property
    def ms_per_batch(self) -> float | None:
        """The clean time of the whole model; None where nothing was measured."""
        return None if self.record.performance is None else self.record.performance.ms_per_batch

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a profile that was asked for is not there."""
        return self.record.problems

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(render.lines(self.record))

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer: those that the engine executed, or the graph's nodes where nothing was measured."""
        return profile_tables.layer_rows(self.record)

    def loss_rows(self) -> list[dict[str, Any]]:
        """One row a layer that can be pruned."""
        if self.record.loss is None:
            return []
        rows = []
        for layer in self.record.loss.layers:
            row = asdict(layer)
            losses, accuracies = row.pop("losses"), row.pop("accuracies")
            rows.append(
                {
                    **row,
                    **{f"loss_{level}": loss for level, loss in losses.items()},
                    **{f"accuracy_{level}": one for level, one in accuracies.items()},
                }
            )
        return rows

    def to_frame(self) -> Any:
        """The layers as a pandas DataFrame."""
        rows = self.rows()
        return frame(rows, list(dict.fromkeys(name for row in rows for name in row)))

    def to_json(self) -> str:
        """The same text that `inferlab profile -x profile.json` writes."""
        return render_result(self.record, ".json")

    def save(self, path: StrPath) -> None:
        """Write it to a file: .json has all of it, .html is the report, .md what is printed, .csv the layers."""
        views.write(self.record, checked_path(path, files.ENDINGS))

    def estimate(self, budget: float = BUDGET) -> PruningEstimate | None:
        """Which sparsity each layer takes under a loss budget, and what time that gives."""
        return self.with_budget(budget).record.estimate

    def with_budget(self, budget: float) -> ProfileResult:
        """The same profile with the estimate for another budget in all its views."""
        if not isinstance(budget, Real):
            raise BadInput(f"budget is a number, not {budget!r} ({type(budget).__name__}).")
        return ProfileResult(with_estimate(self.record, float(budget)))

    def against(self, other: ProfileResult) -> LayerDiff:
        """How its layers compare with another's: which differ, by how much, and how sure that is."""
        return diff(other.record, self.record)

    def plot_layers(self, summary: str = "baseline", value: str = "values") -> Figure:
        """A Plotly figure of the layers in order; `summary` and `value` as in the report's selectors."""
        return charts.layer_results(self.record, summary, value)

    def plot_types(self, summary: str = "baseline", value: str = "values") -> Figure:
        """A Plotly figure of the time by type of layer."""
        return charts.layer_summaries(self.record, summary, value)

    def plot_loss(self) -> Figure:
        """A Plotly figure of each layer's sensitivity to pruning."""
        return charts.loss_sensitivities(self.record)

    def plot_roofline(self) -> Figure:
        """A Plotly figure of the layers under this machine's ceilings."""
        return charts.roofline(self.record)

    def _repr_html_(self) -> str:
        return tables.notebook(render.blocks(self.record, shown=0))
