"""OpenVINO in a child: what it computes, what it is set to, where its threads run, what it leaves alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.child import protocol
from inferlab.child.loop import MOST_SAMPLES
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed
from inferlab.lab import Lab
from inferlab.measure.cells import jobs
from inferlab.measure.findings import find
from inferlab.measure.recommend import deployment
from inferlab.model.reading import inspect_foreign, read_model
from inferlab.records import Event, Outcome, Plan, TensorSpec
from inferlab.worker import Launch, Worker
from tests.helpers import networks

OPENVINO = Launch("openvino", {"builtin": "openvino", "class": "OpenVino"})
ONNXRUNTIME = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")

# An engine that tells where its process's threads may run after a call.
WATCHED = """
import os
from inferlab_child.engines.openvino import OpenVino
class Watched(OpenVino):
    def outputs(self, call, returned):
        import numpy
        return {"allowed": numpy.array(sorted(os.sched_getaffinity(0)))}
"""


# An engine that dies as OpenVINO does of quantised models on some CPUs with AMX, unless it is told to do without.
DYING = """
import os, signal
from inferlab_child.engines.openvino import OpenVino
class Dying(OpenVino):
    def bind(self, inputs, stream=0):
        if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_VNNI":
            os.kill(os.getpid(), signal.SIGILL)
        return super().bind(inputs, stream)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = relu(x @ w), and z, the sum of its rows; batch is free."""
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Relu", ["m"], ["y"]),
            helper.make_node("ReduceSum", ["y", "axis"], ["z"], keepdims=0),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch"]),
        ],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([1]), "axis")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def representation(tmp_path: Path) -> Path:
    """An OpenVINO IR: a table of 10 rows of 2, half of them zero, looked up by whole numbers."""
    child = Launch("maker", {"file": str(tmp_path / "maker.py"), "class": "Maker"}, trusted=True)
    (tmp_path / "maker.py").write_text(
        "class Maker:\n"
        "    def inspect(self, model, kind):\n"
        "        import sys; sys.modules['openvino_telemetry'] = None\n"
        "        import numpy, openvino\n"
        "        from openvino import opset13 as op\n"
        "        ids = op.parameter([-1, 3], numpy.int64, name='ids')\n"
        "        ids.output(0).set_names({'ids'})\n"
        "        table = numpy.arange(20, dtype=numpy.float32).reshape(10, 2); table[5:] = 0; table[0, 0] = 1\n"
        "        rows = op.gather(op.constant(table), ids, op.constant(0))\n"
        "        rows.output(0).set_names({'rows'})\n"
        "        openvino.save_model(openvino.Model([rows], [ids]), model, compress_to_fp16=False)\n"
        "        return {}\n"
    )
    path = tmp_path / "table.xml"
    with Worker(child) as worker:
        worker.ask("inspect", model=str(path), kind="openvino")
    return path


def load(worker: Worker, model: Path, shapes: Mapping[str, list[int]], **changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "kind": "onnx", "groups": [[]], "layout": "each", "threads": 1, "cores": 1, "scheduler": "single_stream",
        "pinning": "none", "batch_size": 1, "options": {}, "outputs": ["y", "z"],
    }  # fmt: skip
    answer: dict[str, Any] = worker.ask("load", model=str(model), shapes=shapes, **{**request, **changes}).data
    return answer["settings"]  # type: ignore[no-any-return]


def give(worker: Worker, **arrays: Any) -> None:
    heads, blocks = protocol.pack_arrays(arrays)
    worker.ask("inputs", blocks, arrays=heads)


def test_it_computes_what_onnxruntime_computes(model: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    found = []
    for launch in (OPENVINO, ONNXRUNTIME):
        with Worker(launch) as worker:
            load(worker, model, {"x": [3, 8]})
            give(worker, x=x)
            found.append(worker.ask("infer", stream=0, set=0).arrays())
    assert found[0]["y"].shape == (3, 4)
    assert found[0]["z"].shape == (3,)
    np.testing.assert_allclose(found[0]["y"], found[1]["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[0]["z"], found[1]["z"], rtol=1e-4, atol=1e-4)


def test_each_set_of_inputs_keeps_its_own_outputs(model: Path) -> None:
    with Worker(OPENVINO) as worker:
        load(worker, model, {"x": [1, 8]})
        give(worker, x=np.ones((1, 8), np.float32))
        give(worker, x=np.zeros((1, 8), np.float32))
        first = worker.ask("infer", stream=0, set=0).arrays()["y"]
        assert worker.ask("infer", stream=0, set=1).arrays()["y"].tolist() == [[0, 0, 0, 0]]
        assert worker.ask("infer", stream=0, set=0).arrays()["y"].tolist() == first.tolist()
        assert first.any()


def test_the_settings_in_force_are_read_back(model: Path) -> None:
    with Worker(OPENVINO) as worker:
        settings = load(worker, model, {"x": [1, 8]}, options={"execution_mode": "accuracy", "PERF_COUNT": "NO"})
    assert settings["inference_num_threads"] == 1
    assert settings["num_streams"] == 1
    assert settings["performance_hint"] == "LATENCY"
    assert settings["inference_precision_hint"] == "f32"
    assert settings["execution_mode_hint"] == "ACCURACY"
    assert settings["enable_cpu_pinning"] is False
    assert settings["perf_count"] == "NO"
    assert settings["dynamic"] == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "f8"}, "precision=f8 is not possible; precision takes f32, bf16, f16"),
        ({"speed": "1"}, "unknown option speed"),
        ({"WARP_SPEED": "1"}, "unknown property WARP_SPEED"),
    ],
)
def test_an_option_that_it_does_not_have_is_refused(model: Path, options: dict[str, str], sentence: str) -> None:
    with Worker(OPENVINO) as worker, pytest.raises(BadInput, match=sentence):
        load(worker, model, {"x": [1, 8]}, options=options)


@two_cpus
def test_native_streams_divide_the_cores(model: Path) -> None:
    with Worker(OPENVINO, CPUS[:2]) as worker:
        both = {
            "groups": [CPUS[:2]] * 2,
            "layout": "one",
            "cores": 2,
            "scheduler": "multi_stream",
            "pinning": "core",
        }
        settings = load(worker, model, {"x": [1, 8]}, **both)
        give(worker, x=np.ones((1, 8), np.float32))
        blocks = worker.ask("slice", start_ns=0, seconds=0.05, expected=None, most=MOST_SAMPLES, watch=[]).blocks
    assert (settings["inference_num_threads"], settings["num_streams"]) == (2, 2)
    assert settings["performance_hint"] == "THROUGHPUT"
    assert settings["enable_cpu_pinning"] is True
    assert len(blocks) == 4
    assert all(blocks)


@two_cpus
def test_streams_with_cpus_of_their_own_are_left_on_them(model: Path, tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    watched = Launch("watched", {"file": str(tmp_path / "watched.py"), "class": "Watched"})
    # Had OpenVINO bound the thread that calls, it would have been given all CPUs of the process afterwards.
    with Worker(watched, CPUS[:2]) as worker:
        groups = {"groups": [[CPUS[0]], [CPUS[1]]], "scheduler": "multi_stream", "pinning": "core", "outputs": []}
        settings = load(worker, model, {"x": [1, 8]}, **groups)
        give(worker, x=np.ones((1, 8), np.float32))
        worker.ask("slice", start_ns=0, seconds=0.05, expected=None, most=MOST_SAMPLES, watch=[])
    assert settings["enable_cpu_pinning"] is False
    with Worker(watched, [CPUS[1]]) as worker:
        alone = load(worker, model, {"x": [1, 8]}, groups=[[CPUS[1]]], pinning="core", outputs=[])
        give(worker, x=np.ones((1, 8), np.float32))
        assert worker.ask("infer", stream=0, set=0).arrays()["allowed"].tolist() == [CPUS[1]]
    assert alone["enable_cpu_pinning"] is True


def test_an_intermediate_representation_is_inspected_and_run(representation: Path) -> None:
    model = inspect_foreign(representation, "openvino", "table.xml")
    assert model.inputs == (TensorSpec("ids", "int64", (None, 3), below=10),)
    assert model.outputs == (TensorSpec("rows", "float32", (None, 3, 2)),)
    assert (model.parameters, model.zero_fraction, model.precision) == (20, 0.5, "FP32")
    weights = representation.with_suffix(".bin")
    assert model.size_bytes == representation.stat().st_size + weights.stat().st_size
    with Worker(OPENVINO) as worker:
        load(worker, representation, {"ids": [1, 3]}, kind="openvino", outputs=["rows"])
        give(worker, ids=np.array([[1, 4, 7]]))
        assert worker.ask("infer", stream=0, set=0).arrays()["rows"].tolist() == [[[2, 3], [8, 9], [0, 0]]]


def test_a_file_that_is_no_representation_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "page.xml").write_text("<html></html>")
    with pytest.raises(BadInput, match="is not an OpenVINO model"):
        inspect_foreign(tmp_path / "page.xml", "openvino", "page.xml")


def test_a_quantised_model_that_it_dies_of_is_measured_with_older_instructions_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    weights = {"scale": np.array(0.1, np.float32), "w": networks.random(4, 4)}
    onnx.save(networks.a_graph(nodes, weights, (1, 4)), tmp_path / "quantised.onnx")
    plain = helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(networks.a_graph([plain], {"w": weights["w"]}, (1, 4)), tmp_path / "plain.onnx")
    launch = registry.launch
    safe = {"max_cpu_isa": "AVX512_CORE_VNNI"}
    monkeypatch.setattr(registry, "launch", lambda name: replace(launch(name), safe_options=safe))

    def measured(name: str, *options: tuple[str, str]) -> Outcome:
        plan = Plan(
            str(tmp_path / name), engines=(f"{tmp_path}/dying.py:Dying",), engine_options=options,
            scenarios=("sync",), num_cores=(1,), time_s=0.1, warmup_s=0.01, processes=1,
        )  # fmt: skip
        (outcome,) = Lab().benchmark(plan, events.append).outcomes
        return outcome

    events: list[Event] = []
    outcome = measured("quantised.onnx")
    assert outcome.status == "done", outcome.failure
    (finding,) = [one for one in find(outcome.cell, outcome.runs) if one.code == "limited-isa"]
    assert finding.data == {"isa": "AVX512_CORE_VNNI"}
    assert outcome.runs[0].settings["max_cpu_isa"] == "auto:AVX512_CORE_VNNI"
    assert [event.data["options"] for event in events if event.code == "limited-isa"] == [
        "max_cpu_isa=AVX512_CORE_VNNI"
    ]
    # What the user says holds, and of a model that is not quantised nothing is tried.
    for failed in (measured("quantised.onnx", ("max_cpu_isa", "AVX2")), measured("plain.onnx")):
        assert failed.failure is not None and "was ended by SIGILL" in failed.failure.message


def test_the_program_that_deploys_it_limits_its_instructions_as_it_was_measured(model: Path) -> None:
    (job,) = jobs(Plan(str(model), engines=("openvino",), scenarios=("sync",)), read_model(str(model)))
    line = "    os.environ[\"ONEDNN_MAX_CPU_ISA\"] = 'AVX512_CORE_FP16'"
    assert line in deployment(job, decided={"max_cpu_isa": "auto:AVX512_CORE_FP16"}).engine_code
    assert "ONEDNN_MAX_CPU_ISA" not in deployment(job).engine_code


@pytest.mark.new_processes
def test_an_abort_is_told_by_its_signal(model: Path) -> None:
    with Worker(OPENVINO) as worker:
        load(worker, model, {"x": [1, 8]})
        os.kill(worker._process.pid, signal.SIGABRT)
        with pytest.raises(EngineFailed, match=r"Engine 'openvino' died .* SIGABRT"):
            worker.ask("infer", stream=0, set=0)


def test_the_home_folder_is_left_as_it_was(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with Worker(Launch("openvino", OPENVINO.reference, environment={"HOME": str(home)})) as worker:
        load(worker, model, {"x": [1, 8]})
        give(worker, x=np.ones((1, 8), np.float32))
        worker.ask("infer", stream=0, set=0)
    assert list(home.rglob("*")) == []
