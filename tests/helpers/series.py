"""Series of benchmarks in a store, one entry a point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from inferlab import machine
from inferlab.records import Benchmark, Cell, Outcome
from inferlab.store.store import Store
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back
from tests.helpers.stored import MODEL, PLAN

#: Around 1, and no two neighbours alike.
WOBBLE = (1.0, 1.004, 0.997, 1.002, 0.999, 1.003, 0.996, 1.001)


def wobbling(level: float, count: int) -> list[float]:
    """So many values around a level."""
    return [level * WOBBLE[index % len(WOBBLE)] for index in range(count)]


def save_point(
    store: Store,
    latency_ms: float,
    labels: Iterable[tuple[str, str]] = (),
    cell: Cell | None = None,
    cpu: str = "CPU A",
    version: str = "1.0",
    beside: Iterable[tuple[Cell, float]] = (),
    project_id: str | None = None,
    **run: Any,
) -> str:
    """Save a benchmark of one cell, and of others that were measured beside it; returns its id."""
    here = replace(machine.describe(), cpu=cpu, physical_cores=4, cpu_quota=None, instance_type=None)
    taken = [(cell or a_cell(), latency_ms, version), *((each, ms, "1.0") for each, ms in beside)]
    outcomes = [
        Outcome(
            each,
            "done",
            (a_run(a_window(back_to_back(*[ms] * 5)), machine=here, versions={each.engine: its_version}, **run),),
        )
        for each, ms, its_version in taken
    ]
    benchmark = Benchmark(PLAN, MODEL, tuple(outcomes))
    cells = [outcome.cell for outcome in outcomes]
    entry = store.begin(PLAN, benchmark.model, cells, project_id, labels=tuple(labels))
    for outcome in outcomes:
        store.add_run(entry, outcome.cell.id, outcome.runs[0])
        store.finish_cell(entry, outcome.cell.id, "done", None)
    return entry
