"""TTFT and TPOT that inferlab reports, over those of a bare loop of the same engine; SmolLM2, fresh processes.

OpenVINO GenAI is also held to what its own performance metrics say.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from contextlib import ExitStack

from benchmarks import side_by_side as side

METRICS = ("ttft_ms", "tpot_ms")
AIM = "0.98 to 1.02"


def main() -> None:
    """Compare each engine in several rounds, both sides in random order within each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default=",".join(side.GENERATION_ENGINES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("-t", "--time", type=float, default=3.0, help="seconds of each process")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no round begins after so many")
    arguments = parser.parse_args()
    model = side.smollm2()
    end = time.monotonic() + arguments.seconds
    ratios: dict[tuple[str, str, str], list[float]] = {}
    with ExitStack() as stack:
        engines = {
            engine: stack.enter_context(side.file_of(model, engine)) for engine in arguments.engines.split(",")
        }
        # A round is of all engines, so that one that is cut off leaves as many of each.
        for _ in range(arguments.rounds):
            for engine, (path, vocabulary) in engines.items():
                rivals = {"bare loop": engine}
                if engine == "openvino-genai":
                    rivals["its own perf metrics"] = "openvino-genai perf metrics"
                times: dict[str, dict[str, float]] = {}
                for arm in random.sample(["inferlab", *rivals], 1 + len(rivals)):
                    if arm == "inferlab":
                        times[arm] = _ours(model, engine, arguments)
                    else:
                        shape = (arguments.prompt, arguments.new, arguments.num_cores, arguments.time)
                        times[arm] = side.bare_generation(rivals[arm], path, vocabulary, *shape)
                for rival, key in itertools.product(rivals, METRICS):
                    ratios.setdefault((engine, rival, key), []).append(times["inferlab"][key] / times[rival][key])
            if time.monotonic() > end:
                break
    for (engine, rival, key), values in ratios.items():
        side.report_paired(f"{engine}: {key[:4].upper()}, inferlab / {rival}", values, "rounds", AIM)


def _ours(model: str, engine: str, arguments: argparse.Namespace) -> dict[str, float]:
    options = [
        "-e",
        engine,
        "--prompt",
        str(arguments.prompt),
        "--new",
        str(arguments.new),
        "-t",
        str(arguments.time),
    ]
    options += ["-ncores", str(arguments.num_cores), "--processes", "1", "--no-verify"]
    (row,) = side.generated(model, *options)
    return {key: float(row[key]) for key in METRICS}


if __name__ == "__main__":
    main()
