"""--timeout holds for every step of every command: reading, tracing, quantising, exporting."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from inferlab.errors import BadInput, EngineHung
from inferlab.model.flops.count import costs
from inferlab.model.inputs import generate_data
from inferlab.model.onnx_file import read_onnx
from inferlab.transform.quantize import quantize
from inferlab.worker import time_limit, timeout_s
from tests.cli.conftest import Run


def endless() -> ModelProto:
    """A model that loads at once and never ends: its shapes are known only when it runs."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go2"]), helper.make_node("MatMul", ["h", "w"], ["h2"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [2, 2]),
        ],
        [
            helper.make_tensor_value_info("go2", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h2", TensorProto.FLOAT, [2, 2]),
        ],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Loop", ["rounds", "yes", "p"], ["l"], "loop", body=body),
        helper.make_node("NonZero", ["l"], ["y"], "nonzero"),
    ]
    weights = [
        numpy_helper.from_array(np.array(2**62, np.int64), "rounds"),
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"),
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    output = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    graph = helper.make_graph(nodes, "g", [value], [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "endless.onnx"
    path.write_bytes(endless().SerializeToString())
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("benchmark", "demo:digits"),
        ("profile", "demo:digits"),
        ("recommend", "demo:digits"),
        ("capacity", "demo:digits", "--slo", "p99<50ms"),
        ("compare", "demo:digits", "demo:mlp"),
        ("optimize", "demo:digits", "--sparsity", "0.5", "-o", "out.onnx"),
    ],
    ids=lambda command: command[0],
)
def test_reading_the_model_obeys_the_timeout_of_every_command(
    command: tuple[str, ...],
    inferlab_here: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = inferlab_here(*command, "--timeout", "0.001")
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    assert "takes more than 0.001 s to read" in ended.stderr
    assert "--timeout sets how long to wait" in ended.stderr


@pytest.mark.timeout(200)
def test_tracing_obeys_it(path: Path) -> None:
    model = read_onnx(path, "endless")
    with time_limit(2.0):
        found = costs(model, {"x": (2, 2)})
    reasons = [node.uncounted for node in found.nodes if node.uncounted]
    assert any("no answer to 'task' in 2 s" in reason for reason in reasons), reasons


@pytest.mark.timeout(200)
def test_a_profile_obeys_it(path: Path, inferlab_here: Run) -> None:
    ended = inferlab_here("profile", path, "-t", "1", "--timeout", "3")
    assert "in 3 s" in ended.stdout + ended.stderr
    assert ended.returncode in (0, 3), ended.stderr


@pytest.mark.timeout(200)
def test_quantising_obeys_it(path: Path, tmp_path: Path) -> None:
    model = read_onnx(path, "endless")
    inputs = generate_data(model.inputs, {"x": (2, 2)}, 1).sets
    with time_limit(3.0), pytest.raises(EngineHung, match="in 3 s"):
        quantize(model, inputs, tmp_path / "out")


@pytest.mark.timeout(200)
def test_an_optimisation_obeys_it(path: Path, inferlab_here: Run, tmp_path: Path) -> None:
    ended = inferlab_here(
        "optimize", path, "--sparsity", "0.5", "--ends", "-o", tmp_path / "o.onnx", "--timeout", "3"
    )
    assert ended.returncode == 3, ended.stderr
    assert "in 3 s" in ended.stderr


def test_an_export_obeys_it(inferlab_here: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/constants.pkl", b"")
    ended = inferlab_here("export", tmp_path / "model.pt", "-o", tmp_path / "out.onnx", "--timeout", "0.01")
    assert ended.returncode == 3, ended.stderr
    assert "in 0.01 s" in ended.stderr


def test_steps_that_take_long_have_their_own_limit_where_the_user_gives_none() -> None:
    assert timeout_s(3600.0) == 3600.0
    with time_limit(None):
        assert timeout_s(3600.0) == 3600.0
    for given in (15.0, 300.0):
        with time_limit(given):
            assert timeout_s(3600.0) == given
    assert timeout_s() == 300.0


@pytest.mark.parametrize(("given", "limit"), [((), 3600.0), (("--timeout", "300"), 300.0)])
def test_a_limit_that_is_given_counts_also_where_it_is_the_default(
    given: tuple[str, ...], limit: float, inferlab_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def read(*_: Any) -> Any:
        limits.append(timeout_s(3600.0))
        raise BadInput("enough")

    monkeypatch.setattr("inferlab.lab.lab.read_model", read)
    assert inferlab_here("benchmark", "demo:digits", *given).stderr == "inferlab: enough\n"
    assert limits == [limit]
