"""What the bars of a profile's charts stand for: values by layer and by type, and what is said of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.profiling.gains import estimated_ms, has_estimate
from inferlab.profiling.layers import moved_bytes
from inferlab.records.profile import (
    ChangedCopy,
    FlopsLayer,
    Layer,
    LossLayer,
    PerformanceProfile,
    Profile,
    level_key,
)
from inferlab.units import decimal, plural, scaled, share, shortened, size
from inferlab.views.charts import frame

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: How values are displayed.
VALUES = {"values": "values", "log": "logarithm", "percent": "percent"}
#: What the architecture alone tells of a layer.
FLOPS = {"flops": "FLOPs", "params": "Parameters", "bytes": "Bytes moved"}
#: Dark on light pages and on dark ones, whatever the colour of what is pointed at.
HOVER = {"align": "left", "bgcolor": "#32373c", "bordercolor": "#32373c", "font": {"color": "#f1f3f4"}}
#: The colour of what ran elsewhere.
HOLLOW = "rgba(0,0,0,0)"
# More error bars than this are a thicket.
_MOST_ERRORS = 90
_LONGEST = 64
_MOST_NODES = 4
_FALLBACK = "ran in the engine's fallback: pruning gains nothing"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; its value is None where there is none."""

    name: str
    value: float | None
    percent: float | None
    #: The value in words, with its unit.
    told: str
    #: What is said of it whatever the value, line by line.
    about: tuple[str, ...]
    fallback: bool = False
    error: float | None = None
    type: str = ""
    index: int = 0


def summaries(profile: Profile) -> dict[str, str]:
    """What can be shown of each layer of this profile, and how that is called."""
    titles = dict(FLOPS) if profile.flops else {}
    performance = profile.performance
    if performance is None:
        return titles
    levels = set().union(*(layer.pruned for layer in performance.layers)) - {"0"}
    timed = {"baseline": "Baseline ms"}
    timed |= {level: f"Pruned {level} ms" for level in sorted(levels, key=float)}
    if any(layer.int8_ms is not None for layer in performance.layers):
        timed["int8"] = "INT8 ms"
    timed |= {key: f"{title} ms" for key, (title, _) in fewer_channels(performance).items()}
    if has_estimate(profile):
        timed |= {"estimated": "Estimated ms", "speedup": "Potential speed-up"}
    return timed | titles


def fewer_channels(performance: PerformanceProfile) -> dict[str, tuple[str, ChangedCopy]]:
    """The copies that lost channels, by the key of their summary: what was done, and the copy."""
    copies = sorted(
        (copy for copy in performance.copies if copy.channels), key=lambda copy: (copy.int8, copy.channels)
    )
    changed = {}
    for copy in copies:
        key = f"channels-{level_key(copy.channels)}"
        text = f"{share(copy.channels)} of channels removed"
        changed[f"int8-{key}" if copy.int8 else key] = (f"INT8, {text}" if copy.int8 else text, copy)
    for number, copy in enumerate(performance.mixed_copies, 1):
        shares = copy.recipe.pruning.layers.values() if copy.recipe.pruning is not None else ()
        ends = (
            " to ".join(dict.fromkeys(share(end) for end in (min(shares), max(shares)))) if shares else "a share"
        )
        changed[f"groups-{number}"] = (f"{ends} of channels removed by group", copy)
    return changed


def timed_summary(profile: Profile, summary: str) -> tuple[str, dict[int, float | None]]:
    """What a summary of the layers' times is called, and its values by layers' indices; refuses unknown ones."""
    titles = {key: title for key, title in summaries(profile).items() if key not in FLOPS}
    if summary not in titles or profile.performance is None:
        there = f"It has: {', '.join(titles)}." if titles else "Its layers were not timed."
        raise BadInput(f"This profile has no times of layers called '{summary}'. {there}")
    layers = profile.performance.layers
    return titles[summary], dict(zip((layer.index for layer in layers), times_ms(profile, summary), strict=True))


def chosen(profile: Profile, summary: str, value: str) -> str:
    """The summary that is meant, or a refusal of what is not there."""
    titles = summaries(profile)
    if summary == "baseline" and profile.performance is None:
        summary = "flops"
    if summary not in titles:
        there = f"It has: {', '.join(titles)}." if titles else "It has neither times nor FLOPs."
        raise BadInput(f"This profile has no '{summary}' to draw. {there}")
    if value not in VALUES:
        raise BadInput(f"A value is displayed as one of {', '.join(VALUES)}, not {value!r}.")
    return summary


def by_layer(profile: Profile, summary: str, details: bool = True) -> list[Bar]:
    """A bar for every layer, in the order of execution; all about it only where that will be told."""
    if summary in FLOPS:
        assert profile.flops is not None
        theory = [
            (layer, float(cost) if (cost := _cost(layer, summary)) is not None else None)
            for layer in profile.flops.layers
        ]
        total = sum(value or 0.0 for _, value in theory)
        return [
            Bar(
                layer.id,
                value,
                _ratio(value, total),
                quantity(summary, value),
                _theory(layer) if details else (),
                type=layer.type,
                index=layer.index,
            )
            for layer, value in theory
        ]
    assert profile.performance is not None
    times = list(zip(profile.performance.layers, times_ms(profile, summary), strict=True))
    total = sum(value or 0.0 for _, value in times)
    return [
        Bar(
            layer.id,
            value,
            _ratio(value, layer.ms if summary == "speedup" else total),
            quantity(summary, value),
            about(layer) if details else (),
            layer.fallback,
            layer.spread_ms if summary == "baseline" else None,
            layer.type,
            layer.index,
        )
        for layer, value in times
    ]


def by_type(profile: Profile, summary: str) -> list[Bar]:
    """A bar for every type of layer, the largest first; what went to a fallback stands apart.

    A layer without a time of its own at a level, or in INT8, counts as it is.
    """
    layers = by_layer(profile, summary, details=False)
    before: Mapping[int, float] = {}
    if summary not in FLOPS and profile.performance:
        before = {layer.index: layer.ms for layer in profile.performance.layers}
    groups: dict[tuple[str, bool], list[Bar]] = {}
    for layer in layers:
        groups.setdefault((layer.type, layer.fallback), []).append(layer)
    sums = {
        key: _sum([before.get(member.index) if member.value is None else member.value for member in members])
        for key, members in groups.items()
    }
    total = sum(value or 0.0 for value in sums.values())
    bars = []
    for (kind, fallback), members in groups.items():
        value = sums[kind, fallback]
        whole = sum(before[member.index] for member in members) if summary == "speedup" else total
        bars.append(
            Bar(
                f"{kind} ({remark})" if (remark := _remark(summary, value, fallback)) else kind,
                value,
                _ratio(value, whole),
                quantity(summary, value),
                tuple(_about_type(kind, fallback, members, bool(before))),
                fallback,
                type=kind,
            )
        )
    return sorted(bars, key=lambda bar: (bar.value is None, -(bar.value or 0.0), bar.name))


def _remark(summary: str, value: float | None, fallback: bool) -> str:
    if value is None:
        return "uncounted" if summary in FLOPS else "not measured"
    return "fallback" if fallback else ""


def _about_type(kind: str, fallback: bool, members: Sequence[Bar], timed: bool) -> Iterator[str]:
    yield from (f"type: {kind}", plural(len(members), "layer"))
    missing = sum(member.value is None for member in members)
    if missing:
        yield f"{missing} of them {'counted as they are: not measured so' if timed else 'uncounted'}"
    if fallback:
        yield _FALLBACK


def _sum(values: Sequence[float | None]) -> float | None:
    summands = [value for value in values if value is not None]
    return sum(summands) if summands else None


def times_ms(profile: Profile, summary: str) -> list[float | None]:
    """The layers' times as they are, in a changed copy or as estimated, or what the estimate saves."""
    performance = profile.performance
    layers = performance.layers if performance else ()
    if performance and (changed := fewer_channels(performance).get(summary)):
        return [changed[1].layers_ms.get(layer.id) for layer in layers]
    if summary == "baseline":
        return [layer.ms for layer in layers]
    if summary == "int8":
        return [layer.int8_ms for layer in layers]
    if summary not in ("estimated", "speedup"):
        return [layer.pruned.get(summary) for layer in layers]
    after = estimated_ms(profile)
    return [after[layer.index] if summary == "estimated" else layer.ms - after[layer.index] for layer in layers]


def quantity(summary: str, value: float | None) -> str:
    """A value of this summary in words."""
    if value is None:
        return "unknown"
    if summary == "bytes":
        return size(value)
    if summary == "flops":
        return scaled(value, "FLOP")
    return f"{value:,.0f}" if summary == "params" else f"{decimal(value, 3)} ms"


def about(layer: Layer) -> tuple[str, ...]:
    """All that a layer is, line by line."""
    spread = "" if layer.spread_ms is None else f" ± {decimal(layer.spread_ms, 1)}"
    lines = [
        *_named(layer),
        f"kernel: {shortened(layer.kernel, _LONGEST)}" if layer.kernel else "",
        _FALLBACK if layer.fallback else "",
        f"time: {decimal(layer.ms, 3)}{spread} ms, {share(layer.share)} of the model",
        "" if layer.flops is None else f"work: {scaled(layer.flops, 'FLOP')}",
        "" if layer.gflops_per_second is None else f"speed: {layer.gflops_per_second:.3g} GFLOP/s",
        ""
        if layer.bound is None or layer.of_limit is None
        else f"bound by {layer.bound}, at {share(layer.of_limit)} of it",
    ]
    return tuple(filter(None, lines))


def _theory(layer: FlopsLayer) -> tuple[str, ...]:
    lines = [
        *_named(layer),
        "uncounted" if layer.flops is None else f"work: {scaled(layer.flops, 'FLOP')}, {layer.dtype}",
        f"parameters: {layer.params:,}" if layer.params else "",
        "" if layer.intensity is None else f"intensity: {layer.intensity:.3g} FLOPs per byte",
    ]
    return tuple(filter(None, lines))


def _named(layer: Layer | FlopsLayer) -> list[str]:
    return [*named(layer), f"nodes: {_listed(layer.nodes)}" if layer.nodes else ""]


def named(layer: Layer | FlopsLayer | LossLayer) -> list[str]:
    """Which layer it is."""
    weight = f"weight: {shortened(layer.weight, _LONGEST)}" if layer.weight else ""
    return [f"layer {layer.index}", f"id: {shortened(layer.id, _LONGEST)}", f"type: {layer.type}", weight]


def _listed(nodes: Sequence[str]) -> str:
    rest = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return shortened(", ".join(nodes[:_MOST_NODES]), _LONGEST) + rest


def _cost(layer: FlopsLayer, summary: str) -> int | None:
    if summary == "bytes":
        return moved_bytes(layer)
    return layer.flops if summary == "flops" else layer.params


def _ratio(value: float | None, whole: float) -> float | None:
    return None if value is None or whole <= 0 else 100 * value / whole


def hover(lines: Sequence[str]) -> str:
    """Lines of foreign text as Plotly shows them."""
    # One escape for all of them: a deep model has thousands of these, for every choice of a page.
    return frame.safe("\n".join(filter(None, lines))).replace("\n", "<br>")


def grouped(names: Sequence[str], weigh: Callable[[int], float]) -> Mapping[str, float]:
    """Weights added up by name, the heaviest first."""
    totals: dict[str, float] = {}
    for index, name in enumerate(names):
        totals[name] = totals.get(name, 0.0) + weigh(index)
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


def value_axis(heights: Sequence[float | None], unit: str, value: str) -> dict[str, Any]:
    """The axis of bars from 0 on, or a logarithmic one."""
    there = [height for height in heights if height is not None]
    positive = [height for height in there if height > 0]
    if value == "log" and positive:
        # A decade below the smallest would be empty, yet the smallest bar must be seen.
        area = [math.log10(min(positive)) - 0.3, math.log10(max(positive)) + 0.1]
        return {"type": "log", "range": area, "title": f"{unit}, logarithmic"}
    ends = [min([0.0, *there]) * 1.06, max([0.0, *there]) * 1.06 or 1.0]
    return {"type": "linear", "range": ends, "title": unit}


def bar_height(bar: Bar, value: str) -> float | None:
    """How high a bar is, as values are displayed."""
    if value == "percent":
        return None if bar.percent is None else round(bar.percent, 6)
    return bar.value


def hovering(bars: Sequence[Bar], shares: bool = True) -> dict[str, Any]:
    """Texts for those who point at a bar: what the value is, perhaps its share of the whole, then all about it."""
    values = [
        f"{bar.told} · {bar.percent:.3g} %" if shares and bar.percent is not None else bar.told for bar in bars
    ]
    return {
        "hovertext": [hover(bar.about) for bar in bars],
        "customdata": [frame.safe(text) for text in values],
        "hovertemplate": "<b>%{customdata}</b><br>%{hovertext}<extra></extra>",
    }


def has_errors(bars: Sequence[Bar], value: str) -> bool:
    """Whether bars show how much they vary."""
    return value != "percent" and len(bars) <= _MOST_ERRORS and any(bar.error for bar in bars)


def layer_bars(
    styles: Sequence[tuple[str, Sequence[Bar]]],
    value: str,
    title: str,
    subtitle: Sequence[str],
    x: dict[str, Any],
    unit: str,
    shares: bool = True,
) -> Figure:
    """A bar for every layer in the order of execution, by colour; of a deep model their outline."""
    bars = sorted((bar for _, members in styles for bar in members), key=lambda bar: bar.index)
    heights = [bar_height(bar, value) for bar in bars]
    errors = has_errors(bars, value)
    tops = [y + (bar.error or 0.0) if errors else y for y, bar in zip(heights, bars, strict=True) if y is not None]
    axis = value_axis(tops, unit, value)
    deep = len(bars) > frame.MOST_BARS
    if deep:
        traces = _outlined(bars, heights, styles, frame.bottom_of(axis), shares)
    else:
        width = 0.78 if len(bars) <= _MOST_ERRORS else 1.0
        traces = [_bars(color, members, value, errors, width, shares) for color, members in styles if members]
    return frame.made(
        traces,
        title,
        subtitle,
        x,
        axis,
        barmode="overlay",
        hoverlabel=HOVER,
        hovermode="x" if deep else "closest",
    )


def _outlined(
    bars: Sequence[Bar],
    heights: Sequence[float | None],
    styles: Sequence[tuple[str, Sequence[Bar]]],
    bottom: float,
    shares: bool,
) -> list[dict[str, Any]]:
    """One outline a colour, and the places of all bars for those who point at them."""
    x = [bar.index for bar in bars]
    traces = []
    for color, members in styles:
        inside = {member.index for member in members}
        own = [height if index in inside else None for index, height in zip(x, heights, strict=True)]
        if members:
            traces.append(frame.outline(x, own, frame.seen(color), bottom))
    return [*traces, frame.places(x, heights, hovering(bars, shares))]


def _bars(color: str, bars: Sequence[Bar], value: str, errors: bool, width: float, shares: bool) -> dict[str, Any]:
    # One trace a colour: colours by the bar are checked one by one, which takes seconds in a deep model.
    trace = {
        "type": "bar",
        "x": [bar.index for bar in bars],
        "y": [bar_height(bar, value) for bar in bars],
        "width": width,
        "marker": {"color": color, "opacity": 0.85, "line": {"color": frame.INK, "width": int(color == HOLLOW)}},
        **hovering(bars, shares),
    }
    if errors:
        spread = {"type": "data", "color": frame.INK, "thickness": 1, "width": 2}
        trace["error_y"] = {**spread, "array": [bar.error for bar in bars]}
    return trace
