"""Measure the cells of a plan one after the other; each is saved as it goes, none touches another."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection, Sequence

from inferlab.errors import BadInput, EngineFailed, EngineHung, EngineRefused
from inferlab.executors import Executor
from inferlab.measure.cells import Planned, job, planned, tell_inputs
from inferlab.measure.prepare import Job
from inferlab.records import Benchmark, Event, Failure, Listener, Model, Outcome, Plan, Run, Status
from inferlab.saving import Saver

# Of several cells only this is told, or the log would be a book.
_WORTH_TELLING = ("download", "build", "reference", "waiting", "unlocked", "unsaved", "cell", "measured")


class Sweep:
    """A plan on its way: what became of each cell so far."""

    def __init__(
        self, plan: Plan, model: Model, executor: Executor, saver: Saver, listener: Listener, live: bool
    ) -> None:
        self._plan, self._model, self._executor = plan, model, executor
        self._saver, self._listen, self._live = saver, listener, live
        self._several = False
        self._done, self._of = 0, 1

    def planned(self, only: Collection[str | None] | None = None) -> list[Planned]:
        """The cells of the plan; those of machine types alone, where a cluster has several."""
        return planned(self._plan, self._model)

    def run(self, cells: Sequence[Planned], before: Sequence[Outcome]) -> Benchmark:
        """Measure what is not done or failed yet; Ctrl-C leaves the rest pending."""
        outcomes = {one.cell.id: one for one in before}
        waiting = [one for one in cells if outcomes[one.cell.id].status in ("pending", "cancelled")]
        self._several = len(cells) > 1
        self._done, self._of = len(cells) - len(waiting), len(cells)
        # By lot, so that a machine that slows down with time does not slow down one end of the table.
        random.Random(self._plan.seed).shuffle(waiting)  # noqa: S311  lots for fairness, no secret
        for one in waiting:
            # The inputs are made anew for each cell: those of all would fill the memory.
            outcome = self._measure(job(self._plan, self._model, one, self._live), outcomes[one.cell.id].runs)
            outcomes[one.cell.id] = outcome
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
            for run in self._executor.measure(one, before, self._tell):
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


def check_alike(before: Sequence[Run], run: Run, across_machines: bool = False) -> None:
    """Refuse to go on with a cell that was begun under other conditions: unlike runs do not average.

    `across_machines` allows another machine that is alike; a finding says then that there were several.
    """
    names = ("versions", "settings") if across_machines else ("machine", "versions", "settings")
    for name in names:
        if before and getattr(before[0], name) != getattr(run, name):
            raise BadInput(
                f"This cell was begun with another {_CONDITIONS[name]}, and runs of both cannot be pooled. "
                "Measure it anew: inferlab rerun"
            )


_CONDITIONS = {"machine": "machine", "versions": "version of the engine or of inferlab", "settings": "setting"}


def explained(one: Job, error: BadInput) -> str:
    """A refusal, with what we did to the model that may have caused it."""
    message = str(error)
    if one.rewrite_batch is not None:
        own, wanted = one.rewrite_batch
        return f"{message} (The model fixes its batch size to {own}; a copy rewritten for {wanted} was tried.)"
    open_dims = any(not isinstance(dim, int) for spec in one.model.inputs for dim in (spec.dims or ())[1:])
    if open_dims and isinstance(error, EngineRefused):
        shapes_tried = ", ".join(f"{name}={list(shape)}" for name, shape in one.cell.shapes)
        return f"{message} (Tried with {shapes_tried}; other shapes are given with -shapes or --sequence_length.)"
    return message
