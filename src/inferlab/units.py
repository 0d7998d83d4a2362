"""Numbers for people: three or four significant digits, with their units."""

from __future__ import annotations


def decimal(value: float, places: int = 4) -> str:
    """`places` digits after the point, and more where that would leave fewer than `places` that count."""
    magnitude = abs(value)
    while magnitude and magnitude < 1 and places < 12:
        magnitude *= 10
        places += 1
    return f"{value:.{places}f}"


def size(count: float) -> str:
    """A number of bytes, in binary units."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return (
        f"{count:.0f} {unit}"
        if unit == "bytes"
        else f"{count:.3g} {unit}"
        if count < 1000
        else f"{count:.0f} {unit}"
    )


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


def share(fraction: float) -> str:
    """A fraction as a percentage."""
    return f"{100 * fraction:.3g} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
