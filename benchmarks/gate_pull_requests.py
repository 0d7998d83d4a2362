"""How many pull requests that change nothing does the gate fail?"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.change_points import drawn
from inferlab import Lab, Plan
from inferlab.lab.gate import against_baseline, baseline_of_entry
from inferlab.measure import intervals
from inferlab.measure.change_points import inflation
from inferlab.store import open_store

_MARGIN = 0.03
# The entries of a branch that a candidate is held against.
_ENTRIES = 20


def interleaved(model: str, count: int, time_s: float) -> Counter[str]:
    """Run the gate so often, each time with the same model as baseline and as candidate."""
    plan = Plan(model, scenarios=("sync",), num_cores=(1,), time_s=2.0, warmup_s=0.2)
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, open_store(str(Path(folder) / "lab.db"), make=True) as store:
        baseline = baseline_of_entry(store, Lab(store).benchmark(plan).id)
        for number in range(1, count + 1):
            sweep = against_baseline(Lab(store), model, None, baseline, time_s, _MARGIN)
            verdicts.update(comparison.verdict for comparison in sweep.results)
            if number % 10 == 0:
                report(f"{model}, interleaved, {time_s:g} s at most", verdicts)
    return verdicts


def with_series(noise: Sequence[float], count: int, seed: int) -> Counter[str]:
    """Hold one more entry against a series whose noise it has, so often."""
    verdicts: Counter[str] = Counter()
    for number in range(count):
        *values, candidate = drawn(noise, _ENTRIES + 1, np.random.default_rng([seed, number]))
        widened = inflation(np.log(np.array(values)), [0, len(values)])
        ratio = intervals.next_over_series(values, candidate, 1 - intervals.ALPHA, widened)
        verdicts[intervals.verdict(ratio, _MARGIN)] += 1
    return verdicts


def with_threshold(noise: Sequence[float], count: int, seed: int) -> Counter[str]:
    """The same entries against the number of the entry before, with the margin as threshold."""
    verdicts: Counter[str] = Counter()
    for number in range(count):
        *_, before, candidate = drawn(noise, _ENTRIES + 1, np.random.default_rng([seed, number]))
        verdicts["slower" if candidate / before > 1 + _MARGIN else "same"] += 1
    return verdicts


def report(name: str, verdicts: Counter[str]) -> None:
    """One line: of how many, how many fail, and how many are left open."""
    count = verdicts.total()
    told = ", ".join(f"{word} {number}" for word, number in sorted(verdicts.items()))
    print(f"{name}: {count} pull requests without a change: {told}", flush=True)


def main() -> None:
    """Run real gates, then simulate those that hold a candidate against a series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:digits")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each gate, at most")
    parser.add_argument("--noise", type=Path, help="the file that change_points --noise wrote, for the series")
    parser.add_argument("--simulated", type=int, default=10_000, help="how many gates with a series")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.count:
        interleaved(given.model, given.count, given.time)
    noises = json.loads(given.noise.read_text()) if given.noise else {}
    for model, noise in noises.items():
        simulated = given.simulated, given.seed
        report(f"{model}, against {_ENTRIES} entries of its series", with_series(noise, *simulated))
        report(f"{model}, against the entry before, threshold 3 %", with_threshold(noise, *simulated))


if __name__ == "__main__":
    main()
