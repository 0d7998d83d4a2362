"""Facts about the machine as aligned lines with a verdict, and as a file."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence

from inferlab.escaping import one_line
from inferlab.machine_state import Fact, State
from inferlab.views.doctor_prose import PROSE, sentence
from inferlab.views.tables import Block, Pair

# Version 1: the first.
FORMAT = "inferlab-doctor/1"

_STATE_WIDTH = len("unknown")
_LABEL_WIDTH = max(len(entry.label) for entry in PROSE.values())
_MARGIN = 2 + _STATE_WIDTH + 2 + _LABEL_WIDTH + 2
_NARROWEST = 30


def lines(facts: Sequence[Fact], width: int | None, paint: Callable[[State, str], str]) -> list[str]:
    """The facts in their groups, then the verdict; wrapped to `width` if given; `paint` colours a state's word."""
    printed: list[str] = []
    group = ""
    for fact in facts:
        entry = PROSE[fact.code]
        if entry.group != group:
            group = entry.group
            printed += ["", group] if printed else [group]
        first, *rest = _wrapped(one_line(sentence(fact)), width and width - _MARGIN)
        state = paint(fact.state, fact.state.ljust(_STATE_WIDTH))
        printed.append(f"  {state}  {entry.label.ljust(_LABEL_WIDTH)}  {first}")
        printed += [" " * _MARGIN + line for line in rest]
    return [*printed, "", *_wrapped(verdict(facts), width)]


def blocks(facts: Sequence[Fact]) -> list[Block]:
    """The same as named values, for notebooks."""
    shown: list[Block] = [Pair(PROSE[fact.code].label, f"{fact.state}: {sentence(fact)}") for fact in facts]
    return [*shown, verdict(facts)]


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    # Commands are there to be copied: no break at their hyphens or within a path.
    return textwrap.wrap(text, max(width, _NARROWEST), break_on_hyphens=False, break_long_words=False)


def verdict(facts: Sequence[Fact]) -> str:
    """All facts in one line."""
    bad, unread = ([PROSE[one.code].label for one in facts if one.state == state] for state in ("warn", "unknown"))
    cannot = f" Not readable: {', '.join(unread)}." if unread else ""
    if not bad:
        return f"Nothing {'that can be read ' if unread else ''}disturbs measurements here.{cannot}"
    things = "1 thing disturbs" if len(bad) == 1 else f"{len(bad)} things disturb"
    return f"{things} measurements here: {', '.join(bad)}.{cannot}"


def to_json(facts: Sequence[Fact]) -> str:
    """The facts as a file's content."""
    content = {
        "format": FORMAT,
        "facts": [
            {"code": one.code, "state": one.state, "data": dict(one.data), "text": sentence(one)} for one in facts
        ],
        "verdict": verdict(facts),
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
