"""A capacity as blocks: the answer, what it rests on, and the curve of latency over rate."""

from __future__ import annotations

from collections.abc import Callable

from inferlab.measure import rate_search
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.intervals import student
from inferlab.records.capacity import Capacity, RatePoint
from inferlab.units import count, duration, plural, share
from inferlab.views import tables, text
from inferlab.views.fields import Field
from inferlab.views.intervals import interval_text, rounded
from inferlab.views.tables import Block, Pair, Table

_COLUMNS = ("median", "p90", "p99")


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
        *tables.notes(map(text.finding, capacity.findings)),
    ]


def _headline(capacity: Capacity) -> Pair:
    objective, rate = capacity.objective, max_rate(capacity)
    if capacity.lone is not None:
        lone = f"{duration(capacity.lone.seconds)} ({capacity.lone.statistic} of the service time)."
        return Pair(f"No rate meets {objective.text}", f"even requests that come one by one take {lone}", True)
    if rate.value == 0:
        return Pair(f"No rate meets {objective.text}", "the lowest that was tried misses it.", True)
    sure = plural(len(capacity.processes), "process", "processes")
    if rate.ends is not None:
        sure = f"{interval_text(rate.ends, rate.level)}, {sure}"
    value = f"{rounded(rate.value, rate.ends, count)} requests/s ({sure})"
    return Pair(f"Highest rate that meets {objective.text}", value, True)


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
