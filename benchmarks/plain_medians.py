"""Is the ratio of two engines that of plain medians? `compare` beside fresh processes that alternate for long."""

from __future__ import annotations

import argparse
import random
import statistics
import time

from benchmarks.side_by_side import inferlab
from inferlab import Lab, Plan
from inferlab.measure.intervals import welch

MODELS = ("demo:mobilenet_v2", "demo:resnet50", "demo:bert_3layer", "demo:digits", "demo:mlp")
ENGINES = ("onnxruntime", "openvino")


def plain(model: str, minutes: float) -> tuple[list[float], list[float]]:
    """The medians of fresh processes of both engines, in random order, in milliseconds."""
    medians: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for engine in random.sample(ENGINES, 2):
            result = inferlab(model, "-e", engine, "-s", "sync", "-ncores", "1", "--no-save", time_s=1.0)
            medians[engine].append(float(result["benchmark_result"]["median"]))
    return medians[ENGINES[0]], medians[ENGINES[1]]


def main() -> None:
    """A line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--time", type=float, default=60.0)
    given = parser.parse_args()
    for model in given.models:
        a, b = (Plan(model, engines=(engine,), scenarios=("sync",), num_cores=(1,)) for engine in ENGINES)
        found = Lab().compare(a, b, time_s=given.time, margin=0.001).ratio
        of_a, of_b = plain(model, given.minutes)
        ratio, interval = statistics.median(of_b) / statistics.median(of_a), welch(of_a, of_b)
        print(
            f"{model}: compare {found.value:.4f} ({found.low or 0:.4f} to {found.high or 0:.4f}), medians of "
            f"{len(of_a)} processes each {ratio:.4f} ({interval.low or 0:.4f} to {interval.high or 0:.4f}): "
            f"{100 * (found.value / ratio - 1):+.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
