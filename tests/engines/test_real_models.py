"""Trained models that others made, on the engines that users deploy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab import Lab, Plan
from inferlab.measure.findings import find, find_all
from inferlab.records import Outcome
from inferlab.worker import Launch
from tests.helpers.real_models import one


def benchmark(path: Path, engine: str, sequence_length: int | None = None) -> Outcome:
    plan = Plan(
        str(path),
        engines=(engine,),
        time_s=0.1,
        warmup_s=0.0,
        processes=1,
        sequence_lengths=(sequence_length,),
        patience_s=60,
    )
    return Lab().benchmark(plan).outcomes[0]


@pytest.fixture
def use_deepsparse(deepsparse: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the front door find the test run's own DeepSparse."""
    from inferlab.engines import registry

    original = registry.launch
    monkeypatch.setattr(registry, "launch", lambda name: deepsparse if name == "deepsparse" else original(name))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "deepsparse"])
@pytest.mark.parametrize("name", ["magika", "ppocrv4_det", "mnist_cntk", "g2p_bert"])
@pytest.mark.usefixtures("use_deepsparse")
def test_a_trained_model_runs_and_its_outputs_match(name: str, engine: str) -> None:
    path = one(name)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    outcome = benchmark(path, engine)
    assert outcome.failure is None
    assert outcome.runs[0].check.status == "match", outcome.runs[0].check
    assert len(outcome.runs[0].windows[0].streams[0]) > 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_dynamic_int8_transformer_is_judged_as_a_whole(engine: str) -> None:
    outcome = benchmark(one("minilm_int8", "model_quantized.onnx"), engine)
    check = outcome.runs[0].check
    assert (check.status, check.metric) == ("match", "rms")


@pytest.mark.usefixtures("use_deepsparse")
def test_deepsparse_aborts_on_a_dynamic_int8_transformer_and_that_is_a_failed_cell() -> None:
    outcome = benchmark(one("minilm_int8", "model_quantized.onnx"), "deepsparse")
    assert outcome.status == "failed"
    assert outcome.failure is not None and outcome.failure.code == "died"
    assert "Assertion" in outcome.failure.message


def test_a_model_that_openvino_cannot_convert_is_refused_with_its_own_words() -> None:
    outcome = benchmark(one("silero_vad", "/silero_vad.onnx"), "openvino", 512)
    assert outcome.failure is not None and outcome.failure.code == "refused"
    assert "OpConversion" in outcome.failure.message
    assert len(outcome.failure.message) < 1000


def test_nested_ifs_and_a_scalar_input_run_on_onnxruntime() -> None:
    assert benchmark(one("silero_vad", "/silero_vad.onnx"), "onnxruntime", 512).status == "done"


@pytest.mark.parametrize(
    ("name", "ending", "shape"),
    [
        ("silero_vad", "/silero_vad.onnx", (1, 512)),
        ("silero_vad", "/silero_vad_16k_op15.onnx", (1, 512)),
        ("silero_vad", "/silero_vad_half.onnx", (1, 512)),
        ("ppocrv4_rec", ".onnx", (1, 3, 48, 320)),
        ("ppocrv4_det", ".onnx", (1, 3, 224, 224)),
        ("mtcnn", "/pnet.onnx", (1, 3, 224, 224)),
    ],
)
def test_a_model_that_leaves_its_shapes_open_runs_without_options_and_the_guess_is_said(
    name: str, ending: str, shape: tuple[int, ...]
) -> None:
    outcome = benchmark(one(name, ending), "onnxruntime")
    assert outcome.status == "done", outcome.failure
    guesses = [finding.data["shapes"] for finding in find_all(outcome) if finding.code == "shapes-guessed"]
    assert [list(shapes.values()) for shapes in guesses] == [[list(shape)]]


def test_a_batch_size_is_set_where_a_constant_reshape_fixes_another() -> None:
    plan = Plan(str(one("mnist_cntk")), batch_sizes=(16,), time_s=0.1, warmup_s=0.0, processes=1, patience_s=60)
    outcome = Lab().benchmark(plan).outcomes[0]
    assert outcome.status == "done", outcome.failure
    assert (outcome.cell.batch_size, outcome.runs[0].check.status) == (16, "match")


def test_a_refusal_names_the_shapes_that_were_tried() -> None:
    outcome = benchmark(one("silero_vad", "/silero_vad.onnx"), "onnxruntime", 128)
    assert outcome.failure is not None
    assert "Tried with input=[1, 128]" in outcome.failure.message


@pytest.mark.usefixtures("use_deepsparse")
def test_a_model_on_which_deepsparse_is_silently_wrong_is_reported_as_wrong(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "residual"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "loses_its_add",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16]) for name in ("x", "residual")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path / "residual.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    outcome = benchmark(path, "deepsparse")
    assert outcome.runs[0].check.status == "mismatch"
    assert "output-mismatch" in [finding.code for finding in find(outcome.cell, outcome.runs)]
