"""The roofline: what this machine can compute and stream at most, and how near to that a layer comes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed, InferlabError
from inferlab.measure.lock import measuring_alone
from inferlab.profiling.records import Ceilings
from inferlab.records import Event, Listener, ignore
from inferlab.worker import Launch, Worker

_SIDE = 1024
_ENGINES = ("onnxruntime", "openvino")
# Both arrays of a copy together, at least; more where the caches are larger than an eighth of it.
_STREAMED_BYTES = 512 * 1024 * 1024
_PATIENCE_S = 60.0
_INTEGERS = ("int8", "uint8", "int4", "uint4")

Bound = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class _Task:
    """A model of products whose quickest run shows a limit: its operations, its input, the engines to try."""

    name: str
    operations: int
    shape: tuple[int, ...]
    #: What it is fed, and what it computes in.
    fed: str
    dtype: str
    build: Callable[[], Any]
    engines: tuple[str, ...]


def place(
    flops: int | None, bytes_moved: int | None, ms: float, dtype: str, ceilings: Ceilings
) -> tuple[Bound | None, float | None]:
    """Which ceiling limits a layer, and the share of the rate it could attain that it reaches.

    The layer could take as little time as its operations at the machine's rate or its bytes at the machine's
    bandwidth, whichever is longer; that time over its real one is the share. A layer that computes nothing is
    bound by memory. What is not known of a layer cannot be placed.
    """
    if flops is None or bytes_moved is None or ms <= 0 or (flops == 0 and bytes_moved == 0):
        return None, None
    peak = ceilings.int8_gops if dtype in _INTEGERS and ceilings.int8_gops else ceilings.fp32_gflops
    compute_ms = flops / peak / 1e6
    memory_ms = bytes_moved / ceilings.bandwidth_gb_per_s / 1e6
    bound: Bound = "compute" if compute_ms > memory_ms else "memory"
    return bound, max(compute_ms, memory_ms) / ms


def measure_ceilings(num_cores: int, listener: Listener = ignore, seconds: float = 3.0) -> Ceilings:
    """What so many cores of this machine reach at most; measured anew, for it belongs to the same moment."""
    cpus = machine.choose_cpus(num_cores, "core")
    with measuring_alone("ceilings for the roofline", listener):
        listener(Event("ceilings", {"num_cores": num_cores}))
        return _measure(num_cores, cpus, seconds)


def _measure(num_cores: int, cpus: tuple[int, ...], seconds: float) -> Ceilings:
    tasks = _tasks()
    share_s = seconds / (sum(len(task.engines) for task in tasks) + 1)
    common = {"cpus": list(cpus), "threads": num_cores, "seconds": share_s}
    best: dict[str, float] = {}
    streamed = 0.0
    problems = []
    with tempfile.TemporaryDirectory(prefix="inferlab-ceilings-") as folder:
        for task in tasks:
            (Path(folder) / f"{task.name}.onnx").write_bytes(task.build().SerializeToString())
        for engine in _ENGINES:
            try:
                launch = replace(registry.launch(engine), reads=(folder,))
                with Worker(launch, cpus=cpus, patience_s=_PATIENCE_S) as worker:
                    if not streamed:
                        size = max(_STREAMED_BYTES, 8 * _cache_bytes())
                        answer = worker.ask(
                            "task", task="ceilings", arguments={**common, "what": "memory", "bytes": size}
                        )
                        streamed = answer.data["bytes_per_second"]
                    for task in (one for one in tasks if engine in one.engines):
                        rate = _rate(worker, launch, task, Path(folder), common)
                        best[task.dtype] = max(best.get(task.dtype, 0.0), rate)
            except InferlabError as error:  # one engine less: the other may still reach the limit
                problems.append(str(error))
    if not best.get("float32") or not streamed:
        raise EngineFailed(f"The ceilings of this machine could not be measured: {' '.join(problems)}")
    return Ceilings(
        num_cores=num_cores,
        fp32_gflops=best["float32"],
        int8_gops=best.get("int8") or None,
        bandwidth_gb_per_s=streamed / 1e9,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _rate(worker: Worker, launch: Launch, task: _Task, folder: Path, common: Mapping[str, Any]) -> float:
    """Operations a nanosecond in the quickest run; 0 where the engine refuses the model."""
    arguments = {
        **common,
        "what": "model",
        "engine": dict(launch.reference),
        "model": str(folder / f"{task.name}.onnx"),
        "shape": list(task.shape),
        "dtype": task.fed,
    }
    try:
        best_ns: int = worker.ask("task", task="ceilings", arguments=arguments).data["best_ns"]
    except BadInput:
        return 0.0
    return task.operations / best_ns


def _tasks() -> tuple[_Task, ...]:
    product = 2 * _SIDE**3
    image = (1, 256, 28, 28)
    conv = 2 * 256 * 256 * 9 * 28 * 28
    return (
        _Task("product", product, (_SIDE, _SIDE), "float32", "float32", _product, _ENGINES),
        _Task("conv", conv, image, "float32", "float32", _conv, _ENGINES),
        _Task("quantised", 4 * product, (1, _SIDE, 32, 32), "float32", "int8", _quantised, ("openvino",)),
        _Task("integers", product, (_SIDE, _SIDE), "uint8", "int8", _integers, ("onnxruntime",)),
    )


def _product() -> Any:
    """A square matrix times a constant one."""
    return _model("MatMul", ["x", "w"], (_SIDE, _SIDE), (_SIDE, _SIDE), {"w": _random((_SIDE, _SIDE))})


def _conv() -> Any:
    """A 3 × 3 convolution such as ResNets have."""
    image = (1, 256, 28, 28)
    weight = _random((256, 256, 3, 3))
    return _model("Conv", ["x", "w"], image, image, {"w": weight}, pads=[1, 1, 1, 1])


def _integers() -> Any:
    """A product of whole numbers, unsigned by signed as engines prefer it."""
    import numpy as np

    weight = np.random.default_rng(0).integers(-127, 128, (_SIDE, _SIDE)).astype(np.int8)
    return _model("MatMulInteger", ["x", "w"], (_SIDE, _SIDE), (_SIDE, _SIDE), {"w": weight}, kinds=(2, 6))


def _quantised() -> Any:
    """Four 1 × 1 convolutions in a row, quantised as inferlab quantises models: QDQ, signed weights."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    constants: dict[str, Any] = {
        "scale": np.array(1 / 255, np.float32),
        "zero": np.array(0, np.uint8),
        "weight_scale": np.full(_SIDE, 1e-4, np.float32),
        "weight_zero": np.zeros(_SIDE, np.int8),
    }
    nodes, value = [], "x"
    for index in range(4):
        weight = np.random.default_rng(index).integers(-127, 128, (_SIDE, _SIDE, 1, 1)).astype(np.int8)
        constants[f"w{index}"] = weight
        names = [f"{kind}{index}" for kind in ("quantised", "back", "weight", "out", "positive")]
        nodes += [
            helper.make_node("QuantizeLinear", [value, "scale", "zero"], [names[0]]),
            helper.make_node("DequantizeLinear", [names[0], "scale", "zero"], [names[1]]),
            helper.make_node("DequantizeLinear", [f"w{index}", "weight_scale", "weight_zero"], [names[2]], axis=0),
            helper.make_node("Conv", [names[1], names[2]], [names[3]]),
            helper.make_node("Relu", [names[3]], [names[4]]),
        ]
        value = names[4]
    shape = (1, _SIDE, 32, 32)
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])


def _model(
    operator: str,
    inputs: list[str],
    shape: tuple[int, ...],
    out: tuple[int, ...],
    constants: dict[str, Any],
    kinds: tuple[int, int] = (1, 1),
    **attributes: Any,
) -> Any:
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"], **attributes)],
        operator,
        [helper.make_tensor_value_info("x", kinds[0], shape)],
        [helper.make_tensor_value_info("y", kinds[1], out)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])


def _random(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _cache_bytes() -> int:
    """The largest cache of the first CPU; 0 where the system does not say."""
    sizes = [machine.read_text(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(text.strip()[:-1]) * 1024 for text in sizes if text.strip().endswith("K")), default=0)
