"""Do the verdicts hold? Equal arms compared many times, arms made slower on purpose, and arms far apart."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import inferlab
from inferlab import Lab, Plan
from inferlab.measure import intervals
from inferlab.measure.paired import BUILT_IN_PRIOR, turns_sd, weights
from inferlab.records import Comparison

SLOWED = f"{Path(__file__).parent / 'slowed.py'}:Slowed"
MODEL = "demo:mobilenet_v2"
MARGIN = 0.01


@dataclass(frozen=True)
class Trial:
    """Two arms to compare many times."""

    #: How many times, and for how many seconds each.
    count: int
    time_s: float
    model: str = MODEL
    #: By which share B is made slower; None: B is another model or engine.
    slower: float | None = 0.0
    #: Where B is the model in INT8, or on another engine.
    int8: bool = False
    engine: str = ""
    #: Every process is started from nothing.
    fresh: bool = False

    def plans(self, num_cores: int, folder: Path) -> tuple[Plan, Plan]:
        """Both arms."""
        plan = Plan(self.model, scenarios=("sync",), num_cores=(num_cores,))
        if self.engine:
            return plan, replace(plan, engines=(self.engine,))
        if self.int8:
            copy = folder / "int8.onnx"
            if not copy.exists():
                inferlab.optimize(self.model, copy, int8="static", measure="none")
            return plan, replace(plan, model=str(copy))
        if not self.slower:
            return plan, plan
        # Both arms have the wrapper, so that only the share differs.
        a = replace(plan, engines=(SLOWED,), engine_options=(("slower", "0"),))
        return a, replace(a, engine_options=(("slower", str(self.slower)),))


TRIALS = {
    "A/A": Trial(60, 60.0),
    "A/A 20 s": Trial(300, 20.0),
    "1 % slower": Trial(40, 60.0, slower=0.01),
    "0.5 % slower": Trial(40, 60.0, slower=0.005),
    "3 % slower, 100 MB": Trial(10, 60.0, "demo:resnet50", 0.03),
    "3 % slower, tiny": Trial(10, 60.0, "demo:digits", 0.03),
    "2 % slower": Trial(5, 60.0, slower=0.02),
    "2 % slower, fresh": Trial(8, 60.0, slower=0.02, fresh=True),
    "A/A, fresh": Trial(8, 60.0, fresh=True),
    "INT8": Trial(40, 10.0, "demo:resnet50", None, int8=True),
    "engines": Trial(40, 10.0, "demo:digits", None, engine="openvino"),
}


def line(name: str, num_cores: int, done: Comparison) -> dict[str, Any]:
    """What is kept of a comparison."""
    ratio = done.ratio
    pairs = [round(pair.log_ratio, 6) for pair in done.pairs]
    return {
        "name": name,
        "cores": num_cores,
        "verdict": done.verdict,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "seconds": round(done.seconds, 2),
        "pairs": pairs,
        "turns": [len(pair.a.windows) for pair in done.pairs],
        "spread": None if done.spread is None else [done.spread.within, done.spread.between],
    }


def run(name: str, trial: Trial, num_cores: int, margin: float, log: Path) -> Iterator[dict[str, Any]]:
    """Run the trials; each is written to the log as soon as it is done."""
    with TemporaryDirectory() as folder:
        a, b = trial.plans(num_cores, Path(folder))
        for _ in range(trial.count):
            comparison = Lab().compare(a, b, time_s=trial.time_s, margin=margin, fresh=trial.fresh)
            done = line(name, num_cores, comparison)
            with log.open("a") as file:
                file.write(json.dumps(done) + "\n")
            yield done


def report(name: str, lines: Sequence[dict[str, Any]], truth: float | None) -> None:
    """One line: how often each verdict came, how far ratios lay from the truth, and what it took."""
    verdicts = Counter(one["verdict"] for one in lines)
    counted = ", ".join(f"{word} {number}" for word, number in sorted(verdicts.items()))
    seconds = sorted(one["seconds"] for one in lines)
    took = f"{seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s (most)"
    pairs = sum(len(one.get("pairs", ())) for one in lines)
    text = f"{name}: {len(lines)} comparisons, {pairs} pairs: {counted}; {took}"
    if truth is not None:
        off = sorted(abs(math.log(one["ratio"][0] / truth)) for one in lines)
        covered = sum((one["ratio"][1] or 0) <= truth <= (one["ratio"][2] or math.inf) for one in lines)
        mean = math.exp(sum(math.log(one["ratio"][0]) for one in lines) / len(lines))
        text += (
            f"; mean ratio {mean:.4f}, off by {100 * off[len(off) // 2]:.2f} % (median), "
            f"intervals that cover {truth:g}: {100 * covered / len(lines):.0f} %"
        )
    print(text, flush=True)


def replayed(lines: Sequence[dict[str, Any]], time_s: float, slower: float, margin: float) -> list[dict[str, Any]]:
    """What the pairs of equal arms would have said within so many seconds, had B taken so much longer.

    Pairs that are left when the time is up are another comparison, as long as enough are left for one.
    """
    return [
        _replay(line, first, end, math.log1p(slower), margin)
        for line in lines
        for first, end in _stretches(line, time_s)
    ]


def _pair_seconds(line: dict[str, Any]) -> list[float]:
    """What each pair took: those of few turns less."""
    costs = [1.0 + 2.5 * count / max(line["turns"]) for count in line["turns"]]
    return [cost * line["seconds"] / sum(costs) for cost in costs]


def _stretches(line: dict[str, Any], time_s: float) -> Iterator[tuple[int, int]]:
    """The first pair and the end of each stretch of so many seconds; of what is left at the end most of one."""
    first, spent = 0, 0.0
    seconds = _pair_seconds(line)
    for index, pair_s in enumerate(seconds):
        if spent and spent + pair_s > time_s:
            yield first, index
            first, spent = index, 0.0
        spent += pair_s
    if not first or spent > 0.9 * time_s:
        yield first, len(seconds)


def _replay(line: dict[str, Any], first: int, end: int, shift: float, margin: float) -> dict[str, Any]:
    looks = intervals.Looks(margin, BUILT_IN_PRIOR)
    log_ratios = [value + shift for value in line["pairs"][first:end]]
    within, between = (sd**2 for sd in line["spread"])
    for count in range(1, len(log_ratios) + 1):
        turns = line["turns"][first : first + count]
        evidence = log_ratios[:count], weights(turns, within, between), turns_sd(turns, within)
        if looks.look(*evidence):
            break
    ratio = looks.estimate(*evidence)
    return {
        "verdict": intervals.verdict(ratio, margin),
        "ratio": [ratio.value, ratio.low, ratio.high],
        "seconds": sum(_pair_seconds(line)[first : first + count]),
    }


def main() -> None:
    """Run the trials that are named and report, or replay what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TRIALS))
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--time", type=float)
    parser.add_argument("--margin", type=float, default=MARGIN, help="with 0 equal arms take all of their time")
    parser.add_argument("--log", type=Path, default=Path("verdicts.jsonl"))
    parser.add_argument("--replay", action="store_true", help="measure nothing: use the A/A pairs in the log")
    given = parser.parse_args()
    if given.replay:
        lines = [json.loads(text) for text in given.log.read_text().splitlines()]
        equal = [one for one in lines if one["name"] == "A/A" and one["cores"] == given.num_cores]
        for seconds in (20.0, 60.0):
            for slower in (0.0, 0.005, 0.01):
                name = f"replayed, {given.num_cores} cores, {seconds:.0f} s, {100 * slower:g} % slower"
                report(name, replayed(equal, seconds, slower, given.margin), 1 + slower)
        return
    for name in given.names:
        trial = replace(
            TRIALS[name], count=given.count or TRIALS[name].count, time_s=given.time or TRIALS[name].time_s
        )
        lines = list(run(name, trial, given.num_cores, given.margin, given.log))
        report(name, lines, None if trial.slower is None else 1 + trial.slower)


if __name__ == "__main__":
    main()
