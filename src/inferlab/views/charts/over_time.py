"""The chart of what lies behind one number: every iteration of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inferlab.records import Outcome
from inferlab.units import plural
from inferlab.views.charts import frame, timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# More dots than this make a slow page and show nothing more.
_MOST_DOTS = 20_000
_MOST_PROCESS_NAMES = 12


def iterations(outcome: Outcome, subtitle: Sequence[str] = ()) -> Figure:
    """The latency of every batch of a cell over time, process after process, disturbed windows shaded."""
    (track,) = timeline.tracks([outcome])
    dots = timeline.dots(track, frame.ACCENT, _MOST_DOTS)
    scale, area = timeline.scale([track])
    name = f"median {track.median_ms:.4g} ms"
    label = frame.label(name, 1, frame.place(scale, track.median_ms), xref="paper", xshift=8)
    return frame.made(
        [dots],
        f"Latency of {'every batch' if outcome.cell.scenario != 'server' else 'every request'} over time",
        [*subtitle, plural(len(track), "iteration"), *_notes(track, len(dots["x"]))],
        {"range": [0, track.end_s], "title": "measuring time (s)"},
        {
            "type": scale,
            "range": area,
            "title": "latency (ms, logarithmic)" if scale == "log" else "latency (ms)",
        },
        margin={"r": 24 + frame.width([name])},
        annotations=[label, *_names(track.begins_s)],
        shapes=[
            *timeline.shades(track),
            *timeline.walls([track]),
            frame.level(track.median_ms, frame.INK),
        ],
    )


def _notes(track: timeline.Track, drawn: int) -> list[str]:
    notes = []
    if drawn < len(track):
        notes.append("of each stretch the fastest, a usual and the slowest are drawn")
    if track.disturbed:
        notes.append(f"shaded: disturbed by {timeline.causes(track)}")
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
