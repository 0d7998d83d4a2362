"""Numbers and foreign text for people: significant digits with their units, control characters made visible."""

from __future__ import annotations

import math
import unicodedata

# Control characters, formats (bidirectional overrides, zero-width characters), surrogates, line and paragraph
# separators: all that a terminal obeys or that changes what is seen without being seen.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


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


def three_digits(value: float) -> str:
    """A measured value: three digits, zeros at the end too, or all before the point; never a power of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"


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


def capitalized(text: str) -> str:
    """A text that begins with a capital letter, all else as it is."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun, which takes an s where no plural is given."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def shortened(text: str, width: int) -> str:
    """Text cut in its middle where it is longer; what tells names apart is often at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def escape_controls(text: str, keep: str = "\n\t") -> str:
    """Text in which whatever is not to be seen stands as its escape, such as \\x1b; `keep` is left as it is."""
    if text.isprintable():
        return text
    return "".join(
        character if character in keep or unicodedata.category(character) not in _HIDDEN else _escaped(character)
        for character in text
    )


def one_line(text: str) -> str:
    """The same where a line break or a tab would break a line, a column or a cell."""
    return escape_controls(text, keep="")


def _escaped(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    code = ord(character)
    return named or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
