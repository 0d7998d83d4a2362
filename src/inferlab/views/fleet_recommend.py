"""Recommendations of several machine types side by side, the cheapest first, as JSON and as text."""

from __future__ import annotations

import json
import math
from typing import Any

from inferlab.measure.candidates import label
from inferlab.records import (
    Candidate,
    Figures,
    FleetRecommendation,
    MachineRecommendation,
)
from inferlab.units import count, duration
from inferlab.views import columns, recommend
from inferlab.views.fleet import money
from inferlab.views.intervals import advice, between, rounded

# Version 1: the first.
FORMAT = "inferlab-fleet-recommendation/1"


def content(found: FleetRecommendation) -> dict[str, Any]:
    """All that was found, in the order in which one would take it, as JSON values."""
    model, objective = found.model, found.objective
    return {
        "format": FORMAT,
        "model": {"source": model.source, "kind": model.kind, "digest": model.digest},
        "objective": {"text": objective.text, "statistic": objective.statistic} if objective else None,
        "interrupted": found.interrupted,
        "machines": [_machine(one) for one in found.machines],
    }


def to_json(found: FleetRecommendation) -> str:
    """The text that `inferlab recommend --cluster … -x result.json` writes."""
    return json.dumps(content(found), indent=2, allow_nan=False) + "\n"


def _machine(machine: MachineRecommendation) -> dict[str, Any]:
    cost, failure = machine.cost_per_million, machine.failure
    return {
        "machine_type": machine.machine_type,
        "price_per_hour": machine.price_per_hour,
        "cost_per_million": cost.value if cost else None,
        "cost_per_million_interval": list(cost.ends) if cost and cost.ends else None,
        "failure": {"code": failure.code, "message": failure.message} if failure else None,
        "recommendation": recommend.content(machine.recommendation) if machine.recommendation else None,
    }


def _best(machine: MachineRecommendation) -> tuple[Candidate, Figures, int] | None:
    """The configuration that is recommended on a machine type, its figures, and of how many processes."""
    best = machine.recommendation.recommended if machine.recommendation else None
    return (
        (best.candidate, best.figures, len(best.rounds)) if best is not None and best.figures is not None else None
    )


def lines(found: FleetRecommendation) -> list[str]:
    """The headline, a table with a line for each machine type, and what to know of it."""
    return [f"Original Model Path: {found.model.source}", _headline(found), "", *_table(found), "", *_notes(found)]


def _headline(found: FleetRecommendation) -> str:
    first = found.machines[0]
    best = _best(first)
    if best is None:
        wanted = f" keeps {found.objective.text}" if found.objective else " could be measured"
        return f"Nothing can be recommended: no configuration on any machine type{wanted}."
    candidate, figures, _ = best
    rate = figures.items_per_sec
    throughput = rounded(rate.value, rate.ends, count)
    words = [f"Recommended: {first.machine_type}: {label(candidate)}: {throughput} items/s"]
    if figures.objective_s is not None and found.objective:
        words.append(f"{found.objective.statistic} {duration(figures.objective_s)}")
    if first.cost_per_million is not None:
        words.append(f"{money(first.cost_per_million.value)} per million inferences")
    return ", ".join(words)


def _table(found: FleetRecommendation) -> list[str]:
    statistic = found.objective.statistic if found.objective else None
    heads = ["Machine", "Engine", "Cores", "Streams", "Batch", "Items/s", "95 % interval", "Median"]
    heads += [statistic] if statistic and statistic != "median" else []
    heads += ["Cost/million", "95 % interval", "Status"]
    rows = [heads, *(_row(machine, len(heads), statistic) for machine in found.machines)]
    return columns.aligned(rows, left=range(len(heads)))


def _row(machine: MachineRecommendation, width: int, statistic: str | None) -> list[str]:
    best = _best(machine)
    if best is None:
        return [machine.machine_type, *["-"] * (width - 2), _why_none(machine)]
    candidate, figures, processes = best
    cost, rate = machine.cost_per_million, figures.items_per_sec
    wanted = statistic is not None and statistic != "median"
    return [
        machine.machine_type,
        candidate.engine,
        str(candidate.num_cores),
        str(candidate.num_streams),
        str(candidate.batch_size),
        rounded(rate.value, rate.ends, count),
        between(rate.ends, count, processes) if rate.ends else "-",
        duration(figures.median_s),
        *(["-" if figures.objective_s is None else duration(figures.objective_s)] if wanted else []),
        "-" if cost is None else money(cost.value),
        "-" if cost is None or cost.ends is None else between(cost.ends, money, processes),
        "",
    ]


def _why_none(machine: MachineRecommendation) -> str:
    if machine.failure:
        return f"failed: {machine.failure.message}"
    objective = machine.recommendation.objective if machine.recommendation else None
    return f"nothing keeps {objective.text}" if objective else "nothing could be measured"


def _notes(found: FleetRecommendation) -> list[str]:
    notes = []
    first, *others = found.machines
    rivals = [machine.machine_type for machine in others if _may_be_as_cheap(machine, first)]
    if rivals:
        notes.append(f"Note: {', '.join(rivals)} may cost as little: the intervals overlap, or there is none.")
    if others:
        notes.append(
            "Note: one machine of each type was searched, and machines cannot take turns: another one of the same "
            "type may differ. How much: inferlab benchmark --cluster … --nodes N"
        )
    if found.interrupted:
        notes.append("Note: interrupted; this is what was known by then.")
    chosen = [best for machine in found.machines if (best := _best(machine)) is not None]
    return notes + advice([figures.items_per_sec.ends for _, figures, _ in chosen])


def _may_be_as_cheap(machine: MachineRecommendation, first: MachineRecommendation) -> bool:
    if machine.cost_per_million is None or first.cost_per_million is None:
        return False
    low = (machine.cost_per_million.ends or (0.0, math.inf))[0]
    high = (first.cost_per_million.ends or (0.0, math.inf))[1]
    return low <= high
