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
from inferlab.records.comparison import ComparedMetric
from inferlab.records.generation import GenerationPlan

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
    comparison = Lab().compare_generations(plan, plan, metric, time_s, MARGIN, labels=("A", "B"))
    ratio = comparison.ratio
    return {
        "metric": metric,
        "cores": num_cores,
        "verdict": comparison.verdict,
        "ratio": [ratio.value, ratio.low, ratio.high],
        "seconds": round(comparison.seconds, 2),
        "pairs": [round(log_ratio, 6) for log_ratio in comparison.log_ratios],
        "spread": [comparison.spread.within, comparison.spread.between],
        "tokens_alike": comparison.tokens.agreeing / comparison.tokens.tokens,
        "median_ms": [sorted(times)[len(times) // 2] for times in comparison.times_ms],
    }


def report(metric: str, lines: Sequence[dict[str, Any]]) -> None:
    """How often each verdict came, and how far ratios lay from 1."""
    verdicts = Counter(line["verdict"] for line in lines)
    off = sorted(abs(math.log(line["ratio"][0])) for line in lines)
    covered = sum((line["ratio"][1] or 0) <= 1 <= (line["ratio"][2] or math.inf) for line in lines)
    seconds = sorted(line["seconds"] for line in lines)
    alike = min(line["tokens_alike"] for line in lines)
    wrong = verdicts["faster"] + verdicts["slower"]
    print(
        f"{metric}: {len(lines)} comparisons of equal arms, {sum(len(line['pairs']) for line in lines)} pairs: "
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
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    lines = [json.loads(text) for text in arguments.log.read_text().splitlines()] if arguments.log.exists() else []
    while time.monotonic() + arguments.time < end:
        counts = Counter(entry["metric"] for entry in lines)
        metric = min(METRICS, key=lambda metric: counts[metric])
        if counts[metric] >= arguments.count:
            break
        lines.append(line(metric, arguments.num_cores, arguments.time))
        with arguments.log.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    for each in METRICS:
        if known := [entry for entry in lines if entry["metric"] == each]:
            report(each, known)


if __name__ == "__main__":
    main()
