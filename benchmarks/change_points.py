"""Are steps in a series found soon, and how often is one reported where nothing changed?"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from inferlab import Lab, Plan
from inferlab.lab.tracking import TrendRequest, find_series
from inferlab.measure.intervals import change_points
from inferlab.store import open_store

_BEFORE, _WITHIN, _STEP = 30, 5, 0.03
_LONG = 200
# Neighbours are alike: noise is drawn in blocks of so many entries.
_BLOCK = 10
# A change is at the place of the step if it is so near.
_NEAR = 5

Detector = Callable[[Sequence[float]], list[int]]


def measure(store_url: str, entries: int, model: str, time_s: float) -> None:
    """Add benchmarks of the same model, one after the other, until the store has as many."""
    plan = Plan(model, scenarios=("sync",), num_cores=(1,), time_s=time_s, warmup_s=0.1, processes=2)
    with open_store(store_url, make=True) as store:
        while (entry_count := len(stored(store_url, model))) < entries:
            Lab(store).benchmark(plan)
            if entry_count % 20 == 0:
                print(f"{entry_count} of {entries} entries of {model}", flush=True)


def stored(store_url: str, model: str) -> list[float]:
    """The longest series of a model in the store, milliseconds per item, oldest first."""
    with open_store(store_url) as store:
        all_series = find_series(store, TrendRequest(model)).series
    return max(([point.value for point in series.points] for series in all_series), key=len, default=[])


def noise_of(values: Sequence[float]) -> list[float]:
    """What is left of a series when its level is taken off: logarithms around their median."""
    logs = np.log(np.array(values))
    return list(logs - np.median(logs))


def drawn(noise: Sequence[float], count: int, random: np.random.Generator) -> list[float]:
    """So many values around 1 with the noise of entries that followed each other."""
    logs: list[float] = []
    while len(logs) < count:
        start = int(random.integers(len(noise) - _BLOCK + 1))
        logs += noise[start : start + _BLOCK]
    return [math.exp(value) for value in logs[:count]]


def ours(values: Sequence[float]) -> list[int]:
    """Where inferlab reports changes."""
    return [change.index for change in change_points(values)]


def threshold(values: Sequence[float]) -> list[int]:
    """Where a value is further from the median of the ten before it than the step is large."""
    return [
        index
        for index in range(10, len(values))
        if abs(values[index] / statistics.median(values[index - 10 : index]) - 1) > _STEP
    ]


def found_soon(noise: Sequence[float], detector: Detector, step: float, random: np.random.Generator) -> bool:
    """Whether a step is reported within the points after it, as they come one by one."""
    values = drawn(noise, _BEFORE + _WITHIN, random)
    stepped = [value * (1 + step if index >= _BEFORE else 1) for index, value in enumerate(values)]
    for count in range(_BEFORE + 1, _BEFORE + _WITHIN + 1):
        if any(abs(place - _BEFORE) <= _NEAR for place in detector(stepped[:count])):
            return True
    return False


def false_alarms(noise: Sequence[float], detector: Detector, random: np.random.Generator) -> int:
    """How many changes are reported of a series without one while its points come one by one."""
    values = drawn(noise, _LONG, random)
    reported: list[int] = []
    for count in range(1, _LONG + 1):
        for place in detector(values[:count]):
            if all(abs(place - known) > _NEAR for known in reported):
                reported.append(place)
    return len(reported)


def report(name: str, noise: Sequence[float], tries: int, seed: int) -> None:
    """Both detectors on the same simulated series."""
    together = float(np.corrcoef(noise[:-1], noise[1:])[0, 1])
    print(
        f"{name}: {len(noise)} entries, standard deviation {100 * statistics.stdev(noise):.2f} %, "
        f"median distance {100 * statistics.median(map(abs, noise)):.2f} %, neighbours correlate by {together:.2f}"
    )
    for name, detector in (("inferlab", ours), ("threshold of 3 %", threshold)):
        soon = sum(found_soon(noise, detector, _STEP, np.random.default_rng([seed, n])) for n in range(tries))
        alarms = [
            false_alarms(noise, detector, np.random.default_rng([seed, 1, n])) for n in range(max(1, tries // 10))
        ]
        print(
            f"  {name}: a step of {100 * _STEP:g} % found within {_WITHIN} points in {100 * soon / tries:.1f} % "
            f"of {tries} series; {statistics.mean(alarms):.2f} false alarms per {_LONG} points "
            f"({len(alarms)} series)",
            flush=True,
        )


def main() -> None:
    """Measure the noise of this machine where the store lacks it, then simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="change_points.db", help="where entries are, and are added")
    parser.add_argument("--entries", type=int, default=120, help="how many there shall be of each model")
    parser.add_argument("--models", nargs="+", default=["demo:digits", "demo:mobilenet_v2"])
    parser.add_argument("--time", type=float, default=1.0, help="seconds of measuring in each entry")
    parser.add_argument("--tries", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=Path, help="a JSON file that the noise is also written to")
    arguments = parser.parse_args()
    noises = {}
    for model in arguments.models:
        if len(stored(arguments.store, model) if Path(arguments.store).exists() else []) < arguments.entries:
            measure(arguments.store, arguments.entries, model, arguments.time)
        noises[model] = noise_of(stored(arguments.store, model))
        report(model, noises[model], arguments.tries, arguments.seed)
    if arguments.noise:
        arguments.noise.write_text(json.dumps(noises))


if __name__ == "__main__":
    main()
