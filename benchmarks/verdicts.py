"""Do the verdicts hold? Identical arms compared many times, and arms made slower on purpose."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from inferlab import Lab, Plan
from inferlab.records import Comparison
from tests.helpers.real_models import one

SLOWED = f"{Path(__file__).parent / 'slowed.py'}:Slowed"
# What each trial is: the share by which B is slower, how many trials, seconds for each.
TRIALS = {"A/A": (0.0, 300, 10.0), "3 % slower": (0.03, 30, 60.0), "1 % slower": (0.01, 30, 60.0)}


def trial(number: int, slower: float, time_s: float, num_cores: int) -> Comparison:
    """Compare a real model with itself, or with itself made slower."""
    plan = Plan(str(one("g2p_bert")), scenarios=("sync",), num_cores=(num_cores,), seed=number)
    if not slower:
        return Lab().compare(plan, plan, time_s=time_s)
    # Both arms have the wrapper, so that only the share differs.
    a = replace(plan, engines=(SLOWED,), engine_options=(("slower", "0"),))
    b = replace(a, engine_options=(("slower", str(slower)),))
    return Lab().compare(a, b, time_s=time_s)


def trials(name: str, count: int, time_s: float, num_cores: int, log: Path | None) -> Iterator[Comparison]:
    """Run the trials; each is written to the log as soon as it is done."""
    for number in range(count):
        done = trial(number, TRIALS[name][0], time_s, num_cores)
        if log:
            ratio = done.ratio
            line = [
                name,
                num_cores,
                done.verdict,
                ratio.value,
                ratio.low,
                ratio.high,
                len(done.pairs),
                done.seconds,
            ]
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        yield done


def report(name: str, found: list[Comparison]) -> None:
    """One line: how often each verdict came, how far ratios lay from the truth, and what it took."""
    truth = 1 + TRIALS[name][0]
    verdicts = Counter(one.verdict for one in found)
    told = ", ".join(f"{word} {100 * verdicts[word] / len(found):.1f} %" for word in sorted(verdicts))
    off = sorted(abs(math.log(one.ratio.value / truth)) for one in found)
    covered = sum((one.ratio.low or 0) <= truth <= (one.ratio.high or math.inf) for one in found)
    seconds = sorted(one.seconds for one in found)
    print(
        f"{name:<11} {len(found)} comparisons: {told}; ratio off by {100 * off[len(off) // 2]:.2f} % (median), "
        f"interval covers {100 * covered / len(found):.1f} %; {seconds[len(seconds) // 2]:.0f} s (median)",
        flush=True,
    )


def main(names: tuple[str, ...] = tuple(TRIALS), num_cores: int = 1, log: Path | None = None) -> None:
    """Run all trials and report."""
    for name in names:
        _, count, time_s = TRIALS[name]
        report(name, list(trials(name, count, time_s, num_cores, log)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TRIALS))
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--time", type=float)
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    for name in given.names:
        share, count, time_s = TRIALS[name]
        TRIALS[name] = (share, given.count or count, given.time or time_s)
    main(tuple(given.names), given.num_cores, given.log)
