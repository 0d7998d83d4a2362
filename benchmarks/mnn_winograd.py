"""What MNN's largest tiles of Winograd's convolution gain in time and cost in exactness: winograd=3 against 2."""

from __future__ import annotations

import argparse

from benchmarks.side_by_side import cpu_ratio, ratio_text
from inferlab.errors import InferlabError
from inferlab.lab import Lab
from inferlab.records import Plan, Run

MODELS = ("demo:resnet50", "demo:mobilenet_v2", "demo:digits")


def main() -> None:
    """Print a row of a Markdown table for each model; models of one's own can be named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--cores", nargs="+", type=int, default=(1,))
    parser.add_argument("--shapes", help="as --input-shapes takes them")
    parser.add_argument("--time", type=float, default=20.0, help="seconds for each comparison")
    arguments = parser.parse_args()
    print("| model | cores | time of winograd=3 over that of 2 | CPU time | error of 2 | error of 3 |")
    print("|---|---|---|---|---|---|", flush=True)
    for source in arguments.models:
        for cores in arguments.cores:
            print(f"| {source} | {cores} | {_row(source, cores, arguments.shapes, arguments.time)} |", flush=True)


def _row(source: str, cores: int, shapes: str | None, time_s: float) -> str:
    a, b = (
        Plan(
            source,
            engines=("mnn",),
            scenarios=("sync",),
            num_cores=(cores,),
            input_shapes=shapes,
            engine_options=(("sparse", "off"), ("winograd", tiles)),
        )
        for tiles in "23"
    )
    try:
        compared = Lab().compare(a, b, time_s)
    except InferlabError as error:
        return f"{error} | | | "
    last = compared.pairs[-1]
    times = f"{ratio_text(compared.ratio)} | {ratio_text(cpu_ratio(compared))}"
    return f"{times} | {_error(last.a)} | {_error(last.b)}"


def _error(run: Run) -> str:
    """Of the outputs against ONNX Runtime's, and whether that is within the tolerance of FP32."""
    error = "-" if run.check.error is None else f"{run.check.error:.1e}"
    return error if run.check.status == "match" else f"{error} {run.check.status}"


if __name__ == "__main__":
    main()
