"""Recommendations of several machine types side by side, the cheapest first, as JSON and as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from inferlab.measure.headline import cost_per_million
from inferlab.measure.intervals import LEVEL
from inferlab.measure.queueing import Objective
from inferlab.records import Estimate, Failure, Model
from inferlab.units import count, duration, plural
from inferlab.views import columns
from inferlab.views.fleet import money
from inferlab.views.intervals import advice, between, rounded

# Version 1: the first.
FORMAT = "inferlab-fleet-recommendation/1"

Content = Mapping[str, Any]


def content(
    model: Model,
    objective: Objective | None,
    prices: Mapping[str, float],
    found: Mapping[str, Mapping[str, Any] | Failure],
    interrupted: bool,
) -> dict[str, Any]:
    """All that was found, in the order in which one would take it."""
    machines = [_machine(name, prices.get(name), one) for name, one in found.items()]
    return {
        "format": FORMAT,
        "model": {"source": model.source, "kind": model.kind, "digest": model.digest},
        "objective": {"text": objective.text, "statistic": objective.statistic} if objective else None,
        "interrupted": interrupted,
        "machines": sorted(machines, key=_rank),
    }


def _machine(name: str, price: float | None, found: Mapping[str, Any] | Failure) -> dict[str, Any]:
    nothing = ("cost_per_million", "cost_per_million_interval", "failure", "recommendation")
    about: dict[str, Any] = {"machine_type": name, "price_per_hour": price, **dict.fromkeys(nothing)}
    if isinstance(found, Failure):
        return {**about, "failure": {"code": found.code, "message": found.message}}
    about["recommendation"] = dict(found)
    best = chosen(about)
    if best is not None and price is not None:
        low, high = best["interval"] or (None, None)
        cost = cost_per_million(Estimate(best["items_per_sec"], low, high, LEVEL, "student"), price)
        about["cost_per_million"] = cost.value
        about["cost_per_million_interval"] = None if cost.ends is None else list(cost.ends)
    return about


def chosen(machine: Content) -> Content | None:
    """The configuration that is recommended on a machine type, with its figures."""
    found = machine["recommendation"]
    if not found or not found["recommended"]:
        return None
    best: Content = next(one for one in found["candidates"] if one["status"] == "recommended")
    return best


def _rank(machine: Content) -> tuple[int, float, float]:
    """The cheapest first, then the fastest without a price; last those that have nothing to offer."""
    best, cost = chosen(machine), machine["cost_per_million"]
    if best is None:
        return 2, 0.0, 0.0
    return (0 if cost is not None else 1), cost or 0.0, -best["items_per_sec"]


def lines(found: Content) -> list[str]:
    """The headline, a table with a line for each machine type, and what to know of it."""
    machines = found["machines"]
    return [f"Original Model Path: {found['model']['source']}", _headline(found), "", *_table(found), "",
            *_notes(found, machines)]  # fmt: skip


def _headline(found: Content) -> str:
    first = found["machines"][0]
    best = chosen(first)
    if best is None:
        objective = found["objective"]
        wanted = f" keeps {objective['text']}" if objective else " could be measured"
        return f"Nothing can be recommended: no configuration on any machine type{wanted}."
    words = [f"Recommended: {first['machine_type']}: {_configured(best)}: {count(best['items_per_sec'])} items/s"]
    if best["objective_ms"] is not None:
        words.append(f"{found['objective']['statistic']} {duration(best['objective_ms'] / 1e3)}")
    if first["cost_per_million"] is not None:
        words.append(f"{money(first['cost_per_million'])} per million inferences")
    return ", ".join(words)


def _configured(one: Content) -> str:
    return (
        f"{one['engine']}, {plural(one['num_cores'], 'core')}, {plural(one['num_streams'], 'stream')}, "
        f"batch {one['batch_size']}"
    )


def _table(found: Content) -> list[str]:
    statistic = found["objective"]["statistic"] if found["objective"] else None
    heads = ["Machine", "Engine", "Cores", "Streams", "Batch", "Items/s", "95 % interval", "Median"]
    heads += [statistic] if statistic and statistic != "median" else []
    heads += ["Cost/million", "95 % interval", "Status"]
    rows = [heads, *(_row(one, len(heads), statistic) for one in found["machines"])]
    return columns.aligned(rows, left=range(len(heads)))


def _row(machine: Content, width: int, statistic: str | None) -> list[str]:
    best = chosen(machine)
    if best is None:
        return [machine["machine_type"], *["-"] * (width - 2), _why_none(machine)]
    cost, ends = machine["cost_per_million"], machine["cost_per_million_interval"]
    return [
        machine["machine_type"],
        best["engine"],
        *(str(best[name]) for name in ("num_cores", "num_streams", "batch_size")),
        rounded(best["items_per_sec"], best["interval"], count),
        between(best["interval"], count, len(best["rounds"])) if best["interval"] else "-",
        duration(best["median_ms"] / 1e3),
        *([duration(best["objective_ms"] / 1e3)] if statistic and statistic != "median" else []),
        "-" if cost is None else money(cost),
        "-" if ends is None else between(ends, money, len(best["rounds"])),
        "",
    ]


def _why_none(machine: Content) -> str:
    if machine["failure"]:
        return f"failed: {machine['failure']['message']}"
    objective = machine["recommendation"]["objective"]
    return f"nothing keeps {objective['text']}" if objective else "nothing could be measured"


def _notes(found: Content, machines: Sequence[Content]) -> list[str]:
    notes = []
    rivals = [one["machine_type"] for one in machines[1:] if _may_be_as_cheap(one, machines[0])]
    if rivals:
        notes.append(f"Note: {', '.join(rivals)} may cost as little: the intervals overlap, or there is none.")
    if len(machines) > 1:
        notes.append(
            "Note: one machine of each type was searched, and machines cannot take turns: another one of the same "
            "type may differ. How much: inferlab benchmark --cluster … --nodes N"
        )
    if found["interrupted"]:
        notes.append("Note: interrupted; this is what was known by then.")
    return notes + advice([best["interval"] for one in machines if (best := chosen(one)) is not None])


def _may_be_as_cheap(one: Content, first: Content) -> bool:
    if one["cost_per_million"] is None or first["cost_per_million"] is None:
        return False
    low = (one["cost_per_million_interval"] or (0.0, math.inf))[0]
    high = (first["cost_per_million_interval"] or (0.0, math.inf))[1]
    return bool(low <= high)
