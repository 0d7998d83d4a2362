"""What confining an engine's process costs: medians and throughput with confinement over those without it."""

from __future__ import annotations

import argparse
import os

from benchmarks import side_by_side as side
from inferlab.worker import CONFINEMENT

AIM = "1.00 ± 0.01"
#: A call of about 15 µs shows what a call costs more, one of milliseconds what threads and memory do.
MODELS = ("demo:mlp_medium", "demo:mobilenet_v2")
#: What is compared in each scenario.
FIGURES = {"sync": "median", "async": "items_per_sec"}


def main(rounds: int = 30, time_s: float = 1.5, models: tuple[str, ...] = MODELS) -> None:
    """Pairs of fresh processes, interleaved, the order within each at random."""
    for model in models:
        for scenario, figure in FIGURES.items():

            def measured(switch: str, model: str = model, scenario: str = scenario, figure: str = figure) -> float:
                os.environ[CONFINEMENT] = switch
                try:
                    result = side.inferlab(model, "-s", scenario, time_s=time_s, warmup_s=time_s / 3)
                finally:
                    del os.environ[CONFINEMENT]
                return float(result["benchmark_result"][figure])

            found = side.ratios(lambda: measured("on"), lambda: measured("off"), rounds)
            side.report_paired(f"{model}, {scenario}, {figure}, confined / not", found, "pairs of processes", AIM)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--time-s", type=float, default=1.5)
    parser.add_argument("--models", nargs="+", default=MODELS)
    given = parser.parse_args()
    main(given.rounds, given.time_s, tuple(given.models))
