"""Changed copies of a model, measured as the model itself is: weights zeroed, in INT8, with fewer channels."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.engines import registry
from inferlab.errors import InferlabError
from inferlab.measure.cells import Job
from inferlab.model.flops.costs import Costs
from inferlab.model.inputs import ITEMS, Data
from inferlab.model.shapes import resolve
from inferlab.profiling.channel_shares import best_shares, copy_loss
from inferlab.profiling.gains import copy_to_try_elsewhere, find_copy, share_within, shares_recipe
from inferlab.profiling.interleaved import InterleavedTimer, Variant
from inferlab.profiling.loss import Evaluation, evaluate, layers_to_prune
from inferlab.profiling.zeros import estimate, is_faster, usual_weights
from inferlab.records import Event, Finding, Listener, Model, Shape, ignore
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Quantization, Recipe
from inferlab.records.profile import (
    ChangedCopy,
    Layer,
    LossMetric,
    LossProfile,
    OtherEngine,
    PerformanceProfile,
    Profile,
    ProfileOptions,
    PruningEstimate,
    level_key,
)
from inferlab.transform.cleanup import clean_up
from inferlab.transform.copies import MOST_CALIBRATION_ITEMS, apply_recipe, inputs_for
from inferlab.transform.prune import prune
from inferlab.transform.quantize import needs_reduced_range, quantizing

#: The shares of zeros that are tried for the estimate where an engine computes weights that are zero faster.
ZEROS = (0.8, 0.9)
#: The shares of channels that are tried: times and losses between them are interpolated.
SHARES = (0.25, 0.5)
# Seconds of warming up, of copies and of the model itself where copies are made of it.
_WARMUP_S = 0.5
# Of the measuring time of a part, for each copy that the estimate goes by; and for judging the outputs of one.
_COPY_SHARE = 0.15
_JUDGING_SHARE = 0.1
# No further copy is begun after so many times the measuring time of a part.
_LIMIT = 6.0
# So many copies with shares of their own for groups of channels are made, each chosen by what the others lost.
_MOST_MIXED = 3
# So many copies with zeros are made for other engines, until one is within the budget.
_MOST_ZEROED = 3


def measure_levels(
    job: Job,
    costs: Costs,
    profile: PerformanceProfile,
    levels: Sequence[float],
    time_s: float,
    listener: Listener,
    asked: bool = True,
) -> PerformanceProfile:
    """The profile with the time at every level, the smallest weights of all layers zeroed in a copy.

    That one could not be measured is a problem only where the user asked for it.
    """
    weights = {node.weight for node in layers_to_prune(costs)}
    if not weights and not asked:
        return profile
    if not weights:
        return _with_problem(profile, "No layer has weights that could be pruned, so no level was measured.")
    measured: dict[str, Variant] = {}
    with InterleavedTimer(warmed_briefly(job), costs, profile, time_s / len(levels), listener) as timer:
        for level in sorted(levels):
            listener(Event("pruned-copy", {"level": level}))
            try:
                with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
                    pruned = prune(job.model, dict.fromkeys(weights, level), Path(folder))
                    measured[level_key(level)] = timer.measure(pruned)
            except InferlabError as error:
                if asked:
                    profile = _with_problem(profile, f"With {level:g} of the weights zero: {error}")
                else:
                    profile = _left_out(profile, f"{level:.0%} of the weights zero".replace("%", " %"), str(error))
    return replace(
        profile,
        layers=tuple(replace(layer, pruned=_times_ms(layer, measured)) for layer in profile.layers),
        pruning="zeroed",
        pruned={key: variant.ms_per_batch for key, variant in measured.items()},
        problems=(*profile.problems, *(problem for variant in measured.values() for problem in variant.problems)),
    )


def measure_copies(
    job: Job,
    wanted: ProfileOptions,
    costs: Costs,
    profile: PerformanceProfile,
    data: Data,
    listener: Listener,
) -> Iterator[tuple[PerformanceProfile, bool]]:
    """The profile with copies that are really made and timed: in INT8, with fewer channels, with both.

    After each copy, with whether all that the estimate at the wanted budget needs is there; then come the rest.
    What `optimize` would make is what is timed. A copy that cannot be made, or that the engine cannot run, is
    named with the reason, and the others are measured all the same.
    """
    weights = usual_weights(layers_to_prune(costs))
    metric: LossMetric = "relative power" if data.labels is None else "cross-entropy"
    int8 = _int8_recipe(job, data)
    pruned = [_without_channels(weights, share) for share in SHARES] if weights and wanted.estimate else []
    with _copies(job, wanted, costs, profile, data, listener) as copies:
        if weights or wanted.int8:
            for _ in copies.making(int8):
                # Quantising takes one core: the first copy with fewer channels is made meanwhile.
                if pruned:
                    copies.make(pruned[0])
            if copies.measure(int8):
                yield copies.profile, False
        for share in SHARES:
            # Where so many cannot be removed, or the budget does not allow it, neither can more.
            if not pruned or not copies.measure(pruned.pop(0)):
                pruned.clear()
                break
            yield copies.profile, False
            if share_within(copies.profile, wanted.budget, metric) < share:
                break
        # What is interpolated is made and timed too, and the losses of both changes together are not guessed.
        for recipe in _interpolated(copies.profile, wanted.budget, metric, int8):
            if copies.measure(recipe):
                yield copies.profile, False
        yield copies.profile, True
        # For larger budgets: how both changes go together is not guessed.
        pruned += [*_both(copies.profile, int8)]
        for recipe in pruned:
            if copies.measure(recipe):
                yield copies.profile, True
        if weights and wanted.estimate:
            copies.measure_elsewhere(copy_to_try_elsewhere(copies.profile, wanted.budget, metric))
            yield copies.profile, True


@contextlib.contextmanager
def _copies(
    job: Job,
    wanted: ProfileOptions,
    costs: Costs,
    profile: PerformanceProfile,
    data: Data,
    listener: Listener,
) -> Iterator[_Copies]:
    """No copies yet, a folder that they are made in, and a timer that measures each beside the model."""
    with (
        tempfile.TemporaryDirectory(prefix="inferlab-") as folder,
        InterleavedTimer(warmed_briefly(job), costs, profile, _COPY_SHARE * wanted.time_s, listener) as timer,
    ):
        yield _Copies(job, wanted, profile, data, Path(folder), timer, listener)


def measure_mixed_copies(
    job: Job, wanted: ProfileOptions, costs: Costs, profile: Profile, data: Data, listener: Listener
) -> Iterator[PerformanceProfile]:
    """The performance profile with copies in which each group of channels lost a share of its own.

    The first is what the losses of the groups one by one let choose within the budget. What that copy really loses
    corrects the next choice, until what is chosen is a copy that was timed.
    """
    performance, loss, budget = profile.performance, profile.loss, wanted.budget
    if performance is None or loss is None or not performance.layers:
        return
    with _copies(job, wanted, costs, performance, data, listener) as copies:
        for _ in range(_MOST_MIXED):
            best = best_shares(copies.profile, loss, budget)
            if best is None or best.copy is not None or not is_faster(performance, best.ms_per_batch or math.inf):
                return
            if not copies.measure(shares_recipe(best.shares)):
                return
            yield copies.profile


def measure_zeros_elsewhere(
    job: Job, wanted: ProfileOptions, costs: Costs, profile: Profile, data: Data, listener: Listener
) -> Iterator[PerformanceProfile]:
    """The performance profile with a copy with zeros within the budget, timed on engines that gain from zeros.

    Those are tried that run the model; on the profile's own engine levels tell it.
    """
    performance, loss = profile.performance, profile.loss
    if performance is None or loss is None or not performance.layers:
        return
    running = {other.engine: other.unchanged_ms for other in performance.other_engines if other.unchanged_ms}
    gaining = {engine: ms for engine, ms in running.items() if _computes_zeros_faster(engine)}
    if not gaining:
        return
    with _copies(job, wanted, costs, performance, data, listener) as copies:
        copies.measure_zeros_elsewhere(gaining, loss, wanted.budget)
        yield copies.profile


def _computes_zeros_faster(engine: str) -> bool:
    able = registry.abilities(registry.launch(engine)).capabilities
    return not able.isdisjoint(("sparse_weights", "imposed_sparsity"))


def _zeros_to_try(performance: PerformanceProfile, loss: LossProfile, budget: float) -> PruningEstimate | None:
    """The level of every layer within the budget, as if its time went with the weights that are left."""
    left = {level_key(level): 1 - level for level in ZEROS}
    layers = tuple(
        replace(layer, spread_ms=0.0, pruned={key: part * layer.ms for key, part in left.items()})
        for layer in performance.layers
    )
    pruned = {key: part * performance.ms_per_batch for key, part in left.items()}
    return estimate(replace(performance, layers=layers, pruned=pruned, ms_interval=None), loss, budget)


def warmed_briefly(job: Job) -> Job:
    """The same job with less warming up: of many short measurements it would take most of the time."""
    return replace(job, cell=replace(job.cell, warmup_s=min(job.cell.warmup_s, _WARMUP_S)))


def distance_between(evaluated: Evaluation, model: Model, data: Data) -> Distance:
    """How far the outputs of a changed model are; random operators leave nothing to compare."""
    return Distance(
        relative_power=None if model.random else evaluated.relative_power,
        items=data.items,
        generated=data.generated,
        loss_rise=None if data.labels is None else evaluated.loss,
        accuracy=evaluated.accuracy,
        original_accuracy=evaluated.dense_accuracy,
    )


def first_sets(data: Data, items: float = ITEMS) -> Data:
    """As many sets as hold so many items, or all."""
    count = next((count for count in range(1, len(data.sets)) if sum(data.rows[:count]) >= items), len(data.sets))
    labels = None if data.labels is None else data.labels[:count]
    return replace(data, sets=data.sets[:count], rows=data.rows[:count], labels=labels)


def own_shapes(job: Job) -> dict[str, Shape]:
    """The shapes of inputs that the model itself takes: a copy for another batch size is made only to be timed."""
    if job.rewrite_batch is None:
        return dict(job.cell.shapes)
    return resolve(job.model.inputs, None, job.cell.sequence_length, {}).shapes


def _int8_recipe(job: Job, data: Data) -> Recipe:
    """Static INT8 as `optimize` makes it where nobody says more; generated inputs are part of the recipe."""
    items = ITEMS if data.generated else min(MOST_CALIBRATION_ITEMS, data.items)
    quantization = Quantization("static", calibration_items=items, reduce_range=needs_reduced_range())
    if not data.generated:
        return Recipe(quantization=quantization)
    return Recipe(quantization=quantization, seed=job.cell.seed, shapes=own_shapes(job))


def _without_channels(weights: Sequence[str], share: float) -> Recipe:
    return Recipe(pruning=Pruning(share, pattern=CHANNEL, layers=dict.fromkeys(weights, share)))


def _name(recipe: Recipe) -> str:
    """What is done to a copy, for messages."""
    shares = list(recipe.pruning.layers.values()) if recipe.pruning is not None else []
    channels = sum(shares) / len(shares) if shares else 0.0
    parts = ["INT8"] if recipe.quantization is not None else []
    if len(set(shares)) > 1:
        parts.append(f"{channels:.1%} of the channels of {len(shares)} layers removed".replace("%", " %"))
    elif channels:
        parts.append(f"{channels:.0%} of channels removed".replace("%", " %"))
    return " with ".join(parts)


def _interpolated(
    profile: PerformanceProfile, budget: float, metric: LossMetric, int8: Recipe
) -> Iterator[Recipe]:
    """Without the share of channels that the budget allows, and the same in INT8, where they were not timed."""
    pruned = next((copy.recipe for copy in profile.copies if copy.channels and not copy.int8), None)
    if pruned is None or pruned.pruning is None:
        return
    weights = list(pruned.pruning.layers)
    share = share_within(profile, budget, metric)
    if share and find_copy(profile, int8=False, channels=share) is None:
        yield _without_channels(weights, share)
    share = share_within(profile, budget, metric, int8=True)
    if share and find_copy(profile, int8=True, channels=0.0) is not None:
        yield replace(int8, pruning=_without_channels(weights, share).pruning)


def _both(profile: PerformanceProfile, int8: Recipe) -> Iterator[Recipe]:
    """INT8 without the smallest share of channels that was timed, where no copy with both was."""
    pruned = next(
        (copy.recipe.pruning for copy in profile.copies if copy.channels == SHARES[0] and not copy.int8), None
    )
    timed = find_copy(profile, int8=True, channels=0.0) is not None
    if pruned is not None and timed and not any(copy.int8 and copy.channels for copy in profile.copies):
        yield replace(int8, pruning=pruned)


@dataclass(frozen=True, slots=True)
class _Made:
    """A copy that is there, and how far its outputs are from the model's."""

    recipe: Recipe
    model: Model
    distance: Distance | None


class _Copies:
    """Copies on their way into a profile."""

    def __init__(
        self,
        job: Job,
        wanted: ProfileOptions,
        profile: PerformanceProfile,
        data: Data,
        folder: Path,
        timer: InterleavedTimer,
        listener: Listener,
    ) -> None:
        self._job, self._wanted, self._profile, self._data = job, wanted, profile, data
        self._folder, self._timer, self._listener = folder, timer, listener
        # A few items, or as many as both models compute in this time.
        each_s = 2 * profile.ms_per_batch / 1000 / profile.batch_size
        self._few = first_sets(data, max(ITEMS, _JUDGING_SHARE * wanted.time_s / each_s))
        self._deadline = time.monotonic() + _LIMIT * wanted.time_s
        self._cleaned: Model | None = None
        #: Copies that wait to be timed, by name; None for one that cannot be made.
        self._made: dict[str, _Made | None] = {}
        self._timed: list[tuple[_Made, Variant]] = []

    @property
    def profile(self) -> PerformanceProfile:
        """The profile with all copies by now."""
        copies = [
            ChangedCopy(
                made.recipe,
                variant.ms_per_batch,
                variant.layers_ms,
                # It is shown, but what is computed wrongly does not count.
                None if variant.output_check.status == "mismatch" else made.distance,
            )
            for made, variant in self._timed
        ]
        profile = replace(
            self._profile,
            copies=(*self._profile.copies, *(copy for copy in copies if not copy.mixed)),
            mixed_copies=(*self._profile.mixed_copies, *(copy for copy in copies if copy.mixed)),
        )
        int8 = find_copy(profile, int8=True, channels=0.0)
        if int8 is None:
            return profile
        layers = tuple(replace(layer, int8_ms=int8.layers_ms.get(layer.id)) for layer in profile.layers)
        return replace(profile, layers=layers, int8_ms_per_batch=int8.ms_per_batch)

    def make(self, recipe: Recipe) -> None:
        """Make a copy; one that cannot be made is named with the reason."""
        for _ in self.making(recipe):
            pass

    def making(self, recipe: Recipe) -> Iterator[None]:
        """The same, with a stop while a child quantises, which mostly takes one core."""
        name = _name(recipe)
        self._made[name] = None
        if time.monotonic() > self._deadline and not self._is_asked_for(recipe):
            self._leave_out(name, "making and timing the copies before it took too long. Give more time with -t.")
            return
        self._listener(Event("making-copy", {"copy": name}))
        try:
            if recipe.pruning is None:
                model = yield from self._quantized(recipe)
            else:
                model = self._pruned(recipe)
            self._made[name] = _Made(recipe, model, self._distance(model))
        except InferlabError as error:
            self._refuse(recipe, error)

    def measure(self, recipe: Recipe) -> bool:
        """Time a copy, which is made first where it was not tried yet; whether it was timed."""
        name = _name(recipe)
        if name not in self._made:
            self.make(recipe)
        made = self._made[name]
        if made is None:
            return False
        self._listener(Event("measuring-copy", {"copy": name}))
        try:
            # Fewer channels leave the operators as they are, which were checked: only INT8 may be wrong.
            variant = self._timer.measure(made.model, check=recipe.quantization is not None)
        except InferlabError as error:
            self._refuse(recipe, error)
            return False
        if variant.output_check.status == "mismatch":
            self._leave_out(name, "the engine computes wrong outputs in that copy.")
        self._timed.append((made, variant))
        self._profile = replace(self._profile, problems=(*self._profile.problems, *variant.problems))
        return True

    def measure_elsewhere(self, copy: ChangedCopy | None) -> None:
        """Time the model and a copy on every other engine that is ready; what fails or is wrong is left out."""
        made = None if copy is None else self._made[_name(copy.recipe)]
        here = self._job.cell.engine.partition("==")[0]
        others: list[OtherEngine] = []
        for engine in registry.list_engines():
            if engine.state != "ready" or engine.name == here or self._job.model.kind not in engine.kinds:
                continue
            # Without it the engine's own speed would be credited to the change.
            unchanged_ms = self._ms_on(engine.name, self._job.model, "")
            ms = None if made is None else self._ms_on(engine.name, made.model, _name(made.recipe))
            if copy is not None and ms is not None:
                others.append(OtherEngine(engine.name, copy.int8, copy.channels, ms, unchanged_ms))
            elif unchanged_ms is not None:
                others.append(OtherEngine(engine.name, False, 0.0, unchanged_ms, unchanged_ms))
        others.sort(key=lambda other: other.ms_per_batch)
        self._profile = replace(self._profile, other_engines=tuple(others))

    def measure_zeros_elsewhere(self, engines: Mapping[str, float], loss: LossProfile, budget: float) -> None:
        """Time a copy with zeros within the budget on these engines, of which it is told what the model takes.

        Losses of layers need not add up: what a copy lost too much is taken off the budget for the next.
        """
        allowed = budget
        for number in range(_MOST_ZEROED):
            zeros = _zeros_to_try(self._profile, loss, allowed)
            if zeros is None or not zeros.levels or time.monotonic() > self._deadline:
                return
            name = f"{zeros.parameter_reduction:.0%} of the parameters zero".replace("%", " %")
            self._listener(Event("making-copy", {"copy": name}))
            recipe = Recipe(pruning=Pruning(scope="layers", layers=zeros.levels), cleanup=False)
            try:
                copy = apply_recipe(self._clean(), recipe, self._data, self._folder / f"zeros-{number}", ignore)
            except InferlabError as error:
                self._leave_out(name, str(error))
                return
            made = ChangedCopy(recipe, math.nan, {}, self._distance(copy.model))
            lost = copy_loss(made, loss.metric)
            if lost is None:
                return
            if lost <= budget:
                break
            allowed *= budget / lost
        else:
            return
        others = [
            OtherEngine(engine, False, 0.0, ms, unchanged_ms, zeros.parameter_reduction, lost)
            for engine, unchanged_ms in engines.items()
            if (ms := self._ms_on(engine, copy.model, name)) is not None
        ]
        others = sorted((*self._profile.other_engines, *others), key=lambda other: other.ms_per_batch)
        self._profile = replace(self._profile, other_engines=tuple(others))

    def _ms_on(self, engine: str, model: Model, name: str) -> float | None:
        """What a model takes on another engine; None where it fails, is wrong, or the time for copies is over."""
        if time.monotonic() > self._deadline:
            return None
        self._listener(Event("measuring-copy", {"copy": name, "engine": engine}))
        try:
            variant = self._timer.measure(model, engine=engine)
        except InferlabError:
            return None
        return None if variant.output_check.status == "mismatch" else variant.ms_per_batch

    def _clean(self) -> Model:
        if self._cleaned is None:
            self._cleaned = clean_up(self._job.model, self._folder / "clean").model
        return self._cleaned

    def _quantized(self, recipe: Recipe) -> Generator[None, None, Model]:
        assert recipe.quantization is not None
        cleaned = self._clean()
        inputs = inputs_for(recipe, cleaned, self._data)
        for copy in quantizing(cleaned, inputs, self._folder / _name(recipe), recipe.quantization):
            if copy is not None:
                return copy.model
            yield
        raise AssertionError("the last is the copy")

    def _pruned(self, recipe: Recipe) -> Model:
        cleaned, rest = self._clean(), replace(recipe, cleanup=False)
        copy = apply_recipe(cleaned, rest, self._data, self._folder / _name(recipe), ignore)
        if copy.pruned.parameters == cleaned.parameters:
            reason = next(iter(copy.left_alone.values()), "no layer may lose any")
            raise InferlabError(f"channels cannot be removed: {reason}.")
        return copy.model

    def _distance(self, changed: Model) -> Distance | None:
        model = self._job.model
        try:
            evaluated = evaluate(changed, model, self._few, self._job.cell.num_cores)
        except InferlabError:
            return None
        return distance_between(evaluated, model, self._few)

    def _is_asked_for(self, recipe: Recipe) -> bool:
        return self._wanted.int8 and recipe.pruning is None

    def _refuse(self, recipe: Recipe, error: InferlabError) -> None:
        engine, reason = self._job.cell.engine, str(error)
        if recipe.quantization is not None and (option := registry.quantizes_by(engine)):
            reason = (
                f"{engine} runs no copy that is quantised already. It quantises the model itself with "
                f"--engine-option {option}, which no estimate includes: inferlab benchmark times it."
            )
        if self._is_asked_for(recipe):
            self._profile = _with_problem(self._profile, f"INT8 was not measured: {reason}")
        else:
            self._leave_out(_name(recipe), reason)

    def _leave_out(self, name: str, reason: str) -> None:
        self._profile = _left_out(self._profile, name, reason)


def _times_ms(layer: Layer, measured: Mapping[str, Variant]) -> dict[str, float]:
    """What a layer takes in copies, as far as that is known: not of layers without nodes of the graph."""
    times = {key: variant.layers_ms.get(layer.id) for key, variant in measured.items()}
    return {key: ms for key, ms in times.items() if ms is not None}


def _left_out(profile: PerformanceProfile, name: str, reason: str) -> PerformanceProfile:
    finding = Finding("copy-left-out", {"copy": name, "reason": reason})
    return replace(profile, findings=(*profile.findings, finding))


def _with_problem(profile: PerformanceProfile, problem: str) -> PerformanceProfile:
    return replace(profile, problems=(*profile.problems, problem))
