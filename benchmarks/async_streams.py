"""Async with 2 streams on a short model: throughput over that of two processes that call session.run."""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import side_by_side as side
from benchmarks.sync_overhead import MODEL

CASES = (
    ("auto (IO binding)", ()),
    ("processes, plain session.run", ("--stream-mode", "processes", "--engine-option", "io_binding=0")),
    ("threads, IO binding", ("--stream-mode", "threads")),
    ("threads, plain session.run", ("--stream-mode", "threads", "--engine-option", "io_binding=0")),
)


def main(rounds: int = 7) -> None:
    """Compare every stream mode with two bare processes, started together."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        model, inputs = side.inputs_file(MODEL, Path(folder))

        def two_processes() -> float:
            start = time.time() + 2.0

            def throughput(cpu: int) -> float:
                request: dict[str, Any] = {
                    "engine": "onnxruntime",
                    "call": "run",
                    "cpus": [cpu],
                    "threads": 1,
                    "start_at": start,
                }
                return side.bare(sys.executable, model=str(model), inputs=str(inputs), **request)["per_sec"]

            return sum(pool.map(throughput, (0, 1)))

        for name, options in CASES:

            def ours(options: tuple[str, ...] = options) -> float:
                result = side.inferlab(MODEL, "-s", "async", "-nstreams", "2", "-ncores", "2", *options)
                return float(result["benchmark_result"]["items_per_sec"])

            aim = "at least 1.0" if name.startswith("auto") else "for comparison"
            side.report(f"async, {name}, inferlab / two processes", side.ratios(ours, two_processes, rounds), aim)


if __name__ == "__main__":
    main()
