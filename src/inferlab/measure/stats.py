"""Statistics: pure functions from samples to numbers, the time per item and its price; when there are enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from inferlab.measure.intervals import ALPHA, moderated, precise_enough, student, watched
from inferlab.records import Benchmark, Cell, Estimate, Machine, Run, Samples, Summary, Window

if TYPE_CHECKING:  # late: a benchmark neither compares nor generates
    from inferlab.records import Pair
    from inferlab.records.generation import GenerationRun


PERCENTILES = (25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
# A percentile is shown only if, with this confidence, at least two samples lie beyond it.
_CONFIDENCE = 0.99
# In every run's versions, beside the engine's.
_NO_ENGINES = ("inferlab", "python", "numpy")


#: What a run takes beside its time: its peak memory in bytes, and the seconds that loading the model took.
Resource = Literal["memory", "load"]
# By how much pairs are expected to differ in it: memory hardly does, loading reads files.
_RESOURCE_SDS: dict[Resource, float] = {"memory": 0.02, "load": 0.1}


def resource_of(run: Run, resource: Resource) -> float | None:
    """What one run took of a resource; None where that is not known."""
    return run.peak_memory_bytes if resource == "memory" else run.load_s


def resource_ratio(pairs: Sequence[Pair], resource: Resource) -> Estimate | None:
    """What B takes of a resource over what A takes, of the pairs of a comparison; None where it is not known."""
    from inferlab.records.comparison import SpreadPrior

    taken = [(resource_of(pair.a, resource), resource_of(pair.b, resource)) for pair in pairs]
    ratios = [b / a for a, b in taken if a and b]
    if not ratios or len(ratios) != len(taken):
        return None
    # A comparison may end after two pairs, once the time is clear: their spread alone would say little.
    return moderated([math.log(ratio) for ratio in ratios], 1 - ALPHA, SpreadPrior(_RESOURCE_SDS[resource]))


def summarize(cell: Cell, runs: Sequence[Run]) -> Summary | None:
    """Throughput and latency of a cell from the runs of its processes; None where there are no samples.

    Median and throughput are the typical process's, with their intervals; the rest is of all samples together.
    A request that was not served is later than every one that was: a percentile that reaches so far is unknown.
    """
    runs = with_samples(runs)
    if not runs:
        return None
    streams = [stream for run in runs for stream in _streams(run)]
    latencies_ms = np.concatenate([latencies_ns(stream) for stream in streams]) / 1e6
    unserved = sum(map(_unserved, runs))
    responses_ms = np.concatenate([latencies_ms, np.full(unserved, np.inf)])
    service = None
    if cell.scenario == "server":
        service_ms = np.concatenate([service_ns(stream) for stream in streams]) / 1e6
        service = {p: percentile(service_ms, p) for p in PERCENTILES}
    # Whoever stops at a narrow interval stops at lucky ones: these need another interval.
    estimate = student if cell.precision is None else watched
    return Summary(
        items_per_sec=estimate([items_per_sec(run, cell.batch_size, cell.rate) for run in runs]),
        median_ms=estimate([median_ms(run) for run in runs]),
        seconds_ran=sum(seconds(window) for run in runs for window in run.windows),
        iterations=len(latencies_ms),
        mean_ms=float(np.mean(latencies_ms)),
        std_ms=float(np.std(latencies_ms)),
        percentiles_ms={p: percentile(responses_ms, p) for p in PERCENTILES},
        service_percentiles_ms=service,
        unserved_share=unserved / len(responses_ms),
    )


def with_samples(runs: Sequence[Run]) -> list[Run]:
    """Those that measured something: at a low rate a process may see no request."""
    return [run for run in runs if _streams(run)]


def _streams(run: Run) -> list[Samples]:
    return [stream for window in run.windows for stream in window.streams if stream.starts_ns]


def latencies_ns(stream: Samples) -> NDArray[np.int64]:
    """How long each request took, from the moment it was due where it has one."""
    begun = stream.starts_ns if stream.scheduled_ns is None else stream.scheduled_ns
    return np.frombuffer(stream.ends_ns, np.int64) - np.frombuffer(begun, np.int64)


def service_ns(stream: Samples) -> NDArray[np.int64]:
    """How long the engine worked on each request."""
    return np.frombuffer(stream.ends_ns, np.int64) - np.frombuffer(stream.starts_ns, np.int64)


def _unserved(run: Run) -> int:
    """How many of the requests that were due were not served; 0 where requests do not arrive by themselves."""
    served = [sum(map(len, window.streams)) for window in run.windows]
    return sum(max(0, (window.arrivals or 0) - count) for window, count in zip(run.windows, served, strict=True))


def median_ms(run: Run) -> float:
    """The median latency of one process; where most requests were not served, the longest of those that were."""
    taken_ns = np.concatenate([latencies_ns(stream) for stream in _streams(run)])
    if unserved := _unserved(run):
        median_ns = percentile(np.concatenate([taken_ns, np.full(unserved, np.inf)]), 50.0)
        return (float(np.max(taken_ns)) if median_ns is None else median_ns) / 1e6
    # Of whole numbers: of others np.median imports numpy.ma.
    return float(np.median(taken_ns)) / 1e6


def items_per_sec(run: Run, batch_size: int, rate: float | None = None) -> float:
    """The throughput of one process: the sum of its streams' rates; with a rate of requests, what it served."""
    if rate is not None:
        return batch_size * _served_rate(run, rate)
    return batch_size * sum(
        _rate([window.streams[index] for window in run.windows]) for index in range(len(run.windows[0].streams))
    )


def _rate(pieces: Sequence[Samples]) -> float:
    """Inferences a second of one stream, in each window from its first start to its last end.

    Streams stop at their own last inference, so each has its own span: a common one would count the
    wait for the slowest stream as work.
    """
    pieces = [piece for piece in pieces if len(piece)]
    spans_ns = sum(piece.ends_ns[-1] - piece.starts_ns[0] for piece in pieces)
    return sum(map(len, pieces)) / (spans_ns / 1e9) if pieces else 0.0


def _served_rate(run: Run, rate: float) -> float:
    """Requests a second, in each window from the first one's arrival to the last one's end.

    As many gaps as requests belong to that time, so one usual gap is added to those between them.
    """
    windows = [[stream for stream in window.streams if stream.scheduled_ns] for window in run.windows]
    count = sum(len(stream) for streams in windows for stream in streams)
    spans_ns = sum(
        max(stream.ends_ns[-1] for stream in streams)
        - min(stream.scheduled_ns[0] for stream in streams if stream.scheduled_ns)
        for streams in windows
        if streams
    )
    return count / (spans_ns / 1e9 + sum(map(bool, windows)) / rate)


def load(cell: Cell, runs: Sequence[Run]) -> float:
    """The share of its streams' time that a server needs for what arrives; from 1 on, its queue grows for ever."""
    services_s = np.concatenate([service_ns(stream) for run in runs for stream in _streams(run)]) / 1e9
    return (cell.rate or 0.0) * float(np.mean(services_s)) / (cell.num_streams * cell.instances)


def engine_version(run: Run | GenerationRun) -> str:
    """The version of the engine that measured, among those of all packages that took part; empty if unknown."""
    return version_among(run.versions)


def version_among(versions: Mapping[str, str]) -> str:
    """The engine's among the versions of all packages that took part in a run; empty if unknown."""
    return next((version for name, version in versions.items() if name not in _NO_ENGINES), "")


def machine_kind(machine: Machine) -> str:
    """What machines have in common whose times may be compared: the CPU and the cores, not the name of the host.

    Runners of a CI service have another name every time.
    """
    cores = f"{machine.physical_cores} core{'s' if machine.physical_cores != 1 else ''}"
    quota = f", {machine.cpu_quota:g} CPUs allowed" if machine.cpu_quota else ""
    return ", ".join(filter(None, (machine.instance_type, machine.cpu or machine.architecture, cores))) + quota


def peak_memory_bytes(runs: Sequence[Run]) -> int | None:
    """The largest peak of all processes; None where the system does not tell."""
    return max((run.peak_memory_bytes for run in runs if run.peak_memory_bytes is not None), default=None)


def seconds(window: Window) -> float:
    """From the window's first start to its last end, over all streams."""
    streams = [stream for stream in window.streams if stream.starts_ns]
    if not streams:
        return 0.0
    return (max(stream.ends_ns[-1] for stream in streams) - min(stream.starts_ns[0] for stream in streams)) / 1e9


def typical_call_s(windows: Sequence[Window]) -> float | None:
    """The median call; None without one."""
    calls = [service_ns(stream) for window in windows for stream in window.streams if stream.starts_ns]
    return float(np.median(np.concatenate(calls))) / 1e9 if calls else None


def percentile(values: NDArray[np.float64], p: float) -> float | None:
    """The percentile, or None where too few samples carry it or it is infinite; a median needs but one sample."""
    if p != 50.0 and len(values) < samples_needed(p):
        return None
    # As np.percentile does it, to the last bit, but without numpy.ma, which that one takes the time to import.
    position = (len(values) - 1) * (p / 100.0)
    below, above = math.floor(position), math.ceil(position)
    ordered = np.partition(values, (below, above))
    low, high, part = float(ordered[below]), float(ordered[above]), position - below
    if math.isinf(high):
        return None
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1.0 - part)


def samples_needed(p: float) -> int:
    """The fewest samples of which two or more lie beyond percentile p with 99 % confidence: 662 for p99."""
    tail = min(p, 100.0 - p) / 100.0

    def doubt(count: int) -> float:
        """The probability that at most one of `count` samples lies beyond."""
        none = math.exp(count * math.log1p(-tail))
        return none + count * tail * none / (1.0 - tail)

    low, high = 1, 2
    while doubt(high) > 1.0 - _CONFIDENCE:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if doubt(middle) <= 1.0 - _CONFIDENCE else (middle, high)
    return high


PROCESSES = 5
# Long enough to hold many calls, short enough that a disturbance can be told apart from the rest.
WINDOW_S = 0.5


class SharesTime(Protocol):
    """A cell whose processes share its time."""

    @property
    def time_s(self) -> float:
        """Of all processes together."""

    @property
    def processes(self) -> int | None:
        """As asked."""


def processes_for(cell: SharesTime, ready_s: float) -> int:
    """How many processes share the time: as asked, or 5, or so few that loading takes no longer than measuring."""
    if cell.processes is not None:
        return cell.processes
    return max(1, min(PROCESSES, int(cell.time_s / ready_s)))


def share_s(cell: Cell, ready_s: float) -> float:
    """The measuring time of one process; with a wanted precision, about what it takes to get it ready."""
    if cell.precision is None:
        return cell.time_s / processes_for(cell, ready_s)
    return min(cell.time_s / PROCESSES, max(WINDOW_S, ready_s))


def time_is_up(cell: Cell, processes: int, ready_s: float) -> bool:
    """Whether so many processes have used up the cell's time."""
    if cell.precision is None:
        return processes >= processes_for(cell, ready_s)
    return (processes + 0.5) * share_s(cell, ready_s) > cell.time_s


def precise(cell: Cell, runs: Sequence[Run]) -> bool:
    """Whether a wanted precision is reached, of latency and throughput alike.

    A server's throughput does not count: it follows the number of requests that chance sends.
    """
    if cell.precision is None:
        return False
    runs = with_samples(runs)
    if not precise_enough([median_ms(run) for run in runs], cell.precision):
        return False
    rates = [items_per_sec(run, cell.batch_size) for run in runs]
    return cell.rate is not None or precise_enough(rates, cell.precision)


#: Scenarios that are about throughput, by their own names and those of files; the time per item follows from it.
AT_FULL_LOAD = ("async", "multistream", "elastic", "offline")

#: What DeepSparse calls the scheduler of each scenario.
SCHEDULERS = {
    "sync": "single_stream",
    "async": "multi_stream",
    "elastic": "elastic",
    "server": "multi_stream",
    "offline": "multi_stream",
}


def statistic(scenario: str) -> Literal["median", "mean"]:
    """What the time per item of a scenario is: of the median batch, or of the mean one, which throughput is."""
    return "mean" if scenario in AT_FULL_LOAD else "median"


def ms_per_item(
    scenario: str, batch_size: int | None, median_ms: float | None, items_per_sec: float | None
) -> float | None:
    """The time per item; the best cell is that of the lowest. None where what it follows from is not known."""
    if statistic(scenario) == "mean":
        return 1e3 / items_per_sec if items_per_sec else None
    return median_ms / batch_size if median_ms is not None and batch_size else None


def best_is(scenarios: Iterable[str]) -> str:
    """What "best" means among cells of these scenarios, in words."""
    statistics = {statistic(scenario) for scenario in scenarios}
    if statistics == {"mean"}:
        return "highest throughput"
    return "lowest median latency per item" if statistics == {"median"} else "lowest time per item"


_MILLION, _HOUR_S = 1e6, 3600.0


def price_of(benchmark: Benchmark, cell: Cell) -> float | None:
    """What an hour of the cell's machine costs, where the user said so."""
    return None if cell.machine_type is None else dict(benchmark.plan.prices).get(cell.machine_type)


def cost_per_million(items_per_sec: Estimate, price_per_hour: float) -> Estimate:
    """What a million items cost at this throughput; the faster, the cheaper, so the ends change places."""
    ends = items_per_sec.ends
    low, high = (None, None) if ends is None else (_cost(ends[1], price_per_hour), _cost(ends[0], price_per_hour))
    value = _cost(items_per_sec.value, price_per_hour)
    return Estimate(value, low, high, items_per_sec.level, items_per_sec.method)


def _cost(items_per_sec: float, price_per_hour: float) -> float:
    return price_per_hour * _MILLION / (items_per_sec * _HOUR_S)
