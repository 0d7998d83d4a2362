"""Where work is measured: here, cell after cell, or elsewhere; nothing but an executor knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from inferlab.errors import BadInput, EngineFailed
from inferlab.measure.cell import check_alike, check_options, failure_of, measure
from inferlab.measure.cells import Job, cells_of, in_random_order, make_job, tell_inputs
from inferlab.records import Benchmark, Cell, Event, Failure, Listener, Model, Outcome, Plan, Run, Status
from inferlab.store import Saver

if TYPE_CHECKING:  # a benchmark passes through none of these
    from inferlab.measure.paired import ComparisonJob
    from inferlab.measure.recommend import Search
    from inferlab.profiling.build import Request
    from inferlab.records import Capacity, Comparison, FleetRecommendation, Objective, Recommendation
    from inferlab.records.generation import GenerationPlan
    from inferlab.records.profile import Profile

P = TypeVar("P", "Plan", "GenerationPlan")

# Options that name files.
_PATHS = ("model", "input_file", "prompts_file", "audio")
#: Of several cells only this is told, or the log would be a book.
WORTH_TELLING = ("download", "build", "reference", "waiting", "unlocked", "unsaved", "cell", "measured")


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
        return nullcontext(LocalSweep(self, plan, model, saver, listener, live))

    def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
        """Measure one job, each Run as soon as it is there; `before` are the runs that it has already."""
        return measure(job, before, listener)

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """Compare two jobs."""
        from inferlab.measure import paired

        return paired.compare(job, listener)

    def capacity(self, job: Job, objective: Objective, listener: Listener) -> Capacity:
        """Find the highest rate at which a job meets an objective."""
        from inferlab.measure.capacity import find_capacity

        return find_capacity(job, objective, listener)

    def recommend(self, search: Search, listener: Listener) -> Recommendation | FleetRecommendation:
        """Find the best configuration on this machine."""
        from inferlab.measure import recommend

        return recommend.recommend(search, listener)

    def profile(self, request: Request, listener: Listener) -> Iterator[Profile]:
        """Profile a model part by part."""
        from inferlab.profiling.build import build_profile

        return build_profile(request, listener)


class LocalSweep:
    """A plan on its way on this machine: each cell is saved as it goes, none touches another."""

    def __init__(
        self, executor: Local, plan: Plan, model: Model, saver: Saver, listener: Listener, live: bool
    ) -> None:
        self._executor, self._plan, self._model = executor, plan, model
        self._saver, self._listen, self._live = saver, listener, live
        self._done, self._of = 0, 1

    def planned(self, only: Collection[str | None] | None = None) -> list[Cell]:
        """The cells of the plan; those of machine types alone, where a cluster has several."""
        cells = cells_of(self._plan, self._model)
        check_options(cells)
        return cells

    def run(self, cells: Sequence[Cell], before: Sequence[Outcome]) -> Benchmark:
        """Measure what is not done or failed yet; Ctrl-C leaves the rest pending."""
        outcomes = {outcome.cell.id: outcome for outcome in before}
        unfinished = [cell for cell in cells if outcomes[cell.id].status in ("pending", "cancelled")]
        waiting = in_random_order(unfinished, self._plan.seed)
        self._done, self._of = len(cells) - len(waiting), len(cells)
        several = self._of > 1
        tell = self._tell if several else self._listen
        for cell in waiting:
            # The inputs are made again for each cell: those of all would fill the memory.
            job = make_job(self._plan, self._model, cell, self._live)
            if several:
                tell(Event("cell", {"cell": cell, "number": self._done + 1, "of": self._of}))
            tell_inputs(self._plan, job, tell)
            known = outcomes[cell.id].runs
            runs = list(known)

            with cell_status() as end:
                for run in self._executor.measure(job, known, tell):
                    check_alike(known, run)
                    runs.append(run)
                    self._saver.run(cell, run)
            if end.failure is None and any(run.interrupted for run in runs):
                end.status = "cancelled"
            outcome = Outcome(cell, end.status, tuple(runs), end.failure)
            outcomes[cell.id] = outcome
            self._saver.finish(outcome)
            if several:
                tell(Event("measured", {"outcome": outcome}))
            self._done += 1
            if end.status == "cancelled":
                break
        return Benchmark(self._plan, self._model, tuple(outcomes.values()), self._saver.id)

    def _tell(self, event: Event) -> None:
        """Of several cells, pass on what is worth telling, with how much of the whole is done."""
        if event.fraction is not None:
            whole = (self._done + event.fraction) / self._of
            self._listen(replace(event, fraction=whole))
        elif event.code in WORTH_TELLING:
            self._listen(event)


@dataclass(slots=True)
class CellStatus:
    """What became of a cell."""

    status: Status = "done"
    failure: Failure | None = None


@contextmanager
def cell_status() -> Iterator[CellStatus]:
    """What becomes of the cell that is measured inside: its failure touches no other."""
    end = CellStatus()
    try:
        yield end
    except KeyboardInterrupt:
        end.status = "cancelled"
    except (BadInput, EngineFailed) as error:
        end.status, end.failure = "failed", failure_of(error)


def with_absolute_paths(plan: P) -> P:
    """The plan with whole paths: it may be measured again from another folder."""
    values: dict[str, Any] = {name: getattr(plan, name, None) for name in _PATHS}
    paths = {name: Path(value) for name, value in values.items() if value is not None}
    values = {name: str(path.resolve()) for name, path in paths.items() if path.exists()}
    return replace(plan, **values)
