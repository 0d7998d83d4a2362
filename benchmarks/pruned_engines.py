"""INT8, fewer channels and zeros on every engine against ONNX Runtime with the dense model, interleaved."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.side_by_side import cpu_ratio, ratio_text
from inferlab.engines import registry
from inferlab.errors import InferlabError
from inferlab.lab import Lab
from inferlab.records import Plan, Run
from inferlab.records.optimization import CHANNEL, Pruning, Quantization, Recipe, VersionOptions

MODELS = ("demo:resnet50", "demo:mobilenet_v2", "demo:bert_3layer")
ENGINES = ("onnxruntime", "openvino", "mnn", "deepsparse")
#: What is done to every layer but the first and the last.
CHANGES = {
    "dense": None,
    "INT8": Recipe(quantization=Quantization("static")),
    "channels-25": Recipe(pruning=Pruning(0.25, pattern=CHANNEL)),
    "channels-50": Recipe(pruning=Pruning(0.5, pattern=CHANNEL)),
    "zeros-80": Recipe(pruning=Pruning(0.8)),
    "zeros-90": Recipe(pruning=Pruning(0.9)),
    "zeros-95": Recipe(pruning=Pruning(0.95)),
}
# MNN's converter takes no quantised files: it quantises the weights itself, and computes with them.
_MNN_INT8 = (("weights", "int8"), ("memory", "low"))


def main() -> None:
    """Print a row of a Markdown table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--changes", nargs="+", default=tuple(CHANGES), choices=tuple(CHANGES))
    parser.add_argument("--cores", nargs="+", type=int, default=(1, 2))
    parser.add_argument("--time", type=float, default=20.0, help="seconds for each comparison")
    arguments = parser.parse_args()
    there = {name for name in arguments.engines if registry.describe(name).state == "ready"}
    print("| model | change | engine | cores | over dense ONNX Runtime | CPU time | error | distance | MB |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for source in arguments.models:
        for change in arguments.changes:
            with tempfile.TemporaryDirectory() as folder:
                path, sparsity = _changed(source, change, Path(folder))
                for engine in (name for name in arguments.engines if name in there):
                    for cores in arguments.cores:
                        head = f"{source.removeprefix('demo:')} | {change} | {engine} | {cores}"
                        if (source, change, engine) != (source, "dense", "onnxruntime"):
                            row = _row(source, path, change, engine, cores, arguments.time, sparsity)
                            print(f"| {head} | {row} |", flush=True)


def _changed(source: str, change: str, folder: Path) -> tuple[str, str]:
    """A copy of the model that was changed, and how far its outputs are from those of the model."""
    recipe = CHANGES[change]
    if recipe is None:
        return source, "-"
    optimization = Lab().optimize(Plan(source), VersionOptions(recipe, str(folder / "model.onnx"), engines=()))
    distance = optimization.distance and optimization.distance.relative_power
    return optimization.optimized.path, "-" if distance is None else f"{distance:.2g}"


def _row(source: str, path: str, change: str, engine: str, cores: int, time_s: float, distance: str) -> str:
    options: Sequence[tuple[str, str]] = ()
    if engine == "mnn" and change == "INT8":
        path, distance, options = source, "-", _MNN_INT8
    a = Plan(source, engines=("onnxruntime",), scenarios=("sync",), num_cores=(cores,))
    b = Plan(path, engines=(engine,), scenarios=("sync",), num_cores=(cores,), engine_options=tuple(options))
    try:
        compared = Lab().compare(a, b, time_s)
    except InferlabError as error:
        return f"{error} | | | | "
    assert compared.models is not None
    run = compared.pairs[-1].b
    size = float(run.settings.get("file_bytes", compared.models[1].size_bytes)) / 1e6
    times = f"{ratio_text(compared.ratio)}{_sparse(run)} | {ratio_text(cpu_ratio(compared))}"
    return f"{times} | {_error(run)} | {distance} | {size:.1f}"


def _sparse(run: Run) -> str:
    return " sparse kernels" if run.settings.get("sparse") == "auto:on" else ""


def _error(run: Run) -> str:
    """Of the engine's outputs against those that ONNX Runtime computes with the same file, not optimised."""
    error = "-" if run.check.error is None else f"{run.check.error:.1e}"
    return error if run.check.status == "match" else f"{error} {run.check.status}"


if __name__ == "__main__":
    main()
