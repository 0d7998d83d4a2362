"""Results as the JSON values of their files: with the keys that DeepSparse's users parse, and ours.

Profiles, versions and searches are written as the store holds them.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from inferlab.codec import plain
from inferlab.measure.candidates import label
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.check import worst
from inferlab.measure.findings import arm_findings, arm_runs, find_all, totals, touching
from inferlab.measure.headline import SCHEDULERS, cost_per_million, price_of
from inferlab.measure.stats import (
    PERCENTILES,
    engine_version,
    items_per_sec,
    latencies_ns,
    median_ms,
    peak_memory_bytes,
    seconds,
    summarize,
)
from inferlab.options.plan import cell_texts
from inferlab.records import Benchmark, Cell, Model, Outcome, Run, Summary, Window
from inferlab.records.capacity import Capacity, RatePoint
from inferlab.records.comparison import Comparison, ComparisonSweep
from inferlab.records.event import Finding
from inferlab.records.generation import GenerationSweep
from inferlab.records.generation_results import (
    GenerationCapacity,
    GenerationComparison,
    GenerationRecommendation,
)
from inferlab.records.recommendation import (
    Contender,
    FleetRecommendation,
    MachineRecommendation,
    PairedRatio,
    Recommendation,
)
from inferlab.store import formats
from inferlab.views.comparison import notes
from inferlab.views.recommendation import code_of
from inferlab.views.results import Result
from inferlab.views.text import SCENARIO_NAMES, finding

Content = dict[str, Any]

# Version 1: the first, one process. Version 2: several processes, intervals, windows; version 1 is still read.
BENCHMARK = "inferlab-benchmark/2"
COMPARISON = "inferlab-comparison/1"
#: Several in one: {"format": …, "results": [that object, …], "failures": [{"cell": …, "message": …}, …]}.
COMPARISONS = "inferlab-comparisons/1"
CAPACITY = "inferlab-capacity/1"
RECOMMENDATION = "inferlab-recommendation/1"
FLEET_RECOMMENDATION = "inferlab-fleet-recommendation/1"

# What a search or a comparison sets by itself.
_NOT_OF_CAPACITY = ("rate", "scenario", "precision", "warmup_s")
_OF_MODEL = (
    *("kind", "digest", "opset", "parameters", "size_bytes", "zero_fraction", "precision"),
    "quantization",
)
_NOT_OF_ARMS = ("time_s", "warmup_s", "processes", "precision")


def to_json(record: Result) -> str:
    """The text of the file: what the commands write with `-x result.json`."""
    return dumps(content_of(record))


def dumps(content: Any) -> str:
    """JSON values as the text of a file."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def content_of(record: Result) -> Content:
    """All that is known of a result, as JSON values."""
    if isinstance(record, Benchmark):
        results = [cell_content(record, outcome) for outcome in record.outcomes]
        return results[0] if len(results) == 1 else {"format": BENCHMARK, "results": results}
    if isinstance(record, ComparisonSweep):
        return _comparisons(record)
    if isinstance(record, Comparison):
        return _object(_comparison(record))
    if isinstance(record, Capacity):
        return _object(_capacity(record))
    if isinstance(record, Recommendation):
        return _object(_recommendation(record))
    if isinstance(record, GenerationSweep):
        from inferlab.views.generation import content

        return _object(content(record))
    if isinstance(record, GenerationComparison | GenerationCapacity | GenerationRecommendation):
        from inferlab.views import generation_results as shown

        if isinstance(record, GenerationComparison):
            return _object(shown.comparison_content(record))
        if isinstance(record, GenerationCapacity):
            return _object(shown.capacity_content(record))
        return _object(shown.recommendation_content(record))
    if isinstance(record, FleetRecommendation):
        return _object(_fleet_recommendation(record))
    return formats.content_of(record)


def _json(content: Any) -> Any:
    """Records as JSON values. JSON has no infinity: an infinite error becomes the word."""
    if is_dataclass(content):
        content = plain(content)
    if isinstance(content, Mapping):
        return {key: _json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_json(value) for value in content]
    return str(content) if isinstance(content, float) and math.isinf(content) else content


def _object(content: Content) -> Content:
    return {key: _json(value) for key, value in content.items()}


def _picked(record: Any, *names: str) -> Content:
    """Fields of a record under their own names."""
    return {name: getattr(record, name) for name in names}


def _without(record: Any, names: Sequence[str]) -> Content:
    return {name: value for name, value in plain(record).items() if name not in names}


def findings(found: Sequence[Finding]) -> list[Content]:
    """Findings as objects, with their sentences."""
    return [_object({"code": one.code, "data": one.data, "text": finding(one)}) for one in found]


def cell_content(benchmark: Benchmark, outcome: Outcome) -> Content:
    """All that is known of one cell of a benchmark."""
    cell, model = outcome.cell, benchmark.model
    run = outcome.runs[0] if outcome.runs else None
    summary = summarize(cell, outcome.runs)
    content = {
        "format": BENCHMARK,
        "engine": cell.engine,
        "version": engine_version(run) if run else "",
        "orig_model_path": model.source,
        "model_path": run.model_path if run else model.path,
        **_picked(cell, "batch_size", "sequence_length"),
        "input_shapes": [shape for _, shape in cell.shapes],
        "num_cores": cell.num_cores,
        "scenario": SCENARIO_NAMES[cell.scenario],
        "scheduler": SCHEDULERS[cell.scenario],
        "seconds_to_run": cell.time_s,
        **_picked(cell, "num_streams", "instances", "rate"),
        "benchmark_result": _numbers(SCENARIO_NAMES[cell.scenario], summary) if summary else None,
        "fraction_of_supported_ops": run.fraction_of_supported_ops if run else None,
        **_picked(outcome, "status", "failure"),
        "cell": cell.id,
        "seed": cell.seed,
        "inputs": dict(cell.shapes),
        "thread_pinning": cell.thread_pinning,
        **cell_texts(cell),
        "engine_options": dict(cell.engine_options),
        "warmup_time": cell.warmup_s,
        "precision": cell.precision,
        **_on_cluster(benchmark, cell, summary),
        "model": _picked(model, *_OF_MODEL),
        **_measured(outcome),
    }
    return _object(content)


def _on_cluster(benchmark: Benchmark, cell: Cell, summary: Summary | None) -> Content:
    """The cell's machine type and what it costs, where it was measured on a cluster."""
    if cell.machine_type is None:
        return {}
    price = price_of(benchmark, cell)
    cost = None if price is None or summary is None else cost_per_million(summary.items_per_sec, price)
    return {
        **_picked(cell, "machine_type", "machine_number"),
        "price_per_hour": price,
        "cost_per_million": None if cost is None else cost.value,
        "cost_per_million_low": None if cost is None else cost.low,
        "cost_per_million_high": None if cost is None else cost.high,
    }


def _measured(outcome: Outcome) -> Content:
    if not outcome.runs:
        return {}
    cell, runs = outcome.cell, outcome.runs
    run = runs[0]
    return {
        "started_at": run.started_at,
        "interrupted": outcome.status == "cancelled",
        "stream_mode": run.stream_mode,
        "load_time_ms": statistics.median(one.load_s for one in runs) * 1e3,
        "first_inference_ms": statistics.median(one.first_inference_s for one in runs) * 1e3,
        "peak_memory_bytes": peak_memory_bytes(runs),
        **_picked(run, "steady_memory_bytes", "baseline_memory_bytes", "harness_ns"),
        "output_check": worst([one.check for one in runs]),
        "findings": findings(find_all(outcome)),
        "processes": [_process(cell, one) for one in runs],
        "counters": dict(totals(runs)),
        "versions": run.versions,
        "engine_settings": run.settings,
        "machine": run.machine,
    }


def _process(cell: Cell, run: Run) -> Content:
    """What one process measured: its medians are what comparisons of files work with."""
    measured = any(len(stream) for window in run.windows for stream in window.streams)
    return {
        "started_at": run.started_at,
        "median": median_ms(run) if measured else None,
        "items_per_sec": items_per_sec(run, cell.batch_size, cell.rate) if measured else None,
        "ready_s": run.ready_s,
        "load_time_ms": run.load_s * 1e3,
        "warmup_seconds": sum(seconds(window) for window in run.warmup),
        "windows": [
            {
                "seconds": seconds(window),
                "iterations": sum(len(stream) for stream in window.streams),
                "median": _window_median_ms(window),
                **_picked(window, "canary_ns", "counters"),
                "disturbed_by": touching(window, cell.num_cores),
            }
            for window in run.windows
        ],
    }


def _window_median_ms(window: Window) -> float | None:
    calls = [latencies_ns(stream) for stream in window.streams if len(stream)]
    return float(np.median(np.concatenate(calls))) / 1e6 if calls else None


def _numbers(scenario: str, summary: Summary) -> Content:
    numbers: Content = {
        "scenario": scenario,
        "items_per_sec": summary.items_per_sec.value,
        **_picked(summary, "seconds_ran", "iterations"),
        "median": summary.median_ms.value,
        "mean": summary.mean_ms,
        "std": summary.std_ms,
        **{f"{p}%": summary.percentiles_ms[p] for p in PERCENTILES},
        "interval": {
            "level": summary.median_ms.level,
            "median": summary.median_ms.ends,
            "items_per_sec": summary.items_per_sec.ends,
        },
    }
    if summary.service_percentiles_ms is not None:
        numbers["service"] = {f"{p}%": summary.service_percentiles_ms[p] for p in PERCENTILES}
        numbers["unserved_share"] = summary.unserved_share
    return numbers


def _comparisons(sweep: ComparisonSweep) -> Content:
    """Comparisons of the same two arms in several cells; a single one is as if it were alone."""
    results = [content_of(result) for result in sweep.results]
    if len(results) == 1 and not sweep.failures:
        return results[0]
    return {"format": COMPARISONS, "results": results, "failures": _json(sweep.failures)}


def _comparison(comparison: Comparison) -> Content:
    ratio = comparison.ratio
    return {
        "format": COMPARISON,
        "verdict": comparison.verdict,
        "ratio": ratio.value,
        "interval": ratio.ends,
        **_picked(ratio, "level", "method"),
        **_picked(comparison, "margin", "metric"),
        "paired": bool(comparison.pairs),
        "pairs": len(comparison.pairs),
        "seconds": comparison.seconds,
        "settle_seconds": comparison.settle_s,
        **_picked(comparison, "outputs_match", "output_error", "output_metric", "output_detail"),
        "log_ratios": [pair.log_ratio for pair in comparison.pairs],
        **_picked(comparison, "differences", "interrupted", "spread", "tail_ratio"),
        "notes": notes(comparison),
        "a": _arm(comparison, 0),
        "b": _arm(comparison, 1),
    }


def _arm(comparison: Comparison, index: int) -> Content:
    known = {"label": comparison.labels[index], "times_ms": comparison.times_ms[index]}
    if comparison.cells is None or comparison.models is None:
        return known
    runs = arm_runs(comparison)[index]
    return known | {
        "model": _picked(comparison.models[index], "source", "digest", "precision"),
        "cell": _without(comparison.cells[index], _NOT_OF_ARMS),
        "output_check": worst([run.check for run in runs]),
        "findings": findings(arm_findings(comparison)[index]),
        "started_at": [run.started_at for run in runs],
        "versions": runs[0].versions,
        "engine_settings": runs[0].settings,
        "machine": runs[0].machine,
    }


def _capacity(capacity: Capacity) -> Content:
    """The answer and all that it rests on; rates in requests a second, times in ms."""
    rate, objective, lone = max_rate(capacity), capacity.objective, capacity.lone
    return {
        "format": CAPACITY,
        "max_rate": rate.value,
        "interval": rate.ends,
        "level": rate.level,
        "slo": {**_picked(objective, "text", "statistic"), "limit": objective.limit_s * 1e3},
        "curve": [_rate_point(one) for one in capacity.curve],
        "processes": [
            _picked(process, "rate", "measured_rate", "luck", "reach", "saturation_rate", "started_at")
            for process in capacity.processes
        ],
        "saturation_rate": saturation_rate(capacity.processes),
        "predicted_rate": capacity.predicted_rate,
        "lone_request": lone and {"statistic": lone.statistic, "time": lone.seconds * 1e3},
        "interrupted": capacity.interrupted,
        "output_check": capacity.check,
        "findings": findings(capacity.findings),
        "model": _picked(capacity.model, "source", "digest", "precision"),
        "cell": _without(capacity.cell, _NOT_OF_CAPACITY),
        "stream_mode": capacity.stream_mode,
        "started_at": capacity.processes[0].started_at,
        "versions": capacity.versions,
        "engine_settings": capacity.settings,
        "machine": capacity.machine,
    }


def _rate_point(point: RatePoint) -> Content:
    def times_ms(times_s: Any) -> Content:
        return {name: None if value is None else value * 1e3 for name, value in times_s.items()}

    return {
        "rate": point.rate,
        "share_of_saturation": point.load,
        **_picked(point, "requests", "processes", "unserved_share", "kept"),
        "response": times_ms(point.responses_s),
        "service": times_ms(point.services_s),
    }


def _recommendation(found: Recommendation) -> Content:
    """All candidates with what each process measured, the comparisons, and the code."""
    best, second, objective = found.recommended, found.runner_up, found.objective
    finalists = {label(best.candidate), label(second.candidate)} if best and second else None
    deciding = [comparison for comparison in found.comparisons if set(comparison.labels) == finalists]
    return {
        "format": RECOMMENDATION,
        "model": _model(found.model),
        "objective": objective
        and {**_picked(objective, "text", "statistic"), "limit_ms": objective.limit_s * 1e3},
        "recommended": _settings(best) if best else None,
        "runner_up": _settings(second) if second else None,
        "simpler_of_equals": found.simpler,
        "comparison": _paired_ratio(deciding[0]) if deciding else None,
        "comparisons": [_paired_ratio(comparison) for comparison in found.comparisons],
        "candidates": [_candidate(contender) for contender in found.contenders],
        **_picked(found, "troubles", "left_out", "seconds"),
        "seconds_allowed": found.time_s,
        "interrupted": found.interrupted,
        "code": code_of(found),
        "machine": found.machine,
        "versions": found.versions or {},
    }


def _model(model: Model) -> Content:
    return _picked(model, "source", "kind", "digest")


def _settings(one: Contender) -> Content:
    return {**plain(one.candidate), "scenario": one.candidate.scenario, "stream_mode": one.stream_mode}


def _candidate(one: Contender) -> Content:
    about = {
        **_settings(one),
        "status": one.standing,
        "problem": one.problem or None,
        "spared_by": one.spared_by,
    }
    figures = one.figures
    if figures is None:
        return about
    return about | {
        "items_per_sec": figures.items_per_sec.value,
        "interval": figures.items_per_sec.ends,
        "median_ms": figures.median_s * 1e3,
        "objective_ms": None if figures.objective_s is None else figures.objective_s * 1e3,
        "output_check": figures.check.status,
        "rounds": [
            {
                "round": number,
                **_picked(part, "started_at", "items_per_sec", "median_ms", "peak_memory_bytes"),
                "load_time_ms": part.load_s * 1e3,
            }
            for number, part in enumerate(one.rounds, 1)
        ],
    }


def _paired_ratio(found: PairedRatio) -> Content:
    ratio = found.ratio
    return {
        "a": found.labels[0],
        "b": found.labels[1],
        "ratio": ratio.value,
        "interval": ratio.ends,
        **_picked(ratio, "level", "method"),
        **_picked(found, "verdict", "margin", "metric", "pairs", "seconds"),
    }


def _fleet_recommendation(found: FleetRecommendation) -> Content:
    """All that was found, in the order in which one would take it."""
    return {
        "format": FLEET_RECOMMENDATION,
        "model": _model(found.model),
        "objective": found.objective and _picked(found.objective, "text", "statistic"),
        "interrupted": found.interrupted,
        "machines": [_machine(machine) for machine in found.machines],
    }


def _machine(machine: MachineRecommendation) -> Content:
    cost = machine.cost_per_million
    return {
        **_picked(machine, "machine_type", "price_per_hour"),
        "cost_per_million": cost.value if cost else None,
        "cost_per_million_interval": cost.ends if cost else None,
        "failure": machine.failure,
        "recommendation": machine.recommendation and _recommendation(machine.recommendation),
    }
