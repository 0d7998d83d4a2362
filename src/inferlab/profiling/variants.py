"""What a changed copy of a model takes on an engine: with weights zeroed, or quantised to INT8."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from inferlab.errors import InferlabError
from inferlab.measure.check import Arrays
from inferlab.measure.prepare import Job
from inferlab.model.flops.costs import Costs
from inferlab.profiling.loss import layers_to_prune
from inferlab.profiling.performance import Variant, measure_variant
from inferlab.records import Event, Listener, Model
from inferlab.records.profile import Layer, PerformanceProfile, level_key
from inferlab.transform.prune import prune

# A copy is measured in so many processes: the baseline's interval says how much they differ.
_PROCESSES = 2


def at_levels(
    job: Job,
    costs: Costs,
    profile: PerformanceProfile,
    levels: Sequence[float],
    time_s: float,
    listener: Listener,
) -> PerformanceProfile:
    """The profile with the time at every level, the smallest weights of all layers zeroed in a copy."""
    weights = {node.weight for node in layers_to_prune(costs)}
    if not weights:
        return _with_problem(profile, "No layer has weights that could be pruned, so no level was measured.")
    arms = _Arms(job, costs, profile, time_s / (len(levels) + 2), listener)
    measured: dict[str, Variant] = {}
    arms.again()
    for level in sorted(levels):
        listener(Event("pruned-copy", {"level": level}))
        try:
            measured[level_key(level)] = arms.copy(_pruner(job.model, dict.fromkeys(weights, level)))
        except InferlabError as error:
            profile = _with_problem(profile, f"With {level:g} of the weights zero: {error}")
    arms.again()
    return replace(
        profile,
        layers=tuple(replace(layer, pruned=_times_ms(layer, measured, arms.drift)) for layer in profile.layers),
        pruning="zeroed",
        pruned={key: variant.ms_per_batch * arms.drift for key, variant in measured.items()},
        problems=(*profile.problems, *(problem for variant in measured.values() for problem in variant.problems)),
    )


def in_int8(
    job: Job,
    costs: Costs,
    profile: PerformanceProfile,
    calibration: Sequence[Arrays],
    time_s: float,
    listener: Listener,
) -> PerformanceProfile:
    """The profile with the times of a copy that is really quantised."""
    from inferlab.transform.quantize import quantize

    arms = _Arms(job, costs, profile, time_s / 3, listener)
    arms.again()
    try:
        variant = arms.copy(lambda folder: quantize(job.model, calibration, folder, listener).model)
    except InferlabError as error:
        return _with_problem(profile, f"INT8 was not measured: {error}")
    arms.again()
    return replace(
        profile,
        layers=tuple(replace(layer, int8_ms=_ms(layer, variant, arms.drift)) for layer in profile.layers),
        int8_ms_per_batch=variant.ms_per_batch * arms.drift,
        problems=(*profile.problems, *variant.problems),
    )


class _Arms:
    """Copies of a model, measured one after the other between two measurements of the model itself."""

    def __init__(
        self, job: Job, costs: Costs, profile: PerformanceProfile, share_s: float, listener: Listener
    ) -> None:
        self._job, self._costs, self._profile = job, costs, profile
        self._share_s, self._listener = share_s, listener
        self._dense_ms: list[float] = []

    def again(self) -> None:
        """Measure the model itself once more."""
        self._dense_ms.append(self._measure(self._job.model).ms_per_batch)

    def copy(self, make: Callable[[Path], Model]) -> Variant:
        """Make a copy and measure it; it is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
            return self._measure(make(Path(folder)))

    @property
    def drift(self) -> float:
        """What brings the copies' times to those of the profile: the machine may have become slower meanwhile."""
        return self._profile.ms_per_batch / fmean(self._dense_ms)

    def _measure(self, model: Model) -> Variant:
        job, costs, profile = self._job, self._costs, self._profile
        return measure_variant(job, costs, profile, model, self._share_s, self._listener, _PROCESSES)


def _pruner(model: Model, levels: dict[str, float]) -> Callable[[Path], Model]:
    return lambda folder: prune(model, levels, folder)


def _ms(layer: Layer, variant: Variant, drift: float) -> float | None:
    """What a layer takes in a copy; None where that is not known, as of layers without nodes of the graph."""
    ms = variant.layers_ms.get(layer.id)
    return None if ms is None else ms * drift


def _times_ms(layer: Layer, measured: Mapping[str, Variant], drift: float) -> dict[str, float]:
    times = {key: _ms(layer, variant, drift) for key, variant in measured.items()}
    return {key: ms for key, ms in times.items() if ms is not None}


def _with_problem(profile: PerformanceProfile, problem: str) -> PerformanceProfile:
    return replace(profile, problems=(*profile.problems, problem))
