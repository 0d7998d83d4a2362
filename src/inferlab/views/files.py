"""Records as files: JSON with the keys that DeepSparse's users parse, and ours."""

from __future__ import annotations

import json
import os
import stat
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.errors import BadInput, NotSaved
from inferlab.files import whole_file
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all, totals, touching
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
from inferlab.records import (
    Benchmark,
    Cell,
    Estimate,
    Finding,
    Outcome,
    OutputCheck,
    Run,
    Summary,
    Window,
)
from inferlab.views.text import SCENARIO_NAMES, finding

# Version 1: the first, one process. Version 2: several processes, intervals, windows; version 1 is still read.
FORMAT = "inferlab-benchmark/2"


#: What a result can be written as; any other ending gets JSON.
ENDINGS = (".json", ".csv", ".md", ".html")


def check_writable(path: Path, only_json: bool = False) -> None:
    """Refuse an export path before anything is measured, not after."""
    if only_json and path.suffix.lower() in ENDINGS[1:]:
        raise BadInput(f"This is exported as JSON, not as {path.suffix}: {path}. Give a name that ends in .json.")
    check_place(path)


def check_place(path: Path) -> None:
    """Refuse a path to which no file can be written."""
    if path.is_dir():
        raise BadInput(f"The export path {path} is a folder. Give a file in it, such as {path / 'result.json'}.")
    if not path.parent.is_dir():
        raise BadInput(
            f"The folder of the export path {path} does not exist. Make it first: mkdir -p {path.parent}"
        )
    if path.exists():
        if not os.access(path, os.W_OK):
            raise BadInput(
                f"The export path {path} cannot be written to. Choose another or change its permissions."
            )
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".inferlab-")
    except OSError as error:
        raise BadInput(
            f"The export path {path} cannot be written: {error.strerror}. Choose another folder."
        ) from error
    os.close(handle)
    Path(name).unlink()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no ordinary file (a pipe, a terminal) is written to directly."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            path.write_text(text, encoding="utf-8")
            return
        with whole_file(path.resolve()) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotSaved(f"The result could not be written to {path}: {error.strerror}.") from error


def to_json(benchmark: Benchmark) -> str:
    """One cell is one object; several are a list of such objects."""
    results = [result(benchmark, outcome) for outcome in benchmark.outcomes]
    content = results[0] if len(results) == 1 else {"format": FORMAT, "results": results}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def result(benchmark: Benchmark, outcome: Outcome) -> dict[str, Any]:
    """All that is known of one cell."""
    cell, model = outcome.cell, benchmark.model
    run = outcome.runs[0] if outcome.runs else None
    summary = summarize(cell, outcome.runs)
    content: dict[str, Any] = {
        "format": FORMAT,
        "engine": cell.engine,
        "version": engine_version(run) if run else "",
        "orig_model_path": model.source,
        "model_path": run.model_path if run else model.path,
        "batch_size": cell.batch_size,
        "sequence_length": cell.sequence_length,
        "input_shapes": [list(shape) for _, shape in cell.shapes],
        "num_cores": cell.num_cores,
        "scenario": SCENARIO_NAMES[cell.scenario],
        "scheduler": SCHEDULERS[cell.scenario],
        "seconds_to_run": cell.time_s,
        "num_streams": cell.num_streams,
        "instances": cell.instances,
        "rate": cell.rate,
        "benchmark_result": _numbers(SCENARIO_NAMES[cell.scenario], summary) if summary else None,
        "fraction_of_supported_ops": run.fraction_of_supported_ops if run else None,
        "status": outcome.status,
        "failure": {"code": outcome.failure.code, "message": outcome.failure.message} if outcome.failure else None,
        "cell": cell.id,
        "seed": cell.seed,
        "inputs": {name: list(shape) for name, shape in cell.shapes},
        "thread_pinning": cell.thread_pinning,
        "engine_options": dict(cell.engine_options),
        "warmup_time": cell.warmup_s,
        "precision": cell.precision,
        **_on_cluster(benchmark, cell, summary),
        "model": {
            "kind": model.kind,
            "digest": model.digest,
            "opset": model.opset,
            "parameters": model.parameters,
            "size_bytes": model.size_bytes,
            "zero_fraction": model.zero_fraction,
            "precision": model.precision,
            "quantization": model.quantization,
        },
    }
    return content | _measured(outcome)


def _on_cluster(benchmark: Benchmark, cell: Cell, summary: Summary | None) -> dict[str, Any]:
    """The cell's machine type and what it costs, where it was measured on a cluster."""
    if cell.machine_type is None:
        return {}
    price = price_of(benchmark, cell)
    cost = None if price is None or summary is None else cost_per_million(summary.items_per_sec, price)
    return {
        "machine_type": cell.machine_type,
        "machine_number": cell.machine_number,
        "price_per_hour": price,
        "cost_per_million": None if cost is None else cost.value,
        "cost_per_million_low": None if cost is None else cost.low,
        "cost_per_million_high": None if cost is None else cost.high,
    }


def _measured(outcome: Outcome) -> dict[str, Any]:
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
        "steady_memory_bytes": run.steady_memory_bytes,
        "baseline_memory_bytes": run.baseline_memory_bytes,
        "harness_ns": run.harness_ns,
        "output_check": output_check(worst([one.check for one in runs])),
        "findings": findings(find_all(outcome)),
        "processes": [_process(cell, one) for one in runs],
        "counters": dict(totals(runs)),
        "versions": dict(run.versions),
        "engine_settings": dict(run.settings),
        "machine": {name: getattr(run.machine, name) for name in run.machine.__slots__},
    }


def output_check(check: OutputCheck) -> dict[str, Any]:
    """A check of outputs as an object."""
    return {name: plain(getattr(check, name)) for name in check.__slots__}


def findings(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as objects, with their sentences."""
    return [
        {"code": one.code, "data": {k: plain(v) for k, v in one.data.items()}, "text": finding(one)}
        for one in found
    ]


def _process(cell: Cell, run: Run) -> dict[str, Any]:
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
                "canary_ns": window.canary_ns,
                "counters": dict(window.counters),
                "disturbed_by": touching(window, cell.num_cores),
            }
            for window in run.windows
        ],
    }


def _window_median_ms(window: Window) -> float | None:
    calls = [latencies_ns(stream) for stream in window.streams if len(stream)]
    return float(np.median(np.concatenate(calls))) / 1e6 if calls else None


def _numbers(scenario: str, summary: Summary) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "scenario": scenario,
        "items_per_sec": summary.items_per_sec.value,
        "seconds_ran": summary.seconds_ran,
        "iterations": summary.iterations,
        "median": summary.median_ms.value,
        "mean": summary.mean_ms,
        "std": summary.std_ms,
        **{f"{p}%": summary.percentiles_ms[p] for p in PERCENTILES},
        "interval": {
            "level": summary.median_ms.level,
            "median": _ends(summary.median_ms),
            "items_per_sec": _ends(summary.items_per_sec),
        },
    }
    if summary.service_percentiles_ms is not None:
        numbers["service"] = {f"{p}%": summary.service_percentiles_ms[p] for p in PERCENTILES}
        numbers["unserved_share"] = summary.unserved_share
    return numbers


def _ends(estimate: Estimate) -> list[float] | None:
    return None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high]


def plain(value: Any) -> Any:
    """JSON has no infinity: an infinite error becomes the word."""
    return str(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
