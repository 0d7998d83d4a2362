"""A search for a recipe that reaches a goal, on the engine that it is for: models really made and really timed."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferlab.errors import BadInput
from inferlab.lab.versions import MARGIN, Basis, completed, saved_basis, shapes_of
from inferlab.measure.cells import Job, only_job, with_inputs_of
from inferlab.measure.check import worst
from inferlab.measure.paired import ComparisonJob
from inferlab.model.datasets import ITEMS, Data, generate_data
from inferlab.model.flops.count import costs
from inferlab.optimizing import pareto, quantization
from inferlab.optimizing.attempts import SearchSpace
from inferlab.optimizing.build import build_model, check_target
from inferlab.optimizing.levels import resolve
from inferlab.optimizing.quantization import keep_sensitive
from inferlab.optimizing.search import BuiltCopy, SearchState, Speed, search
from inferlab.profiling.copies import own_shapes
from inferlab.profiling.performance import can_impose
from inferlab.records import Comparison, Event, Listener, Model, Plan, Run
from inferlab.records.optimization import Distance, Front, Optimization, Recipe, VersionOptions
from inferlab.records.profile import ProfileOptions
from inferlab.store import Saver
from inferlab.units import plural

if TYPE_CHECKING:
    from inferlab.lab.lab import Lab

# All that the attempts ask for: layers are tried one by one only once.
_MOST_SENSITIVE = 8
# Of the search's time, for each of the profiles that a loss budget needs.
_PROFILE_SHARE = 1 / 24


def searched(lab: Lab, plan: Plan, asked: VersionOptions, job: Job, saver: Saver, listener: Listener) -> Front:
    """The whole front, saved after each recipe; Ctrl-C keeps what there is."""
    found: Front | None = None
    for found in searching(lab, plan, asked, job, listener):
        saver.record(found, found.model)
    assert found is not None, "a search ends with what it found"
    return found


def made_of(
    found: Front, nearest: bool, make: Callable[[Recipe], Optimization]
) -> tuple[Front, Optimization | None]:
    """The version of the recipe that a search chose, with `nearest` of what comes nearest to the goal.

    `make` measures it again, and the front says what came of that: of many recipes, the one that is chosen may
    have been lucky.
    """
    place = found.nearest if nearest and found.chosen is None else found.chosen
    if place is None or found.interrupted:
        return found, None
    try:
        version = make(found.candidates[place].recipe)
    except KeyboardInterrupt:
        return replace(found, interrupted=True), None
    if version.interrupted:
        found = replace(found, interrupted=True)
    else:
        loss = None if version.distance is None else _loss(version.distance)
        candidate = pareto.confirmed(found.candidates[place], version, found.engine, loss)
        reaches = pareto.reaches(candidate, found.goal, found.original_bytes)
        found = replace(found, confirmed=replace(candidate, reaches=reaches))
    return found, replace(version, search=found)


def searching(lab: Lab, plan: Plan, asked: VersionOptions, job: Job, listener: Listener) -> Iterator[Front]:
    """The front as it grows; the last is the whole one."""
    assert asked.goal is not None
    target = check_target(asked.out, job.model)
    with _beside(target) as folder:
        bench = Workbench(lab, plan, asked, job, folder, listener)
        space = SearchSpace(job.cell.engine, asked.goal, asked.recipe, can_impose(job))
        size = job.model.size_bytes
        for found in search(space, size, bench, asked.search_s, listener, time.monotonic):
            yield _front(found, asked, bench, job)


class Workbench:
    """Makes the copies of a search in a folder, and compares each with the original."""

    def __init__(
        self, lab: Lab, plan: Plan, asked: VersionOptions, job: Job, folder: Path, listener: Listener
    ) -> None:
        self._lab, self._plan, self._asked, self._job = lab, plan, asked, job
        self._folder = folder
        self._spreads = lab.expected_spreads(plan)
        self._listener = _without_fractions(listener)
        self._data_file = quantization.data_name(asked.recipe, asked.data_file)
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
        b = with_inputs_of(only_job(self._plan, self._models[copy.path]), a)
        contest = ComparisonJob(
            a, b, ("original", "optimised"), seconds, MARGIN, None if goal is None else 1 / goal, self._spreads
        )
        found = self._lab.executor_for(self._plan).compare(contest, self._listener)
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
            time_s = _PROFILE_SHARE * self._asked.search_s
            wanted = ProfileOptions(data_file=self._asked.data_file, time_s=time_s, estimate=False)
            known = saved_basis(self._asked, self._job.model, self._lab)
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


def _front(found: SearchState, asked: VersionOptions, bench: Workbench, job: Job) -> Front:
    assert asked.goal is not None
    size = job.model.size_bytes
    return Front(
        goal=asked.goal,
        engine=job.cell.engine,
        candidates=found.candidates,
        chosen=pareto.chosen(found.candidates),
        nearest=pareto.nearest(found.candidates, asked.goal, size),
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
