"""SmolLM2 on four engines by prompt, depth and cores, each row with its agreement and the bytes of its cache.

OpenVINO GenAI runs twice: reading the Q4_1 file itself, and on weights unpacked to 32 bits as torch and
ONNX Runtime GenAI have them, which is the same precision class. Rows are printed as they are measured, those that
take least first; `--seconds` ends it in time. The check of the tokens has prompts and an empty cache of its own:
it is made once for an engine, its weights and cores, and said in each row of these.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import side_by_side as side

HEADS = (
    "engine", "weights", "cores", "prompt", "depth", "TTFT ms", "prefill tokens/s", "TPOT ms", "KV bytes/token",
    "agreement",
)  # fmt: skip


class Arm(NamedTuple):
    """An engine, and how it gets the weights."""

    engine: str
    options: tuple[str, ...] = ()


def main() -> None:
    """Measure cell after cell and print each as a line of Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default=",".join(side.GENERATION_ENGINES))
    parser.add_argument("--prompt", default="32,512")
    parser.add_argument("--depth", default="0,2048")
    parser.add_argument("--num-cores", default="1,2")
    parser.add_argument("--new", default="32")
    parser.add_argument("-t", "--time", default="2")
    parser.add_argument("--processes", default="1")
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    began = time.monotonic()
    options = ["--new", arguments.new, "-t", arguments.time, "--processes", arguments.processes]
    model = side.smollm2()
    arms = [Arm(engine) for engine in arguments.engines.split(",")]
    if Arm("openvino-genai") in arms:
        arms.append(Arm("openvino-genai", ("--engine-option", "gguf=converted")))
    agreements: dict[tuple[Arm, int], str] = {}
    left = []
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    depths, prompts, cores = map(numbers, (arguments.depth, arguments.prompt, arguments.num_cores))
    # Two cores first: they need half of the time.
    for depth, prompt, num_cores, arm in itertools.product(depths, prompts, sorted(cores, reverse=True), arms):
        if time.monotonic() - began > arguments.seconds:
            left.append(f"{arm.engine} {num_cores}/{prompt}/{depth}")
            continue
        cell = ["--depth", str(depth), "--prompt", str(prompt), "-ncores", str(num_cores)]
        known = agreements.get((arm, num_cores))
        unchecked = [] if known is None else ["--no-verify"]
        (row,) = side.generated(model, "-e", arm.engine, *arm.options, *cell, *options, *unchecked)
        agreements[arm, num_cores] = known = known or agreement_text(row)
        print(f"| {' | '.join(map(str, [*values(row), known]))} |", flush=True)
    print(f"# KV bytes by formula / by the engine / by growth; {time.monotonic() - began:.0f} s")
    if left:
        print(f"# No time was left for (cores/prompt/depth): {', '.join(left)}")


def numbers(text: str) -> list[int]:
    """Those of a list with commas."""
    return [int(number) for number in text.split(",")]


def values(row: dict[str, Any]) -> Sequence[Any]:
    """What was measured of a cell, but for its agreement."""
    settings = row["settings"] or {}
    unpacked_weights = any(finding["code"] == "dequantized" for finding in row["findings"])
    cache = [row[f"kv_bytes_per_token{end}"] for end in ("_formula", "", "_measured")]
    return [
        row["engine"],
        "FP32 of Q4_1" if unpacked_weights or settings.get("weights") else "Q4_1",
        row["num_cores"],
        row["prompt_tokens"],
        row["depth"],
        side.number(row, "ttft_ms"),
        side.number(row, "prefill_tokens_per_s"),
        side.number(row, "tpot_ms"),
        " / ".join("-" if each is None else f"{each:.0f}" for each in cache),
    ]


def agreement_text(row: dict[str, Any]) -> str:
    """How the tokens of a cell compare with the reference's."""
    agreement = row["agreement"] or {}
    wrong = " **WRONG**" if agreement.get("status") == "mismatch" else ""
    counts = f"{agreement.get('agreeing')} of {agreement.get('positions')}"
    return f"{counts}, {agreement.get('ties')} close{wrong}"


if __name__ == "__main__":
    main()
