"""Iterations over time, with what disturbed them and where processes begin, and tokens along their sequence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import findings
from inferlab.measure.stats import latencies_ns, summarize
from inferlab.records import Outcome, Run, Window
from inferlab.records.generation import GenerationOutcome
from inferlab.units import decimal, plural
from inferlab.views.charts import frame

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: The colour of what was disturbed.
SHADE = "rgba(127,127,127,0.18)"
_CAUSES = {
    "run_queue_wait_s": "waits for a CPU",
    "throttled_s": "throttling of the container",
    "steal_s": "time taken by the hypervisor",
}
# Above this multiple of the median a linear axis shows only the worst.
_FAR_OUT = 10.0


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A window on the time axis of the chart."""

    process: int
    window: Window
    begin_s: float
    end_s: float
    times_s: NDArray[np.float64]
    latencies_ms: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """From when to when something took a visible share of the time, and what."""

    begin_s: float
    end_s: float
    by: str


@dataclass(frozen=True, slots=True)
class Track:
    """The iterations of one cell in the order of time."""

    times_s: NDArray[np.float64]
    latencies_ms: NDArray[np.float64]
    median_ms: float
    end_s: float
    disturbed: tuple[Disturbed, ...]
    #: When each process began, by its number.
    begins_s: dict[int, float]

    def __len__(self) -> int:
        return len(self.times_s)


def measured(outcome: Outcome) -> bool:
    """Whether there is an iteration to draw."""
    return any(len(stream) for run in outcome.runs for window in run.windows for stream in window.streams)


def tracks(outcomes: Sequence[Outcome]) -> list[Track]:
    """The iterations of each cell, process after process, as if none had to load.

    Of several cells, processes of the same number begin at the same place: those of a comparison were measured
    interleaved.
    """
    if not outcomes or not all(map(measured, outcomes)):
        raise BadInput("There is nothing to draw: no iteration of this cell was measured.")
    laid = _laid_out([outcome.runs for outcome in outcomes])
    return [_track(outcome, stretches) for outcome, stretches in zip(outcomes, laid, strict=True)]


def _laid_out(arms: Sequence[Sequence[Run]]) -> list[list[_Stretch]]:
    rows: list[list[_Stretch]] = [[] for _ in arms]
    offset_s = 0.0
    for process in range(max(map(len, arms))):
        stretches = [_stretches(runs[process], process, offset_s) if process < len(runs) else [] for runs in arms]
        for there, more in zip(rows, stretches, strict=True):
            there += more
        offset_s = max((stretch.end_s for more in stretches for stretch in more), default=offset_s)
    return rows


def _stretches(run: Run, process: int, offset_s: float) -> list[_Stretch]:
    """All windows of a process that have samples."""
    windows = [window for window in run.windows if any(len(stream) for stream in window.streams)]
    stretches = []
    for window in windows:
        zero = _begin_ns(windows[0])
        streams = [stream for stream in window.streams if len(stream)]
        ends = np.concatenate([np.frombuffer(stream.ends_ns, np.int64) for stream in streams])
        latencies = np.concatenate([latencies_ns(stream) for stream in streams])
        stretches.append(
            _Stretch(
                process,
                window,
                offset_s + (_begin_ns(window) - zero) / 1e9,
                offset_s + (int(ends.max()) - zero) / 1e9,
                offset_s + (ends - latencies - zero) / 1e9,
                latencies / 1e6,
            )
        )
    return stretches


def _begin_ns(window: Window) -> int:
    """When the window's first call began, or was due."""
    return min(
        int((stream.scheduled_ns if stream.scheduled_ns else stream.starts_ns)[0])
        for stream in window.streams
        if len(stream)
    )


def _track(outcome: Outcome, stretches: Sequence[_Stretch]) -> Track:
    summary = summarize(outcome.cell, outcome.runs)
    assert summary is not None, "it has samples"
    times = np.concatenate([stretch.times_s for stretch in stretches])
    latencies = np.concatenate([stretch.latencies_ms for stretch in stretches])
    order = np.argsort(times, kind="stable")
    begins: dict[int, float] = {}
    for stretch in stretches:
        begins.setdefault(stretch.process, stretch.begin_s)
    return Track(
        times[order],
        latencies[order],
        summary.median_ms.value,
        max(stretch.end_s for stretch in stretches),
        tuple(_disturbed(stretches, outcome.cell.num_cores)),
        begins,
    )


def _disturbed(stretches: Sequence[_Stretch], num_cores: int) -> list[Disturbed]:
    """Disturbed windows; neighbours are one."""
    disturbances: list[Disturbed] = []
    for stretch in stretches:
        causes = findings.touching(stretch.window, num_cores)
        if not causes:
            continue
        names = " and ".join(_CAUSES[cause] for cause in causes)
        if disturbances and disturbances[-1].by == names and disturbances[-1].end_s >= stretch.begin_s - 0.01:
            disturbances[-1] = Disturbed(disturbances[-1].begin_s, stretch.end_s, names)
        else:
            disturbances.append(Disturbed(stretch.begin_s, stretch.end_s, names))
    return disturbances


def causes(track: Track) -> str:
    """All that disturbed it, or nothing."""
    return ", ".join(dict.fromkeys(disturbance.by for disturbance in track.disturbed))


def scale(drawn: Sequence[Track]) -> tuple[str, list[float]]:
    """The type of the axis of latencies, logarithmic where the worst lie far out, and its range."""
    low = min(float(track.latencies_ms.min()) for track in drawn)
    high = max(float(track.latencies_ms.max()) for track in drawn)
    if low > 0 and high > _FAR_OUT * min(track.median_ms for track in drawn):
        return "log", [math.log10(low) - 0.1, math.log10(high) + 0.1]
    return "linear", [0.0, high * 1.08]


def dots(track: Track, color: str, most: int) -> dict[str, Any]:
    """The iterations as dots, `most` of them or fewer."""
    indices = _worth_drawing(track.latencies_ms, most)
    times = track.times_s[indices]
    return frame.scatter(
        "markers",
        times.tolist(),
        track.latencies_ms[indices].tolist(),
        marker={"color": color, "size": 4, "opacity": 0.6},
        hoverinfo=None,
        hovertemplate="%{y:.4g} ms at %{x:.4g} s%{text}<extra></extra>",
        text=_remarks(track.disturbed, times) if track.disturbed else "",
    )


def _remarks(disturbed: Sequence[Disturbed], times_s: NDArray[np.float64]) -> list[str]:
    """What disturbed each of these moments, for those who point at it."""
    remarks = [""] * len(times_s)
    for disturbance in disturbed:
        for index in np.flatnonzero((disturbance.begin_s <= times_s) & (times_s < disturbance.end_s)):
            remarks[index] = f"<br>disturbed by {disturbance.by}"
    return remarks


def _worth_drawing(latencies: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """All of them; of too many, the fastest, the slowest and a usual one of each stretch."""
    if len(latencies) <= most:
        return np.arange(len(latencies))
    edges = np.linspace(0, len(latencies), most // 3 + 1).astype(np.int64)
    indices = set()
    for first, last in itertools.pairwise(edges):
        order = np.argsort(latencies[first:last], kind="stable") + first
        indices |= {int(order[0]), int(order[len(order) // 2]), int(order[-1])}
    return np.array(sorted(indices), np.int64)


def shades(track: Track, color: str = SHADE) -> list[dict[str, Any]]:
    """Stripes over what was disturbed."""
    return [
        frame.band(disturbance.begin_s, disturbance.end_s, color, upright=True) for disturbance in track.disturbed
    ]


def begins(drawn: Sequence[Track]) -> dict[int, float]:
    """When each process began, by its number."""
    begins_s: dict[int, float] = {}
    for number, begin in sorted(pair for track in drawn for pair in track.begins_s.items()):
        begins_s.setdefault(number, begin)
    return begins_s


def walls(drawn: Sequence[Track]) -> list[dict[str, Any]]:
    """A line between each two processes."""
    return [
        {"type": "line", "x0": begin, "x1": begin, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
         "line": {"color": frame.INK, "width": 1, "dash": "dot"}}
        for begin in list(begins(drawn).values())[1:]
    ]  # fmt: skip


# More dots than this make a slow page and show nothing more.
_MOST_DOTS = 20_000
_MOST_PROCESS_NAMES = 12


def iterations(outcome: Outcome, subtitle: Sequence[str] = ()) -> Figure:
    """The latency of every batch of a cell over time, process after process, disturbed windows shaded."""
    (track,) = tracks([outcome])
    drawn = dots(track, frame.ACCENT, _MOST_DOTS)
    kind, area = scale([track])
    name = f"median {track.median_ms:.4g} ms"
    label = frame.label(name, 1, frame.place(kind, track.median_ms), xref="paper", xshift=8)
    return frame.made(
        [drawn],
        f"Latency of {'every batch' if outcome.cell.scenario != 'server' else 'every request'} over time",
        [*subtitle, plural(len(track), "iteration"), *_notes(track, len(drawn["x"]))],
        {"range": [0, track.end_s], "title": "measuring time (s)"},
        {
            "type": kind,
            "range": area,
            "title": "latency (ms, logarithmic)" if kind == "log" else "latency (ms)",
        },
        margin={"r": 24 + frame.width([name])},
        annotations=[label, *_names(track.begins_s)],
        shapes=[
            *shades(track),
            *walls([track]),
            frame.level(track.median_ms, frame.INK),
        ],
    )


def _notes(track: Track, drawn: int) -> list[str]:
    notes = []
    if drawn < len(track):
        notes.append("of each stretch the fastest, a usual and the slowest are drawn")
    if track.disturbed:
        notes.append(f"shaded: disturbed by {causes(track)}")
    if len(track.begins_s) > 1:
        notes.append("dotted lines: fresh processes")
    return notes


def _names(begins: Mapping[int, float]) -> list[dict[str, Any]]:
    """The names of the processes above their dots."""
    if not 1 < len(begins) <= _MOST_PROCESS_NAMES:
        return []
    head = "process " if len(begins) <= 6 else ""
    return [
        frame.label(f"{head}{number + 1}", begin, 1, xref="x", yref="paper", yanchor="bottom", font={"size": 11})
        for number, begin in begins.items()
    ]


_MOST_LINES = 8
# Of the tokens at one position; between these lie four of five.
_LOW, _HIGH = 10.0, 90.0


def token_times(named: Sequence[tuple[str, GenerationOutcome]], subtitle: Sequence[str] = ()) -> Figure:
    """The time between two tokens along the sequence: at each position the median, and where four of five lie."""
    drawn = [(name, gaps) for name, outcome in named[:_MOST_LINES] if (gaps := _gaps_ms(outcome)) is not None]
    if not drawn:
        raise BadInput("There is nothing to draw: no cell with tokens of its own is here. A store keeps them.")
    highest = max(float(np.nanmax(band[2])) for _, (_, band) in drawn)
    lowest = min(float(np.nanmin(band[0])) for _, (_, band) in drawn)
    traces: list[dict[str, Any]] = []
    for index, (name, (start, (low, middle, high))) in enumerate(drawn):
        color = frame.INK if index else frame.ACCENT
        place = [start + step for step in range(len(middle))]
        band = [*high.tolist(), *low.tolist()[::-1]]
        if len(drawn) == 1:
            traces.append(
                frame.scatter(
                    "lines",
                    [*place, *place[::-1]],
                    band,
                    fill="toself",
                    fillcolor="rgba(47,127,214,0.16)",
                    line={"width": 0, "color": color},
                )
            )
        hover = [
            f"token {where}: {decimal(ms, 3)} ms ({decimal(a, 3)} to {decimal(b, 3)})"
            for where, ms, a, b in zip(place, middle, low, high, strict=True)
        ]
        style = {
            "color": color,
            "width": 2.0 if index == 0 else 1.5,
            "dash": frame.DASHES[index % len(frame.DASHES)],
        }
        traces.append(frame.scatter("lines", place, middle.tolist(), hover, name=frame.safe(name), line=style))
    first, last = min(start for _, (start, _) in drawn), max(start + len(band[1]) for _, (start, band) in drawn)
    notes = ["shaded: four of five sequences"] if len(drawn) == 1 else []
    return frame.made(
        traces,
        "Inter-token latency along the sequence",
        [*subtitle, *notes],
        {"range": [first - 0.5, last - 0.5], "title": "position in the sequence (tokens)"},
        {
            "type": "linear",
            "range": [0, highest * 1.08] if lowest >= 0 else None,
            "title": "inter-token latency (ms)",
        },
        showlegend=len(drawn) > 1,
        legend=frame.legend_above(),
    )


def _gaps_ms(outcome: GenerationOutcome) -> tuple[int, tuple[Any, Any, Any]] | None:
    """The position of the second token, and of each from there on the low, the middle and the high gap."""
    sequences = [sequence for run in outcome.runs for each in run.repetitions for sequence in each.sequences]
    longest = max((len(sequence.token_ns) for sequence in sequences), default=0)
    if longest < 2:
        return None
    gaps = np.full((len(sequences), longest - 1), math.nan)
    for row, sequence in enumerate(sequences):
        gaps[row, : len(sequence.token_ns) - 1] = np.diff(np.asarray(sequence.token_ns, np.float64)) / 1e6
    low, middle, high = np.nanpercentile(gaps, (_LOW, 50.0, _HIGH), axis=0)
    return outcome.cell.depth + outcome.cell.prompt_tokens + 1, (low, middle, high)
