"""Recommendations of several machine types side by side, the cheapest first, as JSON and as text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from inferlab.measure.candidates import label
from inferlab.records import (
    Candidate,
    Figures,
    FleetRecommendation,
    MachineRecommendation,
)
from inferlab.units import count, duration
from inferlab.views import recommend, tables
from inferlab.views.fields import Field
from inferlab.views.fleet import money
from inferlab.views.intervals import Ends, advice, between, rounded
from inferlab.views.tables import Block, Note, Pair, Table

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


def blocks(found: FleetRecommendation) -> list[Block]:
    """The headline, a table with a line for each machine type, and what to know of it."""
    head: list[Block] = [Pair("Original Model Path", found.model.source), _headline(found)]
    return tables.spaced(head, [table(found)], _notes(found))


def lines(found: FleetRecommendation) -> list[str]:
    """The same as text."""
    return tables.text(blocks(found))


def _headline(found: FleetRecommendation) -> Block:
    first = found.machines[0]
    best = _best(first)
    if best is None:
        wanted = f" keeps {found.objective.text}" if found.objective else " could be measured"
        return f"Nothing can be recommended: no configuration on any machine type{wanted}."
    candidate, figures, _ = best
    rate = figures.items_per_sec
    throughput = rounded(rate.value, rate.ends, count)
    words = [f"{first.machine_type}: {label(candidate)}: {throughput} items/s"]
    if figures.objective_s is not None and found.objective:
        words.append(f"{found.objective.statistic} {duration(figures.objective_s)}")
    if first.cost_per_million is not None:
        words.append(f"{money(first.cost_per_million.value)} per million inferences")
    return Pair("Recommended", ", ".join(words), strong=True)


def _of_best(get: Callable[[Candidate, Figures], Any]) -> Callable[[MachineRecommendation], Any]:
    """What a machine type's recommended configuration has; None where there is none."""
    return lambda machine: None if (best := _best(machine)) is None else get(best[0], best[1])


def _between(ends: Callable[[MachineRecommendation], Ends], form: Callable[[float], str]) -> Field:
    """Both ends of an interval, and where it says nothing, of how many processes."""

    def told(machine: MachineRecommendation) -> str | None:
        best, found = _best(machine), ends(machine)
        return None if found is None or best is None else between(found, form, best[2])

    return Field("", "95 % interval", told)


_RATE_ENDS = _of_best(lambda _, figures: figures.items_per_sec.ends)


def _cost_ends(machine: MachineRecommendation) -> Ends:
    return machine.cost_per_million.ends if machine.cost_per_million else None


def table(found: FleetRecommendation) -> Table:
    """A row for each machine type, the cheapest first."""
    statistic = found.objective.statistic if found.objective else "median"
    objective = Field("objective_s", statistic, _of_best(lambda _, figures: figures.objective_s), duration)
    shown = [
        Field("machine_type", "Machine", lambda machine: machine.machine_type, left=True),
        Field("engine", "Engine", _of_best(lambda candidate, _: candidate.engine), left=True),
        Field("num_cores", "Cores", _of_best(lambda candidate, _: candidate.num_cores)),
        Field("num_streams", "Streams", _of_best(lambda candidate, _: candidate.num_streams)),
        Field("batch_size", "Batch", _of_best(lambda candidate, _: candidate.batch_size)),
        Field(
            "items_per_sec",
            "Items/s",
            _of_best(lambda _, figures: figures.items_per_sec.value),
            count,
            ends=_RATE_ENDS,
        ),
        _between(_RATE_ENDS, count),
        Field("median_s", "Median", _of_best(lambda _, figures: figures.median_s), duration),
        *([objective] if statistic != "median" else []),
        Field("cost_per_million", "Cost/million", _cost, money),
        _between(_cost_ends, money),
        Field("status", "Status", _why_none, left=True),
    ]
    return Table(shown, found.machines)


def _cost(machine: MachineRecommendation) -> float | None:
    return machine.cost_per_million.value if machine.cost_per_million else None


def _why_none(machine: MachineRecommendation) -> str:
    if _best(machine) is not None:
        return ""
    if machine.failure:
        return f"failed: {machine.failure.message}"
    objective = machine.recommendation.objective if machine.recommendation else None
    return f"nothing keeps {objective.text}" if objective else "nothing could be measured"


def _notes(found: FleetRecommendation) -> list[Block]:
    notes: list[Block] = []
    first, *others = found.machines
    rivals = [machine.machine_type for machine in others if _may_be_as_cheap(machine, first)]
    if rivals:
        notes.append(Note(f"{', '.join(rivals)} may cost as little: the intervals overlap, or there is none."))
    if others:
        notes.append(
            Note(
                "one machine of each type was searched, and machines cannot take turns: another one of the same "
                "type may differ. How much: inferlab benchmark --cluster … --nodes N"
            )
        )
    if found.interrupted:
        notes.append(Note("interrupted; this is what was known by then."))
    chosen = [best for machine in found.machines if (best := _best(machine)) is not None]
    return [*notes, *advice([figures.items_per_sec.ends for _, figures, _ in chosen])]


def _may_be_as_cheap(machine: MachineRecommendation, first: MachineRecommendation) -> bool:
    if machine.cost_per_million is None or first.cost_per_million is None:
        return False
    low = (machine.cost_per_million.ends or (0.0, math.inf))[0]
    high = (first.cost_per_million.ends or (0.0, math.inf))[1]
    return low <= high
