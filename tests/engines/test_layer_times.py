"""What engines tell of their layers, asked of real children; the whole profile on DeepSparse."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.child import protocol
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.cells import jobs
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import read_onnx
from inferlab.profiling import performance
from inferlab.records import Plan, ignore
from inferlab.worker import Launch, Worker

CPUS = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions around an operator that DeepSparse does not have."""
    generator = np.random.default_rng(3)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu1"),
        helper.make_node("TopK", ["r", "k"], ["t", "places"], name="topk", axis=3),
        helper.make_node("Conv", ["t", "v"], ["d"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["y"], name="relu2"),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            weight("w", 64, 16, 3, 3),
            weight("v", 64, 64, 3, 3),
            numpy_helper.from_array(np.array([16], np.int64), "k"),
        ],
    )
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@contextmanager
def loaded(launch: Launch, model: Path, cpus: Sequence[int] = CPUS) -> Iterator[Worker]:
    with Worker(launch, cpus) as worker:
        worker.ask(
            "load",
            model=str(model),
            kind="onnx",
            groups=[list(cpus)],
            layout="each",
            threads=max(1, len(cpus)),
            cores=max(1, len(cpus)),
            scheduler="single_stream",
            pinning="core",
            batch_size=1,
            shapes={"x": [1, 16, 16, 16]},
            options={},
            outputs=["y"],
        )
        heads, blocks = protocol.pack_arrays({"x": np.ones((1, 16, 16, 16), np.float32)})
        worker.ask("inputs", blocks, arrays=heads)
        worker.ask("infer", stream=0, set=0)
        yield worker


def layers(worker: Worker, folder: Path, imposed: float | None = None) -> dict[str, Any]:
    return worker.ask("layers", seconds=0.05, imposed_sparsity=imposed, folder=str(folder)).data


def test_onnx_runtime_tells_every_node_that_it_runs_and_its_graph(network: Path, tmp_path: Path) -> None:
    with loaded(registry.launch("onnxruntime"), network) as worker:
        reply = worker.ask("layers", seconds=0.05, imposed_sparsity=None, folder=str(tmp_path))
    graph = onnx.ModelProto.FromString(reply.blocks[0]).graph
    assert {one["name"] for one in reply.data["layers"]} == {node.name for node in graph.node}
    assert all(one["ns"] > 0 and not one["fallback"] for one in reply.data["layers"])
    assert reply.data["iterations"] >= 3
    assert list(tmp_path.iterdir()) == []


def test_openvino_tells_what_it_fused_and_leaves_out_what_did_not_run(network: Path, tmp_path: Path) -> None:
    with loaded(registry.launch("openvino"), network) as worker:
        told = layers(worker, tmp_path)["layers"]
    covered = [name for one in told for name in one["covers"]]
    assert {"conv1", "relu1", "topk", "conv2"} <= {name.split("/")[0].split(".")[0] for name in covered}
    first = next(one for one in told if "conv1" in "".join(one["covers"]))
    assert "relu1" in first["covers"]
    assert first["type"] == "Convolution"
    assert all(one["ns"] > 0 for one in told)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_who_cannot_impose_sparsity_refuses_it(engine: str, network: Path, tmp_path: Path) -> None:
    with (
        loaded(registry.launch(engine), network) as worker,
        pytest.raises(BadInput, match="cannot impose sparsity"),
    ):
        layers(worker, tmp_path, 0.9)


def test_deepsparse_names_main_nodes_and_marks_what_fell_back(
    deepsparse: Launch, network: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "network.onnx"
    copy.write_bytes(network.read_bytes())
    with loaded(deepsparse, copy) as worker:
        told = layers(worker, tmp_path)
    covers = [one["covers"] for one in told["layers"] if one["covers"]]
    assert covers == [["c"], ["d"]]
    assert told["unnamed"] == "before"
    assert {one["type"] for one in told["layers"] if one["fallback"]} == {"Naive Subgraph"}
    assert all(one["ns"] >= 0 for one in told["layers"])


def test_deepsparse_refuses_to_impose_sparsity_on_one_cpu_where_it_would_hang(
    deepsparse: Launch, network: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "network.onnx"
    copy.write_bytes(network.read_bytes())
    with loaded(deepsparse, copy, CPUS[:1]) as worker, pytest.raises(BadInput, match=r"hangs .* only one CPU"):
        layers(worker, tmp_path, 0.9)


def test_on_one_cpu_copies_with_zeros_are_timed_on_deepsparse_where_nothing_can_be_imposed(
    deepsparse: Launch, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(Path(deepsparse.interpreter).parents[3]))
    model = read_onnx(network, "network")
    plan = Plan(str(network), engines=("deepsparse",), scenarios=("sync",), num_cores=(1,))
    (bound,) = jobs(plan, model)
    (free,) = jobs(replace(plan, thread_pinning="none"), model)
    assert not performance.can_impose(bound) and performance.has_sparse_weights(bound)
    assert performance.can_impose(free)


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
def test_the_profile_on_deepsparse_joins_what_follows_and_what_fell_back(
    deepsparse: Launch, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(Path(deepsparse.interpreter).parents[3]))
    model = read_onnx(network, "network")
    plan = Plan(str(network), engines=("deepsparse",), scenarios=("sync",), num_cores=(2,))
    job = next(iter(jobs(plan, model)))
    counted = costs(model, dict(job.cell.shapes))
    found = performance.measure(job, counted, 0.4, "baseline", (0.5, 0.9), ignore, processes=1)
    joined = {layer.nodes: layer for layer in found.layers if layer.nodes}
    assert set(joined) == {("c", "r"), ("t",), ("d", "y")}
    assert [(one.type, one.fallback) for one in joined.values()] == [
        ("Conv", False),
        ("ORT", True),
        ("Conv", False),
    ]
    assert sum(layer.ms for layer in found.layers) == pytest.approx(found.ms_per_batch, rel=1e-9)
    assert found.pruning == "imposed"
    assert list(found.pruned) == ["0.5", "0.9"]
    assert all(list(layer.pruned) == ["0.5", "0.9"] for layer in joined.values())
    assert (found.output_check.status, found.problems) == ("match", ())
