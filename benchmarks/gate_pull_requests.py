"""How many pull requests that change nothing does the gate fail?"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.change_points import drawn
from inferlab import Lab, Plan
from inferlab.lab.gate import against_baseline, baseline_of_entry
from inferlab.measure import intervals
from inferlab.measure.intervals import inflation
from inferlab.measure.paired import BUILT_IN_PRIOR, turns_sd, weights
from inferlab.records.comparison import Comparison, Spread
from inferlab.store import open_store

_MARGIN = 0.03
_GATE_S = 60.0
# The entries of a branch that a candidate is held against.
_ENTRIES = 20


def interleaved(model: str, count: int, time_s: float) -> list[Comparison]:
    """Run the gate so often, each time with the same model as baseline and as candidate."""
    plan = Plan(model, scenarios=("sync",), num_cores=(1,), time_s=2.0, warmup_s=0.2)
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory() as folder, open_store(str(Path(folder) / "lab.db"), make=True) as store:
        baseline = baseline_of_entry(store, Lab(store).benchmark(plan).id)
        for number in range(1, count + 1):
            comparisons += against_baseline(Lab(store), model, None, baseline, time_s, _MARGIN).results
            print(f"{number} of {count}: {comparisons[-1].verdict}, {comparisons[-1].seconds:.1f} s", flush=True)
    return comparisons


def simulated(comparisons: Sequence[Comparison], count: int, seed: int) -> Counter[str]:
    """Gates whose pairs are those that were measured, from a random one on, either arm the baseline."""
    verdicts: Counter[str] = Counter()
    pairs = [
        (pair.log_ratio, len(pair.a.windows), comparison.spread)
        for comparison in comparisons
        for pair in comparison.pairs
        if comparison.spread is not None
    ]
    for number in range(count):
        random = np.random.default_rng([seed, number])
        start = int(random.integers(len(pairs)))
        chosen = [pairs[(start + index) % len(pairs)] for index in range(intervals.LOOKS[-1])]
        signs = random.choice([-1.0, 1.0], len(chosen))
        verdicts[_replay(chosen, signs.tolist(), _most_pairs(comparisons))] += 1
    return verdicts


def _most_pairs(comparisons: Sequence[Comparison]) -> int:
    """How many pairs a minute has, by the usual pair of these comparisons."""
    seconds = statistics.median(comparison.seconds / len(comparison.pairs) for comparison in comparisons)
    return max(2, round(_GATE_S / seconds))


def _replay(pairs: Sequence[tuple[float, int, Spread]], signs: Sequence[float], most: int) -> str:
    """The verdict of a gate that measures these pairs, as `inferlab.measure.paired` comes to it."""
    looks = intervals.Looks(_MARGIN, BUILT_IN_PRIOR)
    evidence: tuple[list[float], list[float], float] = ([], [], 0.0)
    for count in range(1, most + 1):
        known = pairs[:count]
        turns = [turn for _, turn, _ in known]
        within = statistics.fmean(spread.within**2 for *_, spread in known)
        between = statistics.fmean(spread.between**2 for *_, spread in known)
        log_ratios = [sign * log_ratio for sign, (log_ratio, *_) in zip(signs, known, strict=False)]
        evidence = log_ratios, weights(turns, within, between), turns_sd(turns, within)
        if looks.look(*evidence):
            break
    return intervals.verdict(looks.estimate(*evidence), _MARGIN)


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
    counts = ", ".join(f"{word} {number}" for word, number in sorted(verdicts.items()))
    print(f"{name}: {count} pull requests without a change: {counts}", flush=True)


def main() -> None:
    """Run real gates, then simulate those that hold a candidate against a series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo:digits")
    parser.add_argument("--count", type=int, default=20, help="how many gates are really run")
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each gate, at most")
    parser.add_argument("--noise", type=Path, help="the file that change_points --noise wrote, for the series")
    parser.add_argument("--simulated", type=int, default=10_000, help="how many gates are simulated of each kind")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.count:
        comparisons = interleaved(arguments.model, arguments.count, arguments.time)
        report(f"{arguments.model}, interleaved", Counter(comparison.verdict for comparison in comparisons))
        report(
            f"{arguments.model}, simulated from the pairs of these",
            simulated(comparisons, arguments.simulated, arguments.seed),
        )
    noises = json.loads(arguments.noise.read_text()) if arguments.noise else {}
    for model, noise in noises.items():
        tries = arguments.simulated, arguments.seed
        report(f"{model}, against {_ENTRIES} entries of its series", with_series(noise, *tries))
        report(f"{model}, against the entry before, threshold 3 %", with_threshold(noise, *tries))


if __name__ == "__main__":
    main()
