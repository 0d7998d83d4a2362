"""Prefill and decode rates that inferlab reports of llama.cpp, over those of llama-bench; SmolLM2.

llama-bench is compiled by hand, for this only: `pip download --no-deps --no-binary :all: llama-cpp-python`, unpack
it,
`cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_BUILD_SERVER=OFF vendor/llama.cpp`,
`cmake --build build --target llama-bench`. It is another build, of another version, than the wheel that inferlab
runs: `--cross` also prints the bare loop of that wheel, which tells the build's part of a difference from ours.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import time
from pathlib import Path

from benchmarks import side_by_side as side


def main() -> None:
    """Compare in several rounds, in random order within each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the compiled llama-bench")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--num-cores", type=int, default=1)
    parser.add_argument("-t", "--time", type=float, default=4.0)
    parser.add_argument("--repetitions", type=int, default=5, help="of each test, by llama-bench")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no round begins after so many")
    parser.add_argument("--cross", action="store_true", help="also against the bare loop of the wheel")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    model = side.smollm2()
    rates: dict[str, list[tuple[float, float]]] = {}
    arms = ["inferlab", "llama-bench", *(["bare loop"] if arguments.cross else [])]
    with side.file_of(model, "llamacpp") as (path, vocabulary):
        for _ in range(arguments.rounds):
            if time.monotonic() > end:
                break
            for arm in random.sample(arms, len(arms)):
                if arm == "inferlab":
                    pair = _ours(model, arguments)
                elif arm == "llama-bench":
                    pair = _llama_bench(arguments.binary, path, arguments)
                else:
                    shape = (arguments.prompt, arguments.new, arguments.num_cores, arguments.time)
                    times = side.bare_generation("llamacpp", path, vocabulary, *shape)
                    pair = (arguments.prompt / times["ttft_ms"] * 1e3, 1e3 / times["tpot_ms"])
                rates.setdefault(arm, []).append(pair)
    for index, test in enumerate((f"pp{arguments.prompt}", f"tg{arguments.new}")):
        for arm in arms[1:]:
            pairs = zip(rates["inferlab"], rates[arm], strict=True)
            ratios = [ours[index] / theirs[index] for ours, theirs in pairs]
            side.report_paired(f"{test} tokens/s, inferlab / {arm}", ratios, "rounds", "explained")


def _ours(model: str, arguments: argparse.Namespace) -> tuple[float, float]:
    options = [
        "-e",
        "llamacpp",
        "--prompt",
        str(arguments.prompt),
        "--new",
        str(arguments.new),
        "-t",
        str(arguments.time),
    ]
    options += ["-ncores", str(arguments.num_cores), "--processes", "1", "--no-verify"]
    (row,) = side.generated(model, *options)
    return float(row["prefill_tokens_per_s"]), float(row["decode_tokens_per_s"])


def _llama_bench(binary: Path, path: str, arguments: argparse.Namespace) -> tuple[float, float]:
    """Decoding begins behind the prompt, as inferlab's does; llama-bench itself begins with an empty cache."""
    rates = []
    for test in (["-p", arguments.prompt, "-n", 0], ["-p", 0, "-n", arguments.new, "-d", arguments.prompt]):
        command = [binary, "-m", path, "-t", arguments.num_cores, "-r", arguments.repetitions, "-o", "json", *test]
        command = ["taskset", "-c", ",".join(map(str, range(arguments.num_cores))), *command]
        ended = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        (result,) = json.loads(ended.stdout)
        rates.append(float(result["avg_ts"]))
    return rates[0], rates[1]


if __name__ == "__main__":
    main()
