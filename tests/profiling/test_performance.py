"""The performance profile on real engines: what fused layers cover, times that add up, engines that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.measure.cell import lock_file
from inferlab.measure.cells import Job, jobs
from inferlab.model.flops.costs import Costs
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import read_onnx
from inferlab.profiling import performance
from inferlab.profiling.interleaved import InterleavedTimer
from inferlab.records import Event, Plan, ignore
from inferlab.records.profile import PerformanceProfile

Profiled = Callable[[str], PerformanceProfile]


def weight(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(np.float32), name)


def save(
    path: Path, nodes: Sequence[onnx.NodeProto], dims: Sequence[int], constants: list[onnx.TensorProto]
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A residual block and a classifier; its nodes have no names, or one with a comma."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["c"], name="x,y", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "r"], ["s"], name="x"),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "fc"], ["y"]),
    ]
    constants = [weight("w1", 32, 8, 3, 3), weight("w2", 32, 32, 3, 3), weight("fc", 32, 10)]
    return save(tmp_path_factory.mktemp("cnn") / "cnn.onnx", nodes, (1, 8, 32, 32), constants)


def a_job(path: Path, engine: str, **changes: object) -> tuple[Job, Costs]:
    model = read_onnx(path, str(path))
    plan = Plan(str(path), engines=(engine,), scenarios=("sync",), num_cores=(1,))
    job = next(iter(jobs(replace(plan, **changes), model)))  # type: ignore[arg-type]
    return job, costs(model, dict(job.cell.shapes))


def profile(path: Path, engine: str, levels: Sequence[float] = (), processes: int = 2) -> PerformanceProfile:
    job, counted = a_job(path, engine)
    return performance.measure(job, counted, 0.4, "baseline", levels, ignore, processes)


@pytest.fixture(scope="module")
def profiled(cnn: Path) -> Profiled:
    """The profile on an engine, made once."""
    made: dict[str, PerformanceProfile] = {}

    def of(engine: str) -> PerformanceProfile:
        if engine not in made:
            made[engine] = profile(cnn, engine)
        return made[engine]

    return of


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_every_node_is_in_one_layer_and_the_layers_add_up(engine: str, profiled: Profiled) -> None:
    found = profiled(engine)
    assert sorted(node for layer in found.layers for node in layer.nodes) == sorted("arcstpfy")
    assert sum(layer.ms for layer in found.layers) == pytest.approx(found.ms_per_batch, rel=1e-9)
    assert sum(layer.share for layer in found.layers) == pytest.approx(1.0, rel=1e-9)
    for process, clean_ms in enumerate(found.processes_ms):
        assert sum(layer.times_ms[process] for layer in found.layers) == pytest.approx(clean_ms, rel=1e-9)
    assert len({layer.id for layer in found.layers}) == len(found.layers)
    assert [layer.index for layer in found.layers] == list(range(len(found.layers)))
    # Only what the engine put in itself, to reorder tensors.
    assert {layer.type for layer in found.layers if not layer.nodes} <= {
        "ReorderInput",
        "ReorderOutput",
        "Reorder",
    }
    assert found.unattributed_share == pytest.approx(sum(layer.share for layer in found.layers if not layer.nodes))
    assert found.layers_sum_ms > 0
    assert len(found.processes_ms) == 2
    assert found.ms_interval is not None
    assert found.output_check.status == "match"
    assert found.problems == ()
    assert (found.engine, found.batch_size, found.num_cores, found.pruned) == (engine, 1, 1, {})


def test_onnx_runtime_fuses_the_addition_and_the_activations(profiled: Profiled) -> None:
    joined = [layer for layer in profiled("onnxruntime").layers if layer.nodes]
    assert [layer.nodes for layer in joined] == [("a", "r"), ("c", "s", "t"), ("p",), ("f",), ("y",)]
    assert [(layer.id, layer.type, layer.weight) for layer in joined] == [
        ("a", "Conv", "w1"), ("c", "Conv", "w2"), ("p", "GlobalAveragePool", ""), ("f", "Flatten", ""),
        ("y", "Gemm", "fc"),
    ]  # fmt: skip


def test_a_layer_has_the_costs_of_its_nodes(cnn: Path, profiled: Profiled) -> None:
    counted = {node.id: node for node in a_job(cnn, "onnxruntime")[1].nodes}
    layer = next(layer for layer in profiled("onnxruntime").layers if layer.id == "a")
    assert layer.flops == (counted["a"].flops or 0) + (counted["r"].flops or 0)
    assert (layer.params, layer.zero_fraction, layer.prunable, layer.dtype) == (32 * 8 * 9, 0.0, True, "float32")
    # The image, the weights and the result once: what is between convolution and activation never leaves it.
    assert layer.bytes == 4 * (8 * 32 * 32 + 32 * 8 * 9 + 32 * 32 * 32)
    assert layer.gflops_per_second == pytest.approx(layer.flops / layer.ms / 1e6)


def test_openvino_tells_its_kernels(profiled: Profiled) -> None:
    layer = next(layer for layer in profiled("openvino").layers if layer.id == "a")
    assert layer.nodes == ("a", "r")
    assert layer.kernel.endswith("f32")


def test_onnx_runtime_traces_the_branch_that_it_takes(tmp_path: Path) -> None:
    def branch(name: str, kind: str, table: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", ["m", table], [name + "1"]),
            helper.make_node(kind, [name + "1"], [name + "2"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name + "2", 1, None)])

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "limit"], ["condition"]),
        helper.make_node(
            "If",
            ["condition"],
            ["y"],
            then_branch=branch("then", "Relu", "w"),
            else_branch=branch("else", "Tanh", "v"),
        ),
    ]
    limit = numpy_helper.from_array(np.array(1e9, np.float32), "limit")
    path = save(tmp_path / "if.onnx", nodes, (16, 16), [weight("w", 16, 16), weight("v", 16, 16), limit])
    found = profile(path, "onnxruntime", processes=1)
    assert {layer.nodes for layer in found.layers} == {
        ("m",), ("largest",), ("condition",), ("y",), ("else1",), ("else2",),
    }  # fmt: skip
    assert all(layer.ms >= 0 for layer in found.layers)
    assert found.ms_interval is None


def test_nothing_is_left_behind_and_the_model_is_as_it_was(
    cnn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = (cnn.read_bytes(), sorted(cnn.parent.iterdir()))
    cnn.parent.chmod(0o555)
    try:
        profile(cnn, "onnxruntime", processes=1)
    finally:
        cnn.parent.chmod(0o755)
    assert (cnn.read_bytes(), sorted(cnn.parent.iterdir())) == before
    # Where there is no runtime folder, the measuring lock lies in a folder of the user's own.
    assert [path for path in tmp_path.rglob("*") if path not in (lock_file(), lock_file().parent)] == []


ENGINES = """
import os, time
import numpy

class Steady:
    capabilities = frozenset({"layer_times", "imposed_sparsity"})

    def load(self, model, options):
        return {}

    def bind(self, inputs, stream=0):
        def call():
            time.sleep(0.001)
            return [numpy.zeros((1, 10), numpy.float32)]
        return call

    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        if imposed_sparsity is None:
            names = {"first": ["a"], "second": ["c"], "rest": ["y"]}
            ns = {"first": 1e6, "second": 6e6, "rest": 1e6}
        else:
            names = {"both": ["a", "c"], "rest": ["y"]}
            ns = {"both": 7e6 * (1 - imposed_sparsity), "rest": 1e6}
        layers = [{"name": name, "covers": names[name], "ns": ns[name]} for name in names]
        return {"layers": layers, "wall_ns": 9e6, "iterations": 1, "unnamed": "before"}

class Aborting(Steady):
    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        os.abort()

class Refusing(Steady):
    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        if imposed_sparsity is None:
            return super().layer_times(inputs, seconds)
        raise ValueError("too sparse")
"""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines") / "engines.py"
    path.write_text(ENGINES)
    return path


def test_imposed_levels_gain_what_they_gain_by_the_engines_clock_and_no_more(cnn: Path, engines: Path) -> None:
    found = profile(cnn, f"{engines}:Steady", levels=(0.9, 0.5), processes=1)
    total = found.ms_per_batch
    assert [layer.nodes for layer in found.layers] == [("a", "r"), ("c", "s", "t"), ("p", "f", "y")]
    assert [layer.share for layer in found.layers] == pytest.approx([1 / 8, 6 / 8, 1 / 8])
    assert found.pruning == "imposed"
    # The layers take 8 ms by the engine's clock; what the call takes beyond that no zeros shorten.
    gained_ms = min(1.0, total / 8)
    assert found.pruned == {
        "0.5": pytest.approx(total - 3.5 * gained_ms),
        "0.9": pytest.approx(total - 6.3 * gained_ms),
    }
    # The engine ran two of the layers as one, whose time is theirs in proportion.
    assert found.layers[1].pruned == {
        "0.5": pytest.approx(6 / 8 * total - 3 * gained_ms),
        "0.9": pytest.approx(6 / 8 * total - 5.4 * gained_ms),
    }
    assert found.layers[2].pruned == {"0.5": pytest.approx(total / 8), "0.9": pytest.approx(total / 8)}
    assert found.layers_sum_ms == pytest.approx(8.0)
    assert found.profiler_overhead == pytest.approx(9.0 / found.processes_ms[0] - 1)
    assert found.output_check.status == "mismatch"
    assert [finding.code for finding in found.findings if finding.code == "output-mismatch"] == ["output-mismatch"]


def test_an_engine_that_dies_in_the_layer_pass_keeps_its_clean_pass(cnn: Path, engines: Path) -> None:
    found = profile(cnn, f"{engines}:Aborting")
    assert len(found.processes_ms) == 2
    assert found.ms_per_batch > 0
    assert (found.layers, found.unattributed_share, found.layers_sum_ms) == ((), 0.0, 0.0)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("The layers could not be timed: Engine ")
    assert "SIGABRT" in found.problems[0]


def test_a_level_that_cannot_be_imposed_is_told_and_the_rest_kept(cnn: Path, engines: Path) -> None:
    found = profile(cnn, f"{engines}:Refusing", levels=(0.5,), processes=1)
    assert len(found.layers) == 3
    assert found.pruned == {}
    assert found.problems[0].startswith("Sparsity 0.5 could not be imposed: ")
    assert "too sparse" in found.problems[0]


def test_an_engine_that_tells_no_layer_times_is_refused_with_those_that_do(cnn: Path) -> None:
    job, counted = a_job(cnn, "fake")
    with pytest.raises(
        BadInput, match=r"'fake' does not report the times of its layers\. .*: onnxruntime, openvino"
    ):
        performance.measure(job, counted, 1.0, "", (), ignore)


def test_who_can_impose_sparsity_says_so(cnn: Path, engines: Path) -> None:
    assert performance.can_impose(a_job(cnn, f"{engines}:Steady")[0])
    assert not performance.can_impose(a_job(cnn, "onnxruntime")[0])


def test_ctrl_c_in_the_layer_pass_is_passed_on(cnn: Path) -> None:
    def interrupt(event: Event) -> None:
        if event.code == "layers":
            raise KeyboardInterrupt

    job, counted = a_job(cnn, "onnxruntime")
    with pytest.raises(KeyboardInterrupt):
        performance.measure(job, counted, 0.2, "", (), interrupt)


def test_a_pruned_copy_is_measured_layer_by_layer(cnn: Path, tmp_path: Path, profiled: Profiled) -> None:
    proto = onnx.load(cnn)
    zeros = numpy_helper.from_array(np.zeros((32, 32, 3, 3), np.float32), "w2")
    proto.graph.initializer[1].CopyFrom(zeros)
    onnx.save(proto, tmp_path / "pruned.onnx")
    baseline = profiled("onnxruntime")
    job, counted = a_job(cnn, "onnxruntime")
    pruned = read_onnx(tmp_path / "pruned.onnx", "pruned")
    with InterleavedTimer(job, counted, baseline, 0.2, ignore) as timer:
        found = timer.measure(pruned)
    joined = [layer.id for layer in baseline.layers if layer.nodes]
    assert list(found.layers_ms) == joined
    assert 0 < sum(found.layers_ms.values()) <= found.ms_per_batch * (1 + 1e-9)
    assert all(ms > 0 for ms in found.layers_ms.values())
    assert (found.output_check.status, found.problems) == ("match", ())
