"""The front door: what the command line, the pages and other people's code call."""

from __future__ import annotations

import dataclasses
import math

from inferlab.doctor import Fact
from inferlab.errors import BadInput, EngineFailed, EngineHung, EngineRefused
from inferlab.executors import Executor, Local
from inferlab.measure.capacity import Capacity
from inferlab.measure.compare import Contest
from inferlab.measure.intervals import smallest_visible
from inferlab.measure.jobs import jobs as plan_jobs
from inferlab.measure.jobs import refuse_nonsense, tell_inputs, with_inputs_of
from inferlab.measure.objective import Objective
from inferlab.measure.recommend import Recommendation, Search
from inferlab.measure.setup import Job
from inferlab.model import source
from inferlab.records import (
    Benchmark,
    Comparison,
    Failure,
    Listener,
    Model,
    Outcome,
    Plan,
    Run,
    Status,
    ignore,
)

# Its calls take some milliseconds, as those of many models do.
_TRIAL_MODEL = "demo:mobilenet_v2"
# Machines that cannot see this in a minute make small improvements invisible.
_FINE = 0.03


class Lab:
    """Runs plans on an executor."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or Local()

    def benchmark(self, plan: Plan, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Measure every cell of a plan; a cell's failure is its outcome and does not touch the others.

        With `live` the listener hears about once a second how far the measuring got. Ctrl-C ends the
        plan: what was measured is kept, what was not is pending.
        """
        refuse_nonsense(plan)
        model = read_model(plan.model, listener)
        jobs = list(plan_jobs(plan, model, live))
        outcomes: list[Outcome] = []
        for job in jobs:
            tell_inputs(plan, job, listener)
            outcome = self._measure(job, listener)
            outcomes.append(outcome)
            if outcome.status == "cancelled":
                break
        outcomes += [Outcome(job.cell, "pending") for job in jobs[len(outcomes) :]]
        return Benchmark(plan, model, tuple(outcomes))

    def _measure(self, job: Job, listener: Listener) -> Outcome:
        runs: list[Run] = []
        failure = None
        status: Status = "done"
        try:
            for run in self._executor.measure(job, listener):
                runs.append(run)
        except KeyboardInterrupt:
            status = "cancelled"
        except BadInput as error:
            failure = Failure("refused", _explained(job, error))
        except EngineHung as error:
            failure = Failure("hung", str(error))
        except EngineFailed as error:
            failure = Failure("died", str(error))
        if any(run.interrupted for run in runs):
            status = "cancelled"
        return Outcome(job.cell, "failed" if failure else status, tuple(runs), failure)

    def compare(
        self,
        a: Plan,
        b: Plan,
        labels: tuple[str, str] = ("A", "B"),
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
    ) -> Comparison:
        """Compare plan B with plan A, each of one cell, in turns; raises what an engine did wrong."""
        if not 0 < margin < 1:
            raise BadInput(f"The margin must lie between 0 and 100 %, not {100 * margin:g} %.")
        if not 0 < time_s < math.inf:
            raise BadInput(f"The time must be more than 0 seconds and end one day, not {time_s:g}.")
        if "server" in (*a.scenarios, *b.scenarios):
            raise BadInput(
                "Arms are compared at full load, not at a rate of requests. Use -s sync or -s async, or compare "
                "what each can serve: inferlab capacity"
            )
        jobs = [self._only_job(plan, listener) for plan in (a, b)]
        jobs[1] = with_inputs_of(jobs[1], jobs[0])
        return self._executor.compare(Contest(jobs[0], jobs[1], labels, time_s, margin), listener)

    def smallest_difference(self, time_s: float = 15.0, listener: Listener = ignore) -> Fact:
        """How small a difference could be seen here in one minute, from a model compared with itself."""
        plan = Plan(_TRIAL_MODEL, scenarios=("sync",), num_cores=(1,), verify=False)
        trial = self.compare(plan, plan, time_s=time_s, listener=listener)
        pair_s = trial.seconds / len(trial.pairs)
        visible = smallest_visible(trial.ratio, len(trial.pairs), 60.0 / pair_s)
        data = {"visible": visible, "pairs": len(trial.pairs), "seconds": trial.seconds, "model": _TRIAL_MODEL}
        if visible is None:
            return Fact("smallest-difference", "unknown", data)
        return Fact("smallest-difference", "good" if visible <= _FINE else "warn", data)

    def capacity(
        self, plan: Plan, objective: Objective, listener: Listener = ignore, live: bool = False
    ) -> Capacity:
        """Find the highest rate that keeps an objective, in a plan of one cell; its scenario is always server."""
        plan = dataclasses.replace(plan, scenarios=("async",), rates=(None,))
        job = self._only_job(plan, listener)
        tell_inputs(plan, job, listener)
        return self._executor.capacity(dataclasses.replace(job, live=live), objective, listener)

    def _only_job(self, plan: Plan, listener: Listener) -> Job:
        refuse_nonsense(plan)
        model = read_model(plan.model, listener)
        job, *more = plan_jobs(plan, model)
        if more:
            raise BadInput(
                f"One cell is compared with another, but this plan of {plan.model} has {1 + len(more)}."
            )
        return job

    def recommend(
        self, plan: Plan, objective: Objective | None = None, time_s: float = 120.0, listener: Listener = ignore
    ) -> Recommendation:
        """Find the configuration of highest throughput, of those that keep the objective where there is one.

        The plan's engines, cores, streams and batch sizes limit the search; an empty tuple leaves them open.
        """
        refuse_nonsense(dataclasses.replace(plan, time_s=time_s))
        model = read_model(plan.model, listener)
        return self._executor.recommend(Search(plan, model, objective, time_s), listener)


def read_model(name: str, listener: Listener = ignore) -> Model:
    """Find a model by its source and read what it is."""
    located = source.locate(name, listener)
    if located.kind == "transformers":
        raise BadInput(f"{name} is a Hugging Face folder. Export it first: inferlab export {name} -o model.onnx")
    if located.kind == "onnx":
        from inferlab.model.graph import read_onnx

        return read_onnx(located.path, name)
    from inferlab.model.inspect import inspect_foreign

    return inspect_foreign(located.path, located.kind, name)


def _explained(job: Job, error: BadInput) -> str:
    """A refusal, with what we did to the model that may have caused it."""
    message = str(error)
    if job.rewrite_batch is not None:
        own, wanted = job.rewrite_batch
        return f"{message} (The model fixes its batch size to {own}; a copy rewritten for {wanted} was tried.)"
    open_dims = any(not isinstance(dim, int) for spec in job.model.inputs for dim in (spec.dims or ())[1:])
    if open_dims and isinstance(error, EngineRefused):
        shapes_tried = ", ".join(f"{name}={list(shape)}" for name, shape in job.cell.shapes)
        return f"{message} (Tried with {shapes_tried}; other shapes are given with -shapes or --sequence_length.)"
    return message
