"""Foreign text for people: names, messages and file contents that could steer a terminal are made visible."""

from __future__ import annotations

import unicodedata

# Control characters, formats (bidirectional overrides, zero-width characters), surrogates, line and paragraph
# separators: all that a terminal obeys or that changes what is seen without being seen.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escape_controls(text: str, keep: str = "\n\t") -> str:
    """Text in which whatever is not to be seen stands as its escape, such as \\x1b; `keep` is left as it is."""
    if text.isprintable():
        return text
    return "".join(
        one if one in keep or unicodedata.category(one) not in _HIDDEN else _escaped(one) for one in text
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
