"""Benchmarks of a few cells to show."""

from __future__ import annotations

from dataclasses import replace

from inferlab.records import Benchmark, Model, Outcome, Plan
from tests.helpers.runs import a_cell, steady_run

MODEL = Model("onnx", "m.onnx", "/m.onnx", "d", (), (), 2048, parameters=1000)


def outcome(times_ms: tuple[float, ...], **cell: object) -> Outcome:
    runs = tuple(replace(steady_run(one, 100), peak_memory_bytes=3 * 2**20) for one in times_ms)
    return Outcome(a_cell(**cell), "done", runs)


def benchmark(*outcomes: Outcome) -> Benchmark:
    return Benchmark(Plan("m.onnx"), MODEL, outcomes)
