"""The performance profile: a model's clean time, and what each layer takes of it by the engine's own clock."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import findings
from inferlab.measure.cell import capabilities_for
from inferlab.measure.cells import Job, cpus_of
from inferlab.measure.check import worst
from inferlab.measure.intervals import student
from inferlab.measure.stats import summarize
from inferlab.model.flops.costs import Costs
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult, join, optimised_seeds, read_layers
from inferlab.profiling.layers import TimedLayer, align, apportion, layer_records, time_layers
from inferlab.profiling.passes import LayerReport, Passes, engine_nodes, measure_passes
from inferlab.records import Finding, Listener, Model, Summary
from inferlab.records.profile import Interval, PerformanceProfile, level_key

_HEAVY = 0.25


# Engines that hang where they impose sparsity in a process that has only one CPU.
_NEEDS_TWO_CPUS = frozenset({"deepsparse"})


def can_impose(job: Job) -> bool:
    """Whether the job's engine can run as if weights were pruned, on the CPUs that it has here."""
    alone = len(cpus_of(job.cell)) == 1 and job.cell.engine.partition("==")[0] in _NEEDS_TWO_CPUS
    return "imposed_sparsity" in capabilities_for(job) and not alone


def has_sparse_weights(job: Job) -> bool:
    """Whether the job's engine can compute weights that are zero faster, in a model that really has them."""
    return not capabilities_for(job).isdisjoint(("sparse_weights", "imposed_sparsity"))


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
    graph = graph_of(job.model, costs, job)
    timed_layers = timed_layers_of(job, [process.layers for process in told if process.layers is not None], graph)
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


def graph_of(model: Model, costs: Costs, job: Job) -> Graph:
    """The graph with the names that the engine's file gives its nodes."""
    nodes = engine_nodes(costs.nodes, model, registry.launch(job.cell.engine))
    return Graph(nodes, {spec.name for spec in model.inputs}, {spec.name for spec in model.outputs})


def timed_layers_of(job: Job, told: Sequence[LayerReport], graph: Graph) -> tuple[TimedLayer, ...]:
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
            timed_layers = timed_layers_of(job, [imposed], graph)
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
