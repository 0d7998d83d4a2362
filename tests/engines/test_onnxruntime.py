"""ONNX Runtime: how it is called where a model contradicts itself."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from inferlab import Lab, Plan
from inferlab.measure.findings import find_all
from inferlab.records import Finding, Outcome
from inferlab.views.text import finding


@pytest.fixture
def contradictory(tmp_path: Path) -> Path:
    """Declares an output of 7 columns, but as many come as the inputs have values that are not zero."""
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "contradictory",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, 7])],
    )
    path = tmp_path / "contradictory.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def measured(path: Path, **options: str) -> Outcome:
    plan = Plan(
        str(path),
        time_s=0.05,
        warmup_s=0.01,
        processes=1,
        num_cores=(1,),
        scenarios=("sync",),
        engine_options=tuple(options.items()),
    )
    return Lab().benchmark(plan).outcomes[0]


def test_a_model_that_contradicts_its_declared_outputs_is_called_plainly(contradictory: Path) -> None:
    outcome = measured(contradictory)
    assert (outcome.status, outcome.failure) == ("done", None)
    settings = outcome.runs[0].settings
    assert settings["io_binding"] == 0
    assert "y" in settings["io_binding_refused"]
    assert outcome.runs[0].check.status == "match"
    said = Finding("outputs-not-bound", {})
    assert said in find_all(outcome)
    assert finding(said) == (
        "an output has another shape than the model declares, which onnxruntime refuses for bound outputs; it was "
        "called by session.run, which takes some microseconds longer per call."
    )


def test_whoever_asks_for_the_plain_call_is_told_nothing(contradictory: Path) -> None:
    outcome = measured(contradictory, io_binding="0")
    assert outcome.status == "done"
    assert "outputs-not-bound" not in [one.code for one in find_all(outcome)]
