"""A capacity as text and as a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlab.measure import rate_search
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.intervals import student
from inferlab.records import Capacity, CapacityProcess, Finding, RatePoint
from inferlab.units import count, duration, share
from inferlab.views import files, text
from inferlab.views.columns import aligned
from inferlab.views.intervals import interval_text, rounded

# Version 1: the first.
FORMAT = "inferlab-capacity/1"

_COLUMNS = ("median", "p90", "p99")
# Of a single measurement, not of a search.
_NOT_SAID = ("rate", "scenario", "precision", "warmup_s")


def lines(capacity: Capacity) -> list[str]:
    """The answer, the curve, then all that qualifies them."""
    cell = capacity.cell
    streams = f"{cell.num_streams} streams ({capacity.stream_mode})" if cell.num_streams > 1 else "1 stream"
    if cell.instances > 1:
        streams = f"{cell.instances} instances of {streams}"
    return [
        f"Original Model Path: {capacity.model.source}",
        f"Batch Size: {cell.batch_size}",
        f"Engine: {cell.engine}, cores: {cell.num_cores}, {streams}",
        headline(capacity),
        *_grounds(capacity),
        *_table(capacity),
        f"Output Check: {text.output_check(capacity.check)}",
        *(f"Note: {finding(one)}" for one in capacity.findings),
    ]


def headline(capacity: Capacity) -> str:
    """The highest rate in one sentence."""
    objective, rate = capacity.objective, max_rate(capacity)
    if capacity.lone is not None:
        return (
            f"No rate keeps {objective.text}: even requests that come one by one take "
            f"{duration(capacity.lone.seconds)} ({capacity.lone.statistic} of the service time)."
        )
    if rate.value == 0:
        return f"No rate keeps {objective.text}: the lowest that was tried misses it."
    processes = len(capacity.processes)
    sure = f"{processes} process{'es' if processes > 1 else ''}"
    if rate.ends is not None:
        sure = f"{interval_text(rate.ends, rate.level)}, {sure}"
    return f"Highest rate that keeps {objective.text}: {rounded(rate.value, rate.ends, count)} requests/s ({sure})"


def _grounds(capacity: Capacity) -> list[str]:
    """What the answer rests on."""
    saturation = f"Saturation: {count(saturation_rate(capacity.processes))} requests/s"
    if capacity.predicted_rate:
        saturation += f"; predicted from the service times: {count(capacity.predicted_rate)} requests/s"
    found = [saturation]
    crossed = [one for one in capacity.processes if one.reach == "crossing"]
    if crossed:
        measured = student([one.measured_rate for one in crossed]).value
        luck = student([one.luck for one in crossed]).value
        word = "kinder" if luck < 1 else "harder"
        found.append(
            f"Measured: {count(measured)} requests/s on arrivals that were {word} than usual, "
            f"as a simulated queue with the same service times tells (×{luck:.3f})"
        )
    return found


def _table(capacity: Capacity) -> list[str]:
    """The curve, with a line where the objective breaks."""
    rungs = capacity.curve
    if not rungs:
        return []
    own = capacity.objective.statistic
    names = [*_COLUMNS, *(() if own in _COLUMNS else (own,))]
    head = [
        "rate/s",
        "of saturation",
        *(f"response {name}" for name in names),
        f"service {own}",
        "unserved",
        "requests",
        "kept",
    ]
    rows = [head, *(_row(rung, names, own) for rung in rungs)]
    printed = aligned(rows)
    rate = max_rate(capacity).value
    if rate > 0:
        below = 1 + sum(rung.rate <= rate for rung in rungs)
        printed.insert(below, f" highest rate that keeps {capacity.objective.text} ".center(len(printed[0]), "-"))
    return ["Latency over rate, times in ms, all processes together:", *printed]


def _row(rung: RatePoint, names: Sequence[str], own: str) -> list[str]:
    return [
        count(rung.rate),
        share(rung.load),
        *(_ms(rung.responses_s[name]) for name in names),
        _ms(rung.services_s[own]),
        share(rung.unserved_share),
        str(rung.requests),
        kept(rung.kept, rung.load),
    ]


def kept(kept: bool | None, load: float) -> str:
    """Whether the objective was kept at a rate; beyond the ceiling only for as long as it was tried."""
    if kept is None:
        return "-"
    return "no" if not kept else "yes" if load <= rate_search.CEILING else "while tried"


def _tried(data: Mapping[str, Any]) -> str:
    """How far it was tried; older records do not say."""
    return f", up to {share(data['tried'])} of saturation" if "tried" in data else ""


_FINDINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "some-out-of-reach": lambda d: (
        f"{d['processes']} of {d['of']} processes kept the objective at no rate: the service time itself lies at "
        "the limit. The rate is the middle process's, without an interval."
    ),
    "kept-to-saturation": lambda d: (
        f"{d['processes']} of {d['of']} processes kept the objective at every rate tried{_tried(d)}. "
        "The answer is 98 % of saturation: beyond, the queue grows for as long as requests come, and a short look "
        "does not show it."
    ),
    "search-cut": lambda d: (
        f"in {d['processes']} of {d['of']} processes the time was over before the search was; the last rate tried "
        "counts. Give more with -t."
    ),
    "few-processes": lambda d: (
        f"the time allowed {d['processes']} process{'es' if d['processes'] > 1 else ', so there is no interval'}. "
        f"Give -t {d['seconds']:g} for all that are wanted."
    ),
    "one-process-asked": lambda d: "only one process was measured, so there is no interval.",
    "search-interrupted": lambda d: (
        f"interrupted; of the processes, the {d['processes']} that were complete are kept."
    ),
}


def finding(one: Finding) -> str:
    """A finding as a sentence: the search's own, or one that every measurement has."""
    return _FINDINGS[one.code](one.data) if one.code in _FINDINGS else text.finding(one)


def to_json(capacity: Capacity) -> str:
    """The answer and all that it rests on; rates in requests a second, times in ms."""
    rate, objective = max_rate(capacity), capacity.objective
    cell = dataclasses.asdict(capacity.cell)
    model = capacity.model
    content = {
        "format": FORMAT,
        "max_rate": rate.value,
        "interval": None if rate.low is None else [rate.low, rate.high],
        "level": rate.level,
        "slo": {"text": objective.text, "statistic": objective.statistic, "limit": objective.limit_s * 1e3},
        "curve": [_rung(one) for one in capacity.curve],
        "processes": [_process(one) for one in capacity.processes],
        "saturation_rate": saturation_rate(capacity.processes),
        "predicted_rate": capacity.predicted_rate,
        "lone_request": capacity.lone
        and {"statistic": capacity.lone.statistic, "time": capacity.lone.seconds * 1e3},
        "interrupted": capacity.interrupted,
        "output_check": files.output_check(capacity.check),
        "findings": [
            {"code": one.code, "data": {k: files.plain(v) for k, v in one.data.items()}, "text": finding(one)}
            for one in capacity.findings
        ],
        "model": {"source": model.source, "digest": model.digest, "precision": model.precision},
        "cell": {name: cell[name] for name in cell if name not in _NOT_SAID},
        "stream_mode": capacity.stream_mode,
        "started_at": capacity.processes[0].started_at,
        "versions": dict(capacity.versions),
        "engine_settings": dict(capacity.settings),
        "machine": dataclasses.asdict(capacity.machine),
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _rung(rung: RatePoint) -> dict[str, Any]:
    return {
        "rate": rung.rate,
        "share_of_saturation": rung.load,
        "requests": rung.requests,
        "processes": rung.processes,
        "unserved_share": rung.unserved_share,
        "kept": rung.kept,
        "response": {name: None if value is None else value * 1e3 for name, value in rung.responses_s.items()},
        "service": {name: None if value is None else value * 1e3 for name, value in rung.services_s.items()},
    }


def _process(process: CapacityProcess) -> dict[str, Any]:
    return {
        "rate": process.rate,
        "measured_rate": process.measured_rate,
        "luck": process.luck,
        "reach": process.reach,
        "saturation_rate": process.saturation_rate,
        "started_at": process.started_at,
    }


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else count(seconds * 1e3)
