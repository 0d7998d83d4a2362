"""Where work is measured: nothing but an executor knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from inferlab.lab.benchmark import LocalSweep
from inferlab.measure import capacity, cell, paired, recommend
from inferlab.measure.paired import ComparisonJob
from inferlab.measure.prepare import Job
from inferlab.measure.recommend import Search
from inferlab.profiling.options import Request
from inferlab.records import (
    Benchmark,
    Capacity,
    Cell,
    Comparison,
    FleetRecommendation,
    Listener,
    Model,
    Objective,
    Outcome,
    Plan,
    Recommendation,
    Run,
)
from inferlab.records.profile import Profile
from inferlab.store.saving import Saver


class CellSweep(Protocol):
    """The cells of a plan on their way."""

    def planned(self, only: Collection[str | None] | None = None) -> list[Cell]:
        """The cells of the plan; those of some machine types alone, where there are several."""

    def run(self, cells: Sequence[Cell], before: Sequence[Outcome]) -> Benchmark:
        """Measure what is not done or failed yet; Ctrl-C leaves the rest pending."""


class Executor(Protocol):
    """Measures somewhere; each method raises what went wrong."""

    def sweep(
        self, plan: Plan, model: Model, saver: Saver, listener: Listener, live: bool
    ) -> AbstractContextManager[CellSweep]:
        """The cells of a plan, to be measured and saved run by run."""

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """Compare two jobs on one machine."""

    def capacity(self, job: Job, objective: Objective, listener: Listener) -> Capacity:
        """Find the highest rate at which a job meets an objective."""

    def recommend(self, search: Search, listener: Listener) -> Recommendation | FleetRecommendation:
        """Find the best configuration, on one machine or on each of several types."""

    def profile(self, request: Request, listener: Listener) -> Iterator[Profile]:
        """Profile a model on one machine: the profile as it grows, part by part."""


def executor_for(plan: Plan) -> Executor:
    """Where a plan is to be measured: here, or on the nodes of its cluster."""
    if plan.cluster is None:
        return Local()
    from inferlab.fleet.executor import Ray  # late: most plans have no cluster

    return Ray(plan.cluster)


class Local:
    """Measures on this machine, in children of this process."""

    def sweep(
        self, plan: Plan, model: Model, saver: Saver, listener: Listener, live: bool
    ) -> AbstractContextManager[CellSweep]:
        """The cells of a plan, one after the other."""
        return nullcontext(LocalSweep(plan, model, self.measure, saver, listener, live))

    def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
        """Measure one job, each Run as soon as it is there; `before` are the runs that it has already."""
        return cell.measure(job, before, listener)

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """Compare two jobs."""
        return paired.compare(job, listener)

    def capacity(self, job: Job, objective: Objective, listener: Listener) -> Capacity:
        """Find the highest rate at which a job meets an objective."""
        return capacity.find_capacity(job, objective, listener)

    def recommend(self, search: Search, listener: Listener) -> Recommendation | FleetRecommendation:
        """Find the best configuration on this machine."""
        return recommend.recommend(search, listener)

    def profile(self, request: Request, listener: Listener) -> Iterator[Profile]:
        """Profile a model part by part."""
        from inferlab.profiling.build import build_profile

        return build_profile(request, listener)
