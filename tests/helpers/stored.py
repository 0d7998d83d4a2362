"""Benchmarks to save."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from inferlab.records import (
    Benchmark,
    Cell,
    Comparison,
    ComparisonSweep,
    Failure,
    Model,
    Outcome,
    Plan,
    Samples,
    TensorSpec,
)
from inferlab.store import Document, Stored
from inferlab.store.formats import content_of, kind_of, outcomes_of
from inferlab.store.store import Store
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back, samples, steady_run

MODEL = Model(
    kind="onnx",
    source="demo:mobilenet_v2",
    path="/cache/mobilenet.onnx",
    digest="5f2a" * 16,
    inputs=(TensorSpec("x", "float32", ("N", 3, None), below=None, known_values=(8000, 16000)),),
    outputs=(TensorSpec("y", "float32", None),),
    size_bytes=14_000_000,
    zero_fraction=0.25,
)
PLAN = Plan("demo:mobilenet_v2", engines=("fake", "onnxruntime"), num_cores=(None, 2), time_s=10)


def a_benchmark(**changes: Any) -> Benchmark:
    """A benchmark with one cell of every status."""
    done, failed, cancelled, pending = (a_cell(seed=seed, **changes) for seed in range(4))
    server = a_run(
        a_window(
            samples((1.0, 2.0), (2.5, 3.25), due_ms=(0.5, 1.75)), counters={"wait_ns": 1e9, "x": float("inf")}
        ),
        a_window(Samples(array("q"), array("q"), array("q")), arrivals=3, full=True),
        warmup=(a_window(back_to_back(5.0)),),
        settings={"threads": [1, 2], "nested": {"a": None, "é\0\ud800": True}},
        versions={"onnxruntime": "1.20", "alpha": "2"},
        started_at="2026-01-01T00:00:00+00:00",
    )
    return Benchmark(
        PLAN,
        MODEL,
        (
            Outcome(done, "done", (steady_run(2.0), steady_run(2.5), server)),
            Outcome(failed, "failed", (), Failure("died", "It was killed (SIGSEGV): 😀 \0")),
            Outcome(cancelled, "cancelled", (steady_run(1.0),)),
            Outcome(pending, "pending", (steady_run(3.0),)),
        ),
    )


def save(store: Store, benchmark: Benchmark) -> str:
    """Save a benchmark as a lab does: cell by cell, run by run."""
    found = store.begin(benchmark.plan, benchmark.model, [outcome.cell for outcome in benchmark.outcomes])
    for outcome in benchmark.outcomes:
        for run in outcome.runs:
            store.add_run(found, outcome.cell.id, run)
        if outcome.status != "pending":
            store.finish_cell(found, outcome.cell.id, outcome.status, outcome.failure)
    return found


def save_done(store: Store, cell: Cell, latency_ms: float = 2.0) -> str:
    """Save a benchmark of one cell with one run."""
    return save(store, Benchmark(PLAN, MODEL, (Outcome(cell, "done", (steady_run(latency_ms),)),)))


def benchmark_of(store: Store, entry_id: str) -> Benchmark:
    """The benchmark that is stored under an id."""
    stored = store.get(entry_id)
    assert isinstance(stored, Stored)
    assert stored.benchmark.id == stored.id == entry_id
    return replace(stored.benchmark, id="")


def save_comparison(
    store: Store, *comparisons: Comparison, title: str = "a / b", project_id: str | None = None
) -> str:
    """Save comparisons of the same two arms as a lab does."""
    sweep = ComparisonSweep(comparisons)
    outcomes = [outcome for comparison in comparisons for outcome in outcomes_of(comparison)]
    return store.add_document(kind_of(sweep), title, content_of(sweep), outcomes, project_id)


def a_document(kind: str, content: Mapping[str, Any], outcomes: Sequence[Outcome] = ()) -> Document:
    """An entry that holds this content."""
    made = datetime(2026, 1, 2, tzinfo=UTC)
    return Document("abcdefghij", made, "0.1.0", "vm", "", kind, "A / B", content, outcomes=tuple(outcomes))
