"""The chart of a comparison: the ratio of every pair, its interval, and the margin that does not matter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records.comparison import Comparison, GenerationComparison
from inferlab.units import plural, share
from inferlab.views.charts import frame
from inferlab.views.fields import interval_text, rounded, useful

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MARGIN_SHADE = "rgba(127,127,127,0.12)"
_INTERVAL_SHADE = "rgba(47,127,214,0.16)"


@dataclass(frozen=True, slots=True)
class Ratios:
    """A comparison, as far as its chart needs it."""

    labels: tuple[str, str]
    verdict: str
    ratio: float
    ends: tuple[float, float] | None
    level: float
    margin: float
    outputs_match: bool | None
    #: By pair; empty where saved results were compared.
    log_ratios: tuple[float, ...]
    times_ms: tuple[tuple[float, ...], tuple[float, ...]]


def of_comparison(comparison: Comparison) -> Ratios:
    """What a chart needs of a comparison."""
    low, high = comparison.ratio.low, comparison.ratio.high
    return Ratios(
        labels=comparison.labels,
        verdict=comparison.verdict,
        ratio=comparison.ratio.value,
        ends=None if low is None or high is None else (low, high),
        level=comparison.ratio.level,
        margin=comparison.margin,
        outputs_match=comparison.outputs_match,
        log_ratios=tuple(pair.log_ratio for pair in comparison.pairs),
        times_ms=comparison.times_ms,
    )


def of_generation_comparison(comparison: GenerationComparison) -> Ratios:
    """The same of a comparison of two arms that generate; whether its tokens are right, the reference says."""
    wrong = any(agreement.status == "mismatch" for agreement in comparison.agreements)
    return Ratios(
        labels=comparison.labels,
        verdict=comparison.verdict,
        ratio=comparison.ratio.value,
        ends=comparison.ratio.ends,
        level=comparison.ratio.level,
        margin=comparison.margin,
        outputs_match=False if wrong else None,
        log_ratios=comparison.log_ratios,
        times_ms=comparison.times_ms,
    )


def of_file(content: Mapping[str, Any]) -> Ratios:
    """The same of a comparison that was written as JSON."""
    try:
        ends = content["interval"]
        pairs = Ratios(
            labels=(str(content["a"]["label"]), str(content["b"]["label"])),
            verdict=str(content["verdict"]),
            ratio=float(content["ratio"]),
            ends=None if ends is None else (float(ends[0]), float(ends[1])),
            level=float(content["level"]),
            margin=float(content["margin"]),
            outputs_match=content["outputs_match"],
            log_ratios=tuple(map(float, content["log_ratios"])),
            times_ms=(tuple(map(float, content["a"]["times_ms"])), tuple(map(float, content["b"]["times_ms"]))),
        )
        _check(pairs)
        return pairs
    except (LookupError, TypeError, ValueError, ArithmeticError):
        raise BadInput("This comparison is damaged: its ratios cannot be read.") from None


def _check(pairs: Ratios) -> None:
    """Refuse what no comparison gives and what cannot be drawn; a ValueError says so."""
    times = [*pairs.times_ms[0], *pairs.times_ms[1]]
    values = [pairs.ratio, *(pairs.ends or ()), *times, *map(math.exp, pairs.log_ratios), 1 + pairs.margin]
    if not all(1e-18 < value < 1e18 for value in values) or not (pairs.log_ratios or all(pairs.times_ms)):
        raise ValueError("a time or a ratio is not positive")


def ratios(pairs: Ratios) -> Figure:
    """B's time over A's in every pair, with the interval of the ratio and the margin that does not matter."""
    paired = bool(pairs.log_ratios)
    if paired:
        x: list[Any] = list(range(1, len(pairs.log_ratios) + 1))
        y = [math.exp(log_ratio) for log_ratio in pairs.log_ratios]
    else:
        usual = statistics.geometric_mean(pairs.times_ms[0])
        x = ["A"] * len(pairs.times_ms[0]) + ["B"] * len(pairs.times_ms[1])
        y = [time / usual for times in pairs.times_ms for time in times]
    margin = 1 / (1 + pairs.margin), 1 + pairs.margin
    ends = pairs.ends if useful(pairs.ends) else None
    values = [*y, *margin, pairs.ratio, *(ends or ())]
    pad = 0.08 * (max(values) - min(values))
    area = [min(values) - pad, max(values) + pad]
    ratio = rounded(pairs.ratio, pairs.ends)
    title = f"B takes {ratio} of A's time: {pairs.verdict}"
    if pairs.outputs_match is False:
        title += ", but the outputs DIFFER"
    subtitle = [f"A: {pairs.labels[0]}", f"B: {pairs.labels[1]}", *_sureness(pairs)]
    names, colors = (f"ratio {ratio}", "1: no difference"), (frame.ACCENT, frame.INK)
    places = frame.spread([pairs.ratio, 1.0], area, frame.plot_height(frame.HEIGHT, subtitle))
    marker = {"color": frame.ACCENT, "size": 8, "opacity": 0.75}
    dots = frame.scatter("markers", x, y, [f"{ratio_of_pair:.4f}" for ratio_of_pair in y], marker=marker)
    return frame.made(
        [dots],
        title,
        subtitle,
        {
            "title": "pair of fresh processes" if paired else "processes of the saved results",
            **(frame.whole(0.5, len(y) + 0.5) if paired else {"type": "category"}),
        },
        {"range": area, "title": "B's time over A's" if paired else "time over A's"},
        margin={"r": 24 + frame.width(names)},
        annotations=frame.beside(names, places, colors),
        shapes=[
            frame.band(*margin, _MARGIN_SHADE),
            *([frame.band(*ends, _INTERVAL_SHADE)] if ends else []),
            frame.level(1.0, frame.INK),
            frame.level(pairs.ratio, frame.ACCENT, "solid"),
        ],
    )


def _sureness(pairs: Ratios) -> list[str]:
    interval = interval_text(pairs.ends, pairs.level)
    if useful(pairs.ends):
        interval = f"blue: {interval}"
    elif pairs.ends:
        interval += f" ({plural(max(len(pairs.log_ratios), 1), 'pair')}): close other programs, or measure longer"
    return [interval, f"grey: margin of {share(pairs.margin)}"]
