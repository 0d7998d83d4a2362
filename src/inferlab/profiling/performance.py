"""The performance profile: a model's clean time, and what each layer takes of it by the engine's own clock.

Changed copies, with weights zeroed or in INT8, are measured in the same way.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, InferlabError
from inferlab.measure import findings
from inferlab.measure.check import Arrays, worst
from inferlab.measure.intervals import student
from inferlab.measure.prepare import Job, capabilities_for
from inferlab.measure.stats import summarize
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs as count
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult, join, optimised_seeds, read_layers
from inferlab.profiling.layers import TimedLayer, align, apportion, layer_records, time_layers
from inferlab.profiling.loss import layers_to_prune
from inferlab.profiling.passes import LayerReport, Passes, engine_nodes, measure_passes
from inferlab.records import Event, Finding, Listener, Model, OutputCheck, Summary
from inferlab.records.profile import Interval, Layer, PerformanceProfile, level_key
from inferlab.transform.prune import prune

_HEAVY = 0.25


@dataclass(frozen=True, slots=True)
class Variant:
    """A changed copy of a model, measured in the same way."""

    ms_per_batch: float
    ms_interval: Interval | None
    #: By the ids of the original's layers that have nodes, 0 where no layer of the copy covers them; empty where
    #: the engine did not tell.
    layers_ms: Mapping[str, float]
    output_check: OutputCheck
    problems: tuple[str, ...]


def can_impose(job: Job) -> bool:
    """Whether the job's engine can run as if weights were pruned."""
    return "imposed_sparsity" in capabilities_for(job)


def measure(
    job: Job,
    costs: Costs,
    time_s: float,
    name: str,
    levels: Sequence[float],
    listener: Listener,
    processes: int = 5,
) -> PerformanceProfile:
    """Measure a job's model with and without the engine's profiler, in several fresh processes.

    `time_s` bounds the measuring, not the loading. With `levels` the engine imposes sparsity too.
    """
    _refuse_silent(job)
    passes = measure_passes(job, time_s, levels, listener, processes)
    runs = [process.run for process in passes]
    summary = _summary(job, passes)
    told = [process for process in passes if process.layers is not None]
    graph = _graph(job.model, costs, job)
    timed_layers = _timed(job, [process.layers for process in told if process.layers is not None], graph)
    ms_per_batch = summary.median_ms.value
    clean_ms = [process.clean_ms for process in told]
    layers = layer_records(timed_layers, clean_ms, ms_per_batch, graph) if told else ()
    overheads = [_wall_ms(process) / process.clean_ms - 1.0 for process in told]
    profile = PerformanceProfile(
        name=name,
        engine=job.cell.engine,
        versions=runs[0].versions,
        settings=runs[0].settings,
        batch_size=job.cell.batch_size,
        num_cores=job.cell.num_cores,
        instruction_sets=machine.describe().instruction_sets,
        shapes=dict(job.cell.shapes),
        measured_at=runs[0].started_at,
        machine=runs[0].machine,
        ms_per_batch=ms_per_batch,
        ms_interval=summary.median_ms.ends,
        items_per_second=summary.items_per_sec.value,
        items_interval=summary.items_per_sec.ends,
        processes_ms=tuple(process.clean_ms for process in passes),
        layers_sum_ms=_layers_sum_ms(timed_layers),
        profiler_overhead=statistics.median(overheads) if overheads else 0.0,
        unjoined_share=sum(layer.share for layer in layers if not layer.nodes),
        output_check=worst([run.check for run in runs]),
        findings=(*findings.find(job.cell, runs), *_heavy(overheads)),
        layers=layers,
        problems=tuple(problem for process in passes for problem in process.problems),
        overhead_interval=_overhead_interval(overheads),
    )
    return _with_imposed(profile, told, graph, job) if levels else profile


def measure_variant(
    job: Job,
    costs: Costs,
    baseline: PerformanceProfile,
    variant: Model,
    time_s: float,
    listener: Listener,
    processes: int = 3,
) -> Variant:
    """Measure a changed copy of the job's model and say what the layers of the original take in it.

    The copy has the same graph up to nodes that quantise and dequantise; its outputs are checked against its own
    reference.
    """
    changed = replace(job, model=variant, cell=replace(job.cell, model_digest=variant.digest))
    passes = measure_passes(changed, time_s, (), listener, processes)
    summary = _summary(changed, passes)
    told = [process for process in passes if process.layers is not None]
    layers_ms: dict[str, float] = {}
    if told and baseline.layers:
        graph = _graph(variant, count(variant, dict(job.cell.shapes)), changed)
        timed_layers = _timed(changed, [process.layers for process in told if process.layers is not None], graph)
        original = {node.id for node in costs.nodes}
        records = layer_records(
            timed_layers, [process.clean_ms for process in told], summary.median_ms.value, graph
        )
        served = [
            (_originals(layer.nodes, graph, original), record.ms)
            for layer, record in zip(timed_layers, records, strict=True)
        ]
        flops = {node.id: node.flops or 0 for node in costs.nodes}
        layers_ms = apportion(served, baseline.layers, flops)
    return Variant(
        ms_per_batch=summary.median_ms.value,
        ms_interval=summary.median_ms.ends,
        layers_ms=layers_ms,
        output_check=worst([process.run.check for process in passes]),
        problems=tuple(problem for process in passes for problem in process.problems),
    )


def _overhead_interval(overheads: Sequence[float]) -> Interval | None:
    """Where the profiler's cost lies, by what the processes say; None where fewer than two do."""
    ends = student([1.0 + overhead for overhead in overheads]).ends if overheads else None
    return None if ends is None else (ends[0] - 1.0, ends[1] - 1.0)


def _heavy(overheads: Sequence[float]) -> list[Finding]:
    """Says where the profiler costs so much that the shares of small layers mean little."""
    overhead = statistics.median(overheads) if overheads else 0.0
    return [Finding("profiler-heavy", {"overhead": overhead})] if overhead > _HEAVY else []


def _refuse_silent(job: Job) -> None:
    if "layer_times" in capabilities_for(job):
        return
    able = [engine.name for engine in registry.list_engines() if "layer_times" in engine.capabilities]
    raise BadInput(
        f"Engine '{job.cell.engine}' does not report the times of its layers. "
        f"Profile the model on one that does: {', '.join(able)}."
    )


def _graph(model: Model, costs: Costs, job: Job) -> Graph:
    """The graph with the names that the engine's file gives its nodes."""
    writes_model = registry.launch(job.cell.engine).writes_model
    nodes = engine_nodes(costs.nodes, model, writes_model)
    return Graph(nodes, {spec.name for spec in model.inputs}, {spec.name for spec in model.outputs})


def _timed(job: Job, told: Sequence[LayerReport], graph: Graph) -> tuple[TimedLayer, ...]:
    """The layers of all processes, joined with the nodes."""
    if not told:
        return ()
    layers, times = align([read_layers(process.data["layers"]) for process in told])
    layers, joined = _join(layers, told[0], graph)
    return time_layers(layers, joined, times)


def _join(
    layers: Sequence[ExecutedLayer], told: LayerReport, graph: Graph
) -> tuple[list[ExecutedLayer], JoinResult]:
    seeds = None
    if told.graph is not None:
        layers, seeds = optimised_seeds(layers, told.graph, graph)
    return list(layers), join(layers, graph, str(told.data.get("unnamed", "after")), seeds)


def _wall_ms(passes: Passes) -> float:
    assert passes.layers is not None
    return float(passes.layers.data["wall_ns"]) / 1e6


def _layers_sum_ms(timed_layers: Sequence[TimedLayer]) -> float:
    sums = [sum(times) for times in zip(*(layer.times_ms for layer in timed_layers), strict=True)]
    return float(statistics.median(sums)) if sums else 0.0


def _summary(job: Job, passes: Sequence[Passes]) -> Summary:
    summary = summarize(job.cell, [process.run for process in passes])
    assert summary is not None, "a closed loop has samples"
    return summary


def _originals(members: Sequence[int], graph: Graph, original: set[str]) -> list[str]:
    """The nodes of the original that a layer covers, or the next ones that use what it quantises."""
    own = [graph.nodes[number].id for number in members if graph.nodes[number].id in original]
    waiting, seen = list(members), set(members)
    while not own and waiting:
        users = [user for number in waiting for user in graph.after(number) if user not in seen]
        own = [graph.nodes[user].id for user in users if graph.nodes[user].id in original]
        seen.update(users)
        waiting = users
    return own


def _with_imposed(
    profile: PerformanceProfile, told: Sequence[Passes], graph: Graph, job: Job
) -> PerformanceProfile:
    """The profile with the times at each level, held to what the same process took without sparsity.

    What an inference takes besides its layers is not shortened by zeros: where the layers add up to less than the
    clean time, they gain what they gained by the engine's own clock.
    """
    flops = {node.id: node.flops or 0 for node in graph.nodes}
    by_layer: dict[str, dict[str, list[float]]] = {layer.id: {} for layer in profile.layers}
    model: dict[str, list[float]] = {}
    for process in told:
        assert process.layers is not None
        sum_ms = sum(each.ns for each in read_layers(process.layers.data["layers"])) / 1e6
        scale, within = profile.ms_per_batch / sum_ms, min(1.0, sum_ms / process.clean_ms)
        for level, imposed in process.imposed.items():
            timed_layers = _timed(job, [imposed], graph)
            times = [each.times_ms[0] * scale for each in timed_layers]
            served = [[graph.nodes[number].id for number in each.nodes] for each in timed_layers]
            key = level_key(level)
            model.setdefault(key, []).append(_shortened(profile.ms_per_batch, sum(times), within))
            taken = apportion(list(zip(served, times, strict=True)), profile.layers, flops)
            for layer in profile.layers:
                if layer.id in taken:
                    ms = _shortened(layer.ms, taken[layer.id], within)
                    by_layer[layer.id].setdefault(key, []).append(ms)
    layers = tuple(replace(layer, pruned=_medians(by_layer[layer.id])) for layer in profile.layers)
    return replace(profile, layers=layers, pruning="imposed", pruned=_medians(model))


def _shortened(before_ms: float, after_ms: float, within: float) -> float:
    return before_ms - within * (before_ms - after_ms)


def _medians(times_ms: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {level: statistics.median(times_ms[level]) for level in sorted(times_ms, key=float)}


# A copy is measured in so many processes: the baseline's interval says how much they differ.
_PROCESSES = 2


def measure_levels(
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
    timer = _CopyTimer(job, costs, profile, time_s / (len(levels) + 2), listener)
    measured: dict[str, Variant] = {}
    timer.measure_original()
    for level in sorted(levels):
        listener(Event("pruned-copy", {"level": level}))
        try:
            measured[level_key(level)] = timer.measure_copy(_pruner(job.model, dict.fromkeys(weights, level)))
        except InferlabError as error:
            profile = _with_problem(profile, f"With {level:g} of the weights zero: {error}")
    timer.measure_original()
    return replace(
        profile,
        layers=tuple(replace(layer, pruned=_times_ms(layer, measured, timer.drift)) for layer in profile.layers),
        pruning="zeroed",
        pruned={key: variant.ms_per_batch * timer.drift for key, variant in measured.items()},
        problems=(*profile.problems, *(problem for variant in measured.values() for problem in variant.problems)),
    )


def measure_int8(
    job: Job,
    costs: Costs,
    profile: PerformanceProfile,
    calibration: Sequence[Arrays],
    time_s: float,
    listener: Listener,
) -> PerformanceProfile:
    """The profile with the times of a copy that is really quantised."""
    from inferlab.transform.quantize import quantize

    timer = _CopyTimer(job, costs, profile, time_s / 3, listener)
    timer.measure_original()
    try:
        variant = timer.measure_copy(lambda folder: quantize(job.model, calibration, folder, listener).model)
    except InferlabError as error:
        return _with_problem(profile, f"INT8 was not measured: {error}")
    timer.measure_original()
    return replace(
        profile,
        layers=tuple(replace(layer, int8_ms=_variant_ms(layer, variant, timer.drift)) for layer in profile.layers),
        int8_ms_per_batch=variant.ms_per_batch * timer.drift,
        problems=(*profile.problems, *variant.problems),
    )


class _CopyTimer:
    """Copies of a model, measured one after the other between two measurements of the model itself."""

    def __init__(
        self, job: Job, costs: Costs, profile: PerformanceProfile, share_s: float, listener: Listener
    ) -> None:
        self._job, self._costs, self._profile = job, costs, profile
        self._share_s, self._listener = share_s, listener
        self._dense_ms: list[float] = []

    def measure_original(self) -> None:
        """Measure the model itself once more."""
        self._dense_ms.append(self._measure(self._job.model).ms_per_batch)

    def measure_copy(self, make: Callable[[Path], Model]) -> Variant:
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


def _variant_ms(layer: Layer, variant: Variant, drift: float) -> float | None:
    """What a layer takes in a copy; None where that is not known, as of layers without nodes of the graph."""
    ms = variant.layers_ms.get(layer.id)
    return None if ms is None else ms * drift


def _times_ms(layer: Layer, measured: Mapping[str, Variant], drift: float) -> dict[str, float]:
    times = {key: _variant_ms(layer, variant, drift) for key, variant in measured.items()}
    return {key: ms for key, ms in times.items() if ms is not None}


def _with_problem(profile: PerformanceProfile, problem: str) -> PerformanceProfile:
    return replace(profile, problems=(*profile.problems, problem))
