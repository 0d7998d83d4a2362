"""Goals as people write them: "2x faster", "30% smaller", "1.5x faster, 2x smaller"."""

from __future__ import annotations

import math
import re

from inferlab.errors import BadInput
from inferlab.records.optimization import Goal

_PART = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>x|×|times|%)\s*(?:as\s+)?(?P<what>\w+)", re.IGNORECASE
)
_WORDS = {"faster": "speedup", "fast": "speedup", "smaller": "size_ratio", "small": "size_ratio"}
_LIKE = 'Write it as "2x faster", "30% faster", "2x smaller", or several with commas between them.'


def parse_goal(text: str, max_loss: str | float = 0.01) -> Goal:
    """The goal that a text such as "2x faster, 50% smaller" means, within this loss.

    30% faster is 1.3 times as many items a second; 50% smaller is half the bytes.
    """
    found: dict[str, float] = {}
    for part in re.split(r"\s*(?:,|;|\band\b|&)\s*", text.strip()):
        name, ratio = _part(part, text)
        if name in found:
            how = "fast" if name == "speedup" else "small"
            raise BadInput(f"The goal '{text}' says twice how {how} the model shall be.")
        found[name] = ratio
    return Goal(found.get("speedup"), found.get("size_ratio"), parse_loss(max_loss))


def parse_loss(value: str | float) -> float:
    """The largest loss as a fraction, of "1%" or 0.01."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise BadInput(f"The largest loss is a share such as 1% or 0.01, not '{value}'.") from None
    if not 0 <= number < 1:
        raise BadInput(
            f"The largest loss lies between 0 and 100 %, and '{value}' does not. 1 % is written as 1% or 0.01."
        )
    return number


def _part(part: str, text: str) -> tuple[str, float]:
    match = _PART.fullmatch(part.strip())
    name = _WORDS.get(match["what"].lower()) if match else None
    if match is None or name is None:
        raise BadInput(f"The goal '{text}' cannot be read. {_LIKE}")
    number = float(match["number"])
    if match["unit"] != "%":
        ratio = number
    elif name == "speedup":
        ratio = 1 + number / 100
    else:
        ratio = 1 / (1 - number / 100) if number < 100 else math.inf
    if not 1 < ratio < math.inf:
        raise BadInput(f"The goal '{text}' asks for no change, or for more than there is. {_LIKE}")
    return name, ratio
