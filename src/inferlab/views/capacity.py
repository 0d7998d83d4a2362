"""A capacity as text and as a file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from inferlab.measure import rate_search
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.intervals import student
from inferlab.records import Capacity, CapacityProcess, Finding, RatePoint
from inferlab.units import count, duration, plural, share
from inferlab.views import files, tables, text
from inferlab.views.fields import Field
from inferlab.views.intervals import interval_text, rounded
from inferlab.views.tables import Block, Pair, Table

# Version 1: the first.
FORMAT = "inferlab-capacity/1"

_COLUMNS = ("median", "p90", "p99")
# Of a single measurement, not of a search.
_NOT_SAID = ("rate", "scenario", "precision", "warmup_s")


def blocks(capacity: Capacity) -> list[Block]:
    """The answer, the curve, then all that qualifies them."""
    cell = capacity.cell
    streams = f"{cell.num_streams} streams ({capacity.stream_mode})" if cell.num_streams > 1 else "1 stream"
    if cell.instances > 1:
        streams = f"{cell.instances} instances of {streams}"
    return [
        Pair("Original Model Path", capacity.model.source),
        Pair("Batch Size", str(cell.batch_size)),
        Pair("Engine", f"{cell.engine}, cores: {cell.num_cores}, {streams}"),
        _headline(capacity),
        *_grounds(capacity),
        *([curve(capacity)] if capacity.curve else []),
        Pair("Output Check", text.output_check(capacity.check)),
        *tables.notes(map(finding, capacity.findings)),
    ]


def lines(capacity: Capacity) -> list[str]:
    """The same as text."""
    return tables.text(blocks(capacity))


def _headline(capacity: Capacity) -> Pair:
    objective, rate = capacity.objective, max_rate(capacity)
    if capacity.lone is not None:
        lone = f"{duration(capacity.lone.seconds)} ({capacity.lone.statistic} of the service time)."
        return Pair(f"No rate keeps {objective.text}", f"even requests that come one by one take {lone}", True)
    if rate.value == 0:
        return Pair(f"No rate keeps {objective.text}", "the lowest that was tried misses it.", True)
    sure = plural(len(capacity.processes), "process", "processes")
    if rate.ends is not None:
        sure = f"{interval_text(rate.ends, rate.level)}, {sure}"
    value = f"{rounded(rate.value, rate.ends, count)} requests/s ({sure})"
    return Pair(f"Highest rate that keeps {objective.text}", value, True)


def _grounds(capacity: Capacity) -> list[Pair]:
    """What the answer rests on."""
    saturation = f"{count(saturation_rate(capacity.processes))} requests/s"
    if capacity.predicted_rate:
        saturation += f"; predicted from the service times: {count(capacity.predicted_rate)} requests/s"
    found = [Pair("Saturation", saturation)]
    crossed = [one for one in capacity.processes if one.reach == "crossing"]
    if crossed:
        measured = student([one.measured_rate for one in crossed]).value
        luck = student([one.luck for one in crossed]).value
        word = "easier" if luck < 1 else "harder"
        told = (
            f"{count(measured)} requests/s on arrivals that were {word} than usual, "
            f"as a simulated queue with the same service times tells (×{luck:.3f})"
        )
        found.append(Pair("Measured", told))
    return found


def curve(capacity: Capacity) -> Table:
    """Latency over rate, with a line where the objective breaks."""
    own, rate = capacity.objective.statistic, max_rate(capacity).value
    names = [*_COLUMNS, *(() if own in _COLUMNS else (own,))]
    shown = [
        Field("rate", "rate/s", lambda point: point.rate, count),
        Field("share_of_saturation", "of saturation", lambda point: point.load, share),
        *(Field(f"response_{name}_ms", f"response {name}", _ms("responses_s", name), count) for name in names),
        Field(f"service_{own}_ms", f"service {own}", _ms("services_s", own), count),
        Field("unserved_share", "unserved", lambda point: point.unserved_share, share),
        Field("requests", "requests", lambda point: point.requests),
        Field("kept", "kept", lambda point: kept(point.kept, point.load)),
    ]
    below = sum(point.rate <= rate for point in capacity.curve)
    divider = (f"highest rate that keeps {capacity.objective.text}", below) if rate > 0 else None
    title = "Latency over rate, times in ms, all processes together"
    return Table(shown, capacity.curve, title, divider=divider)


def _ms(name: str, statistic: str) -> Callable[[RatePoint], float | None]:
    def get(point: RatePoint) -> float | None:
        seconds: float | None = getattr(point, name)[statistic]
        return None if seconds is None else seconds * 1e3

    return get


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
