"""Measure the cells of a plan one after the other; each is saved as it goes, none touches another."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Iterator, Sequence

from inferlab.errors import BadInput, EngineFailed, EngineHung
from inferlab.measure.cell import check_alike, explained
from inferlab.measure.cells import cells_of, make_job, tell_inputs
from inferlab.measure.prepare import Job
from inferlab.records import Benchmark, Cell, Event, Failure, Listener, Model, Outcome, Plan, Run, Status
from inferlab.store.saving import Saver

#: Measures a job: each Run as soon as it is there.
Measure = Callable[[Job, Sequence[Run], Listener], Iterator[Run]]
# Of several cells only this is told, or the log would be a book.
_WORTH_TELLING = ("download", "build", "reference", "waiting", "unlocked", "unsaved", "cell", "measured")


class LocalSweep:
    """A plan on its way on this machine: what became of each cell so far."""

    def __init__(
        self, plan: Plan, model: Model, measure: Measure, saver: Saver, listener: Listener, live: bool
    ) -> None:
        self._plan, self._model, self._runs_of = plan, model, measure
        self._saver, self._listen, self._live = saver, listener, live
        self._several = False
        self._done, self._of = 0, 1

    def planned(self, only: Collection[str | None] | None = None) -> list[Cell]:
        """The cells of the plan; those of machine types alone, where a cluster has several."""
        return cells_of(self._plan, self._model)

    def run(self, cells: Sequence[Cell], before: Sequence[Outcome]) -> Benchmark:
        """Measure what is not done or failed yet; Ctrl-C leaves the rest pending."""
        outcomes = {one.cell.id: one for one in before}
        waiting = [cell for cell in cells if outcomes[cell.id].status in ("pending", "cancelled")]
        self._several = len(cells) > 1
        self._done, self._of = len(cells) - len(waiting), len(cells)
        # In random order, so that a machine that slows down with time does not slow down one end of the table.
        random.Random(self._plan.seed).shuffle(waiting)  # noqa: S311  for fairness, no secret
        for cell in waiting:
            # The inputs are made again for each cell: those of all would fill the memory.
            outcome = self._measure(make_job(self._plan, self._model, cell, self._live), outcomes[cell.id].runs)
            outcomes[cell.id] = outcome
            self._done += 1
            if outcome.status == "cancelled":
                break
        return Benchmark(self._plan, self._model, tuple(outcomes.values()), self._saver.id)

    def _measure(self, one: Job, before: tuple[Run, ...]) -> Outcome:
        self._tell(Event("cell", {"cell": one.cell, "number": self._done + 1, "of": self._of}))
        tell_inputs(self._plan, one, self._tell)
        runs = list(before)
        failure = None
        status: Status = "done"
        try:
            for run in self._runs_of(one, before, self._tell):
                check_alike(before, run)
                runs.append(run)
                self._saver.run(one.cell, run)
        except KeyboardInterrupt:
            status = "cancelled"
        except BadInput as error:
            failure = Failure("refused", explained(one, error))
        except EngineHung as error:
            failure = Failure("hung", str(error))
        except EngineFailed as error:
            failure = Failure("died", str(error))
        if any(run.interrupted for run in runs):
            status = "cancelled"
        outcome = Outcome(one.cell, "failed" if failure else status, tuple(runs), failure)
        self._saver.finish(outcome)
        self._tell(Event("measured", {"outcome": outcome}))
        return outcome

    def _tell(self, event: Event) -> None:
        """Pass on what is worth telling, with how much of the whole is done."""
        if not self._several:
            if event.code not in ("cell", "measured"):
                self._listen(event)
        elif event.fraction is not None:
            whole = (self._done + event.fraction) / self._of
            self._listen(dataclasses.replace(event, fraction=whole))
        elif event.code in _WORTH_TELLING:
            self._listen(event)
