"""The roofline: what this machine can compute and stream at most, and how near to that a layer comes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed, InferlabError
from inferlab.measure.cell import measuring_alone
from inferlab.measure.findings import WORTH_A_WORD
from inferlab.records import Event, Finding, Listener, ignore
from inferlab.records.profile import Ceilings, Layer
from inferlab.worker import Launch, Worker, timeout_s

_SIDE = 1024
_ENGINES = ("onnxruntime", "openvino")
# Both arrays of a copy together, at least; more where the caches are larger than an eighth of it.
_STREAMED_BYTES = 512 * 1024 * 1024
_PATIENCE_S = 60.0
# It is measured until a second round confirms the best one, within 5 %, or so often; 10 % apart is worth a word.
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 3
_AGREEMENT, _UNSTEADY, _MOST_SPREAD = 0.05, 0.1, 10.0
# A layer that computes so much faster than the ceiling shows that the ceiling is wrong.
_BEYOND = 1.05
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


def measure_ceilings(
    num_cores: int, listener: Listener = ignore, seconds: float = 3.0, cpus: tuple[int, ...] = ()
) -> Ceilings:
    """What so many cores of this machine reach at most; measured again, for it belongs to the same moment.

    On these CPUs, by default on the first of each core.
    """
    cpus = cpus or machine.choose_cpus(num_cores, "core")
    with measuring_alone("ceilings for the roofline", listener):
        listener(Event("ceilings", {"num_cores": num_cores}))
        return _measure(num_cores, cpus, seconds)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round reached: operations a nanosecond by kind, bytes a second, and the share of time it lost."""

    rates: Mapping[str, float]
    bytes_per_second: float
    lost: float
    problems: tuple[str, ...] = ()


def _measure(num_cores: int, cpus: tuple[int, ...], seconds: float) -> Ceilings:
    rounds: list[Round] = []
    with tempfile.TemporaryDirectory(prefix="inferlab-ceilings-") as folder:
        for task in _tasks():
            (Path(folder) / f"{task.name}.onnx").write_bytes(task.build().SerializeToString())
        while len(rounds) < _MOST_ROUNDS and not _agree(rounds):
            rounds.append(_round(num_cores, cpus, seconds / _FEWEST_ROUNDS, Path(folder)))
    return of_rounds(num_cores, rounds)


def _agree(rounds: Sequence[Round]) -> bool:
    """Whether a second round has confirmed the best."""
    if len(rounds) < _FEWEST_ROUNDS:
        return False
    return max(map(_spread, _by_ceiling(rounds).values())) <= _AGREEMENT


def _by_ceiling(rounds: Sequence[Round]) -> dict[str, list[float]]:
    names = [name for name in ("float32", "int8") if any(measured.rates.get(name) for measured in rounds)]
    by_ceiling = {name: [measured.rates.get(name, 0.0) for measured in rounds] for name in names}
    return {**by_ceiling, "memory": [measured.bytes_per_second for measured in rounds]}


def _spread(values: Sequence[float]) -> float:
    """By how much the best lies above the second best."""
    best, second, *_ = sorted(values, reverse=True)
    return best / second - 1 if second else math.inf


def of_rounds(num_cores: int, rounds: Sequence[Round]) -> Ceilings:
    """The best of all rounds: a limit is what is reached when nothing disturbs."""
    by_ceiling = _by_ceiling(rounds)
    if "float32" not in by_ceiling or not max(by_ceiling["memory"]):
        problems = " ".join(dict.fromkeys(problem for measured in rounds for problem in measured.problems))
        raise EngineFailed(f"The ceilings of this machine could not be measured: {problems}")
    spread = max(map(_spread, by_ceiling.values())) if len(rounds) > 1 else None
    return Ceilings(
        num_cores=num_cores,
        fp32_gflops=max(by_ceiling["float32"]),
        int8_gops=max(by_ceiling.get("int8", [0.0])) or None,
        bandwidth_gb_per_s=max(by_ceiling["memory"]) / 1e9,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        spread=None if spread is None else min(spread, _MOST_SPREAD),
        lost=min(measured.lost for measured in rounds),
        rounds=len(rounds),
    )


def place_all(layers: Sequence[Layer], ceilings: Ceilings) -> tuple[tuple[Layer, ...], tuple[Finding, ...]]:
    """The layers with what limits them, and what is wrong with the ceilings.

    No layer computes faster than the machine: one that seems to shows a ceiling that is too low, or an engine that
    computes less than is counted, and its share is unknown. Bytes may come from a cache, faster than from memory.
    """
    placed: list[Layer] = []
    beyond: list[float] = []
    for layer in layers:
        bound, of_limit = place(layer.flops, layer.bytes, layer.ms, layer.dtype, ceilings)
        if bound == "compute" and of_limit is not None and of_limit > _BEYOND:
            beyond.append(of_limit)
            of_limit = None
        placed.append(replace(layer, bound=bound, of_limit=of_limit))
    findings = []
    if (ceilings.spread or 0.0) > _UNSTEADY or ceilings.lost:
        data = {"spread": ceilings.spread, "lost": ceilings.lost, "rounds": ceilings.rounds}
        findings.append(Finding("ceilings-unsteady", data))
    if beyond:
        findings.append(Finding("ceiling-too-low", {"layers": len(beyond), "most": max(beyond)}))
    return tuple(placed), tuple(findings)


def _round(num_cores: int, cpus: tuple[int, ...], seconds: float, folder: Path) -> Round:
    tasks = _tasks()
    share_s = seconds / (sum(len(task.engines) for task in tasks) + 1)
    common = {"cpus": list(cpus), "threads": num_cores, "seconds": share_s}
    best: dict[str, float] = {}
    streamed = 0.0
    answers: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for engine in _ENGINES:
        try:
            launch = replace(registry.launch(engine), reads=(str(folder),))
            with Worker(launch, cpus=cpus, patience_s=timeout_s(_PATIENCE_S)) as worker:
                if not streamed:
                    size = max(_STREAMED_BYTES, 8 * _cache_bytes())
                    arguments = {**common, "what": "memory", "bytes": size}
                    answers.append(worker.ask("task", task="ceilings", arguments=arguments).data)
                    streamed = answers[-1]["bytes_per_second"]
                for task in (task for task in tasks if engine in task.engines):
                    answer = _answer(worker, launch, task, folder, common)
                    if answer is not None:
                        answers.append(answer)
                        best[task.dtype] = max(best.get(task.dtype, 0.0), task.operations / answer["best_ns"])
        except InferlabError as error:  # one engine less: the other may still reach the limit
            problems.append(str(error))
    return Round(best, streamed, _lost(answers, num_cores), tuple(problems))


def _lost(answers: Sequence[Mapping[str, Any]], num_cores: int) -> float:
    """The share of the cores' time that others took, by the causes that are worth a word for a cell."""
    total_s: float = num_cores * sum(answer["seconds"] for answer in answers)
    lost_s: dict[str, float] = {
        name: sum(answer["counters"].get(name, 0.0) for answer in answers) for name in WORTH_A_WORD
    }
    shares = {name: taken_s / total_s for name, taken_s in lost_s.items() if total_s}
    return min(1.0, sum(share for name, share in shares.items() if share > WORTH_A_WORD[name]))


def _answer(
    worker: Worker, launch: Launch, task: _Task, folder: Path, common: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The quickest run of a model; None where the engine refuses it."""
    arguments = {
        **common,
        "what": "model",
        "engine": dict(launch.reference),
        "model": str(folder / f"{task.name}.onnx"),
        "shape": list(task.shape),
        "dtype": task.fed,
    }
    try:
        return worker.ask("task", task="ceilings", arguments=arguments).data
    except BadInput:
        return None


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
