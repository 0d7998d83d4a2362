"""A benchmark in files: as JSON, as flat rows of CSV, unseen in Markdown, and read back from all of them."""

from __future__ import annotations

import csv
import html
import io
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.codec import Unreadable, parse_json, read_text
from inferlab.errors import BadInput
from inferlab.lab.lookup import choose_result
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all, totals, touching
from inferlab.measure.stats import (
    PERCENTILES,
    SCHEDULERS,
    cost_per_million,
    engine_version,
    items_per_sec,
    latencies_ns,
    median_ms,
    peak_memory_bytes,
    price_of,
    seconds,
    summarize,
)
from inferlab.measure.unpaired import CONDITIONS, SavedResult
from inferlab.options.plan import COLUMNS, cell_texts
from inferlab.records import Benchmark, Cell, Outcome, Run, Summary, Window
from inferlab.records.comparison import ComparedMetric
from inferlab.views.fields import Field
from inferlab.views.results import Content, finding_values, json_values, picked
from inferlab.views.tables import FORMULA, Table, to_csv
from inferlab.views.text import SCENARIO_NAMES

Row = dict[str, Any]

#: What a row has, in this order, and of what kind each is; an empty field is None.
FIELDS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("format", "model", "engine", "version", "scenario"), str),
    **dict.fromkeys(("num_cores", "num_streams", "instances"), int),
    "rate": float,
    **dict.fromkeys(("batch_size", "sequence_length"), int),
    "status": str,
    **dict.fromkeys(("items_per_sec", "items_per_sec_low", "items_per_sec_high"), float),
    **dict.fromkeys(("median_ms", "median_ms_low", "median_ms_high", "mean_ms", "std_ms"), float),
    **dict.fromkeys(("p90_ms", "p95_ms", "p99_ms"), float),
    **dict.fromkeys(("iterations", "processes"), int),
    **dict.fromkeys(("process_medians_ms", "process_items_per_sec"), str),
    "seconds_ran": float,
    **dict.fromkeys(
        ("model_size_bytes", "peak_memory_bytes", "baseline_memory_bytes", "steady_memory_bytes"), int
    ),
    "load_ms": float,
    "output_check": str,
    "output_error": float,
    **dict.fromkeys(("findings", "failure", "started_at"), str),
    **dict.fromkeys(("stream_mode", "thread_pinning", "engine_options", "inputs"), str),
    **dict.fromkeys(("node", "cpu", "system"), str),
    "cpu_quota": float,
    **dict.fromkeys(("digest", "cell"), str),
    **dict.fromkeys(("machine_type", "instance_type"), str),
    "machine_number": int,
    **dict.fromkeys(("price_per_hour", "cost_per_million"), float),
    **dict.fromkeys(("cost_per_million_low", "cost_per_million_high"), float),
    **dict.fromkeys(COLUMNS, str),
}
_NUMBERS = ("benchmark_result",)
#: Where the JSON of a result has what a row has; under its own name where nothing is said.
_PATHS: dict[str, tuple[str, ...]] = {
    "model": ("orig_model_path",),
    **{name: (*_NUMBERS, name) for name in ("items_per_sec", "iterations", "seconds_ran")},
    **{f"{name}_ms": (*_NUMBERS, name) for name in ("median", "mean", "std")},
    **{f"p{p}_ms": (*_NUMBERS, f"{p}.0%") for p in (90, 95, 99)},
    "load_ms": ("load_time_ms",),
    "model_size_bytes": ("model", "size_bytes"),
    "digest": ("model", "digest"),
    "output_check": ("output_check", "status"),
    "output_error": ("output_check", "error"),
    "failure": ("failure", "message"),
    **{name: ("machine", name) for name in ("node", "cpu", "system", "cpu_quota", "instance_type")},
}
#: What has an interval, and the name of that.
_INTERVALS = {"median_ms": "median", "items_per_sec": "items_per_sec"}
# What values of the wrong type or size raise wherever they are taken apart.
_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
# Beyond any time in ms and any rate.
_MOST = 1e18
# How the formats of files begin that are of models which generate tokens.
_OF_GENERATIONS = "inferlab-generation"
_HIDDEN = re.compile(r"<!-- inferlab results\n(.*?)-->", re.DOTALL)


def content(benchmark: Benchmark) -> Content:
    """All that is known of it, as the JSON values of its file."""
    results_of_cells = [cell_content(benchmark, outcome) for outcome in benchmark.outcomes]
    if len(results_of_cells) == 1:
        return results_of_cells[0]
    return {"format": BENCHMARK, "results": results_of_cells}


def rows(benchmark: Benchmark) -> list[Row]:
    """Every cell of a benchmark."""
    return [row(cell_content(benchmark, outcome)) for outcome in benchmark.outcomes]


def row(result: Mapping[str, Any]) -> Row:
    """A result as JSON has it, flat."""
    found = {name: _at(result, _PATHS.get(name, (name,))) for name in FIELDS}
    for key, name in _INTERVALS.items():
        found[f"{key}_low"], found[f"{key}_high"] = _at(result, (*_NUMBERS, "interval", name)) or (None, None)
    processes, error = result.get("processes") or [], found["output_error"]
    shapes = {name: "x".join(map(str, dims)) for name, dims in (result.get("inputs") or {}).items()}
    found |= {
        "processes": len(processes) or None,
        "process_medians_ms": _joined(process["median"] for process in processes),
        "process_items_per_sec": _joined(process["items_per_sec"] for process in processes),
        # An infinite error is a word in JSON.
        "output_error": None if error is None else float(error),
        "findings": ";".join(one["code"] for one in result.get("findings") or ()) or None,
        "engine_options": _pairs(result.get("engine_options") or {}),
        "inputs": _pairs(shapes),
        # Every result has a model.
        "model": result["orig_model_path"],
        "model_size_bytes": result["model"]["size_bytes"],
        "digest": result["model"]["digest"],
    }
    # An empty text and nothing at all are the same in CSV.
    return {name: None if value == "" else value for name, value in found.items()}


def _at(content: Any, path: Sequence[str]) -> Any:
    """What lies at a path of JSON objects; None where one of them is not there."""
    for name in path:
        content = content.get(name) if content else None
    return content


def table(found: Sequence[Row]) -> Table:
    """Rows as a table."""
    return Table([Field(name, name, itemgetter(name)) for name in FIELDS], found)


def _from_cell(text: str) -> str:
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def hidden(benchmark: Benchmark) -> str:
    """A benchmark as a comment that Markdown does not show."""
    return f"\n<!-- inferlab results\n{html.escape(to_csv(table(rows(benchmark))), quote=False)}-->\n"


def read(path: Path) -> list[Row]:
    """The rows of a file that inferlab wrote: JSON, CSV or Markdown."""
    return [row(result) for result in results(path)]


def results(path: Path) -> list[dict[str, Any]]:
    """The results in a file that inferlab wrote, as JSON has them; of CSV and Markdown, what a row keeps."""
    try:
        found = _parsed(path, read_text(path))
        for one in found:
            _check(row(one))
    except OSError as error:
        raise BadInput(f"The result {path} cannot be read: {error.strerror}.") from error
    except BadInput:
        raise
    except Unreadable as error:
        raise BadInput(f"{path} is not a saved result: {error}. Make one with: -x result.json") from None
    except csv.Error as error:
        # Of a cell that is longer than any of ours, the library names its limit.
        raise BadInput(f"{path} is not a saved result: {error}. Make one with: -x result.json") from None
    except _ODD:
        raise _damaged(path) from None
    if not found:
        raise BadInput(f"{path} has no results.")
    return found


def _check(found: Row) -> None:
    """Refuse what no measurement gives, and what views divide by or draw; a ValueError says why."""
    for name, kind in FIELDS.items():
        value = found[name]
        allowed = (int, float) if kind is float else kind
        if value is not None and (not isinstance(value, allowed) or isinstance(value, bool)):  # type: ignore[arg-type]
            raise ValueError(f"{name} is {value!r:.40}")
        if kind is not str and value is not None and name != "output_error" and not 0 <= value < _MOST:
            raise ValueError(f"{name} is {value!r:.40}")
    for name in ("batch_size", "median_ms", "items_per_sec"):
        if found[name] is not None and not found[name] > 1 / _MOST:
            raise ValueError(f"{name} is {found[name]!r:.40}")
    for name in ("process_medians_ms", "process_items_per_sec"):
        if any(value is not None and not 1 / _MOST < value < _MOST for value in _split(found[name])):
            raise ValueError(f"{name} is not positive")


def _parsed(path: Path, text: str) -> list[dict[str, Any]]:
    ending = path.suffix.lower()
    if ending == ".md":
        comment = _HIDDEN.search(text)
        if comment is None:
            raise _not_ours(path)
        return _from_csv(path, html.unescape(comment[1]))
    if ending == ".csv":
        return _from_csv(path, text)
    try:
        parsed = parse_json(text)
    except Unreadable:
        raise
    except ValueError:
        raise BadInput(f"{path} is not JSON, so it is not a saved result. Make one with: -x result.json") from None
    if isinstance(parsed, dict) and str(parsed.get("format")).startswith(_OF_GENERATIONS):
        raise BadInput(
            f"{path} is of a model that generates tokens, and this takes benchmarks. What inferlab generate -x "
            "wrote is compared by: inferlab compare a.json b.json"
        )
    found = parsed.get("results", [parsed]) if isinstance(parsed, dict) else None
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and _known(one.get("format")) for one in found
    ):
        raise _not_ours(path)
    return found


def _from_csv(path: Path, text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"format", "model", "cell", "process_medians_ms"} <= set(reader.fieldnames or ()):
        raise _not_ours(path)
    found = []
    for line in reader:
        typed = {name: kind(_from_cell(line[name])) if line.get(name) else None for name, kind in FIELDS.items()}
        if not _known(typed["format"]):
            raise _not_ours(path)
        found.append(_result(typed))
    return found


def _known(name: Any) -> bool:
    return isinstance(name, str) and name in (BENCHMARK, "inferlab-benchmark/1")


def _not_ours(path: Path) -> BadInput:
    return BadInput(f"{path} was not written by inferlab benchmark -x, or by a newer inferlab.")


def _damaged(path: Path) -> BadInput:
    return BadInput(f"{path} is damaged: its measurements cannot be read.")


def _result(row: Row) -> dict[str, Any]:
    """What a row keeps of a result, as JSON would have it."""
    parts: dict[str, dict[str, Any]] = {}
    for key, (*folder, name) in _PATHS.items():
        if folder:
            parts.setdefault(folder[0], {})[name] = row[key]
    ends = {name: (row[f"{key}_low"], row[f"{key}_high"]) for key, name in _INTERVALS.items()}
    parts[_NUMBERS[0]]["interval"] = {name: None if both[0] is None else list(both) for name, both in ends.items()}
    medians, rates = _split(row["process_medians_ms"]), _split(row["process_items_per_sec"])
    return {
        **row,
        **parts,
        "orig_model_path": row["model"],
        "load_time_ms": row["load_ms"],
        _NUMBERS[0]: None if row["median_ms"] is None else parts[_NUMBERS[0]],
        "processes": [
            {"median": median, "items_per_sec": rate} for median, rate in zip(medians, rates, strict=True)
        ],
        "findings": [{"code": code} for code in (row["findings"] or "").split(";") if code],
        "failure": None if row["failure"] is None else parts["failure"],
        "engine_options": dict(_unpaired(row["engine_options"])),
        "inputs": {name: [int(n) for n in dims.split("x") if n] for name, dims in _unpaired(row["inputs"])},
    }


def _joined(values: Iterable[float | None]) -> str | None:
    # repr keeps every digit; a process that saw no request has nothing.
    return ";".join("" if value is None else repr(value) for value in values) or None


def _split(text: str | None) -> list[float | None]:
    return [] if text is None else [float(one) if one else None for one in text.split(";")]


def _pairs(found: Mapping[str, Any]) -> str | None:
    return ";".join(f"{_escaped(str(name))}={_escaped(str(value))}" for name, value in found.items()) or None


def _unpaired(text: str | None) -> list[tuple[str, str]]:
    pairs = [] if text is None else [one.rpartition("=") for one in text.split(";")]
    return [(_unescaped(name), _unescaped(value)) for name, _, value in pairs]


def _escaped(text: str) -> str:
    """Text without what stands between names and values."""
    return text.replace("%", "%25").replace(";", "%3B").replace("=", "%3D")


def _unescaped(text: str) -> str:
    return text.replace("%3D", "=").replace("%3B", ";").replace("%25", "%")


def load_all(name: str, metric: ComparedMetric | None = None) -> list[SavedResult]:
    """The results of a file that were measured, or the one whose number follows a #.

    With a `metric` it may be a file of generations, of which that is compared.
    """
    if metric is not None and (generations := _generations(name, metric)):
        if "#" in name or len(generations) == 1:
            return [load(name, metric)]
        return [result for _, result in generations if result is not None]
    found = [] if "#" in name else results(Path(name))
    if len(found) < 2:
        return [load(name)]
    return [_loaded(name, one) for one in found if one.get("benchmark_result")]


def _generations(name: str, metric: ComparedMetric) -> list[tuple[str, SavedResult | None]]:
    """The status of every cell of a generation's file, and what is compared of it; nothing for other files."""
    from inferlab.records.generation import FORMAT as GENERATIONS
    from inferlab.views import generation  # late: who reads no such file needs none of it

    path = Path(name.partition("#")[0])
    content: Any = None
    with suppress(OSError, ValueError):
        content = parse_json(read_text(path)) if path.suffix.lower() == ".json" else None
    if not isinstance(content, dict) or content.get("format") != GENERATIONS:
        return []
    return generation.saved_generations(name, content, metric)


def load(name: str, metric: ComparedMetric | None = None) -> SavedResult:
    """A result of a file; of several, the one whose number follows a #."""
    path, _, _ = name.partition("#")
    if metric is not None and (generations := _generations(name, metric)):
        status, result = choose_result(name, generations)
        if result is None:
            raise BadInput(f"{name} has no measurement: its status is {status}.")
        return result
    chosen = choose_result(name, results(Path(path)))
    if not chosen.get("benchmark_result"):
        raise BadInput(f"{name} has no measurement: its status is {chosen.get('status', 'unknown')}.")
    return _loaded(name, chosen)


def _loaded(name: str, chosen: Mapping[str, Any]) -> SavedResult:
    try:
        result = _saved(name, chosen)
        times = [*result.medians_ms, *result.throughput_ms, result.seconds]
        if not all(0 < time < math.inf for time in times):
            raise ValueError("a time is not positive")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise BadInput(f"{name} is damaged: its measurements cannot be read.") from None
    return result


def _saved(name: str, result: Mapping[str, Any]) -> SavedResult:
    batch = result["batch_size"]
    # Version 1 had one process, whose numbers are the result's.
    processes = result.get("processes") or [result["benchmark_result"]]
    scenarios = {shown: scenario for scenario, shown in SCENARIO_NAMES.items()}
    scenario = scenarios.get(result["scenario"], result["scenario"])
    check = result.get("output_check") or {}
    return SavedResult(
        label=name,
        medians_ms=tuple(float(process["median"] / batch) for process in processes),
        throughput_ms=tuple(float(1e3 / process["items_per_sec"]) for process in processes),
        seconds=float(result["benchmark_result"]["seconds_ran"]),
        model_digest=result["model"]["digest"],
        model_source=result["orig_model_path"],
        conditions={**{key: result.get(key) for key in CONDITIONS}, "scenario": scenario},
        machine=result.get("machine") or {},
        check_status=str(check.get("status") or ""),
        check_detail=str(check.get("detail") or ""),
    )


# Version 1: the first, one process. Version 2: several processes, intervals, windows; version 1 is still read.
BENCHMARK = "inferlab-benchmark/2"


_OF_MODEL = (
    *("kind", "digest", "opset", "parameters", "size_bytes", "zero_fraction", "precision"),
    "quantization",
)


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
        **picked(cell, "batch_size", "sequence_length"),
        "input_shapes": [shape for _, shape in cell.shapes],
        "num_cores": cell.num_cores,
        "scenario": SCENARIO_NAMES[cell.scenario],
        "scheduler": SCHEDULERS[cell.scenario],
        "seconds_to_run": cell.time_s,
        **picked(cell, "num_streams", "instances", "rate"),
        "benchmark_result": _numbers(SCENARIO_NAMES[cell.scenario], summary) if summary else None,
        "fraction_of_supported_ops": run.fraction_of_supported_ops if run else None,
        **picked(outcome, "status", "failure"),
        "cell": cell.id,
        "seed": cell.seed,
        "inputs": dict(cell.shapes),
        "thread_pinning": cell.thread_pinning,
        **cell_texts(cell),
        "engine_options": dict(cell.engine_options),
        "warmup_time": cell.warmup_s,
        "precision": cell.precision,
        **_on_cluster(benchmark, cell, summary),
        "model": picked(model, *_OF_MODEL),
        **_measured(outcome),
    }
    return json_values(content)


def _on_cluster(benchmark: Benchmark, cell: Cell, summary: Summary | None) -> Content:
    """The cell's machine type and what it costs, where it was measured on a cluster."""
    if cell.machine_type is None:
        return {}
    price = price_of(benchmark, cell)
    cost = None if price is None or summary is None else cost_per_million(summary.items_per_sec, price)
    return {
        **picked(cell, "machine_type", "machine_number"),
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
        **picked(run, "steady_memory_bytes", "baseline_memory_bytes", "harness_ns"),
        "output_check": worst([one.check for one in runs]),
        "findings": finding_values(find_all(outcome)),
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
                **picked(window, "canary_ns", "counters"),
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
        **picked(summary, "seconds_ran", "iterations"),
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
