"""An optimised version of a model: from what was asked to what it costs and gains, saved as it grows.

And the search for its recipe, on the engine that it is for: models really made and really timed.
"""

from __future__ import annotations

import datetime
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import BadInput, InferlabError
from inferlab.measure.cells import Job, only_job
from inferlab.measure.check import worst
from inferlab.measure.findings import arm_findings
from inferlab.measure.paired import ComparisonJob
from inferlab.model.flops.count import costs
from inferlab.model.inputs import ITEMS, Data, generate_data
from inferlab.optimizing import pareto, quantization
from inferlab.optimizing.build import BuiltModel, build_model, check_target
from inferlab.optimizing.levels import ResolvedRecipe, resolve
from inferlab.optimizing.quantization import keep_sensitive
from inferlab.optimizing.search import BuiltCopy, SearchSpace, SearchState, Speed, search
from inferlab.profiling.copies import own_shapes
from inferlab.profiling.gains import check_calibration, estimated_recipe
from inferlab.profiling.performance import can_impose
from inferlab.profiling.recipe_estimate import estimate_recipe
from inferlab.records import Comparison, ComparisonSweep, Event, Finding, Listener, Model, Plan, Run, Shape
from inferlab.records.optimization import (
    CHANNEL,
    FORMAT,
    Distance,
    Front,
    Goal,
    Measured,
    Optimization,
    Recipe,
    VersionOptions,
)
from inferlab.records.profile import LossProfile, PerformanceProfile, Profile, ProfileOptions
from inferlab.store import Saver
from inferlab.units import plural
from inferlab.version import __version__

if TYPE_CHECKING:
    from inferlab.lab.lab import Lab


#: Differences up to this share do not matter.
MARGIN = 0.01
# A model that takes at most so much less time is no faster, though it may not be sure that it is as fast.
_NOT_MUCH = 0.1
# A comparison counts its time with loading, and each pair loads both models.
_LOADING = 3.0
# Of the time of a search, for what it chose to be measured again; it ends earlier where that is clear.
_CONFIRMING = 1 / 4
# Enough to see whether an engine gains from zeros at all, where it cannot impose them.
_TRIED = (0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Basis:
    """The profiles that levels come from and that an estimate is read off."""

    loss: LossProfile | None = None
    performance: PerformanceProfile | None = None


class Versioning:
    """One version on its way."""

    def __init__(
        self, lab: Lab, plan: Plan, options: VersionOptions, job: Job, listener: Listener, goal: Goal | None = None
    ) -> None:
        self._plan, self._options, self._job = plan, options, job
        #: What it was chosen for, so that measuring it goes on until that is settled or the time is over.
        self._goal = goal
        self._lab, self._listener = lab, listener
        self._saver = lab.new_saver(listener)
        self._target = check_target(options.out, job.model)

    def run(self) -> Optimization:
        """Make the version, then measure it; Ctrl-C keeps what there is from when the model is made."""
        made, resolved, basis = self.make()
        begun = found = self._begun(made, resolved, basis)
        self._save(found)
        try:
            for found in self._measured(begun, made, basis):
                self._save(found)
        except KeyboardInterrupt:
            found = replace(found, interrupted=True)
            self._save(found)
        return replace(found, id=self._saver.id)

    def make(self) -> tuple[BuiltModel, ResolvedRecipe, Basis]:
        """The optimised model in its place, what the recipe became, and the profiles that it goes by."""
        model, job = self._job.model, self._job
        data_file = quantization.data_name(self._options.recipe, self._options.data_file)
        data = quantization.load(data_file, model) if data_file else self._generated()
        counted = costs(model, shapes_of(data))
        basis = self._basis()
        recipe, findings = quantization.fix_calibration(
            self._options.recipe, data_file, model, own_shapes(job), self._plan.seed
        )
        recipe, more = keep_sensitive(recipe, model, counted, data, self._target.parent, self._listener)
        resolved = resolve(recipe, counted, basis.loss, basis.performance, model)
        resolved = replace(resolved, findings=(*findings, *more, *resolved.findings))
        made = build_model(model, resolved.recipe, data, self._target, self._listener, job.cell.num_cores)
        return made, resolved, basis

    def _generated(self) -> Data:
        return generate_data(self._job.model.inputs, own_shapes(self._job), ITEMS, seed=self._plan.seed)

    def _basis(self) -> Basis:
        """Profiles that were made before, or are made now where levels come from a loss budget."""
        options, pruning = self._options, self._options.recipe.pruning
        known = saved_basis(options, self._job.model, self._lab)
        if pruning is None or pruning.budget is None or options.recipe.digest:
            return known
        wanted = ProfileOptions(
            performance=bool(options.engines),
            levels=() if pruning.pattern == CHANNEL else None if can_impose(self._job) else _TRIED,
            data_file=options.data_file,
            time_s=options.time_s,
            estimate=False,
        )
        return completed(known, self._plan, wanted, self._lab, self._listener)

    def _begun(self, made: BuiltModel, resolved: ResolvedRecipe, basis: Basis) -> Optimization:
        distance = made.distance
        if distance is not None and distance.accuracy is not None:
            distance = replace(distance, expected_accuracy=expected_accuracy(made.recipe, basis))
        return Optimization(
            format=FORMAT,
            inferlab=__version__,
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            name=self._options.name or self._target.stem,
            model=self._job.model,
            optimized=made.model,
            recipe=made.recipe,
            layers=made.layers,
            distance=distance,
            left_alone={**resolved.left_alone, **made.left_alone},
            findings=(*resolved.findings, *made.findings),
        )

    def _save(self, found: Optimization) -> None:
        title = f"{self._plan.model}: {found.name}"
        self._saver.record(found, title)

    def _measured(self, found: Optimization, made: BuiltModel, basis: Basis) -> Iterator[Optimization]:
        """The version as it grows by one engine after the other; what an engine cannot do is a problem."""
        for number, engine in enumerate(self._options.engines, 1):
            self._listener(Event("versus", {"engine": engine, "number": number, "of": len(self._options.engines)}))
            try:
                comparison_job = self._comparison_job(engine, found)
                compared = self._lab.executor_for(self._plan).compare(comparison_job, self._listener)
            except InferlabError as error:
                found = replace(found, problems=(*found.problems, f"{engine}: {error}"))
                yield found
                continue
            saver = self._lab.new_saver(self._listener)
            title = f"{comparison_job.labels[0]} / {comparison_job.labels[1]}"
            saver.record(ComparisonSweep((compared,)), title)
            one = measured(compared, made.recipe, found.optimized, predicted(made.recipe, engine, basis))
            found = replace(found, measured=(*found.measured, replace(one, entry_id=saver.id)))
            yield replace(found, interrupted=compared.interrupted)
            if compared.interrupted:
                return

    def _comparison_job(self, engine: str, found: Optimization) -> ComparisonJob:
        plan = replace(self._plan, engines=(engine,))
        a, b = (only_job(plan, model) for model in (found.model, found.optimized))
        labels = self._plan.model, found.name
        time_s, spreads = _LOADING * self._options.time_s, self._lab.expected_spreads()
        comparison_job = ComparisonJob(a, b, labels, time_s, MARGIN, spreads=spreads)
        if self._goal is None or self._goal.speedup is None or engine != self._job.cell.engine:
            return comparison_job
        time_s = max(time_s, _CONFIRMING * self._options.search_s)
        return replace(comparison_job, time_s=time_s, goal=1 / self._goal.speedup)


def with_recipe(options: VersionOptions, lab: Lab) -> VersionOptions:
    """The options, with the recipe of the profile's estimate where that is to be made."""
    if not options.as_estimated:
        return options
    if options.performance_id is None:
        raise BadInput("Name the profile whose estimate is to be made, by its file or its id.")
    recipe = estimated_recipe(lab.saved_profile(options.performance_id), options.estimate_budget)
    check_calibration(recipe, options.data_file)
    return replace(options, recipe=recipe, as_estimated=False)


def saved_basis(options: VersionOptions, model: Model, lab: Lab) -> Basis:
    """The profiles of a model that were made before, as far as they are named."""

    def saved(name: str) -> Profile:
        found = lab.saved_profile(name)
        if found.model.digest != model.digest:
            raise BadInput(
                f"{name} is a profile of another model, {found.model.source}, and predicts nothing about this "
                f"one. Profile it with: inferlab profile {model.source}"
            )
        return found

    loss = saved(options.loss_id).loss if options.loss_id else None
    performance = saved(options.performance_id).performance if options.performance_id else None
    return Basis(loss, performance)


def completed(known: Basis, plan: Plan, wanted: ProfileOptions, lab: Lab, listener: Listener) -> Basis:
    """The profiles that are known, and of those that are wanted the others, made now."""
    performance, loss = wanted.performance and known.performance is None, known.loss is None
    if not (performance or loss):
        return known
    wanted = replace(
        wanted,
        performance=performance,
        loss=loss,
        levels=wanted.levels if performance else None,
        data_file=wanted.data_file if loss else None,
    )
    found = lab.profile(plan, wanted, listener)
    if found.interrupted:
        raise KeyboardInterrupt
    return Basis(known.loss or found.loss, known.performance or found.performance)


def measured(found: Comparison, recipe: Recipe, model: Model, predicted_speedup: float | None) -> Measured:
    """What a comparison of the original with the optimised model says."""
    assert found.cells is not None
    cell, run = found.cells[1], found.pairs[-1].b
    original_ms = statistics.median(found.times_ms[0]) * cell.batch_size
    speedup = 1 / found.ratio.value
    ends = found.ratio.ends
    return Measured(
        engine=cell.engine,
        num_cores=cell.num_cores,
        batch_size=cell.batch_size,
        original_ms=original_ms,
        ms=original_ms / speedup,
        speedup=speedup,
        speedup_interval=None if ends is None else (1 / ends[1], 1 / ends[0]),
        level=found.ratio.level,
        verdict=found.verdict,
        seconds=found.seconds,
        output_check=worst([pair.b.check for pair in found.pairs]),
        versions=dict(run.versions),
        machine=run.machine,
        predicted_speedup=predicted_speedup,
        predicted_error=None if predicted_speedup is None else speedup / predicted_speedup - 1,
        findings=(*_gains(found, recipe, model), *arm_findings(found)[1]),
    )


def predicted(recipe: Recipe, engine: str, basis: Basis) -> float | None:
    """The speed-up that profiles of this engine predict for a recipe; None where they say nothing of it."""
    performance, pruning = basis.performance, recipe.pruning
    if performance is None or performance.engine != engine or not _knows(basis, recipe):
        return None
    if pruning is not None and pruning.pattern not in ("unstructured", CHANNEL):
        return None
    return estimate_recipe(recipe, performance, basis.loss).estimated_speedup


def expected_accuracy(recipe: Recipe, basis: Basis) -> float | None:
    """The accuracy that profiles with labels let expect of a recipe; None where they say nothing of it.

    Of zeros in a pattern it is that of zeros anywhere, which cost less.
    """
    return estimate_recipe(recipe, basis.performance, basis.loss).accuracy if _knows(basis, recipe) else None


def _knows(basis: Basis, recipe: Recipe) -> bool:
    """Whether the losses of all weights that are pruned are known."""
    weights = set() if basis.loss is None else {layer.weight for layer in basis.loss.layers}
    return recipe.pruning is None or weights >= recipe.pruning.layers.keys()


def _gains(found: Comparison, recipe: Recipe, model: Model) -> Sequence[Finding]:
    """The truth where an engine does not profit."""
    assert found.cells is not None
    if found.verdict == "faster":
        return ()
    data = {"engine": found.cells[1].engine, "verdict": found.verdict}
    if found.verdict == "inconclusive" and (found.ratio.low is None or found.ratio.low < 1 - _NOT_MUCH):
        evidence = {"speedup": 1 / found.ratio.value, "pairs": len(found.pairs), "settle_s": found.settle_s}
        return (Finding("unsettled", data | evidence),)
    if recipe.pruning is None or recipe.pruning.pattern == CHANNEL or recipe.quantization is not None:
        return (Finding("no-faster", data),)
    return (Finding("zeros-no-faster", {**data, "zeros": model.zero_fraction}),)


def shapes_of(data: Data) -> dict[str, Shape]:
    """The shapes of a set of inputs."""
    return {name: tuple(value.shape) for name, value in data.sets[0].items()}


# All that the attempts ask for: layers are tried one by one only once.
_MOST_SENSITIVE = 8
# Of the search's time, for each of the profiles that a loss budget needs.
_PROFILE_SHARE = 1 / 24


def run_search(lab: Lab, plan: Plan, options: VersionOptions, job: Job, saver: Saver, listener: Listener) -> Front:
    """The whole front, saved after each recipe; Ctrl-C keeps what there is."""
    front: Front | None = None
    for front in search_recipes(lab, plan, options, job, listener):
        saver.record(front, front.model)
    assert front is not None, "a search ends with what it found"
    return front


def make_chosen(
    front: Front, nearest: bool, make: Callable[[Recipe], Optimization]
) -> tuple[Front, Optimization | None]:
    """The version of the recipe that a search chose, with `nearest` of what comes nearest to the goal.

    `make` measures it again, and the front says what came of that: of many recipes, the one that is chosen may
    have been lucky.
    """
    place = front.nearest if nearest and front.chosen is None else front.chosen
    if place is None or front.interrupted:
        return front, None
    try:
        version = make(front.candidates[place].recipe)
    except KeyboardInterrupt:
        return replace(front, interrupted=True), None
    if version.interrupted:
        front = replace(front, interrupted=True)
    else:
        loss = None if version.distance is None else _loss(version.distance)
        candidate = pareto.confirmed(front.candidates[place], version, front.engine, loss)
        reaches = pareto.reaches(candidate, front.goal, front.original_bytes)
        front = replace(front, confirmed=replace(candidate, reaches=reaches))
    return front, replace(version, search=front)


def search_recipes(lab: Lab, plan: Plan, options: VersionOptions, job: Job, listener: Listener) -> Iterator[Front]:
    """The front as it grows; the last is the whole one."""
    assert options.goal is not None
    target = check_target(options.out, job.model)
    with _beside(target) as folder:
        bench = Workbench(lab, plan, options, job, folder, listener)
        space = SearchSpace(job.cell.engine, options.goal, options.recipe, can_impose(job))
        size = job.model.size_bytes
        for found in search(space, size, bench, options.search_s, listener, time.monotonic):
            yield _front(found, options, bench, job)


class Workbench:
    """Makes the copies of a search in a folder, and compares each with the original."""

    def __init__(
        self, lab: Lab, plan: Plan, options: VersionOptions, job: Job, folder: Path, listener: Listener
    ) -> None:
        self._lab, self._plan, self._options, self._job = lab, plan, options, job
        self._folder = folder
        self._spreads = lab.expected_spreads()
        self._listener = _without_fractions(listener)
        self._data_file = quantization.data_name(options.recipe, options.data_file)
        model = job.model
        self.data: Data = (
            quantization.load(self._data_file, model)
            if self._data_file
            else generate_data(model.inputs, own_shapes(job), ITEMS, seed=plan.seed)
        )
        self._costs = costs(model, shapes_of(self.data))
        self._basis: Basis | None = None
        self._sensitive: tuple[str, ...] | None = None
        self._models: dict[str, Model] = {}
        #: With labels only.
        self.original_accuracy: float | None = None
        #: The last run of a copy, which knows the machine and the engine.
        self.run: Run | None = None

    def make(self, recipe: Recipe) -> BuiltCopy:
        """Carry out a recipe in a folder of its own."""
        model, job = self._job.model, self._job
        settled, _ = quantization.fix_calibration(recipe, self._data_file, model, own_shapes(job), self._plan.seed)
        settled = self._keeping(settled)
        basis = self._profiles() if recipe.pruning is not None and recipe.pruning.budget is not None else Basis()
        resolved = resolve(settled, self._costs, basis.loss, basis.performance, model)
        place = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            made = build_model(
                *(model, resolved.recipe, self.data, place / "model.onnx", self._listener, job.cell.num_cores)
            )
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._models[made.model.path] = made.model
        self.original_accuracy = made.distance.original_accuracy
        return BuiltCopy(
            made.recipe, made.model.path, made.model.size_bytes, _loss(made.distance), made.distance.accuracy
        )

    def time(self, copy: BuiltCopy, seconds: float, goal: float | None) -> Speed:
        """Compare a copy with the original on the plan's engine; wrong outputs there make its speed worthless."""
        a = only_job(self._plan, self._job.model)
        b = only_job(self._plan, self._models[copy.path])
        comparison_job = ComparisonJob(
            a, b, ("original", "optimised"), seconds, MARGIN, None if goal is None else 1 / goal, self._spreads
        )
        found = self._lab.executor_for(self._plan).compare(comparison_job, self._listener)
        self.run = found.pairs[-1].b
        return _speed(found)

    def discard(self, copy: BuiltCopy) -> None:
        """Remove its files."""
        shutil.rmtree(Path(copy.path).parent, ignore_errors=True)

    def _keeping(self, recipe: Recipe) -> Recipe:
        """The recipe with as many sensitive layers excluded as it asks for, of those that were found once."""
        quantization = recipe.quantization
        if quantization is None or not quantization.keep_sensitive:
            return recipe
        if self._sensitive is None:
            most = replace(recipe, quantization=replace(quantization, keep_sensitive=_MOST_SENSITIVE))
            found, _ = keep_sensitive(most, self._job.model, self._costs, self.data, self._folder, self._listener)
            assert found.quantization is not None
            self._sensitive = found.quantization.exclude
        excluded = self._sensitive[: quantization.keep_sensitive]
        if len(excluded) < quantization.keep_sensitive:
            raise BadInput(f"there are no more than {plural(len(excluded), 'layer')} that could be kept")
        # Zero, since they are found by now: carried out again, the recipe shall not look for them.
        return replace(recipe, quantization=replace(quantization, exclude=excluded, keep_sensitive=0))

    def _profiles(self) -> Basis:
        """The losses and times of all layers at all levels, from profiles made before, or measured once."""
        if self._basis is None:
            time_s = _PROFILE_SHARE * self._options.search_s
            wanted = ProfileOptions(data_file=self._options.data_file, time_s=time_s, estimate=False)
            known = saved_basis(self._options, self._job.model, self._lab)
            self._basis = completed(known, self._plan, wanted, self._lab, self._listener)
        return self._basis


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder for the copies, where there is room for the one that is chosen too."""
    with tempfile.TemporaryDirectory(prefix=".inferlab-search-", dir=target.parent) as folder:
        yield Path(folder)


def _loss(distance: Distance) -> float | None:
    """The drop of the accuracy with labels, else how far the outputs moved."""
    if distance.accuracy is None or distance.original_accuracy is None:
        return distance.relative_power
    return distance.original_accuracy - distance.accuracy


def _speed(found: Comparison) -> Speed:
    check = worst([pair.b.check for pair in found.pairs])
    if check.status == "mismatch":
        return Speed(None, None, reason=pareto.WRONG_OUTPUTS, interrupted=found.interrupted)
    ends = found.ratio.ends
    interval = None if ends is None else (1 / ends[1], 1 / ends[0])
    return Speed(1 / found.ratio.value, interval, found.ratio.level, interrupted=found.interrupted)


def _front(found: SearchState, options: VersionOptions, bench: Workbench, job: Job) -> Front:
    assert options.goal is not None
    size = job.model.size_bytes
    return Front(
        goal=options.goal,
        engine=job.cell.engine,
        candidates=found.candidates,
        chosen=pareto.chosen(found.candidates),
        nearest=pareto.nearest(found.candidates, options.goal, size),
        original_bytes=size,
        seconds=found.seconds,
        model=job.model.source,
        digest=job.model.digest,
        num_cores=job.cell.num_cores,
        batch_size=job.cell.batch_size,
        metric="relative power" if bench.data.labels is None else "accuracy",
        items=bench.data.items,
        generated=bench.data.generated,
        original_accuracy=bench.original_accuracy,
        versions={} if bench.run is None else dict(bench.run.versions),
        machine=None if bench.run is None else bench.run.machine,
        complete=found.complete,
        interrupted=found.interrupted,
    )


def _without_fractions(listener: Listener) -> Listener:
    """A listener that does not hear how far each part is: the search says how far it is as a whole."""

    def listen(event: Event) -> None:
        if event.fraction is None:
            listener(event)

    return listen
