"""Intervals as text: the only place that decides how one is written, and when it says too little to be shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from inferlab.units import decimal, duration, plural, share

Ends = Sequence[float] | None
Form = Callable[[float], str]

# Ends of an interval that are further apart than this factor, about ±100 %, say nothing.
_TOO_WIDE = 4.0
# A comparison that would take longer than this is not settled by measuring longer.
_TOO_LONG_S = 3600.0
#: What to do about an interval that is too wide.
QUIETER = "Close other programs (inferlab doctor shows what disturbs), or measure longer."


def useful(ends: Ends) -> bool:
    """Whether there is an interval, and it is narrow enough to say something."""
    return ends is not None and 0 < ends[0] <= ends[1] <= _TOO_WIDE * ends[0]


def rounded(value: float, ends: Ends, form: Form = decimal) -> str:
    """A value with the digits that its interval supports: two of half its width; `form` without a useful one."""
    if ends is None or not useful(ends) or ends[0] == ends[1]:
        return form(value)
    places = 1 - math.floor(math.log10((ends[1] - ends[0]) / 2))
    # Five digits are the most that anybody reads.
    places = min(places, 4 - math.floor(math.log10(ends[1])))
    return f"{round(value, places):.{max(0, places)}f}"


def between(ends: Ends, form: Form = decimal, processes: int | None = None) -> str:
    """Both ends of an interval with the digits that they support; in words where they say nothing."""
    if ends is not None and useful(ends):
        return f"{rounded(ends[0], ends, form)} to {rounded(ends[1], ends, form)}"
    words = "no interval" if ends is None else "too noisy for an interval"
    return words if processes is None else f"{words} ({plural(processes, 'process', 'processes')})"


def level_percent(level: float) -> str:
    """The level of an interval in per cent, rounded down: 99.98, never 100."""
    if not 0 < level < 1:  # out of a file that no measurement wrote
        return f"{100 * level:g}"
    places = max(0, -math.floor(math.log10(1 - level)) - 2)
    return f"{math.floor(100 * level * 10**places + 1e-6) / 10**places:.{places}f}"


def between_at(ends: Ends, level: float, form: Form = decimal) -> str:
    """Both ends with the level behind them: 1.2 to 1.4 (95 %)."""
    return f"{between(ends, form)} ({level_percent(level)} %)" if useful(ends) else between(ends)


def in_brackets(ends: Ends, form: Form = decimal, processes: int | None = None) -> str:
    """Both ends in brackets, to stand behind their value; empty where there is no interval."""
    return "" if ends is None else f" ({between(ends, form, processes)})"


def interval_text(ends: Ends, level: float, form: Form = decimal) -> str:
    """An interval with its level before it; in words where there is none or it says nothing."""
    if ends is None:
        return "too few processes for an interval"
    return f"{level_percent(level)}% interval {between(ends, form)}" if useful(ends) else between(ends)


def half_width(ends: Ends) -> str:
    """Half the width of an interval as a share of its value; empty where there is none."""
    if ends is None:
        return ""
    return share(math.sqrt(ends[1] / ends[0]) - 1.0) if useful(ends) else "too noisy"


def advice(many_ends: Sequence[Ends], remedy: str = QUIETER) -> list[str]:
    """What to do where one of these intervals says nothing: one note for a whole table."""
    noisy = any(ends is not None and not useful(ends) for ends in many_ends)
    return [f"Note: too noisy for an interval means that it would say nothing. {remedy}"] if noisy else []


def would_settle(seconds: float) -> str:
    """How long an open comparison would have to take, or that it is not worth trying."""
    if seconds <= _TOO_LONG_S:
        return f"About {duration(seconds)} would settle it."
    return (
        f"It cannot be settled here: that would take more than {duration(_TOO_LONG_S)}. Close other programs "
        "(inferlab doctor shows what disturbs), use a quieter machine, or give a larger --margin."
    )
