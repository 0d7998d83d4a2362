"""Versions in words: what was done, what it gained, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferlab.units import between, share
from inferlab.web import shell
from inferlab.workspace.engines import title
from inferlab.workspace.version_forms import PATTERNS, SCHEMES
from inferlab.workspace.versions import Version

TONES: dict[str, shell.Kind] = {"faster": "ok", "slower": "wrong", "same": "muted", "inconclusive": "warn"}


def done_to(version: Version) -> str:
    """What was done to the original."""
    words = []
    if version.pattern:
        words.append(f"pruned ({PATTERNS.get(version.pattern, version.pattern).lower()})")
    if version.scheme:
        words.append(SCHEMES.get(version.scheme, version.scheme))  # type: ignore[call-overload]
    return ", ".join(words) or "cleaned up"


def speedup(measured: Mapping[str, Any]) -> str:
    """How many times as fast, with the interval."""
    ends = measured["speedup_interval"]
    span = f" ({between(ends)})" if ends else ", no interval"
    return f"{measured['speedup']:.2f} ×{span}"


def where(measured: Mapping[str, Any]) -> str:
    """On what it was measured."""
    return f"{title(measured['engine'])}, cores {measured['num_cores']}, batch {measured['batch_size']}"


def fidelity(distance: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """How much of the outputs is left: accuracy with labels, else how far they are off; what that is; on what."""
    if distance is None:
        return "not compared", "", ""
    on = f"{distance['items']} {'generated' if distance['generated'] else 'given'} inputs"
    if distance["accuracy"] is not None:
        before = distance["original_accuracy"]
        return f"{share(distance['accuracy'])} right", "" if before is None else f"original {share(before)}", on
    if distance["relative_power"] is None:
        return "no numbers", "outputs that are no numbers", on
    return f"{distance['relative_power']:.3g}", "power of the change", on
