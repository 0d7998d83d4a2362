"""Read back results that were written to files, to compare them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure.unpaired import Saved
from inferlab.views import flat

_ENDINGS = (".json", ".csv", ".md")


def is_file(name: str) -> bool:
    """Whether a name on the command line means a saved result rather than a model."""
    return name.partition("#")[0].lower().endswith(_ENDINGS)


def load(name: str) -> Saved:
    """A result of a file; of several, the one whose number follows a #."""
    path, hash_sign, number = name.partition("#")
    return choose(name, flat.results(Path(path)), number if hash_sign else None)


def choose(name: str, results: Sequence[dict[str, Any]], number: str | None) -> Saved:
    """One of several results by its number, counted from 1; refused where it has no measurements."""
    if number is None and len(results) > 1:
        raise BadInput(f"{name} has {len(results)} results. Name one of them: {name}#1 to {name}#{len(results)}.")
    index = 1 if number is None else int(number) if number.isdigit() else 0
    if not 1 <= index <= len(results):
        raise BadInput(f"{name}: there is no result {number} among {len(results)}.")
    content = results[index - 1]
    if not content.get("benchmark_result"):
        raise BadInput(f"{name} has no measurement: its status is {content.get('status', 'unknown')}.")
    saved = Saved(name, content)
    try:
        # All that a comparison asks for: the other result decides by which of the two they are compared.
        times = [
            *saved.times_ms("median"),
            *saved.times_ms("throughput"),
            float(content["benchmark_result"]["seconds_ran"]),
        ]
        if not all(0 < one < math.inf for one in times) or not isinstance(content["scenario"], str):
            raise ValueError("a time is not positive, or there is no scenario")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise BadInput(f"{name} is damaged: its measurements cannot be read.") from None
    return saved
