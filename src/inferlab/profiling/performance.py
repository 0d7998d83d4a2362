"""The performance profile: a model's clean time, and what each layer takes of it by the engine's own clock."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure import findings
from inferlab.measure.check import worst
from inferlab.measure.intervals import student
from inferlab.measure.prepare import Job, powers
from inferlab.measure.stats import summarize
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs as count
from inferlab.profiling.join import Executed, Graph, Joined, join, optimised_seeds, read_layers
from inferlab.profiling.layers import Timed, align, apportion, layer_records, timed
from inferlab.profiling.passes import Passes, Told, engine_nodes, measure_passes
from inferlab.records import Finding, Listener, Model, OutputCheck, Summary
from inferlab.records.profile import Interval, PerformanceProfile, level_key

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
    return "imposed_sparsity" in powers(registry.launch(job.cell.engine), job)


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
    if "layer_times" in powers(registry.launch(job.cell.engine), job):
        return
    able = [engine.name for engine in registry.list_engines() if "layer_times" in engine.capabilities]
    raise BadInput(
        f"Engine '{job.cell.engine}' does not tell what its layers take. "
        f"Profile the model on one that does: {', '.join(able)}."
    )


def _graph(model: Model, costs: Costs, job: Job) -> Graph:
    """The graph with the names that the engine's file gives its nodes."""
    writes_model = registry.launch(job.cell.engine).writes_model
    nodes = engine_nodes(costs.nodes, model, writes_model)
    return Graph(nodes, {spec.name for spec in model.inputs}, {spec.name for spec in model.outputs})


def _timed(job: Job, told: Sequence[Told], graph: Graph) -> tuple[Timed, ...]:
    """The layers of all processes, joined with the nodes."""
    if not told:
        return ()
    layers, times = align([read_layers(process.data["layers"]) for process in told])
    layers, joined = _join(layers, told[0], graph)
    return timed(layers, joined, times)


def _join(layers: Sequence[Executed], told: Told, graph: Graph) -> tuple[list[Executed], Joined]:
    seeds = None
    if told.graph is not None:
        layers, seeds = optimised_seeds(layers, told.graph, graph)
    return list(layers), join(layers, graph, str(told.data.get("unnamed", "after")), seeds)


def _wall_ms(passes: Passes) -> float:
    assert passes.layers is not None
    return float(passes.layers.data["wall_ns"]) / 1e6


def _layers_sum_ms(timed_layers: Sequence[Timed]) -> float:
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
