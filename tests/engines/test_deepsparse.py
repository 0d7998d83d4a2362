"""DeepSparse in its own environment: what it computes, where its threads run, what it must not touch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.child import protocol
from inferlab.engines import registry
from inferlab.errors import BadInput, EngineFailed, EngineRefused
from inferlab.worker import Launch, Worker

Arrays = Mapping[str, Any]
Shapes = Mapping[str, Sequence[int]]

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")

# An engine that looks around in the child: where threads may run, whom anybody tried to reach.
WATCHED = """
import os, sys
reached = []
sys.addaudithook(lambda name, args: reached.append(name) if name in
    ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto") else None)
from inferlab_child.engines.deepsparse import DeepSparse

def affinities():
    # The first one is the main thread's.
    return [sorted(os.sched_getaffinity(int(task))) for task in sorted(os.listdir("/proc/self/task"), key=int)]

def sockets():
    kinds = []
    for number in os.listdir("/proc/self/fd"):
        try:
            kinds.append(os.readlink("/proc/self/fd/" + number))
        except OSError:
            pass
    return [kind for kind in kinds if kind.startswith("socket:")]

class Watched(DeepSparse):
    def load(self, model, options):
        settings = super().load(model, options)
        return dict(settings, affinities=affinities(), reached=reached, sockets=sockets(), home=os.environ["HOME"])

class Strided(DeepSparse):
    def bind(self, inputs, stream=0):
        import numpy
        return super().bind({name: numpy.asfortranarray(array) for name, array in inputs.items()}, stream)
"""


@pytest.fixture
def watched(deepsparse: Launch, tmp_path: Path) -> Launch:
    return _in_file(deepsparse, tmp_path, "Watched")


def _in_file(deepsparse: Launch, folder: Path, kind: str) -> Launch:
    (folder / "watched.py").write_text(WATCHED)
    return replace(deepsparse, reference={"file": str(folder / "watched.py"), "class": kind})


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(7).standard_normal(shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(values.astype(np.float32), name)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Sequence[onnx.TensorProto] = (),
    ir_version: int = 8,
    opset: int = 13,
) -> Path:
    """A model with float inputs and the float output y, of unknown shape."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    onnx.save(model, path)
    return path


def conv(path: Path, dims: Sequence[int | str] = (1, 8, 16, 16), ir_version: int = 8, opset: int = 13) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["y"]),
    ]
    return save(path, nodes, {"x": dims}, [weights("w", 32, 8, 3, 3), weights("v", 32, 4)], ir_version, opset)


def load(
    worker: Worker,
    model: Path,
    shapes: Shapes,
    groups: Sequence[Sequence[int]] = ((),),
    layout: str = "each",
    cores: int = 1,
    scheduler: str = "single_stream",
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    first = next(iter(shapes.values()))
    data = worker.ask(
        "load",
        model=str(model),
        kind="onnx",
        groups=[list(group) for group in groups],
        layout=layout,
        threads=cores if len(groups) == 1 else 1,
        cores=cores,
        scheduler=scheduler,
        pinning="core" if any(groups) else "none",
        batch_size=first[0],
        shapes={name: list(shape) for name, shape in shapes.items()},
        options=dict(options or {}),
        outputs=["y"],
    ).data
    settings: dict[str, Any] = data["settings"]
    return settings


def infer(worker: Worker, inputs: Arrays, stream: int = 0) -> Any:
    heads, blocks = protocol.pack_arrays(inputs)
    worker.ask("inputs", blocks, arrays=heads)
    return worker.ask("infer", stream=stream, set=0).arrays()["y"]


def outputs_of(launch: Launch, model: Path, inputs: Arrays, options: Mapping[str, str] | None = None) -> Any:
    with Worker(launch) as worker:
        load(worker, model, {name: array.shape for name, array in inputs.items()}, options=options)
        return infer(worker, inputs)


def random(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_it_reads_older_models_from_a_copy_in_an_environment_of_its_own(deepsparse: Launch) -> None:
    assert (deepsparse.isolated, deepsparse.writes_model, deepsparse.newest_ir) == (True, True, 8)
    with Worker(deepsparse) as worker:
        told = worker.ask("describe").data
    assert told["versions"] == {"deepsparse": "1.8.0"}
    assert told["capabilities"] == ["imposed_sparsity", "layer_times", "native_streams", "shared_streams"]


@pytest.mark.parametrize("dims", [(2, 8, 16, 16), ("batch", 8, 16, 16), (1, 8, 16, 16)])
def test_the_batch_is_set_without_writing_to_the_model(
    deepsparse: Launch, tmp_path: Path, dims: Sequence[int | str]
) -> None:
    model = conv(tmp_path / "model.onnx", dims)
    before = digest(model)
    x = random(2, 8, 16, 16)
    expected = outputs_of(registry.launch("onnxruntime"), conv(tmp_path / "same.onnx", ("b", 8, 16, 16)), {"x": x})
    assert expected.shape == (2, 4)
    np.testing.assert_allclose(outputs_of(deepsparse, model, {"x": x}), expected, rtol=1e-4, atol=1e-5)
    assert digest(model) == before


def test_other_shapes_are_written_into_the_model(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx", ("batch", 8, "height", "width"))
    x = random(2, 8, 12, 20)
    expected = outputs_of(registry.launch("onnxruntime"), model, {"x": x})
    with Worker(deepsparse) as worker:
        settings = load(worker, model, {"x": x.shape})
        np.testing.assert_allclose(infer(worker, {"x": x}), expected, rtol=1e-4, atol=1e-5)
    settings.pop("cpu_avx_type")
    settings.pop("cpu_vnni")
    assert settings == {
        "onnx_file": str(model),
        "batch_size": 2,
        "input_shapes": [[2, 8, 12, 20]],
        "shapes_rewritten": 1,
        "num_cores": 1,
        "scheduler": "single_stream",
        "num_streams": 1,
        "threads_bound": 0,
        "plain_run": 0,
        "fraction_of_supported_ops": 1.0,
    }
    dims = onnx.load(model).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 8, 12, 20]


def test_inputs_may_differ_in_their_first_dimension_and_order(deepsparse: Launch, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["row", "w"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["y"], axis=0),
    ]
    model = save(tmp_path / "model.onnx", nodes, {"row": (1, 16), "x": ("n", 16)}, [weights("w", 16, 16)])
    inputs = {"x": random(4, 16), "row": random(1, 16) * 10}
    expected = outputs_of(registry.launch("onnxruntime"), model, inputs)
    np.testing.assert_allclose(outputs_of(deepsparse, model, inputs), expected, rtol=1e-4, atol=1e-5)


def test_it_is_silently_wrong_where_an_input_is_added_to_a_product(deepsparse: Launch, tmp_path: Path) -> None:
    # A fault of DeepSparse 1.8.0: it leaves the addition out. This is why every cell's outputs are checked.
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    model = save(tmp_path / "model.onnx", nodes, {"x": (4, 16), "bias": (4, 16)}, [weights("w", 16, 16)])
    inputs = {"x": random(4, 16), "bias": random(4, 16) * 10}
    product = inputs["x"] @ numpy_helper.to_array(weights("w", 16, 16))
    expected = outputs_of(registry.launch("onnxruntime"), model, inputs)
    np.testing.assert_allclose(expected, np.maximum(product + inputs["bias"], 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs_of(deepsparse, model, inputs), np.maximum(product, 0), rtol=1e-4, atol=1e-5)


def test_an_input_of_the_wrong_rank_is_refused(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx", ("batch", 8, "height", "width"))
    with (
        Worker(deepsparse) as worker,
        pytest.raises(EngineRefused, match="could not be read or set to the shapes"),
    ):
        load(worker, model, {"x": (1, 8, 16)})


def test_an_array_that_is_not_contiguous_is_made_so(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx")
    strided = _in_file(deepsparse, tmp_path, "Strided")
    x = random(1, 8, 16, 16)
    np.testing.assert_array_equal(outputs_of(strided, model, {"x": x}), outputs_of(deepsparse, model, {"x": x}))


def test_the_plain_call_computes_the_same(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx")
    x = random(1, 8, 16, 16)
    plain = outputs_of(deepsparse, model, {"x": x}, {"plain_run": "1"})
    np.testing.assert_array_equal(plain, outputs_of(deepsparse, model, {"x": x}))


def test_options_that_it_does_not_have_are_refused(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx")
    with Worker(deepsparse) as worker:
        with pytest.raises(BadInput, match="unknown option spinning; it takes plain_run, scheduler"):
            load(worker, model, {"x": (1, 8, 16, 16)}, options={"spinning": "1"})
        with pytest.raises(BadInput, match="scheduler takes single_stream, multi_stream, elastic"):
            load(worker, model, {"x": (1, 8, 16, 16)}, options={"scheduler": "fair"})


@pytest.mark.parametrize(("versions", "what"), [((10, 13), "IR version"), ((8, 21), "[Oo]pset")])
def test_a_model_that_is_too_new_is_refused(
    deepsparse: Launch, tmp_path: Path, versions: tuple[int, int], what: str
) -> None:
    model = conv(tmp_path / "model.onnx", (1, 8, 16, 16), *versions)
    with Worker(deepsparse) as worker, pytest.raises(EngineRefused, match=what):
        load(worker, model, {"x": (1, 8, 16, 16)})


def test_dynamic_int8_on_which_it_aborts_is_a_failed_engine(deepsparse: Launch, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    integers = np.random.default_rng(1).integers(-127, 127, (64, 64)).astype(np.int8)
    model = save(tmp_path / "model.onnx", nodes, {"x": (1, 16, 64)}, [numpy_helper.from_array(integers, "w")])
    with (
        Worker(deepsparse) as worker,
        pytest.raises(EngineFailed, match=r"^Engine 'deepsparse' died during 'load'"),
    ):
        load(worker, model, {"x": (1, 16, 64)})


@two_cpus
def test_a_process_bound_to_one_cpu_stays_on_it(watched: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx")
    for cpu in CPUS[:2]:
        with Worker(watched, [cpu]) as worker:
            for scheduler in ("single_stream", "multi_stream"):
                options = {"scheduler": scheduler}
                settings = load(worker, model, {"x": (1, 8, 16, 16)}, [[cpu]], options=options)
                assert {tuple(one) for one in settings["affinities"]} == {(cpu,)}


@two_cpus
def test_the_caller_and_its_worker_have_a_cpu_each(watched: Launch, tmp_path: Path) -> None:
    first, second = CPUS[:2]
    with Worker(watched, [first, second]) as worker:
        shape = {"x": (1, 8, 16, 16)}
        settings = load(worker, conv(tmp_path / "model.onnx"), shape, [[first, second]], cores=2)
    assert settings["affinities"][0] == [first]
    assert [second] in settings["affinities"][1:]
    assert (settings["num_cores"], settings["threads_bound"]) == (2, 1)


@two_cpus
@pytest.mark.parametrize("scheduler", ["multi_stream", "elastic"])
def test_several_streams_of_one_engine_have_a_cpu_each(watched: Launch, tmp_path: Path, scheduler: str) -> None:
    model = conv(tmp_path / "model.onnx")
    x = random(1, 8, 16, 16)
    pair = CPUS[:2]
    with Worker(watched, pair) as worker:
        settings = load(worker, model, {"x": x.shape}, [pair, pair], "one", 2, scheduler)
        first, second = infer(worker, {"x": x}, 0), infer(worker, {"x": x}, 1)
    np.testing.assert_array_equal(first, second)
    assert (settings["scheduler"], settings["num_streams"], settings["num_cores"]) == (scheduler, 2, 2)
    assert all([cpu] in settings["affinities"] for cpu in pair)


@two_cpus
def test_streams_with_an_engine_each_run_in_one_process(deepsparse: Launch, tmp_path: Path) -> None:
    model = conv(tmp_path / "model.onnx")
    x = random(1, 8, 16, 16)
    with Worker(deepsparse, CPUS[:2]) as worker:
        settings = load(worker, model, {"x": x.shape}, [[cpu] for cpu in CPUS[:2]], scheduler="multi_stream")
        first, second = infer(worker, {"x": x}, 0), infer(worker, {"x": x}, 1)
    np.testing.assert_array_equal(first, second)
    assert (settings["scheduler"], settings["num_streams"]) == ("single_stream", 1)


def test_it_writes_nothing_at_home_and_reaches_nobody(
    watched: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    # Of its own accord: confined, it would have another home and no network.
    monkeypatch.setenv("INFERLAB_CONFINEMENT", "off")
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NM_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    x = random(1, 8, 16, 16)
    with Worker(watched) as worker:
        settings = load(worker, conv(tmp_path / "model.onnx"), {"x": x.shape})
        infer(worker, {"x": x})
    assert settings["home"] == str(home)
    assert (settings["reached"], settings["sockets"]) == ([], [])
    assert list(home.iterdir()) == []
