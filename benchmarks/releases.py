"""What did releases of engines change? Time, memory and loading of models that others made, side by side."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from inferlab import Lab, Plan
from inferlab.engines import environments
from inferlab.measure.check import worst
from inferlab.measure.stats import summarize
from inferlab.records import Outcome
from inferlab.units import decimal, size
from inferlab.views.tables import markdown_rows
from tests.helpers.real_models import one as real_model

#: From November 2023 on.
RELEASES = (
    "onnxruntime==1.16.3",
    "onnxruntime==1.19.2",
    "onnxruntime==1.22.1",
    "onnxruntime==1.24.4",
    "onnxruntime==1.31.1",
    "openvino==2024.4.0",
    "openvino==2026.4.1",
)
#: A quantised sentence embedding and a text detector: the package, the end of the file's name, and its shapes.
MODELS = {
    "minilm-l6": ("minilm_int8", "model_quantized.onnx", {"sequence_lengths": (128,)}),
    "ppocrv4-det": ("ppocrv4_det", ".onnx", {"input_shapes": "x=[1,3,320,320]"}),
}
_HEADS = ("Engine", "Median (ms)", "± (%)", "Peak memory", "Load (ms)", "Outputs")


def row(outcome: Outcome) -> list[str]:
    """One release in the table."""
    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        message = outcome.failure.message if outcome.failure else outcome.status
        return [outcome.cell.engine, "-", "-", "-", "-", message]
    median = summary.median_ms
    spread = (
        "-"
        if median.low is None or median.high is None
        else f"{50 * (median.high - median.low) / median.value:.1f}"
    )
    memory = statistics.median(run.peak_memory_bytes or 0 for run in outcome.runs)
    load_ms = 1e3 * statistics.median(run.load_s for run in outcome.runs)
    check = worst([run.check for run in outcome.runs]).status
    return [outcome.cell.engine, decimal(median.value), spread, size(memory), decimal(load_ms), check]


def table(name: str, releases: Sequence[str], time_s: float) -> None:
    """Measure one model on all releases and print the table."""
    package, ending, shapes = MODELS[name]
    plan = Plan(
        str(real_model(package, ending)),
        tuple(releases),
        ("sync",),
        num_cores=(1,),
        time_s=time_s,
        **shapes,  # type: ignore[arg-type]
    )
    print(f"\n{name}, one core, batch 1, {time_s:g} s in 5 processes each\n")
    benchmark = Lab().benchmark(plan)
    rows = [row(outcome) for outcome in benchmark.outcomes]
    print("\n".join(markdown_rows([list(_HEADS), *rows], left=(0, 5))), flush=True)


def main() -> None:
    """Install what is missing, then measure each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--releases", default=",".join(RELEASES), help="NAME==VERSION, with commas between")
    parser.add_argument("--time", type=float, default=5.0, help="seconds for each model and release")
    arguments = parser.parse_args()
    releases = arguments.releases.split(",")
    for release in releases:
        environments.install(release)
    for name in arguments.models:
        table(name, releases, arguments.time)


if __name__ == "__main__":
    main()
