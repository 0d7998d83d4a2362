"""SmolLM2 on four engines by prompt, depth and cores, each row with its agreement and the bytes of its cache.

OpenVINO GenAI runs twice: reading the Q4_1 file itself, and on weights unpacked to 32 bits as torch and
ONNX Runtime GenAI have them, which is the same precision class.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks import side_by_side as side

HEADS = (
    "engine", "weights", "cores", "prompt", "depth", "TTFT ms", "prefill tokens/s", "TPOT ms", "KV bytes/token",
    "agreement",
)  # fmt: skip


def main() -> None:
    """Measure all cells and print them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default=",".join(side.GENERATION_ENGINES))
    parser.add_argument("--prompt", default="32,512")
    parser.add_argument("--depth", default="0,2048")
    parser.add_argument("--num-cores", default="1,2")
    parser.add_argument("--new", default="32")
    parser.add_argument("-t", "--time", default="4")
    parser.add_argument("--processes", default="2")
    arguments = parser.parse_args()
    began = time.monotonic()
    options = ["--prompt", arguments.prompt, "--depth", arguments.depth, "-ncores", arguments.num_cores]
    options += ["--new", arguments.new, "-t", arguments.time, "--processes", arguments.processes]
    model = side.smollm2()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    # Engine by engine, so that what is cut off has rows.
    for engine in arguments.engines.split(","):
        show(side.generated(model, "-e", engine, *options))
    if "openvino-genai" in arguments.engines:
        unpacked = ("--engine-option", "gguf=converted")
        show(side.generated(model, "-e", "openvino-genai", *unpacked, *options))
    print(f"# KV bytes by formula / by the engine / by growth; {time.monotonic() - began:.0f} s")


def show(rows: list[dict[str, Any]]) -> None:
    """A line of the table for each cell."""
    for row in rows:
        settings = row["settings"] or {}
        agreement = row["agreement"] or {}
        unpacked_weights = any(finding["code"] == "dequantized" for finding in row["findings"])
        cache = [row[f"kv_bytes_per_token{end}"] for end in ("_formula", "", "_measured")]
        cells = [
            row["engine"],
            "FP32 of Q4_1" if unpacked_weights or settings.get("weights") else "Q4_1",
            row["num_cores"],
            row["prompt_tokens"],
            row["depth"],
            side.number(row, "ttft_ms"),
            side.number(row, "prefill_tokens_per_s"),
            side.number(row, "tpot_ms"),
            " / ".join("-" if each is None else f"{each:.0f}" for each in cache),
            f"{agreement.get('agreeing')} of {agreement.get('positions')}, {agreement.get('ties')} close"
            + (" **WRONG**" if agreement.get("status") == "mismatch" else ""),
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
