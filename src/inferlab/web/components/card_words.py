"""Words and numbers of the cards."""

from __future__ import annotations

import math
from typing import Literal

from inferlab.measure.headline import AT_FULL_LOAD
from inferlab.records import Cell, Estimate
from inferlab.store.entries import CellEntry
from inferlab.units import plural, share
from inferlab.views.intervals import between, useful
from inferlab.workspace.cards import Duel

Tone = Literal["ok", "warn", "wrong", "muted", "info"]

#: The confidence of the intervals that the store has cached.
LEVEL = 0.95
_OPPOSITE = {"faster": "slower", "slower": "faster"}
_TONES: dict[str, Tone] = {"faster": "ok", "slower": "wrong", "same": "muted", "inconclusive": "warn"}
#: What each scenario is, beside its name.
SCENARIOS = {
    "sync": "one request at a time",
    "async": "several streams, the cores divided among them",
    "elastic": "several streams that share all cores",
    "offline": "everything at once, for throughput",
    "server": "requests arrive at a rate, whether or not the last is done",
}


def three(value: float) -> str:
    """Three digits, or all before the point, never as a power of ten."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(places, 0)}f}"


def interval(found: Estimate, unit: str = "") -> str:
    """Both ends of an interval, with what it was made for."""
    if found.ends is None or not useful(found.ends):
        return between(found.ends)
    return f"{between(found.ends)}{unit} ({share(found.level)})"


def seconds(value: float) -> str:
    """About how long something takes."""
    if value < 90:
        return f"{max(1, round(value))} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 90 else f"{value / 3600:.1f} h"


def before(position: int) -> str:
    """How long the queue in front of a job is."""
    return "next in the queue" if position < 1 else f"{plural(position, 'job')} before it in the queue"


def verdict_of(duel: Duel, arm: int) -> tuple[Estimate, str, Tone]:
    """How many times as fast an arm is as the other one, the verdict, and its colour."""
    if arm == 0:
        return duel.speedup, duel.verdict, _TONES.get(duel.verdict, "muted")
    verdict = _OPPOSITE.get(duel.verdict, duel.verdict)
    return duel.ratio, verdict, _TONES.get(verdict, "muted")


def estimates(one: CellEntry) -> tuple[Estimate, Estimate, Estimate] | None:
    """Time an item, time a batch and items a second as the store has them cached; None where it has not."""
    if one.median_ms is None or not one.items_per_sec:
        return None
    batch = Estimate(one.median_ms, one.median_ms_low, one.median_ms_high, LEVEL, "student")
    rate = Estimate(one.items_per_sec, one.items_per_sec_low, one.items_per_sec_high, LEVEL, "student")
    return _an_item(one.cell, batch, rate), batch, rate


def _an_item(cell: Cell, batch: Estimate, rate: Estimate) -> Estimate:
    if cell.scenario not in AT_FULL_LOAD:
        low, high = (end / cell.batch_size for end in batch.ends) if batch.ends else (None, None)
        return Estimate(batch.value / cell.batch_size, low, high, LEVEL, "student")
    low, high = (1e3 / rate.ends[1], 1e3 / rate.ends[0]) if rate.ends else (None, None)
    return Estimate(1e3 / rate.value, low, high, LEVEL, "student")
