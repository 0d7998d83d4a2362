"""Records made by hand, for tests with exact answers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferlab import machine
from inferlab.records import Cell, OutputCheck, Run, Samples, Window

MS = 1_000_000

CELL = Cell(
    model_digest="",
    engine="fake",
    scenario="sync",
    num_cores=1,
    num_streams=1,
    instances=1,
    rate=None,
    batch_size=1,
    shapes=(),
    input_digest="",
    engine_options=(),
    thread_pinning="core",
    stream_mode="auto",
    time_s=10.0,
    warmup_s=2.0,
    processes=None,
    precision=None,
    seed=0,
    verify=True,
)


def a_cell(**changes: Any) -> Cell:
    """A cell of one stream on one core, but for what is said."""
    return replace(CELL, **changes)


def samples(*spans_ms: tuple[float, float], due_ms: Sequence[float] | None = None) -> Samples:
    """Calls from … to …, in milliseconds, and when each was due."""

    def ns(values: Sequence[float]) -> array[int]:
        return array("q", [round(value * MS) for value in values])

    return Samples(
        ns([start for start, _ in spans_ms]),
        ns([end for _, end in spans_ms]),
        None if due_ms is None else ns(due_ms),
    )


def back_to_back(*latencies_ms: float, begin_ms: float = 0.0) -> Samples:
    """Calls that follow each other without a gap."""
    spans = []
    for latency in latencies_ms:
        spans.append((begin_ms, begin_ms + latency))
        begin_ms += latency
    return samples(*spans)


def a_window(*streams: Samples, counters: Mapping[str, float] | None = None, **more: Any) -> Window:
    """A window of these streams in which nothing disturbed."""
    return Window(streams, counters or {}, **{"canary_ns": 50_000, **more})


def a_run(*windows: Window, **changes: Any) -> Run:
    """A run of these windows, its outputs checked and right."""
    run = Run(
        cell_id="",
        started_at="",
        windows=windows,
        warmup=(),
        stream_mode="single",
        ready_s=0.5,
        load_s=0.1,
        first_inference_s=0.01,
        peak_memory_bytes=None,
        baseline_memory_bytes=None,
        harness_ns=100.0,
        check=OutputCheck("match", 0.0, "max", 1e-3, "a reference"),
        versions={},
        settings={},
        model_path="",
        machine=replace(machine.describe(), cpu_quota=None),
        pinned=True,
        rewritten=False,
    )
    return replace(run, **changes)


def steady_run(latency_ms: float, calls: int = 10) -> Run:
    """A run of equal calls in one window."""
    return a_run(a_window(back_to_back(*[latency_ms] * calls)))
