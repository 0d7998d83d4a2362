"""A bare loop around an engine's own call, with nothing of inferlab: what inferlab is compared with.

Run by path in the engine's interpreter: python bare.py '{"engine": …}' prints {"median_ms": …, "per_sec": …}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def main() -> None:
    """Load, warm up, loop, print."""
    settings = json.loads(sys.argv[1])
    if settings["cpus"]:
        os.sched_setaffinity(0, settings["cpus"])
    os.environ.update(ORT_DISABLE_TELEMETRY="1", NM_DISABLE_ANALYTICS="1", OPENBLAS_NUM_THREADS="1")
    os.environ.update(NM_BIND_THREADS_TO_CORES="1")
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import numpy

    inputs = dict(numpy.load(settings["inputs"]))
    engines = {"onnxruntime": onnxruntime, "openvino": openvino, "deepsparse": deepsparse}
    call = engines[settings["engine"]](settings, inputs)
    if settings["cpus"] and settings["engine"] != "openvino":
        # The caller computes too; OpenVINO binds it by itself, the others leave it to us, as inferlab does.
        os.sched_setaffinity(0, settings["cpus"][:1])
    loop(call, settings["warmup_s"])
    if settings.get("start_at"):
        time.sleep(max(0.0, settings["start_at"] - time.time()))
    samples = loop(call, settings["time_s"])
    durations = sorted(end - start for start, end in samples)
    seconds = (samples[-1][1] - samples[0][0]) / 1e9
    print(json.dumps({"median_ms": durations[len(durations) // 2] / 1e6, "per_sec": len(samples) / seconds}))


def loop(call: Call, seconds: float) -> list[tuple[int, int]]:
    """The plainest loop there is."""
    clock = time.perf_counter_ns
    samples = []
    end = clock() + int(seconds * 1e9)
    while True:
        started = clock()
        call()
        ended = clock()
        samples.append((started, ended))
        if ended >= end:
            return samples


def onnxruntime(settings: dict[str, Any], inputs: dict[str, Any]) -> Call:
    """session.run, or run_with_iobinding."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    if settings["cpus"] and settings["threads"] > 1:
        affinities = ";".join(str(cpu + 1) for cpu in settings["cpus"][1:])
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
    session = onnxruntime.InferenceSession(settings["model"], options, providers=["CPUExecutionProvider"])
    if settings["call"] == "run":
        return lambda: session.run(None, inputs)
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return lambda: session.run_with_iobinding(binding)


def openvino(settings: dict[str, Any], inputs: dict[str, Any]) -> Call:
    """A static-shape model, one request, shared memory."""
    import openvino

    core = openvino.Core()
    model = core.read_model(settings["model"])
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": settings["threads"],
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_CPU_PINNING": True,
        },
    )
    request = compiled.create_infer_request()
    for name, value in inputs.items():
        request.set_tensor(name, openvino.Tensor(value, shared_memory=True))
    # Once, as inferlab does: handed over on each call, a BERT on 2 cores took about 7 % longer.
    return lambda: request.infer(share_outputs=True)


def deepsparse(settings: dict[str, Any], inputs: dict[str, Any]) -> Call:
    """engine.run on the list of inputs; the model is a copy, because DeepSparse writes into it."""
    from deepsparse import Engine

    shapes = [list(value.shape) for value in inputs.values()]
    engine = Engine(settings["model"], batch_size=1, num_cores=settings["threads"], input_shapes=shapes)
    arrays = list(inputs.values())
    return lambda: engine.run(arrays, val_inp=False)


if __name__ == "__main__":
    main()
