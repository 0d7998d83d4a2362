"""Numbers for people: three or four significant digits, with their units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

# Ends of an interval that are further apart than this factor, about ±100 %, say nothing.
_TOO_WIDE = 4.0
# A comparison that would take longer than this is not settled by measuring longer.
_TOO_LONG_S = 3600.0


def decimal(value: float, places: int = 4) -> str:
    """`places` digits after the point, and more where that would leave fewer than `places` that count."""
    magnitude = abs(value)
    while magnitude and magnitude < 1 and places < 12:
        magnitude *= 10
        places += 1
    return f"{value:.{places}f}"


def _three(value: float) -> str:
    """Three digits, or all before the point: 1000 and not 1e+03."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def size(count: float) -> str:
    """A number of bytes, in binary units."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{_three(count)} {unit}"


def scaled(value: float, unit: str = "") -> str:
    """A large number with three digits and the prefix of its unit: 8.18 GFLOP, or 25.6 M."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{_three(value / limit)} {prefix}{unit}"
    return f"{_three(value)} {unit}".rstrip()


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{_three(seconds * factor)} {unit}"
    return f"{_three(seconds)} s"


def count(value: float) -> str:
    """A number of things a second: four digits, or all before the point."""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def share(fraction: float) -> str:
    """A fraction as a percentage."""
    return f"{_three(100 * fraction)} %"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun, which takes an s where no plural is given."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def shortened(text: str, width: int) -> str:
    """Text cut in its middle where it is longer; what tells names apart is often at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def useful(ends: Sequence[float] | None) -> bool:
    """Whether there is an interval, and it is narrow enough to say something."""
    return ends is not None and ends[0] > 0 and ends[1] / ends[0] <= _TOO_WIDE


def rounded(value: float, ends: Sequence[float] | None, told: Callable[[float], str] = decimal) -> str:
    """A value with the digits that its interval supports: two of half its width; `told` without a useful one."""
    if ends is None or not useful(ends) or ends[0] == ends[1]:
        return told(value)
    places = 1 - math.floor(math.log10((ends[1] - ends[0]) / 2))
    # Five digits are the most that anybody reads.
    places = min(places, 4 - math.floor(math.log10(ends[1])))
    return f"{round(value, places):.{max(0, places)}f}"


def between(ends: Sequence[float] | None, told: Callable[[float], str] = decimal) -> str:
    """Both ends of an interval with the digits that they support; in words where they say nothing."""
    if ends is None:
        return "no interval"
    if not useful(ends):
        return "too noisy for an interval"
    return f"{rounded(ends[0], ends, told)} to {rounded(ends[1], ends, told)}"


def interval_text(ends: Sequence[float] | None, level: float) -> str:
    """An interval with its level; in words where there is none or it says nothing."""
    if ends is None:
        return "too few processes for an interval"
    return f"{100 * level:.4g}% interval {between(ends)}" if useful(ends) else between(ends)


def would_settle(seconds: float) -> str:
    """How long an open comparison would have to take, or that it is not worth trying."""
    if seconds <= _TOO_LONG_S:
        return f"About {duration(seconds)} would settle it."
    return (
        f"It cannot be settled here: that would take more than {duration(_TOO_LONG_S)}. Close other programs "
        "(inferlab doctor tells what disturbs), use a quieter machine, or give a larger --margin."
    )
