"""Layer times before rescaling: their sum over the clean latency, and the share that is joined to ONNX nodes."""

from __future__ import annotations

import statistics
import sys

from inferlab.lab import read_model
from inferlab.measure.cells import jobs
from inferlab.model.flops.count import costs
from inferlab.profiling.join import read_layers
from inferlab.profiling.performance import measure, measure_passes
from inferlab.records import Plan, ignore

MODELS = ("demo:mobilenet_v2", "demo:resnet50", "demo:bert_3layer")
ENGINES = ("onnxruntime", "openvino", "mnn", "deepsparse")
TIME_S = 20.0


def main(processes: int = 9) -> None:
    """Measure every model on every engine, in fresh processes."""
    print(f"# sum of the layers' times before rescaling / clean latency, {processes} fresh processes each")
    print(
        f"{'model':18} {'engine':12} {'cores':>5} {'ratio':>7} {'from':>6} {'to':>6} {'overhead':>9} {'joined':>7}"
    )
    for model in MODELS:
        for engine in ENGINES:
            for cores in (1, 2):
                print(_row(model, engine, cores, processes), flush=True)


def _row(source: str, engine: str, cores: int, processes: int) -> str:
    plan = Plan(source, engines=(engine,), scenarios=("sync",), num_cores=(cores,), processes=processes)
    model = read_model(source, ignore, plan.engines)
    job = next(iter(jobs(plan, model)))
    passes = measure_passes(job, TIME_S, (), ignore, processes)
    ratios = sorted(
        sum(layer.ns for layer in read_layers(pass_.layers.data["layers"])) / 1e6 / pass_.clean_ms
        for pass_ in passes
        if pass_.layers is not None
    )
    performance = measure(job, costs(model, dict(job.cell.shapes)), TIME_S / 4, "sums", (), ignore, 3)
    name, middle = source.removeprefix("demo:"), statistics.median(ratios)
    return (
        f"{name:18} {engine:12} {cores:5} {middle:7.3f} {ratios[0]:6.3f} {ratios[-1]:6.3f} "
        f"{performance.profiler_overhead:9.1%} {1 - performance.unattributed_share:7.2%}"
    )


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:2]))
