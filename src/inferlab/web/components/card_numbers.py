"""The numbers of a card, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import html

from inferlab.measure.headline import statistic
from inferlab.records import Estimate
from inferlab.units import count
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import Point
from inferlab.web import shell
from inferlab.web.components.card_words import LEVEL, interval, three, verdict_of
from inferlab.workspace.cards import Duel

_PAIRED = "measured in turns"
_UNPAIRED = "not measured in turns: less sure"


def stats_of(found: tuple[Estimate, Estimate, Estimate] | None, scenario: str = "", struck: bool = False) -> None:
    """Time an item, time a batch, items a second; struck out where they are worth nothing, dashes for nothing."""
    names = {"MS per item": statistic(scenario), "MS per batch": "median", "Items per second": "mean"}
    for (name, told), value in zip(names.items(), found or (None,) * 3, strict=True):
        if value is None:
            shell.stat(name, "–")
            continue
        text = count(value.value) if name.startswith("Items") else three(value.value)
        whole = shell.stat(f"{name} ({told})", text, interval(value))
        whole.classes("il-struck" if struck else "").props(f'data-testid="{name.lower().replace(" ", "-")}"')


def speedup(duel: Duel, arm: int, other: str) -> None:
    """How many times as fast an arm is as the other, which has a name, and whether that is sure."""
    value, verdict, tone = verdict_of(duel, arm)
    with html.div().classes("il-stat").props('data-testid="speedup"'):
        html.div(f"Speed-up over {other}").classes("il-stat-label")
        with html.div().classes("il-bench-verdict"):
            html.span(f"{three(value.value)}×").classes("il-stat-value")
            shell.chip(verdict, tone).props('data-testid="verdict"')
        html.div(interval(value, "×")).classes("il-stat-detail")
        html.div(_PAIRED if duel.paired else _UNPAIRED).classes("il-stat-detail")


def scaling(points: Sequence[Point], by_cores: bool) -> None:
    """The best and the worst of some cells along core counts, or along batch sizes."""
    what, name = ("core count", "num_cores") if by_cores else ("batch size", "batch_size")
    found = best_and_worst(points)
    if found is None:
        html.div("No cell has a result that counts.").classes("il-muted")
        return
    best, worst = found
    low, high = best.ends("ms_per_item") or (None, None)
    took = Estimate(best.ms_per_item or 0.0, low, high, LEVEL, "student")
    shell.stat(f"Best {what}", str(getattr(best, name))).props('data-testid="best"')
    shell.stat(f"MS per item ({statistic(best.scenario)})", three(took.value), interval(took))
    detail = f"{three(worst.ms_per_item or 0.0)} ms per item"
    shell.stat(f"Worst {what}", str(getattr(worst, name)), detail).props('data-testid="worst"')
