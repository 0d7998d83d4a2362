"""What a search found: speed against loss, the size as the size of the mark, and the goal as a region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.optimizing.pareto import outcome
from inferlab.records.optimization import Candidate, Front
from inferlab.units import plural, share, shortened, size
from inferlab.views.charts import frame
from inferlab.views.fields import in_brackets

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_AXES = {"accuracy": "loss (drop of the accuracy)", "relative power": "loss (relative mean square change)"}
_REGION = "rgba(47,127,214,0.10)"
_LARGEST, _SMALLEST = 30.0, 6.0
_LONGEST_LABEL = 40
_NAME_HEIGHT = 20
# Of the length of an axis: marks that are nearer than this lie on each other.
_NEAR = 0.035
# Left of the least loss that a logarithmic axis shows there is room for those without any.
_ROOM_FOR_NONE = 0.6


def front(source: Front) -> Figure:
    """Every recipe that was measured, the efficient ones in colour and joined, the chosen one with a ring."""
    measured = [
        candidate
        for candidate in source.candidates
        if candidate.speedup is not None and candidate.loss is not None
    ]
    if not measured:
        raise BadInput("There is no front to draw: no recipe was measured.")
    axis, x_of = _loss_axis([candidate.loss or 0.0 for candidate in measured], source)
    top = 1.15 * max(
        1.0,
        source.goal.speedup or 1.0,
        *((candidate.speedup_interval or (0.0, candidate.speedup or 0.0))[1] for candidate in measured),
    )
    subtitle = _subtitle(source, len(measured))
    height = max(
        frame.HEIGHT, _NAME_HEIGHT * len(measured) + frame.HEIGHT - frame.plot_height(frame.HEIGHT, subtitle)
    )
    return frame.made(
        [
            _line(measured, x_of),
            _original(source, x_of),
            *_marks([candidate for candidate in measured if not candidate.efficient], source, x_of, frame.INK),
            *_marks([candidate for candidate in measured if candidate.efficient], source, x_of, frame.ACCENT),
            _numbers(source, measured, axis, x_of, top),
            *(
                _ring(candidate, source, x_of)
                for place, candidate in enumerate(source.candidates)
                if place == source.chosen
            ),
        ],
        f"Speed against loss on {source.engine}",
        subtitle,
        axis,
        {"range": [0, top], "title": "speed-up over the original"},
        shapes=[_region(source, axis, x_of, top), frame.level(1.0, frame.INK, "dot")],
        annotations=_names(source, measured, height, subtitle),
        margin={"r": 40 + frame.width([_named(source, candidate) for candidate in measured])},
        hovermode="closest",
        height=height,
    )


def _loss_axis(losses: Sequence[float], source: Front) -> tuple[dict[str, Any], Any]:
    """The axis, logarithmic where losses differ widely, and where a loss lies on it."""
    title = _AXES[source.metric]
    positive = [loss for loss in (*losses, source.goal.max_loss) if loss > 0]
    if not positive or max(positive) / min(positive) <= 30:
        low, high = min(0.0, *losses), max(*losses, source.goal.max_loss)
        room = 0.08 * ((high - low) or 1.0)
        percent = {"tickformat": ".2~%"} if source.metric == "accuracy" else {}
        return {"range": [low - room, high + 3 * room], "title": title, **percent}, lambda loss: loss
    least = math.log10(min(positive))
    none = least - _ROOM_FOR_NONE
    area = [none - 0.3, math.log10(max(positive)) + 0.55]
    ticks = [10.0**power for power in range(math.ceil(least - 0.2), math.floor(area[1]) + 1)]
    axis = {
        "range": area,
        # Places, not values: what loses nothing has a place too.
        "tickvals": [none, *map(math.log10, ticks)],
        "ticktext": ["0", *(share(tick) if source.metric == "accuracy" else f"{tick:g}" for tick in ticks)],
        "title": title,
    }
    return axis, lambda loss: math.log10(loss) if loss > 0 else none


def _line(measured: Sequence[Candidate], x_of: Any) -> dict[str, Any]:
    """The best speed for each loss, in steps: between two recipes there is none."""
    points = [
        (0.0, 1.0),
        *((candidate.loss or 0.0, candidate.speedup or 0.0) for candidate in measured if candidate.efficient),
    ]
    best: list[tuple[float, float]] = []
    for loss, speed in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or speed > best[-1][1]:
            best.append((loss, speed))
    line = {"color": frame.ACCENT, "width": 1.5, "shape": "hv"}
    return frame.scatter("lines", [x_of(loss) for loss, _ in best], [speed for _, speed in best], line=line)


def _marks(ones: Sequence[Candidate], source: Front, x_of: Any, color: str) -> list[dict[str, Any]]:
    """Areas that go with the sizes of the files, and the intervals of the speed where there are any."""
    sure = [candidate for candidate in ones if candidate.speedup_interval is not None]
    intervals = frame.scatter(
        "markers",
        [x_of(candidate.loss) for candidate in sure],
        speeds := [candidate.speedup or 0.0 for candidate in sure],
        error_y=frame.error_bars(speeds, [candidate.speedup_interval for candidate in sure], color, 1),
        marker={"size": 1, "color": color},
    )
    sizes = [_diameter(candidate.size_bytes, source) for candidate in ones]
    marks = frame.scatter(
        "markers",
        [x_of(candidate.loss) for candidate in ones],
        [candidate.speedup for candidate in ones],
        [_hover(candidate, source) for candidate in ones],
        marker={"color": color, "opacity": 0.7, "size": sizes, "line": {"width": 0}},
    )
    return [intervals, marks]


def _numbers(
    source: Front, measured: Sequence[Candidate], axis: dict[str, Any], x_of: Any, top: float
) -> dict[str, Any]:
    """The numbers of the table beside the marks; those of marks that lie on each other stand in one row."""
    left, right = axis["range"]
    rows: list[tuple[float, float, list[Candidate]]] = []
    for candidate in measured:
        x, y = x_of(candidate.loss), candidate.speedup or 0.0
        near = (row for row in rows if abs(row[0] - x) < _NEAR * (right - left) and abs(row[1] - y) < _NEAR * top)
        row = next(near, None)
        if row is None:
            rows.append((x, y, [candidate]))
        else:
            row[2].append(candidate)
    return frame.scatter(
        "text",
        [x for x, _, _ in rows],
        [y for _, y, _ in rows],
        # Spaces: past the marks.
        text=[
            f"   {', '.join(str(source.candidates.index(candidate) + 1) for candidate in ones)}"
            for _, _, ones in rows
        ],
        textposition="top right",
        textfont={"color": frame.INK, "size": 12},
        cliponaxis=False,
    )


def _original(source: Front, x_of: Any) -> dict[str, Any]:
    hover = [f"<b>the original</b><br>{size(source.original_bytes)}"]
    ring = _hollow(_diameter(source.original_bytes, source), frame.INK, 1.5)
    return frame.scatter("markers", [x_of(0.0)], [1.0], hover, cliponaxis=False, marker=ring)


def _ring(candidate: Candidate, source: Front, x_of: Any) -> dict[str, Any]:
    ring = _hollow(_diameter(candidate.size_bytes, source) + 9, frame.ACCENT, 2)
    return frame.scatter("markers", [x_of(candidate.loss)], [candidate.speedup], marker=ring)


def _hollow(diameter: float, color: str, width: float) -> dict[str, Any]:
    return {"color": "rgba(0,0,0,0)", "size": diameter, "line": {"color": color, "width": width}}


def _region(source: Front, axis: dict[str, Any], x_of: Any, top: float) -> dict[str, Any]:
    """Where the goal is reached, as far as speed and loss say it."""
    return {
        "type": "rect",
        "x0": axis["range"][0],
        "x1": x_of(source.goal.max_loss),
        "y0": source.goal.speedup or 0.0,
        "y1": top,
        "fillcolor": _REGION,
        "line": {"width": 0},
        "layer": "below",
    }


def _names(
    source: Front, measured: Sequence[Candidate], height: int, subtitle: Sequence[str]
) -> list[dict[str, Any]]:
    """What the numbers stand for, in a column right of the chart, as in the table."""
    step = _NAME_HEIGHT / frame.plot_height(height, subtitle)
    return [
        frame.label(
            _named(source, candidate),
            1,
            1 - (row + 0.5) * step,
            frame.ACCENT if candidate.efficient else frame.INK,
            xref="paper",
            yref="paper",
            xshift=16,
        )
        for row, candidate in enumerate(measured)
    ]


def _named(source: Front, candidate: Candidate) -> str:
    place = source.candidates.index(candidate)
    mark = ", chosen" if place == source.chosen else ""
    return f"{place + 1}  {shortened(candidate.label, _LONGEST_LABEL)}{mark}"


def _diameter(size_bytes: int | None, source: Front) -> float:
    return max(_SMALLEST, _LARGEST * math.sqrt((size_bytes or 0) / source.original_bytes))


def _hover(candidate: Candidate, source: Front) -> str:
    ends = in_brackets(candidate.speedup_interval, "{:.2f}".format)
    lines = [f"<b>{frame.safe(candidate.label)}</b>", f"{candidate.speedup:.2f} times as fast{ends}"]
    loss = candidate.loss or 0.0
    lines.append(f"loss {share(loss) if source.metric == 'accuracy' else format(loss, '.3g')}")
    if candidate.accuracy is not None:
        lines.append(f"accuracy {share(candidate.accuracy)}")
    if candidate.size_bytes is not None:
        lines.append(
            f"{size(candidate.size_bytes)}, {source.original_bytes / candidate.size_bytes:.2f} times smaller"
        )
    return "<br>".join(lines)


def _subtitle(source: Front, measured: int) -> list[str]:
    goal = source.goal
    goals = [f"{goal.speedup:.3g}× faster"] if goal.speedup else []
    goals += [f"{goal.size_ratio:.3g}× smaller"] if goal.size_ratio else []
    parts = [source.model] if source.model else []
    parts.append(f"goal: {' and '.join(goals)} within a loss of {share(goal.max_loss)}")
    unsure = outcome(source) == "open" and (source.chosen is not None or source.confirmed is not None)
    parts.append("reached" if outcome(source) == "reached" else "not confirmed" if unsure else "not reached")
    parts.append(f"{plural(measured, 'recipe')} measured of {len(source.candidates)}")
    parts.append("the mark's area is the size of the files")
    return parts
