"""The performance profile: a model's clean time, and what each layer takes of it by the engine's own clock.

Each of several fresh processes measures both: first the clean pass, then the layers'.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, InferlabError
from inferlab.measure import findings
from inferlab.measure.cell import PreparedCell, capabilities_for, measuring_alone, prepare_cell
from inferlab.measure.cells import Job, cpus_of
from inferlab.measure.check import worst
from inferlab.measure.children import Children
from inferlab.measure.intervals import student
from inferlab.measure.stats import WINDOW_S, median_ms, summarize
from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.model.onnx_file import has_unique_names, rewrite, unique_name
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult, join, optimised_seeds, read_layers
from inferlab.profiling.layers import TimedLayer, align, apportion, layer_records, time_layers
from inferlab.records import Event, Finding, Listener, Model, Run, Summary
from inferlab.records.profile import Interval, PerformanceProfile, level_key
from inferlab.worker import Launch

# Fewer processes than this tell too little of the spread between them.
_LEAST_PROCESSES = 3
# A level is measured for so long in one process before it is measured in another one too.
_LEVEL_S = 0.5
# How long all processes may take to load and to check, relative to the measuring.
_BESIDE = 0.7
# A profiler that costs more than this share of the time says little of small layers.
_HEAVY = 0.25
# Engines that hang where they impose sparsity in a process that has only one CPU.
_NEEDS_TWO_CPUS = frozenset({"deepsparse"})


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What an engine said of its layers, with its optimised graph where it has one."""

    data: Mapping[str, Any]
    graph: bytes | None


@dataclass(frozen=True, slots=True)
class Passes:
    """What one process measured."""

    run: Run
    #: The median of the clean pass.
    clean_ms: float
    #: None where the engine failed to tell.
    layers: LayerReport | None
    #: With so many zeros imposed on the weights.
    imposed: Mapping[float, LayerReport]
    #: What went wrong after the clean pass.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """How the measuring time is divided; each of them is for all processes together."""

    clean_s: float
    layers_s: float
    levels_s: float = 0.0


def share(time_s: float, levels: Sequence[float]) -> Shares:
    """Half for the clean pass and half for the layers; less for both where levels are imposed too."""
    if not levels:
        return Shares(time_s / 2, time_s / 2)
    return Shares(0.4 * time_s, 0.3 * time_s, 0.3 * time_s)


def measure_passes(
    job: Job, time_s: float, levels: Sequence[float], listener: Listener, processes: int
) -> list[Passes]:
    """Measure both passes in each process; the levels are divided among the processes.

    What failed after the clean pass of one process is not tried again in the next ones.
    """
    label = f"profile of {job.model.source} on {job.cell.engine}"
    shares = share(time_s, levels)
    passes: list[Passes] = []
    wanted = processes
    with (
        measuring_alone(label, listener),
        prepare_cell(job, listener) as setup,
        with_unique_names(setup) as prepared,
    ):
        while len(passes) < wanted:
            began = time.monotonic()
            number = len(passes)
            listener(Event("loading", {"engine": job.cell.engine, "process": number + 1}))
            with Children(prepared) as fresh:
                if number == 0:
                    listener(Event("engine", fresh.settings()))
                telling = all(done.layers is not None for done in passes)
                failed = any(done.problems for done in passes)
                measured = _measure(fresh, shares, processes, telling, () if failed else levels, number, listener)
            passes.append(measured)
            if number == 0:
                # What the processes need besides their measuring must stay below it.
                beside_s = time.monotonic() - began - (shares.clean_s + shares.layers_s) / processes
                wanted = max(
                    min(_LEAST_PROCESSES, processes), min(processes, int(_BESIDE * time_s / max(0.1, beside_s)))
                )
    return passes


def engine_nodes(nodes: Sequence[NodeCost], model: Model, launch: Launch) -> tuple[NodeCost, ...]:
    """The nodes with the names that they have in the engine's file."""
    if not _needs_names(model, launch):
        return tuple(nodes)
    return tuple(replace(node, name=unique_name(node.id)) for node in nodes)


def _needs_names(model: Model, launch: Launch) -> bool:
    """Whether the engine gets a copy with unique names of nodes.

    One that writes into its file or converts it has a copy already; it tells its layers by their outputs.
    """
    copied = launch.writes_model or launch.converts
    return model.kind == "onnx" and not copied and not has_unique_names(Path(model.path))


@contextmanager
def with_unique_names(setup: PreparedCell) -> Iterator[PreparedCell]:
    """The same setup, its file replaced by a copy with unique names of nodes where that is needed."""
    model = setup.job.model
    if not _needs_names(model, setup.launch):
        yield setup
        return
    with tempfile.TemporaryDirectory(prefix="inferlab-") as folder:
        path = rewrite(
            model, Path(folder), batch=setup.job.rewrite_batch, newest_ir=None, copy_data=False, unique_names=True
        )
        yield replace(setup, path=path)


def _measure(
    fresh: Children,
    shares: Shares,
    processes: int,
    telling: bool,
    levels: Sequence[float],
    number: int,
    listener: Listener,
) -> Passes:
    cell = fresh.prepared.job.cell
    fresh.check_outputs()
    seconds = shares.clean_s / processes
    fresh.warm_up(cell.warmup_s)
    listener(Event("measuring", {"scenario": cell.scenario, "seconds": shares.clean_s}))
    count = max(1, round(seconds / WINDOW_S))
    for _ in range(count):
        full = fresh.measure(seconds / count).full
        if fresh.interrupted:
            raise KeyboardInterrupt
        if full:
            break
    # Now, not after the layers' pass: that one lets the measured model go.
    fresh.check_outputs()
    run = fresh.run()
    clean = Passes(run, median_ms(run), None, {})
    if not telling:
        return clean
    listener(Event("layers", {"engine": cell.engine, "process": number + 1}))
    try:
        layers = ask_layers(fresh, shares.layers_s / processes, None)
    except InferlabError as error:
        return replace(clean, problems=(layer_problem(error, None),))
    imposed: dict[float, LayerReport] = {}
    problems: list[str] = []
    repeats = _repeats(shares, len(levels), processes)
    for level in _turn(levels, repeats, processes, number):
        try:
            imposed[level] = ask_layers(fresh, shares.levels_s / len(levels) / repeats, level)
        except InferlabError as error:
            problems.append(layer_problem(error, level))
            break
    return replace(clean, layers=layers, imposed=imposed, problems=tuple(problems))


def _repeats(shares: Shares, levels: int, processes: int) -> int:
    """In how many processes each level is measured, as far as the time allows."""
    most = min(_LEAST_PROCESSES, processes)
    return max(1, min(most, int(shares.levels_s / max(1, levels) / _LEVEL_S)))


def _turn(levels: Sequence[float], repeats: int, processes: int, number: int) -> Sequence[float]:
    """The levels of one process: the first few share them, so that each has its repeats."""
    most = min(_LEAST_PROCESSES, processes)
    turns = math.ceil(most / repeats)
    return levels[number % turns :: turns] if number < most else ()


def ask_layers(fresh: Children, seconds: float, level: float | None) -> LayerReport:
    """What the engine says of its layers, with so many zeros imposed on the weights."""
    reply = fresh.layers(seconds, level)
    return LayerReport(reply.data, reply.blocks[0] if reply.blocks else None)


def layer_problem(error: InferlabError, level: float | None) -> str:
    """That layers were not timed, in a sentence."""
    what = "The layers could not be timed" if level is None else f"Sparsity {level:g} could not be imposed"
    return f"{what}: {error}"


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
    reporting = [process for process in passes if process.layers is not None]
    graph = graph_of(job.model, costs, job)
    reports = [process.layers for process in passes if process.layers is not None]
    timed_layers = timed_layers_of(job, reports, graph)
    ms_per_batch = summary.median_ms.value
    clean_ms = [process.clean_ms for process in reporting]
    layers = layer_records(timed_layers, clean_ms, ms_per_batch, graph) if reporting else ()
    overheads = [_wall_ms(process) / process.clean_ms - 1.0 for process in reporting]
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
        unattributed_share=sum(layer.share for layer in layers if not layer.nodes),
        output_check=worst([run.check for run in runs]),
        findings=(*findings.find(job.cell, runs), *_heavy(overheads)),
        layers=layers,
        problems=tuple(problem for process in passes for problem in process.problems),
        overhead_interval=_overhead_interval(overheads),
    )
    return _with_imposed(profile, reporting, graph, job) if levels else profile


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


def timed_layers_of(job: Job, reports: Sequence[LayerReport], graph: Graph) -> tuple[TimedLayer, ...]:
    """The layers of all processes, joined with the nodes."""
    if not reports:
        return ()
    layers, times = align([read_layers(report.data["layers"]) for report in reports])
    layers, joined = _join(layers, reports[0], graph)
    return time_layers(layers, joined, times)


def _join(
    layers: Sequence[ExecutedLayer], report: LayerReport, graph: Graph
) -> tuple[list[ExecutedLayer], JoinResult]:
    seeds = None
    if report.graph is not None:
        layers, seeds = optimised_seeds(layers, report.graph, graph)
    return list(layers), join(layers, graph, str(report.data.get("unnamed", "after")), seeds)


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
    profile: PerformanceProfile, reporting: Sequence[Passes], graph: Graph, job: Job
) -> PerformanceProfile:
    """The profile with the times at each level, held to what the same process took without sparsity.

    What an inference takes besides its layers is not shortened by zeros: where the layers add up to less than the
    clean time, they gain what they gained by the engine's own clock.
    """
    flops = {node.id: node.flops or 0 for node in graph.nodes}
    by_layer: dict[str, dict[str, list[float]]] = {layer.id: {} for layer in profile.layers}
    model: dict[str, list[float]] = {}
    for process in reporting:
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
