"""The capacity of both kinds of models: the answer, what it rests on, and the curve over the rate of requests."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from inferlab.codec import plain
from inferlab.measure import rate_search
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.intervals import student
from inferlab.records.capacity import Capacity, GenerationCapacity, RatePoint
from inferlab.units import count, duration, plural, share
from inferlab.views import tables
from inferlab.views.fields import MS, Field, interval_text, rounded
from inferlab.views.generation import LATENCIES, percentile, prompts_pair, slo_text
from inferlab.views.results import View, finding_values, json_values, picked, short_name, without_progress
from inferlab.views.tables import Block, Pair, Table
from inferlab.views.text import agreement_text, finding, generation_label, output_check

CAPACITY = "inferlab-capacity/1"
#: Of files; entries of the store have a format of their own.
GENERATION_CAPACITY = "inferlab-generation-capacity-file/1"
# What a search sets by itself.
_NOT_OF_CAPACITY = ("rate", "scenario", "precision", "warmup_s")
_COLUMNS = ("median", "p90", "p99")


def view_of(capacity: Capacity | GenerationCapacity) -> View:
    """How a capacity is shown and written."""
    title = f"{short_name(capacity.model.source)}: capacity"
    if isinstance(capacity, GenerationCapacity):
        return View(
            title,
            lambda: _generation_blocks(capacity),
            lambda: _generation_curve(capacity),
            lambda: json_values(_generation_content(capacity)),
        )
    return View(title, lambda: blocks(capacity), lambda: curve(capacity), lambda: json_values(_content(capacity)))


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
        Pair("Output Check", output_check(capacity.check)),
        *tables.notes(map(finding, capacity.findings)),
    ]


def _headline(capacity: Capacity) -> Pair:
    objective = capacity.objective
    if capacity.lone is not None:
        lone = f"{duration(capacity.lone.seconds)} ({capacity.lone.statistic} of the service time)."
        return Pair(f"No rate meets {objective.text}", f"even requests that come one by one take {lone}", True)
    if max_rate(capacity).value == 0:
        return Pair(f"No rate meets {objective.text}", "the lowest that was tried misses it.", True)
    return Pair(f"Highest rate that meets {objective.text}", _rate_text(capacity), True)


def _rate_text(capacity: Capacity | GenerationCapacity) -> str:
    rate = max_rate(capacity)
    sure = plural(len(capacity.processes), "process", "processes")
    if rate.ends is not None:
        sure = f"{interval_text(rate.ends, rate.level)}, {sure}"
    return f"{rounded(rate.value, rate.ends, count)} requests/s ({sure})"


def _grounds(capacity: Capacity) -> list[Pair]:
    """What the answer rests on."""
    saturation = f"{count(saturation_rate(capacity.processes))} requests/s"
    if capacity.predicted_rate:
        saturation += f"; predicted from the service times: {count(capacity.predicted_rate)} requests/s"
    pairs = [Pair("Saturation", saturation)]
    crossed = [process for process in capacity.processes if process.reach == "crossing"]
    if crossed:
        measured = student([process.measured_rate for process in crossed]).value
        luck = student([process.luck for process in crossed]).value
        word = "easier" if luck < 1 else "harder"
        measured_text = (
            f"{count(measured)} requests/s on arrivals that were {word} than usual, "
            f"as a simulated queue with the same service times tells (×{luck:.3f})"
        )
        pairs.append(Pair("Measured", measured_text))
    return pairs


def curve(capacity: Capacity) -> Table:
    """Latency over rate, with a line where the objective breaks."""
    own, rate = capacity.objective.statistic, max_rate(capacity).value
    names = [*_COLUMNS, *(() if own in _COLUMNS else (own,))]
    columns = [
        Field("rate", "rate/s", lambda point: point.rate, count),
        Field("share_of_saturation", "of saturation", lambda point: point.load, share),
        *(Field(f"response_{name}_ms", f"response {name}", _ms("responses_s", name), count) for name in names),
        Field(f"service_{own}_ms", f"service {own}", _ms("services_s", own), count),
        Field("unserved_share", "unserved", lambda point: point.unserved_share, share),
        Field("requests", "requests", lambda point: point.requests),
        Field("kept", "met", lambda point: kept(point.kept, point.load)),
    ]
    below = sum(point.rate <= rate for point in capacity.curve)
    divider = (f"highest rate that meets {capacity.objective.text}", below) if rate > 0 else None
    title = "Latency over rate, times in ms, all processes together"
    return Table(columns, capacity.curve, title, divider=divider)


def _ms(name: str, statistic: str) -> Callable[[RatePoint], float | None]:
    def get(point: RatePoint) -> float | None:
        seconds: float | None = getattr(point, name)[statistic]
        return None if seconds is None else seconds * 1e3

    return get


def kept(meets: bool | None, load: float) -> str:
    """Whether the objective was met at a rate; beyond the ceiling only for as long as it was tried."""
    if meets is None:
        return "-"
    return "no" if not meets else "yes" if load <= rate_search.CEILING else "while tried"


def _content(capacity: Capacity) -> dict[str, Any]:
    """The answer and all that it rests on; rates in requests a second, times in ms."""
    rate, objective, lone = max_rate(capacity), capacity.objective, capacity.lone
    return {
        "format": CAPACITY,
        "max_rate": rate.value,
        "interval": rate.ends,
        "level": rate.level,
        "slo": {**picked(objective, "text", "statistic"), "limit": objective.limit_s * 1e3},
        "curve": [_rate_point(one) for one in capacity.curve],
        "processes": [
            picked(process, "rate", "measured_rate", "luck", "reach", "saturation_rate", "started_at")
            for process in capacity.processes
        ],
        "saturation_rate": saturation_rate(capacity.processes),
        "predicted_rate": capacity.predicted_rate,
        "lone_request": lone and {"statistic": lone.statistic, "time": lone.seconds * 1e3},
        "interrupted": capacity.interrupted,
        "output_check": capacity.check,
        "findings": finding_values(capacity.findings),
        "model": picked(capacity.model, "source", "digest", "precision"),
        "cell": {name: value for name, value in plain(capacity.cell).items() if name not in _NOT_OF_CAPACITY},
        "stream_mode": capacity.stream_mode,
        "started_at": capacity.processes[0].started_at,
        **picked(capacity, "versions"),
        "engine_settings": capacity.settings,
        "machine": capacity.machine,
    }


def _rate_point(point: RatePoint) -> dict[str, Any]:
    def times_ms(times_s: Any) -> dict[str, Any]:
        return {name: None if value is None else value * 1e3 for name, value in times_s.items()}

    return {
        "rate": point.rate,
        "share_of_saturation": point.load,
        **picked(point, "requests", "processes", "unserved_share", "kept"),
        "response": times_ms(point.responses_s),
        "service": times_ms(point.services_s),
    }


def _generation_blocks(capacity: GenerationCapacity) -> list[Block]:
    """The answer, the curve, then all that qualifies them."""
    shown: list[Block] = [
        Pair("Model", capacity.model.source),
        Pair("Cell", generation_label(capacity.cell)),
        Pair("Serving", capacity.serving),
        _generation_headline(capacity),
    ]
    lone = capacity.lone
    tpot = "" if lone.tpot_ms is None else f", TPOT {MS(lone.tpot_ms)} ms"
    shown.append(Pair("Requests one by one", f"TTFT {MS(lone.ttft_ms)} ms{tpot}"))
    saturation = statistics.median(process.saturation_rate for process in capacity.processes)
    shown.append(Pair("Served at most", f"{count(saturation)} requests/s, when requests always wait"))
    if capacity.prompts is not None:
        shown.append(prompts_pair(capacity.prompts))
    shown += [_generation_curve(capacity)] if capacity.curve else []
    shown.append(Pair("Agreement", agreement_text(capacity.agreement)))
    return [*shown, *tables.notes(map(finding, capacity.findings))]


def _generation_headline(capacity: GenerationCapacity) -> Pair:
    wanted = f"{share(capacity.wanted_attainment)} of the requests meet {slo_text(capacity.slo)}"
    if max_rate(capacity).value == 0:
        lone = share(capacity.lone.limit_share)
        return Pair(f"No rate at which {wanted}", f"even alone, a typical request takes {lone} of a limit.", True)
    return Pair(f"Highest rate at which {wanted}", _rate_text(capacity), True)


def _generation_curve(capacity: GenerationCapacity) -> Table:
    """What requests met at each rate, from the lowest up."""
    fields = [
        Field("rate", "requests/s", lambda point: point.rate, count),
        Field("load", "load", lambda point: point.load, share),
        Field("requests", "requests", lambda point: point.requests),
        Field("attainment", "meet SLO", lambda point: point.attainment, share),
        Field("goodput_per_s", "goodput/s", lambda point: point.goodput_per_s, count),
        *(percentile(*one) for one in LATENCIES),
        Field("unserved_share", "unserved", lambda point: point.unserved_share, share),
    ]
    return Table(fields, capacity.curve)


def _generation_content(capacity: GenerationCapacity) -> dict[str, Any]:
    """The values of a file."""
    rate = max_rate(capacity)
    return {
        "format": GENERATION_CAPACITY,
        "max_rate": rate.value,
        "max_rate_interval": None if rate.ends is None else list(rate.ends),
        **without_progress(capacity),
        "slo": [limit.text for limit in capacity.slo],
    }
