"""What confining an engine's process costs: the time of calls with confinement over those without it."""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from benchmarks import side_by_side as side
from inferlab.lab import read_model
from inferlab.measure.cell import PreparedCell, prepare_cell
from inferlab.measure.cells import jobs
from inferlab.measure.children import Children
from inferlab.measure.stats import latencies_ns
from inferlab.records import Plan, Scenario, Window
from inferlab.settings import CONFINEMENT

AIM = "1.00 ± 0.01"
#: A call of about 15 µs shows what a call costs more, one of milliseconds what threads and memory do.
MODELS = ("demo:mlp_medium", "demo:mobilenet_v2")
SCENARIOS: tuple[Scenario, ...] = ("sync", "async")
#: Noise comes in bursts of about 0.1 s: two turns in a row mostly meet the same one.
_TURN_S = 0.03
_FEWEST_CALLS = 8
_DOUBLE_TURNS = 12


def main(pairs: int = 40, models: tuple[str, ...] = MODELS, scenarios: tuple[Scenario, ...] = SCENARIOS) -> None:
    """Pairs of processes, one of them confined, made in random order and measured interleaved: A B B A."""
    for source in models:
        model = read_model(source)
        for scenario in scenarios:
            (planned,) = jobs(Plan(source, scenarios=(scenario,)), model)
            with prepare_cell(planned, lambda _: None) as setup:
                ratios = [_ratio(setup) for _ in range(pairs)]
            side.report_paired(f"{source}, {scenario}, time confined / not", ratios, "pairs of processes", AIM)


def _ratio(setup: PreparedCell) -> float:
    """The time of a call in a confined process over that in one that is not, of one pair of processes."""
    with ExitStack() as stack:
        order = random.sample(("on", "off"), 2)
        processes = {switch: stack.enter_context(_process(setup, switch)) for switch in order}
        turn_s = max(_TURN_S, *(_FEWEST_CALLS * (process.call_s or 0.0) for process in processes.values()))
        double_turns = []
        for _ in range(_DOUBLE_TURNS):
            order.reverse()
            seconds = {"on": 0.0, "off": 0.0}
            for switch in (*order, *reversed(order)):
                processes[switch].resume()
                seconds[switch] += _median_s(processes[switch].measure(turn_s))
                processes[switch].pause()
            double_turns.append(seconds["on"] / seconds["off"])
    # A turn in which a stream made no call at all says nothing.
    return statistics.median(ratio for ratio in double_turns if math.isfinite(ratio))


def _median_s(window: Window) -> float:
    """The first call of each stream meets the caches that the other process left, and is dropped."""
    calls = [latencies_ns(stream) for stream in window.streams]
    times_ns = np.concatenate([call[1:] if len(call) > 1 else call for call in calls])
    return float(np.median(times_ns)) / 1e9 if len(times_ns) else math.nan


@contextmanager
def _process(setup: PreparedCell, switch: str) -> Iterator[Children]:
    os.environ[CONFINEMENT] = switch
    try:
        process = Children(setup)
    finally:
        del os.environ[CONFINEMENT]
    with process:
        process.check_outputs()
        process.warm_up(0.5)
        process.pause()
        yield process


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    arguments = parser.parse_args()
    main(arguments.pairs, tuple(arguments.models), tuple(arguments.scenarios))
