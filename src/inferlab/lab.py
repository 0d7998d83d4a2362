"""The front door: what the command line, the pages and other people's code call."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.contests import Series, contest_title
from inferlab.doctor import Fact
from inferlab.errors import BadInput
from inferlab.executors import Executor, Local
from inferlab.measure.capacity import Capacity
from inferlab.measure.compare import Contest
from inferlab.measure.intervals import smallest_visible
from inferlab.measure.jobs import jobs as plan_jobs
from inferlab.measure.jobs import refuse_nonsense, tell_inputs, with_inputs_of
from inferlab.measure.objective import Objective
from inferlab.measure.recommend import Recommendation, Search
from inferlab.measure.saved import Saved, compare_saved
from inferlab.measure.setup import Job
from inferlab.model import demo, source
from inferlab.model.datasets import Data, load_data
from inferlab.optimizing.asked import Asked
from inferlab.optimizing.asked import refuse_nonsense_of as refuse_nonsense_of_version
from inferlab.optimizing.records import Front, Optimization
from inferlab.profiling.asked import Request, Wanted, refuse_nonsense_of
from inferlab.profiling.diff import LayerDiff, diff
from inferlab.profiling.records import Profile
from inferlab.records import Benchmark, Cell, Comparison, Listener, Model, Outcome, Plan, ignore
from inferlab.render import (
    capacity,
    comparison,
    files,
    fleet_recommend,
    front,
    optimization_files,
    profile_files,
    recommend,
    saved,
)
from inferlab.saving import Saver
from inferlab.searches import searching
from inferlab.store.entries import BENCHMARK, Document, Stored
from inferlab.sweep import Sweep
from inferlab.versions import Doors, Versioning

if TYPE_CHECKING:
    from inferlab.fleet.sweep import FleetSweep
    from inferlab.store.store import Store

# An id of the store, or the beginning of one, and the number of a cell.
_ID = re.compile(r"[a-z2-7]{4,10}(#\d+)?")
# Its calls take some milliseconds, as those of many models do.
_TRIAL_MODEL = "demo:mobilenet_v2"
# Machines that cannot see this in a minute make small improvements invisible.
_FINE = 0.03
_NOT_FOR_FOLDERS = frozenset({"onnxruntime", "openvino", "deepsparse", "executor"})


class Lab:
    """Runs plans on an executor, and saves what comes out in a store where it has one."""

    def __init__(
        self, store: Store | None = None, executor: Executor | None = None, project_id: str | None = None
    ) -> None:
        self._store = store
        self._executor = executor or Local()
        #: The project that what is measured shall belong to.
        self._project_id = project_id

    def benchmark(
        self, plan: Plan, listener: Listener = ignore, live: bool = False, against: str | None = None
    ) -> Benchmark:
        """Measure every cell of a plan; a cell's failure is its outcome and does not touch the others.

        With `live` the listener hears about once a second how far the measuring got. Ctrl-C ends the
        plan: what was measured is kept, what was not is pending. `against` is the id of a benchmark that it
        shall be shown beside.
        """
        refuse_nonsense(plan)
        model = read_model(plan.model, listener, plan.engines)
        saver = self._saver(listener)
        with self._sweeping(plan, model, saver, listener, live) as sweep:
            cells = sweep.planned()
            saver.begin(_from_anywhere(plan), model, [one.cell for one in cells], against)
            return sweep.run(cells, [Outcome(one.cell, "pending") for one in cells])

    @contextmanager
    def _sweeping(
        self, plan: Plan, model: Model, saver: Saver, listener: Listener, live: bool = False
    ) -> Iterator[Sweep | FleetSweep]:
        """The plan on its way, on this machine or through a cluster."""
        if plan.cluster is None:
            yield Sweep(plan, model, self._executor, saver, listener, live)
            return
        from inferlab.fleet.sweep import sweeping

        with sweeping(plan, model, saver, listener, live) as sweep:
            yield sweep

    def cells(self, plan: Plan, listener: Listener = ignore) -> tuple[Cell, ...]:
        """The cells that a plan would measure."""
        refuse_nonsense(plan)
        model = read_model(plan.model, listener, plan.engines)
        with self._sweeping(plan, model, Saver(None, listener), listener) as sweep:
            return tuple(one.cell for one in sweep.planned())

    def resume(self, entry_id: str | None = None, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Go on with a benchmark that was cut off, by default the newest; what is done is not measured again."""
        store = self._kept()
        wanted = entry_id or store.last_unfinished()
        if wanted is None:
            raise BadInput(f"Nothing is unfinished in the store {store.name}. See: inferlab history")
        stored = _benchmark(store, wanted)
        plan, outcomes = stored.benchmark.plan, stored.benchmark.outcomes
        refuse_nonsense(plan)
        model = _unchanged(stored.benchmark, listener)
        before = [_reopened(one) for one in outcomes]
        left = [one.cell for one in before if one.status == "pending"]
        saver = self._saver(listener, stored.id)
        with self._sweeping(plan, model, saver, listener, live) as sweep:
            cells = {one.cell.id: one for one in sweep.planned({cell.machine_type for cell in left})}
            if not all(cell.id in cells for cell in left):
                raise BadInput(
                    f"{stored.id} was begun on a machine with other cores, or its inputs changed since. "
                    f"Measure it anew: inferlab rerun {stored.id}"
                )
            store.reopen(stored.id)
            return sweep.run([cells[one.cell.id] for one in before if one.cell.id in cells], before)

    def rerun(self, entry_id: str, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Measure a saved benchmark again under the same conditions, as a new entry."""
        stored = _benchmark(self._kept(), entry_id)
        _unchanged(stored.benchmark, listener)
        return self.benchmark(stored.benchmark.plan, listener, live)

    def _kept(self) -> Store:
        if self._store is None:
            raise BadInput(
                "Without a store nothing was saved that could be measured again. Name one with --store."
            )
        return self._store

    def _save(self, kind: str, title: str, text: str, listener: Listener) -> None:
        """Save a result that is final JSON."""
        self._saver(listener).document(kind, title, json.loads(text))

    def _saver(self, listener: Listener, entry_id: str = "") -> Saver:
        return Saver(self._store, listener, entry_id, self._project_id)

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
        found = self._compared(a, b, labels, time_s, margin, listener)
        if self._store is not None:
            about, measured = comparison.content(found), comparison.outcomes(found)
            self._saver(listener).document("comparison", contest_title(a, b, labels), about, measured)
        return found

    def compare_all(
        self,
        a: Plan,
        b: Plan,
        labels: tuple[str, str] = ("A", "B"),
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
        entry_id: str = "",
    ) -> Series:
        """Compare plan B with plan A at each of their core counts and batch sizes, all saved as one entry.

        Each comparison is saved when it ends, and one that fails does not touch the others. `entry_id` is that of
        a series which was cut off and goes on: what it has is not measured again.
        """
        saver = self._saver(listener, entry_id)
        before = self._kept().get(entry_id) if entry_id else None
        known = before.content if isinstance(before, Document) else None
        series = Series(contest_title(a, b, labels), saver, listener, known)
        return series.run(
            a, b, lambda one, other: self._compared(one, other, labels, time_s, margin, series.listen)
        )

    def _compared(
        self, a: Plan, b: Plan, labels: tuple[str, str], time_s: float, margin: float, listener: Listener
    ) -> Comparison:
        _check_margin(margin)
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

    def compare_saved(self, a: str, b: str, margin: float = 0.01) -> Comparison:
        """Compare two results that were measured before: files, or ids in the store; unpaired, hence less sure."""
        _check_margin(margin)
        return compare_saved(self.saved_result(a), self.saved_result(b), margin)

    def is_saved(self, name: str) -> bool:
        """Whether a name means a saved result rather than a model."""
        if saved.is_file(name):
            return True
        entry_id = name.partition("#")[0]
        known = self._store is not None and _ID.fullmatch(name) is not None and self._store.has(entry_id)
        return known and not Path(entry_id).exists()

    def saved_result(self, name: str) -> Saved:
        """A result that was measured before, by its file or its id in the store."""
        if saved.is_file(name):
            return saved.load(name)
        entry_id, hash_sign, number = name.partition("#")
        benchmark = _benchmark(self._kept(), entry_id).benchmark
        results = [files.result(benchmark, one) for one in benchmark.outcomes]
        return saved.choose(name, results, number if hash_sign else None)

    def smallest_difference(self, time_s: float = 15.0, listener: Listener = ignore) -> Fact:
        """How small a difference could be seen here in one minute, from a model compared with itself."""
        plan = Plan(_TRIAL_MODEL, scenarios=("sync",), num_cores=(1,), verify=False)
        trial = Lab(executor=self._executor).compare(plan, plan, time_s=time_s, listener=listener)
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
        plan = replace(plan, scenarios=("async",), rates=(None,))
        job = self._only_job(plan, listener)
        tell_inputs(plan, job, listener)
        found = self._executor.capacity(replace(job, live=live), objective, listener)
        if self._store is not None:
            self._save("capacity", f"{plan.model} {objective.text}", capacity.to_json(found), listener)
        return found

    def _only_job(self, plan: Plan, listener: Listener) -> Job:
        refuse_nonsense(plan)
        model = read_model(plan.model, listener, plan.engines)
        job, *more = plan_jobs(plan, model)
        if more:
            raise BadInput(
                f"One cell at a time can be measured so, but this plan of {plan.model} has {1 + len(more)}. "
                "Give one value for each option."
            )
        return job

    def recommend(
        self, plan: Plan, objective: Objective | None = None, time_s: float = 120.0, listener: Listener = ignore
    ) -> Recommendation:
        """Find the configuration of highest throughput, of those that keep the objective where there is one.

        The plan's engines, cores, streams and batch sizes limit the search; an empty tuple leaves them open.
        """
        refuse_nonsense(replace(plan, time_s=time_s))
        model = read_model(plan.model, listener, plan.engines)
        found = self._executor.recommend(Search(plan, model, objective, time_s), listener)
        if self._store is not None:
            self._save("recommendation", plan.model, recommend.to_json(found), listener)
        return found

    def recommend_machine(
        self, plan: Plan, objective: Objective | None = None, time_s: float = 120.0, listener: Listener = ignore
    ) -> dict[str, Any]:
        """Find the best configuration on each machine type of the plan's cluster, the cheapest first, as JSON.

        The time is that of each machine; they search side by side.
        """
        if plan.cluster is None:
            raise BadInput("Machine types are those of a cluster. Name it with --cluster.")
        refuse_nonsense(replace(plan, time_s=time_s))
        model = read_model(plan.model, listener, plan.engines)
        from inferlab.fleet.search import search

        answers = search(plan, model, objective, time_s, listener)
        found = fleet_recommend.content(model, objective, dict(plan.prices), answers.by_type, answers.interrupted)
        self._saver(listener).document("recommendation", plan.model, found)
        return found

    def profile(self, plan: Plan, wanted: Wanted | None = None, listener: Listener = ignore) -> Profile:
        """Where the time of a model goes, and what pruning would buy and cost, in a plan of one cell.

        Each part is saved when it is done; Ctrl-C keeps those. What an engine could not do is a sentence in it.
        """
        wanted = wanted or Wanted()
        refuse_nonsense_of(wanted)
        plan = replace(plan, scenarios=("sync",), rates=(None,), num_streams=(None,), time_s=wanted.time_s)
        job = self._only_job(plan, listener)
        data = _profile_data(wanted, job)
        tell_inputs(plan, job, listener)
        saver = self._saver(listener)
        found: Profile | None = None
        try:
            for found in self._executor.profile(Request(job, wanted, data), listener):
                saver.document("profile", plan.model, profile_files.content(found))
        except KeyboardInterrupt:
            if found is None:
                raise
            found = replace(found, interrupted=True)
            saver.document("profile", plan.model, profile_files.content(found))
        assert found is not None, "a profile begins with what the architecture says"
        return replace(found, id=saver.id)

    def is_profile(self, name: str) -> bool:
        """Whether a name means a saved profile rather than a model."""
        if profile_files.is_file(name):
            return True
        return self.is_saved(name) and self._kept().headings([name])[0].kind != BENCHMARK

    def saved_profile(self, name: str) -> Profile:
        """A profile that was made before, by its file or its id in the store."""
        if profile_files.is_file(name):
            return profile_files.load(name)
        document = self._kept().get(name)
        if not isinstance(document, Document) or document.kind != "profile":
            raise BadInput(f"{document.id} is not a profile. List them with: inferlab history")
        return replace(profile_files.from_content(document.content, name), id=document.id)

    def optimize(self, plan: Plan, asked: Asked, listener: Listener = ignore) -> Optimization:
        """Make an optimised version of a model, and measure what it cost and gained, in a plan of one cell.

        It is saved when it is made and again after every engine; Ctrl-C keeps that. What an engine could not do
        is a sentence in it.
        """
        plan, job = self._to_optimize(plan, asked, listener)
        return Versioning(plan, asked, job, self._doors(listener), listener).run()

    def search(self, plan: Plan, asked: Asked, listener: Listener = ignore) -> Front:
        """Try recipes, cheapest first, for one that reaches the goal that is asked, in a plan of one cell.

        It is saved after each recipe; Ctrl-C keeps that. Whether the goal was reached says `chosen`, whose recipe
        `optimize` carries out.
        """
        if asked.goal is None:
            raise BadInput('A search needs a goal, such as "2x faster".')
        plan, job = self._to_optimize(plan, asked, listener)
        saver = self._saver(listener)
        found: Front | None = None
        for found in searching(plan, asked, job, self._doors(listener), listener):
            saver.document("search", plan.model, front.content(found))
        assert found is not None, "a search ends with what it found"
        return found

    def reach(
        self, plan: Plan, asked: Asked, listener: Listener = ignore, nearest: bool = False
    ) -> tuple[Front, Optimization | None]:
        """Search for a recipe that reaches the goal and make its version, with `nearest` what comes nearest to it.

        The version is measured anew: of many recipes, the one that is chosen may have been lucky.
        """
        found = self.search(plan, asked, listener)
        place = found.nearest if nearest and found.chosen is None else found.chosen
        if place is None or found.interrupted:
            return found, None
        recipe = found.candidates[place].recipe
        try:
            version = self.optimize(plan, replace(asked, recipe=recipe, goal=None), listener)
        except KeyboardInterrupt:
            return replace(found, interrupted=True), None
        return found, replace(version, search=found)

    def _to_optimize(self, plan: Plan, asked: Asked, listener: Listener) -> tuple[Plan, Job]:
        """The plan of the one cell that a version is measured in, and that cell for the original."""
        refuse_nonsense_of_version(asked)
        plan = replace(plan, scenarios=("sync",), rates=(None,), num_streams=(None,), time_s=asked.time_s)
        refuse_nonsense(replace(plan, engines=(*plan.engines, *asked.engines)))
        return plan, self._only_job(plan, listener)

    def _doors(self, listener: Listener) -> Doors:
        return Doors(
            executor=self._executor,
            saver=lambda: self._saver(listener),
            profile=lambda own, wanted: self.profile(own, wanted, listener),
            saved_profile=self.saved_profile,
        )

    def saved_optimization(self, name: str) -> Optimization:
        """A version that was made before, by its file or its id in the store."""
        if profile_files.is_file(name):
            return optimization_files.load(name)
        document = self._kept().get(name)
        if not isinstance(document, Document) or document.kind != "version":
            raise BadInput(f"{document.id} is not an optimised version. List them with: inferlab history")
        return replace(optimization_files.from_content(document.content, name), id=document.id)

    @staticmethod
    def layer_diff(a: Profile, b: Profile) -> LayerDiff:
        """Which layers of B differ from A's, by how much, and how sure that is."""
        return diff(a, b)


def read_model(name: str, listener: Listener = ignore, engines: Sequence[str] = ()) -> Model:
    """Find a model by its source and read what it is, unless none of the engines could run it."""
    located = source.locate(name, listener)
    if located.kind == "transformers" and engines and _NOT_FOR_FOLDERS.issuperset(engines):
        raise BadInput(
            f"{name} is a Hugging Face folder, which the engine torch runs (-e torch). "
            f"Export it first for other engines: inferlab export {name} -o model.onnx"
        )
    if located.kind == "onnx":
        from inferlab.model.graph import read_onnx

        return read_onnx(located.path, name)
    from inferlab.model.inspect import inspect_foreign

    return inspect_foreign(located.path, located.kind, name)


def _profile_data(wanted: Wanted, job: Job) -> Data | None:
    if wanted.data_file is None:
        return None
    file = demo.digits_data() if wanted.data_file == "demo:digits" else wanted.data_file
    return load_data(file, job.model.inputs, job.model.outputs, job.cell.batch_size)


def _check_margin(margin: float) -> None:
    if not 0 < margin < 1:
        raise BadInput(f"The margin must lie between 0 and 100 %, not {100 * margin:g} %.")


def _from_anywhere(plan: Plan) -> Plan:
    """The plan with whole paths: it may be measured again from another folder."""

    def whole(path: str) -> str:
        return str(Path(path).resolve()) if Path(path).exists() else path

    data = None if plan.input_file is None else whole(plan.input_file)
    return replace(plan, model=whole(plan.model), input_file=data)


def _benchmark(store: Store, entry_id: str) -> Stored:
    found = store.get(entry_id)
    if isinstance(found, Document):
        raise BadInput(f"{found.id} is a {found.kind}, not a benchmark. See it with: inferlab show {found.id}")
    return found


def _reopened(outcome: Outcome) -> Outcome:
    """An outcome that can go on: without the runs that were cut short, or the failure of a lost machine."""
    lost = outcome.failure is not None and outcome.failure.code == "lost"
    if outcome.status != "cancelled" and not lost:
        return outcome
    runs = tuple(run for run in outcome.runs if not run.interrupted)
    return Outcome(outcome.cell, "pending", runs)


def _unchanged(benchmark: Benchmark, listener: Listener) -> Model:
    """The benchmark's model as it is now; refused if it is another one."""
    model = read_model(benchmark.plan.model, listener)
    if model.digest != benchmark.model.digest:
        raise BadInput(
            f"The model {model.source} has changed since it was measured. Measure it as it is now: "
            f"inferlab benchmark {model.source}"
        )
    return model
