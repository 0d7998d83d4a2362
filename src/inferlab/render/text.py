"""Records as plain text: the result's lines, findings and events in prose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inferlab.measure.stats import summarize
from inferlab.records import Benchmark, Event, Finding, Outcome, OutputCheck, Run
from inferlab.units import decimal, duration, share, size

SCENARIO_NAMES = {"sync": "singlestream", "async": "multistream", "elastic": "elastic"}


def result_lines(benchmark: Benchmark, outcome: Outcome) -> list[str]:
    """The lines that DeepSparse's tool prints, then what it did not have."""
    run = outcome.runs[0]
    summary = summarize(run, outcome.cell.batch_size)
    lines = [
        f"Original Model Path: {benchmark.model.source}",
        f"Batch Size: {outcome.cell.batch_size}",
        f"Scenario: {SCENARIO_NAMES[outcome.cell.scenario]}",
    ]
    if summary is None:
        return [*lines, "Iterations: 0"]
    lines += [
        f"Throughput (items/sec): {decimal(summary.items_per_sec)}",
        f"Latency Mean (ms/batch): {decimal(summary.mean_ms)}",
        f"Latency Median (ms/batch): {decimal(summary.median_ms)}",
        f"Latency Std (ms/batch): {decimal(summary.std_ms)}",
        f"Iterations: {summary.iterations}",
    ]
    shown = {p: ms for p, ms in summary.percentiles_ms.items() if ms is not None and p > 50}
    if shown:
        lines.append(
            "Latency Percentiles (ms/batch): " + ", ".join(f"p{p:g} {decimal(ms)}" for p, ms in shown.items())
        )
    return lines + _around(outcome, run) + [f"Note: {finding(one)}" for one in run.findings]


def _around(outcome: Outcome, run: Run) -> list[str]:
    cell = outcome.cell
    engine = next(
        (f"{name} {version}" for name, version in run.versions.items() if name == cell.engine), cell.engine
    )
    streams = f"{cell.num_streams} stream{'s' if cell.num_streams > 1 else ''}"
    if cell.num_streams > 1:
        streams += {
            "processes": " in processes of their own",
            "threads": " in threads, each with its own loaded model",
            "native": " on one loaded model",
        }[run.stream_mode]
    lines = [
        f"Engine: {engine}, {cell.num_cores} core{'s' if cell.num_cores > 1 else ''}, {streams}",
        f"Load Time: {duration(run.load_s)}",
        f"First Inference: {duration(run.first_inference_s)}",
    ]
    if run.peak_memory_bytes is not None:
        before = run.baseline_memory_bytes
        also = "" if before is None else f" ({size(before)} before the model was loaded)"
        lines.append(f"Peak Memory: {size(run.peak_memory_bytes)}{also}")
    return [*lines, f"Output Check: {output_check(run.check)}"]


_ERRORS = {"max": "largest error", "rms": "RMS error"}


def output_check(check: OutputCheck) -> str:
    """The check of the outputs in one sentence."""
    if check.status == "unchecked":
        return f"unchecked: {check.detail}"
    found = f"{_ERRORS[check.metric]} {check.error:.2g}, tolerance {check.tolerance:g}, against {check.reference}"
    return f"match ({found})" if check.status == "match" else f"WRONG (output '{check.detail}': {found})"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "output-mismatch": lambda d: (
        f"the outputs are WRONG (error {d['error']:.2g} in '{d['output']}'): this speed is worth nothing. "
        "--strict makes it a failure."
    ),
    "unchecked": lambda d: f"the outputs were not checked: {d['reason']}.",
    "not-pinned": lambda d: "threads could not be bound to cores on this system; expect more noise.",
    "batch-rewritten": lambda d: (
        f"the model fixes another batch size; a copy rewritten for {d['batch_size']} was measured."
    ),
    "quota-below-cores": lambda d: (
        f"the container may use {d['quota']:g} CPUs but {_plural(d['num_cores'], 'core')} were measured: "
        "it will be throttled. Give fewer with -ncores."
    ),
    "streams-share-cores": lambda d: (
        f"{_plural(d['num_streams'], 'stream')} take turns on {_plural(d['num_cores'], 'core')}; "
        "latencies include the wait."
    ),
    "idle-cores": lambda d: (
        f"{_plural(d['num_cores'], 'core')} do not divide by {_plural(d['num_streams'], 'stream')}: "
        f"{_plural(d['idle'], 'core')} idle."
    ),
    "sample-limit": lambda d: "it stopped early: a stream keeps 10 million samples at most.",
    "interrupted": lambda d: (
        f"interrupted after {duration(d['seconds'])} of {duration(d['wanted_s'])}; what was measured is kept."
    ),
    "waited-for-cpu": lambda d: (
        f"threads waited {share(d['share'])} of the time for a CPU. Stop other programs and repeat."
    ),
    "waited-for-each-other": lambda d: (
        f"threads waited {share(d['share'])} of the time for a CPU: the streams have more threads than cores."
    ),
    "throttled": lambda d: f"the container was throttled for {share(d['share'])} of the time. Give fewer cores.",
    "steal": lambda d: f"the hypervisor took {share(d['share'])} of the CPUs' time. Repeat at a quieter moment.",
}


def finding(one: Finding) -> str:
    """A finding as a sentence."""
    return _FINDINGS[one.code](one.data)


_PINNING = {"core": "Thread pinning to cores enabled", "numa": "Thread pinning to socket/numa nodes enabled"}

_EVENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "download": lambda d: f"Downloading {d['url']}",
    "build": lambda d: f"Building demo:{d['model']}",
    "exporting": lambda d: f"Exporting {d['source']} to {d['path']}",
    "waiting": lambda d: f"Waiting for another measurement on this machine to end ({d['holder'] or 'unknown'})",
    "unlocked": lambda d: (
        f"The lock {d['file']} cannot be used ({d['reason']}): make sure that nothing else is measured meanwhile"
    ),
    "reference": lambda d: f"Computing the reference outputs with {d['label']}",
    "pinning": lambda d: _PINNING.get(d["mode"], "Thread pinning disabled, performance may be sub-optimal"),
    "probing": lambda d: f"Trying a few calls on {d['engine']} to choose how the streams run",
    "loading": lambda d: f"Loading the model on {d['engine']}",
    "engine": lambda d: _settings(d),
    "input": lambda d: f"{d['made'].capitalize()} input '{d['name']}', type = {d['dtype']}, shape = {d['shape']}",
    "streams-default": lambda d: (
        f"num_streams default value chosen of {d['num_streams']}. This requires tuning and may be sub-optimal"
    ),
    "warming": lambda d: f"Warming up for {d['seconds']:g} seconds",
    "measuring": lambda d: f"Starting '{d['scenario']}' performance measurements for {d['seconds']:g} seconds",
    "checking": lambda d: "Checking the outputs once more",
}


def event(one: Event) -> str:
    """An event as a line for the log."""
    return _EVENTS[one.code](one.data)


def _settings(data: Mapping[str, Any]) -> str:
    head = f"{data['engine']} {data['version']}:".replace(" :", ":")
    rest = [f"\t{name}: {value}" for name, value in data.items() if name not in ("engine", "version")]
    return "\n".join([head, *rest])
