"""What the Python API hands out of a profile and of an optimised version."""

from __future__ import annotations

from dataclasses import asdict
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.optimizing import recipes
from inferlab.profiling.diff import LayerDiff, diff
from inferlab.profiling.gains import best_gain, recipe_of_gain, with_estimate
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import BUDGET, Gain, Profile, PruningEstimate
from inferlab.results import RecordResult, data_frame
from inferlab.views import optimization, profile, tables
from inferlab.views.charts import losses, profiles
from inferlab.views.reports.profile import layer_rows

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class ProfileResult(RecordResult[Profile]):
    """Where a model's time goes, what pruning would buy and what it would cost."""

    def __repr__(self) -> str:
        found = self.record.performance
        parts = [] if found is None else [f"{found.engine}, {found.ms_per_batch:.4g} ms/batch"]
        return (
            f"<ProfileResult of {self.record.model.source}: {', '.join([*parts, f'{len(self.rows())} layers'])}>"
        )

    @property
    def ms_per_batch(self) -> float | None:
        """The clean time of the whole model; None where nothing was measured."""
        return None if self.record.performance is None else self.record.performance.ms_per_batch

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a profile that was asked for is not there."""
        return self.record.problems

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer: those that the engine executed, or the graph's nodes where nothing was measured."""
        return layer_rows(self.record)

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
                    **{f"accuracy_{level}": accuracy for level, accuracy in accuracies.items()},
                }
            )
        return rows

    def to_frame(self) -> Any:
        """The layers as a pandas DataFrame."""
        rows = self.rows()
        return data_frame(rows, list(dict.fromkeys(name for row in rows for name in row)))

    @property
    def gains(self) -> tuple[Gain, ...]:
        """All that was tried on the engine: what counts within the budget first, the fastest at the top."""
        return self.record.gains

    @property
    def best(self) -> Gain | None:
        """What the estimate consists of; None where nothing that was tried counts."""
        return best_gain(self.record)

    def recipe(self, gain: Gain | None = None) -> str:
        """The recipe of a gain, by default of the best, as YAML for `optimize(…, recipe=…)`."""
        chosen = gain or self.best
        recipe = None if chosen is None else recipe_of_gain(self.record, chosen)
        if recipe is None:
            raise BadInput("There is no recipe: nothing that was tried counts within the loss budget.")
        return recipes.dump(recipe)

    def estimate(self, budget: float = BUDGET) -> PruningEstimate | None:
        """Which sparsity each layer takes under a loss budget, and what time that gives.

        That is of zeros alone; `with_budget(budget).best` is the best of INT8, channels and zeros.
        """
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
        return profiles.layer_results(self.record, summary, value)

    def plot_types(self, summary: str = "baseline", value: str = "values") -> Figure:
        """A Plotly figure of the time by type of layer."""
        return profiles.layer_summaries(self.record, summary, value)

    def plot_loss(self) -> Figure:
        """A Plotly figure of each layer's sensitivity to pruning."""
        return losses.loss_sensitivities(self.record)

    def plot_roofline(self) -> Figure:
        """A Plotly figure of the layers under this machine's ceilings."""
        return profiles.roofline(self.record)

    def _blocks(self) -> list[tables.Block]:
        return profile.blocks(self.record, shown=0)


class OptimizationResult(RecordResult[Optimization]):
    """An optimised model, the recipe that made it, and what it cost and gained."""

    def __repr__(self) -> str:
        found = [f"{one.engine} {one.speedup:.3g}x" for one in self.record.measured]
        return f"<OptimizationResult of {self.record.model.source}: {', '.join([self.record.name, *found])}>"

    @property
    def path(self) -> Path:
        """The optimised model."""
        return Path(self.record.optimized.path)

    @property
    def recipe(self) -> str:
        """The recipe as YAML, as it stands beside the model."""
        return recipes.dump(self.record.recipe)

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

    def rows(self) -> list[dict[str, Any]]:
        """One row a layer with weights."""
        return [asdict(layer) for layer in self.record.layers]

    def to_frame(self) -> Any:
        """The layers as a pandas DataFrame."""
        rows = self.rows()
        return data_frame(rows, list(rows[0]) if rows else [])

    def _blocks(self) -> list[tables.Block]:
        return optimization.summary(self.record)
