"""Sync on a model of about 15 µs: the median that inferlab reports, over that of a bare loop of the same call."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import side_by_side as side

MODEL = "demo:mlp_medium"


def main(rounds: int = 9) -> None:
    """Compare both calls on one core."""
    with tempfile.TemporaryDirectory() as folder:
        model, inputs = side.inputs_file(MODEL, Path(folder))
        for call, option in (("run", "io_binding=0"), ("iobinding", "io_binding=1")):

            def bare(call: str = call) -> float:
                request: dict[str, Any] = {"engine": "onnxruntime", "call": call, "cpus": [0], "threads": 1}
                return side.bare(sys.executable, model=str(model), inputs=str(inputs), **request)["median_ms"]

            def ours(option: str = option) -> float:
                result = side.inferlab(MODEL, "-s", "sync", "-ncores", "1", "--engine-option", option)
                return float(result["benchmark_result"]["median"])

            print(f"# {MODEL}, {call}: bare loop {1000 * bare():.2f} µs")
            side.report(
                f"sync median, {call}, inferlab / bare loop", side.ratios(ours, bare, rounds), "0.97 to 1.03"
            )


if __name__ == "__main__":
    main()
