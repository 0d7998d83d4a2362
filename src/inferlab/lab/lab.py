"""The front door: what the command line, the pages and other people's code call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from inferlab.errors import BadInput, InferlabError
from inferlab.lab.executor import Executor, executor_for, with_absolute_paths
from inferlab.lab.lookup import Lookup, drop_cut_runs, read_unchanged_model
from inferlab.measure.cells import Job, only_job, tell_inputs, validate_plan
from inferlab.model.reading import names_generative, read_model
from inferlab.records import Benchmark, Cell, Event, Listener, Outcome, Plan, ignore
from inferlab.settings import entry_labels
from inferlab.store import Saver, open_store
from inferlab.worker import time_limit

if TYPE_CHECKING:  # a benchmark passes through none of these rooms
    from collections.abc import Callable, Mapping

    from inferlab.lab.bisection import BisectionRequest
    from inferlab.lab.generation import MadeOfGenerations, PlannedGeneration
    from inferlab.model.inputs import Data
    from inferlab.profiling.diff import LayerDiff
    from inferlab.records import (
        Capacity,
        Comparison,
        ComparisonSweep,
        Fact,
        FleetRecommendation,
        Objective,
        Recommendation,
    )
    from inferlab.records.capacity import GenerationCapacity
    from inferlab.records.comparison import ComparedMetric, GenerationComparison, GenerationComparisonSweep
    from inferlab.records.generation import GenerationPlan, GenerationSweep
    from inferlab.records.optimization import Front, Goal, Optimization, VersionOptions
    from inferlab.records.profile import Profile, ProfileOptions
    from inferlab.records.recommendation import GenerationRecommendation
    from inferlab.records.series import Bisection
    from inferlab.store.store import Store

__all__ = ["Lab", "read_model"]
R = TypeVar(
    "R",
    "Capacity",
    "Recommendation | FleetRecommendation",
    "GenerationSweep",
    "GenerationComparison",
    "GenerationCapacity",
    "GenerationRecommendation",
)


class Lab(Lookup):
    """Runs plans on an executor, and saves what comes out in a store where it has one.

    Every step of a method takes as long as its plan's --timeout says at most, also those that no plan reaches.
    """

    def __init__(
        self,
        store: Store | None = None,
        executor: Executor | None = None,
        project_id: str | None = None,
        labels: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._store, self._executor = store, executor
        #: What entries are marked with, such as the commit and branch.
        self._labels = labels
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
        validate_plan(plan)
        saver = self.new_saver(listener)
        with time_limit(plan.patience_s):
            model = read_model(plan.model, listener, plan.engines)
            with self.executor_for(plan).sweep(plan, model, saver, listener, live) as sweep:
                cells = sweep.planned()
                saver.begin(with_absolute_paths(plan), model, cells, against)
                return sweep.run(cells, [Outcome(cell, "pending") for cell in cells])

    def executor_for(self, plan: Plan) -> Executor:
        """Where a plan is measured."""
        return self._executor or executor_for(plan)

    def cells(self, plan: Plan, listener: Listener = ignore) -> tuple[Cell, ...]:
        """The cells that a plan would measure."""
        validate_plan(plan)
        with time_limit(plan.patience_s):
            model = read_model(plan.model, listener, plan.engines)
            with self.executor_for(plan).sweep(plan, model, Saver(None, listener), listener, False) as sweep:
                return tuple(sweep.planned())

    def resume(self, entry_id: str | None = None, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Go on with a benchmark that was cut off, by default the newest; what is done is not measured again."""
        store = self.store
        wanted = entry_id or store.last_unfinished()
        if wanted is None:
            raise BadInput(f"Nothing is unfinished in the store {store.name}. See: inferlab history")
        stored = self.saved_benchmark(wanted)
        plan, outcomes = stored.benchmark.plan, stored.benchmark.outcomes
        validate_plan(plan)
        model = read_unchanged_model(stored.benchmark, listener)
        before = [drop_cut_runs(outcome) for outcome in outcomes]
        left = [one.cell for one in before if one.status == "pending"]
        saver = self.new_saver(listener, stored.id)
        with (
            time_limit(plan.patience_s),
            self.executor_for(plan).sweep(plan, model, saver, listener, live) as sweep,
        ):
            cells = {cell.id: cell for cell in sweep.planned({cell.machine_type for cell in left})}
            if not all(cell.id in cells for cell in left):
                raise BadInput(
                    f"{stored.id} was begun on a machine with other cores, or its inputs changed since. "
                    f"Measure it again: inferlab rerun {stored.id}"
                )
            store.reopen(stored.id)
            return sweep.run([cells[one.cell.id] for one in before if one.cell.id in cells], before)

    def rerun(self, entry_id: str, listener: Listener = ignore, live: bool = False) -> Benchmark:
        """Measure a saved benchmark again under the same conditions, as a new entry."""
        stored = self.saved_benchmark(entry_id)
        read_unchanged_model(stored.benchmark, listener)
        return self.benchmark(stored.benchmark.plan, listener, live)

    def new_saver(self, listener: Listener, entry_id: str = "") -> Saver:
        """What saves one result, of its own or of an entry that goes on."""
        return Saver(self._store, listener, entry_id, self._project_id, self._labels)

    def saving(self, title: str, listener: Listener, entry_id: str = "") -> Callable[[R], R]:
        """Saves a result, where there is a store; gives it with the id of its entry.

        Called again, it is the same entry that has grown. `entry_id` is that of one which goes on.
        """
        saver = self.new_saver(listener, entry_id)

        def save(record: R) -> R:
            saver.record(record, title)
            return replace(record, id=saver.id)

        return save

    def compare(
        self,
        a: Plan,
        b: Plan,
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
        labels: tuple[str, str] | None = None,
        fresh: bool = False,
        goal: float | None = None,
    ) -> Comparison:
        """Compare plan B with plan A, each of one cell, interleaved; raises what an engine did wrong.

        Without labels they are called by what tells them apart. Processes are forked from one that has imported
        the engine, where that is possible, unless they are to be `fresh`. It ends early only where the ratio is
        also told apart from the `goal`.
        """
        from inferlab.lab.comparison import arm_labels, comparison_title
        from inferlab.records.comparison import ComparisonSweep

        labels = labels or arm_labels(a, b)
        comparison = self._compared(a, b, labels, time_s, margin, listener, fresh, goal)
        self.new_saver(listener).record(ComparisonSweep((comparison,)), comparison_title(a, b, labels))
        return comparison

    def compare_layers(self, a: Plan, b: Plan, time_s: float = 30.0, listener: Listener = ignore) -> LayerDiff:
        """Which layers of plan B differ from plan A's, of a profile of each, made within this time."""
        from inferlab.profiling.diff import diff
        from inferlab.records.profile import ProfileOptions

        wanted = ProfileOptions(loss=False, estimate=False, approximate=False, time_s=time_s / 2)
        return diff(self.profile(a, wanted, listener), self.profile(b, wanted, listener))

    def compare_all(
        self,
        a: Plan,
        b: Plan,
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
        labels: tuple[str, str] | None = None,
        entry_id: str = "",
        fresh: bool = False,
    ) -> ComparisonSweep:
        """Compare plan B with plan A at each of their core counts and batch sizes, all saved as one entry.

        Each comparison is saved when it ends, and one that fails does not touch the others. `entry_id` is that of
        a series which was cut off and goes on: what it has is not measured again.
        """
        from inferlab.lab.comparison import Comparing, arm_labels, comparison_title, split, without_result
        from inferlab.records.comparison import ComparisonSweep

        arms = labels or arm_labels(a, b)
        saver, title = self.new_saver(listener, entry_id), comparison_title(a, b, arms)
        comparing: Comparing[Comparison] = Comparing(
            listener,
            lambda results, failures, saved: saver.record(
                ComparisonSweep(tuple(results), tuple(failures)), title, saved
            ),
            self.saved_comparisons(entry_id).results if entry_id else (),
        )
        interrupted = comparing.run(
            without_result(split(a, b), comparing.results),
            lambda one, other: self._compared(one, other, arms, time_s, margin, comparing.listen, fresh),
        )
        return ComparisonSweep(tuple(comparing.results), tuple(comparing.failures), interrupted, saver.id)

    def _compared(
        self,
        a: Plan,
        b: Plan,
        labels: tuple[str, str],
        time_s: float,
        margin: float,
        listener: Listener,
        fresh: bool = False,
        goal: float | None = None,
    ) -> Comparison:
        from inferlab.lab.comparison import validate_comparison
        from inferlab.measure.paired import ComparisonJob

        validate_comparison(a, b, time_s, margin)
        with time_limit(a.patience_s):
            arms = [self._only_job(plan, listener) for plan in (a, b)]
            spreads = self.expected_spreads()
            job = ComparisonJob(arms[0], arms[1], labels, time_s, margin, goal, spreads, fresh)
            return self.executor_for(a).compare(job, listener)

    def bisect(
        self, request: BisectionRequest, install: Callable[[str], None], listener: Listener = ignore
    ) -> Bisection:
        """Find the release in which a model became worse; each comparison is saved, so that it can go on.

        `install` makes a release's environment where it is missing.
        """
        from inferlab.lab.bisection import BisectionSearch

        return BisectionSearch(self, request, self._store, install, listener).run()

    def smallest_difference(self, time_s: float = 15.0, listener: Listener = ignore) -> Fact:
        """How small a difference could be seen here in one minute, from a model compared with itself."""
        from inferlab.measure.paired import TRIAL, visible_in_a_minute

        trial = Lab(executor=self._executor).compare(TRIAL, TRIAL, time_s, listener=listener, labels=("A", "B"))
        return visible_in_a_minute(trial)

    def capacity(
        self, plan: Plan, objective: Objective, listener: Listener = ignore, live: bool = False
    ) -> Capacity:
        """Find the highest rate that meets an objective, in a plan of one cell; its scenario is always server."""
        plan = replace(plan, scenarios=("async",), rates=(None,))
        with time_limit(plan.patience_s):
            job = self._only_job(plan, listener)
            tell_inputs(plan, job, listener)
            capacity = self.executor_for(plan).capacity(replace(job, live=live), objective, listener)
        return self.saving(f"{plan.model} {objective.text}", listener)(capacity)

    def _only_job(self, plan: Plan, listener: Listener) -> Job:
        validate_plan(plan)
        model = read_model(plan.model, listener, plan.engines)
        return only_job(plan, model)

    def recommend(
        self, plan: Plan, objective: Objective | None = None, time_s: float = 120.0, listener: Listener = ignore
    ) -> Recommendation | FleetRecommendation:
        """Find the configuration of highest throughput, of those that meet the objective where there is one.

        The plan's engines, cores, streams and batch sizes limit the search; an empty tuple leaves them open. On a
        cluster each machine type is searched, all side by side, each for this time.
        """
        from inferlab.measure.recommend import Search

        validate_plan(replace(plan, time_s=time_s))
        with time_limit(plan.patience_s):
            model = read_model(plan.model, listener, plan.engines)
            search = Search(plan, model, objective, time_s, self.machine_spreads())
            found = self.executor_for(plan).recommend(search, listener)
        return self.saving(plan.model, listener)(found)

    def profile(self, plan: Plan, wanted: ProfileOptions | None = None, listener: Listener = ignore) -> Profile:
        """Where the time of a model goes, and what pruning would gain and cost, in a plan of one cell.

        Each part is saved when it is done; Ctrl-C keeps those, and raises where that is nothing. What an engine
        could not do is a sentence in it.
        """
        from inferlab.profiling.build import Request, validate_profile
        from inferlab.records.profile import ProfileOptions

        wanted = wanted or ProfileOptions()
        validate_profile(wanted)
        plan = replace(plan, scenarios=("sync",), rates=(None,), num_streams=(None,), time_s=wanted.time_s)
        saver = self.new_saver(listener)
        profile: Profile | None = None
        with time_limit(plan.patience_s):
            job = self._only_job(plan, listener)
            request = Request(job, wanted, _profile_data(wanted, job), self.expected_spreads())
            tell_inputs(plan, job, listener)
            try:
                for profile in self.executor_for(plan).profile(request, listener):
                    saver.record(profile, plan.model)
            except KeyboardInterrupt:
                if profile is None:
                    raise
                profile = replace(profile, interrupted=True)
                saver.record(profile, plan.model)
        assert profile is not None, "a profile begins with what the architecture says"
        return replace(profile, id=saver.id)

    def generate(self, plan: GenerationPlan, listener: Listener = ignore) -> GenerationSweep:
        """Measure how fast a model generates tokens, in every cell of a plan; each run is saved when it ends.

        A cell's failure is its outcome; Ctrl-C keeps what was measured.
        """
        from inferlab.lab.generation import plan_generation

        with time_limit(plan.patience_s):
            return self._run_generation(plan_generation(plan, listener), listener)

    def _run_generation(
        self, planned: PlannedGeneration, listener: Listener, entry_id: str = ""
    ) -> GenerationSweep:
        from inferlab.lab.generation import run_generation

        return run_generation(planned, self.saving(planned.sweep.model.source, listener, entry_id), listener)

    def planned_generation(self, plan: GenerationPlan, listener: Listener = ignore) -> GenerationSweep:
        """The model and the cells that a plan would measure."""
        from inferlab.lab.generation import plan_generation

        return plan_generation(plan, listener).sweep

    def resume_generation(self, entry_id: str | None = None, listener: Listener = ignore) -> GenerationSweep:
        """Go on with a generation that was cut off, by default the newest; what is done is not measured again."""
        from inferlab.lab.generation import resume_sweep

        saved = self.saved_generation(entry_id)
        with time_limit(saved.plan.patience_s):
            return self._run_generation(resume_sweep(saved, listener), listener, saved.id)

    def rerun_generation(self, entry_id: str, listener: Listener = ignore) -> GenerationSweep:
        """Measure a saved generation again under the same conditions, as a new entry."""
        from inferlab.lab.generation import plan_generation

        saved = self.saved_generation(entry_id)
        with time_limit(saved.plan.patience_s):
            planned = plan_generation(saved.plan, listener)
            if planned.sweep.model.digest != saved.model.digest:
                raise BadInput(
                    f"The model {saved.model.source} has changed since {saved.id} was measured. Measure it as it "
                    f"is now: inferlab generate {saved.model.source}"
                )
            return self._run_generation(planned, listener)

    def compare_generations(
        self,
        a: GenerationPlan,
        b: GenerationPlan,
        metric: ComparedMetric = "tpot",
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
        labels: tuple[str, str] | None = None,
        fresh: bool = False,
        entry_id: str = "",
    ) -> GenerationComparison:
        """Compare how plan B generates with plan A, each of one cell, behind the same prompts, interleaved.

        Every pair is saved when it is complete. `entry_id`, here and below, is that of what was cut off and goes
        on: what it has is not measured again.
        """
        from inferlab.lab.generation import compare_plans

        with time_limit(a.patience_s):
            return compare_plans(self, (a, b), metric, time_s, margin, listener, labels, fresh, entry_id)

    def compare_all_generations(
        self,
        a: GenerationPlan,
        b: GenerationPlan,
        metric: ComparedMetric = "tpot",
        time_s: float = 60.0,
        margin: float = 0.01,
        listener: Listener = ignore,
        fresh: bool = False,
    ) -> GenerationComparisonSweep:
        """Compare plan B with plan A in each of their cells, each saved as an entry of its own, which can go on.

        One that fails does not touch the others.
        """
        from inferlab.lab.comparison import Comparing, arm_labels, split
        from inferlab.lab.generation import plan_generation
        from inferlab.records.comparison import GenerationComparisonSweep

        for plan in (a, b):
            # What has no room is refused before any of them is measured.
            plan_generation(plan, listener)
        labels = arm_labels(a, b)
        comparing: Comparing[GenerationComparison] = Comparing(listener)
        interrupted = comparing.run(
            split(a, b),
            lambda one, other: self.compare_generations(
                one, other, metric, time_s, margin, comparing.listen, labels, fresh
            ),
        )
        return GenerationComparisonSweep(tuple(comparing.results), tuple(comparing.failures), interrupted)

    def generation_capacity(
        self, plan: GenerationPlan, attainment: float = 0.9, listener: Listener = ignore, entry_id: str = ""
    ) -> GenerationCapacity:
        """Find the highest rate of requests of which this share meets the plan's objective; one cell.

        Every process is saved when it is complete.
        """
        from inferlab.lab.generation import search_capacity

        with time_limit(plan.patience_s):
            return search_capacity(self, plan, attainment, listener, entry_id)

    def recommend_generation(
        self, plan: GenerationPlan, time_s: float = 120.0, listener: Listener = ignore, entry_id: str = ""
    ) -> GenerationRecommendation:
        """Find the engine, cores and batch size that generate most tokens per second within the plan's limits.

        Every run of a configuration, and every pair of the best two, is saved when it is complete.
        """
        from inferlab.lab.generation import recommend_generation

        with time_limit(plan.patience_s):
            return recommend_generation(self, plan, time_s, listener, entry_id)

    def rerun_generation_result(self, entry_id: str, listener: Listener = ignore) -> MadeOfGenerations:
        """Measure a saved comparison, capacity or recommendation of generation again, as a new entry."""
        from inferlab.lab.generation import rerun

        return rerun(self, self.saved_generation_result(entry_id), listener)

    def resume_generation_result(self, entry_id: str, listener: Listener = ignore) -> MadeOfGenerations:
        """Go on with a comparison, capacity or recommendation of generation that was cut off."""
        from inferlab.lab.generation import rerun

        saved = self.saved_generation_result(entry_id)
        return rerun(self, saved, listener, saved.id)

    def optimize(
        self, plan: Plan, options: VersionOptions, listener: Listener = ignore, goal: Goal | None = None
    ) -> Optimization:
        """Make an optimised version of a model, and measure what it cost and gained, in a plan of one cell.

        It is saved when it is made and again after every engine; Ctrl-C keeps that. What an engine could not do
        is a sentence in it. `goal` is the one that a search chose its recipe for.
        """
        from inferlab.lab.versions import Versioning, with_recipe

        options = with_recipe(options, self)
        with time_limit(plan.patience_s):
            plan, job = self._to_optimize(plan, options, listener)
            return Versioning(self, plan, options, job, listener, goal).run()

    def search(
        self, plan: Plan, options: VersionOptions, listener: Listener = ignore, saver: Saver | None = None
    ) -> Front:
        """Try recipes, cheapest first, for one that reaches the goal that is asked, in a plan of one cell.

        It is saved after each recipe; Ctrl-C keeps that. `chosen` seems to reach the goal: `reach` makes it and
        measures it again, which decides.
        """
        from inferlab.lab.versions import run_search

        if options.goal is None:
            raise BadInput('A search needs a goal, such as "2x faster".')
        with time_limit(plan.patience_s):
            plan, job = self._to_optimize(plan, options, listener)
            return run_search(self, plan, options, job, saver or self.new_saver(listener), listener)

    def reach(
        self, plan: Plan, options: VersionOptions, listener: Listener = ignore, nearest: bool = False
    ) -> tuple[Front, Optimization | None]:
        """Search for a recipe that reaches the goal and make its version, with `nearest` what comes nearest to it.

        The version is measured again, and the front's `confirmed` says what came of that: of many recipes, the one
        that is chosen may have been lucky.
        """
        from inferlab.lab.versions import make_chosen

        saver = self.new_saver(listener)
        found = self.search(plan, options, listener, saver)
        goal = options.goal
        # A speed is confirmed on the engine that it is the goal on, whatever else is measured.
        needed = plan.engines[:1] if goal is not None and goal.speedup is not None else ()
        engines = (*needed, *(engine for engine in options.engines if engine not in needed))
        found, version = make_chosen(
            found,
            nearest,
            lambda recipe: self.optimize(
                plan, replace(options, recipe=recipe, goal=None, engines=engines), listener, goal
            ),
        )
        if version is not None:
            saver.record(found, found.model)
        return found, version

    def _to_optimize(self, plan: Plan, options: VersionOptions, listener: Listener) -> tuple[Plan, Job]:
        """The plan of the one cell that a version is measured in, and that cell for the original."""
        from inferlab.optimizing.recipes import validate_version

        validate_version(options)
        plan = replace(plan, scenarios=("sync",), rates=(None,), num_streams=(None,), time_s=options.time_s)
        validate_plan(replace(plan, engines=(*plan.engines, *options.engines)))
        return plan, self._only_job(plan, listener)


@contextmanager
def open_lab(
    where: str | os.PathLike[str] | Store | Literal[False] | None,
    labels: Sequence[tuple[str, str]],
    listener: Listener,
) -> Iterator[Lab]:
    """A lab that saves in a store: of a path or URL, an open one, which stays open, or by default the user's own.

    Where that cannot be opened and nobody named it, measuring goes on; False saves nothing. Entries are marked
    with these `labels`, and with those that the surroundings say.
    """
    if where is False:
        yield Lab()
        return
    from inferlab.store.store import Store

    store: Store | None = None
    with ExitStack() as stack:
        if isinstance(where, Store):
            store = where
        elif where is None or isinstance(where, str | os.PathLike):
            try:
                store = stack.enter_context(open_store(where))
            except InferlabError as error:
                if where or os.environ.get("INFERLAB_STORE"):
                    raise
                listener(Event("unsaved", {"reason": str(error)}))
        else:
            raise BadInput(f"store is a path, a URL, an open store, None or False, not a {type(where).__name__}.")
        yield Lab(store, labels=entry_labels(labels))


def concerns_tokens(
    models: Sequence[str], given: Mapping[str, Any], slo: str = "", own: Sequence[Mapping[str, Any]] = ()
) -> bool:
    """Whether a request is about generating tokens: by its models, or by the engines, options or objective given.

    `own` are options of each arm of a comparison. Refuses options and objectives of generation for a model that
    does not generate.
    """
    from inferlab.engines import registry
    from inferlab.options.generation import ONLY_GENERATION, names_tokens

    models = (*models, *(str(values["model"]) for values in own if "model" in values))
    engines = [engine for values in (given, *own) for engine in values.get("engine", ())]
    if any(map(names_generative, models)) or any(map(registry.only_generates, engines)):
        return True
    named = [f"The option {name}" for name in given if name in ONLY_GENERATION]
    named += [f"The objective '{slo}'"] if names_tokens(slo) else []
    if not named:
        return False
    from inferlab.model.generative import read_generative

    for model in models:
        try:
            read_generative(model)
        except BadInput as error:
            raise BadInput(f"{named[0]} is for models that generate tokens. {error}") from error
    return True


def _profile_data(wanted: ProfileOptions, job: Job) -> Data | None:
    from inferlab.model import reading
    from inferlab.model.inputs import load_data

    if wanted.data_file is None:
        return None
    file = reading.digits_data() if wanted.data_file == "demo:digits" else wanted.data_file
    return load_data(file, job.model.inputs, job.model.outputs, job.cell.batch_size)
