"""Do verdicts about generation hold? Equal arms compared many times, by TTFT and by TPOT; each is logged at once.

Run it again with the same log to go on where it ended; `--seconds` ends it in time for others to measure.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inferlab import Lab
from inferlab.records.generation import GenerationPlan
from inferlab.records.generation_results import ComparedMetric

MODEL = "demo:llama_tiny"
MARGIN = 0.01
METRICS: tuple[ComparedMetric, ...] = ("ttft", "tpot")


def plan_of(metric: ComparedMetric, num_cores: int) -> GenerationPlan:
    """Both arms: a prompt for the first token's time, tokens behind it for the time per output token."""
    new_tokens = (1,) if metric == "ttft" else (64,)
    return GenerationPlan(MODEL, engines=("llamacpp",), new_tokens=new_tokens, num_cores=(num_cores,))


def line(metric: ComparedMetric, num_cores: int, time_s: float) -> dict[str, Any]:
    """What is kept of one comparison of equal arms."""
    plan = plan_of(metric, num_cores)
    done = Lab().compare_generations(plan, plan, metric, time_s, MARGIN, labels=("A", "B"))
    ratio = done.ratio
    return {
        "metric": metric,
        "cores": num_cores,
        "verdict": done.verdict,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "seconds": round(done.seconds, 2),
        "pairs": [round(log_ratio, 6) for log_ratio in done.log_ratios],
        "spread": [done.spread.within, done.spread.between],
        "tokens_alike": done.tokens.agreeing / done.tokens.tokens,
        "median_ms": [sorted(times)[len(times) // 2] for times in done.times_ms],
    }


def report(metric: str, lines: Sequence[dict[str, Any]]) -> None:
    """How often each verdict came, and how far ratios lay from 1."""
    verdicts = Counter(one["verdict"] for one in lines)
    off = sorted(abs(math.log(one["ratio"][0])) for one in lines)
    covered = sum((one["ratio"][1] or 0) <= 1 <= (one["ratio"][2] or math.inf) for one in lines)
    seconds = sorted(one["seconds"] for one in lines)
    alike = min(one["tokens_alike"] for one in lines)
    wrong = verdicts["faster"] + verdicts["slower"]
    print(
        f"{metric}: {len(lines)} comparisons of equal arms, {sum(len(one['pairs']) for one in lines)} pairs: "
        f"{dict(sorted(verdicts.items()))}; false verdicts: {wrong} of {len(lines)}; "
        f"ratios off by {100 * off[len(off) // 2]:.2f} % (median), {100 * off[-1]:.2f} % (most); intervals that "
        f"cover 1: {100 * covered / len(lines):.0f} %; {seconds[len(seconds) // 2]:.1f} s each (median); tokens "
        f"alike: {100 * alike:.0f} %",
        flush=True,
    )


def main() -> None:
    """Compare until there are enough of each metric or the time is up, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("-t", "--time", type=float, default=6.0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--log", type=Path, default=Path("generation_verdicts.jsonl"))
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    lines = [json.loads(text) for text in given.log.read_text().splitlines()] if given.log.exists() else []
    while time.monotonic() + given.time < end:
        counts = Counter(one["metric"] for one in lines)
        metric = min(METRICS, key=lambda metric: counts[metric])
        if counts[metric] >= given.count:
            break
        lines.append(line(metric, given.num_cores, given.time))
        with given.log.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    for each in METRICS:
        if known := [one for one in lines if one["metric"] == each]:
            report(each, known)


if __name__ == "__main__":
    main()
