"""The chart of what lies behind one number: every iteration of a cell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inferlab.charts import frame
from inferlab.errors import BadInput
from inferlab.measure import noise
from inferlab.measure.stats import latencies_ns, summarize
from inferlab.records import Outcome, Run, Window
from inferlab.units import plural

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# More dots than this make a slow page and show nothing more.
_MOST_DOTS = 20_000
_CAUSES = {
    "run_queue_wait_s": "waits for a CPU",
    "throttled_s": "throttling of the container",
    "steal_s": "time taken by the hypervisor",
}
_SHADE = "rgba(127,127,127,0.18)"
# Above this multiple of the median a linear axis shows only the worst.
_FAR_OUT = 10.0
_MOST_PROCESS_NAMES = 12


def iterations(outcome: Outcome, subtitle: Sequence[str] = ()) -> Figure:
    """The latency of every batch of a cell over time, process after process, disturbed windows shaded."""
    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        raise BadInput("There is nothing to draw: no iteration of this cell was measured.")
    stretches = list(_stretches(outcome.runs))
    times = np.concatenate([one.times_s for one in stretches])
    latencies = np.concatenate([one.latencies_ms for one in stretches])
    order = np.argsort(times, kind="stable")
    times, latencies = times[order], latencies[order]
    kept = _worth_drawing(latencies)
    median = summary.median_ms.value
    far_out = bool(latencies.max() > _FAR_OUT * median and latencies.min() > 0)
    scale = "log" if far_out else "linear"
    high = float(latencies.max())
    area = [math.log10(latencies.min()) - 0.1, math.log10(high) + 0.1] if far_out else [0.0, high * 1.08]
    disturbed = _disturbed(stretches, outcome.cell.num_cores)
    end = float(max(one.end_s for one in stretches))
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": times[kept].tolist(),
        "y": latencies[kept].tolist(),
        "marker": {"color": frame.ACCENT, "size": 4, "opacity": 0.6},
        "hovertemplate": "%{y:.4g} ms at %{x:.4g} s<extra></extra>",
    }
    name = f"median {median:.4g} ms"
    label = frame.label(name, 1, frame.place(scale, median), xref="paper", xshift=8)
    names, walls = _processes(stretches)
    return frame.made(
        [dots],
        f"Latency of {'every batch' if outcome.cell.scenario != 'server' else 'every request'} over time",
        [*subtitle, plural(len(latencies), "iteration"), *_notes(len(latencies), len(kept), disturbed, stretches)],
        {"range": [0, end], "title": "measuring time (s)"},
        {
            "type": scale,
            "range": area,
            "title": "latency (ms, logarithmic)" if far_out else "latency (ms)",
        },
        margin={"r": 24 + frame.width([name])},
        annotations=[label, *names],
        shapes=[
            *(frame.band(start, stop, _SHADE, upright=True) for start, stop, _ in disturbed),
            *walls,
            frame.level(median, frame.INK),
        ],
    )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A window on the time axis of the chart."""

    process: int
    window: Window
    begin_s: float
    end_s: float
    times_s: NDArray[np.float64]
    latencies_ms: NDArray[np.float64]


def _stretches(runs: Sequence[Run]) -> Iterator[_Stretch]:
    """All windows with samples; each process begins where the one before it ended, as if none had to load."""
    offset_s = 0.0
    for process, run in enumerate(runs):
        windows = [window for window in run.windows if any(len(stream) for stream in window.streams)]
        if not windows:
            continue
        zero = _begin_ns(windows[0])
        for window in windows:
            streams = [stream for stream in window.streams if len(stream)]
            ends = np.concatenate([np.frombuffer(stream.ends_ns, np.int64) for stream in streams])
            latencies = np.concatenate([latencies_ns(stream) for stream in streams])
            yield _Stretch(
                process,
                window,
                offset_s + (_begin_ns(window) - zero) / 1e9,
                offset_s + (int(ends.max()) - zero) / 1e9,
                offset_s + (ends - latencies - zero) / 1e9,
                latencies / 1e6,
            )
        offset_s += (max(int(stream.ends_ns[-1]) for stream in windows[-1].streams if len(stream)) - zero) / 1e9


def _begin_ns(window: Window) -> int:
    """When the window's first call began, or was due."""
    return min(
        int((stream.scheduled_ns if stream.scheduled_ns else stream.starts_ns)[0])
        for stream in window.streams
        if len(stream)
    )


def _worth_drawing(latencies: NDArray[np.float64]) -> NDArray[np.int64]:
    """All of them; of too many, the fastest, the slowest and a usual one of each stretch."""
    if len(latencies) <= _MOST_DOTS:
        return np.arange(len(latencies))
    edges = np.linspace(0, len(latencies), _MOST_DOTS // 3 + 1).astype(np.int64)
    kept = set()
    for first, last in itertools.pairwise(edges):
        order = np.argsort(latencies[first:last], kind="stable") + first
        kept |= {int(order[0]), int(order[len(order) // 2]), int(order[-1])}
    return np.array(sorted(kept), np.int64)


def _disturbed(stretches: Sequence[_Stretch], num_cores: int) -> list[tuple[float, float, str]]:
    """From when to when something took a visible share of the time, and what; neighbours are one."""
    found: list[tuple[float, float, str]] = []
    for one in stretches:
        causes = noise.touching(one.window, num_cores)
        if not causes:
            continue
        said = " and ".join(_CAUSES[cause] for cause in causes)
        if found and found[-1][2] == said and found[-1][1] >= one.begin_s - 0.01:
            found[-1] = (found[-1][0], one.end_s, said)
        else:
            found.append((one.begin_s, one.end_s, said))
    return found


def _notes(
    measured: int, drawn: int, disturbed: Sequence[tuple[float, float, str]], stretches: Sequence[_Stretch]
) -> list[str]:
    notes = []
    if drawn < measured:
        notes.append("of each stretch the fastest, a usual and the slowest are drawn")
    if disturbed:
        causes = ", ".join(dict.fromkeys(cause for _, _, cause in disturbed))
        notes.append(f"shaded: disturbed by {causes}")
    if stretches[-1].process > 0:
        notes.append("dotted lines: fresh processes")
    return notes


def _processes(stretches: Sequence[_Stretch]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The names of the processes above their dots, and a line between each two."""
    begins: dict[int, float] = {}
    for one in stretches:
        begins.setdefault(one.process, one.begin_s)
    if len(begins) < 2:
        return [], []
    head = "process " if len(begins) <= 6 else ""
    shown = begins if len(begins) <= _MOST_PROCESS_NAMES else {}
    names = [
        frame.label(f"{head}{number + 1}", begin, 1, xref="x", yref="paper", yanchor="bottom", font={"size": 11})
        for number, begin in shown.items()
    ]
    walls = [
        {"type": "line", "x0": begin, "x1": begin, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
         "line": {"color": frame.INK, "width": 1, "dash": "dot"}}
        for begin in list(begins.values())[1:]
    ]  # fmt: skip
    return names, walls
