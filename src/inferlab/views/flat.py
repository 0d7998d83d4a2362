"""A result as one flat row: CSV, the machine-readable part of Markdown, and back."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from inferlab.codec import Unreadable, parse_json, read_text
from inferlab.errors import BadInput
from inferlab.records import Benchmark
from inferlab.views import files
from inferlab.views.tables import FORMULA, csv_lines

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
}
# What values of the wrong type or size raise wherever they are taken apart.
_ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
# Beyond any time in ms and any rate.
_MOST = 1e18
_HIDDEN = re.compile(r"<!-- inferlab results\n(.*?)-->", re.DOTALL)


def rows(benchmark: Benchmark) -> list[Row]:
    """Every cell of a benchmark."""
    return [row(files.result(benchmark, outcome)) for outcome in benchmark.outcomes]


def row(result: Mapping[str, Any]) -> Row:
    """A result as JSON has it, flat."""
    numbers = result.get("benchmark_result") or {}
    interval = numbers.get("interval") or {}
    processes = result.get("processes") or []
    check, machine = result.get("output_check") or {}, result.get("machine") or {}
    rates, medians = interval.get("items_per_sec") or (None, None), interval.get("median") or (None, None)
    found = {
        **result,
        "model": result["orig_model_path"],
        "items_per_sec": numbers.get("items_per_sec"),
        "items_per_sec_low": rates[0],
        "items_per_sec_high": rates[1],
        "median_ms": numbers.get("median"),
        "median_ms_low": medians[0],
        "median_ms_high": medians[1],
        "mean_ms": numbers.get("mean"),
        "std_ms": numbers.get("std"),
        **{f"p{p}_ms": numbers.get(f"{p}.0%") for p in (90, 95, 99)},
        "iterations": numbers.get("iterations"),
        "processes": len(processes) or None,
        "process_medians_ms": _joined(one["median"] for one in processes),
        "process_items_per_sec": _joined(one["items_per_sec"] for one in processes),
        "seconds_ran": numbers.get("seconds_ran"),
        "model_size_bytes": result["model"]["size_bytes"],
        "load_ms": result.get("load_time_ms"),
        "output_check": check.get("status"),
        "output_error": _number(check.get("error")),
        "findings": ";".join(one["code"] for one in result.get("findings") or ()) or None,
        "failure": (result.get("failure") or {}).get("message"),
        "engine_options": _pairs(result.get("engine_options") or {}),
        "inputs": _pairs({name: "x".join(map(str, dims)) for name, dims in (result.get("inputs") or {}).items()}),
        "node": machine.get("node"),
        "cpu": machine.get("cpu"),
        "system": machine.get("system"),
        "cpu_quota": machine.get("cpu_quota"),
        "digest": result["model"]["digest"],
        "instance_type": machine.get("instance_type"),
    }
    # An empty text and nothing at all are the same in CSV.
    return {name: None if found.get(name) == "" else found.get(name) for name in FIELDS}


def to_csv(found: Iterable[Row]) -> str:
    """Rows as CSV with a head."""
    return csv_lines([list(FIELDS), *([one[name] for name in FIELDS] for one in found)])


def _from_cell(text: str) -> str:
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def hidden(found: Iterable[Row]) -> str:
    """Rows as a comment that Markdown does not show."""
    return f"<!-- inferlab results\n{html.escape(to_csv(found), quote=False)}-->"


def read(path: Path) -> list[Row]:
    """The rows of a file that inferlab wrote: JSON, CSV or Markdown."""
    return [row(one) for one in results(path)]


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
        raise BadInput(f"{path} is no saved result: {error}. Make one with: -x result.json") from None
    except csv.Error as error:
        # Of a cell that is longer than any of ours, the library names its limit.
        raise BadInput(f"{path} is no saved result: {error}. Make one with: -x result.json") from None
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
        content = parse_json(text)
    except Unreadable:
        raise
    except ValueError:
        raise BadInput(f"{path} is not JSON, so it is no saved result. Make one with: -x result.json") from None
    found = content.get("results", [content]) if isinstance(content, dict) else None
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
    return isinstance(name, str) and name in (files.FORMAT, "inferlab-benchmark/1")


def _not_ours(path: Path) -> BadInput:
    return BadInput(f"{path} was not written by inferlab benchmark -x, or by a newer inferlab.")


def _damaged(path: Path) -> BadInput:
    return BadInput(f"{path} is damaged: its measurements cannot be read.")


def _result(flat: Row) -> dict[str, Any]:
    """What a row keeps of a result, as JSON would have it."""
    measured = flat["median_ms"] is not None
    ends = {
        name: None if flat[f"{key}_low"] is None else [flat[f"{key}_low"], flat[f"{key}_high"]]
        for name, key in (("median", "median_ms"), ("items_per_sec", "items_per_sec"))
    }
    numbers = {
        "items_per_sec": flat["items_per_sec"],
        "median": flat["median_ms"],
        "mean": flat["mean_ms"],
        "std": flat["std_ms"],
        "iterations": flat["iterations"],
        "seconds_ran": flat["seconds_ran"],
        **{f"{p}.0%": flat[f"p{p}_ms"] for p in (90, 95, 99)},
        "interval": ends,
    }
    rates = _split(flat["process_items_per_sec"])
    return {
        **flat,
        "orig_model_path": flat["model"],
        "model": {"digest": flat["digest"], "size_bytes": flat["model_size_bytes"]},
        "benchmark_result": numbers if measured else None,
        "processes": [
            {"median": median, "items_per_sec": rate}
            for median, rate in zip(_split(flat["process_medians_ms"]), rates, strict=True)
        ],
        "load_time_ms": flat["load_ms"],
        "output_check": {"status": flat["output_check"], "error": flat["output_error"]},
        "findings": [{"code": code} for code in (flat["findings"] or "").split(";") if code],
        "failure": None if flat["failure"] is None else {"message": flat["failure"]},
        "engine_options": dict(_unpaired(flat["engine_options"])),
        "inputs": {name: [int(n) for n in dims.split("x") if n] for name, dims in _unpaired(flat["inputs"])},
        "machine": {name: flat[name] for name in ("node", "cpu", "system", "cpu_quota", "instance_type")},
    }


def _joined(values: Iterable[float | None]) -> str | None:
    # repr keeps every digit; a process that saw no request has nothing.
    return ";".join("" if one is None else repr(one) for one in values) or None


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


def _number(value: Any) -> float | None:
    """An infinite error is a word in JSON."""
    return None if value is None else float(value)
