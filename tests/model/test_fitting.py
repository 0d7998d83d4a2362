"""Shapes for what a model leaves open: tried on the model itself, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab import Lab, Plan
from inferlab.measure.findings import find_all
from inferlab.model.reading import read_model
from inferlab.records import Finding
from inferlab.views.text import finding
from tests.helpers.graphs import FLOAT, floats, model_of, node


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wakeword(tmp_path: Path) -> Path:
    """Takes no sound of less than 320 samples."""
    proto = model_of(
        [node("Unsqueeze", ["x", "axis"], ["a"]), node("Conv", ["a", "w"], ["y"], strides=[160])],
        {"x": (FLOAT, ("batch", "sequence"))},
        {"axis": np.array([1]), "w": floats(2, 1, 320)},
    )
    path = tmp_path / "wakeword.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def text_line(tmp_path: Path) -> Path:
    """Takes pictures that are 48 to 95 pixels high."""
    proto = model_of(
        [
            node("Conv", ["x", "w"], ["a"], strides=[48, 4]),
            node("Squeeze", ["a", "axis"]),
        ],
        {"x": (FLOAT, ("batch", 3, "height", "width"))},
        {"axis": np.array([2]), "w": floats(2, 3, 48, 4)},
    )
    path = tmp_path / "text.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_a_model_that_needs_a_long_sound_gets_a_second_of_it(wakeword: Path) -> None:
    assert read_model(str(wakeword)).inputs[0].fitted == (1, 16000)


def test_a_text_line_is_low_and_wide(text_line: Path) -> None:
    assert read_model(str(text_line)).inputs[0].fitted == (1, 3, 48, 320)


def test_what_was_found_is_remembered_by_the_models_digest(
    wakeword: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = read_model(str(wakeword)).digest
    (file,) = (cache / "shapes").iterdir()
    assert (file.name, file.read_text()) == (f"{digest}-v1.json", '{"x": [1, 16000]}')
    file.write_text('{"x": [1, 777]}')
    assert read_model(str(wakeword)).inputs[0].fitted == (1, 777)
    for damaged in ('{"x": [1]}', '{"x": 1}', "[]", "\0", '{"x": [1, -5]}'):
        file.write_text(damaged)
        assert read_model(str(wakeword)).inputs[0].fitted == (1, 16000)


def test_a_model_that_runs_with_nothing_is_read_all_the_same(tmp_path: Path) -> None:
    proto = model_of([node("Foreign", ["x"], domain="elsewhere")], {"x": (FLOAT, ("n", "m"))})
    (tmp_path / "foreign.onnx").write_bytes(proto.SerializeToString())
    assert read_model(str(tmp_path / "foreign.onnx")).inputs[0].fitted is None


def test_a_guessed_shape_is_measured_and_said(text_line: Path) -> None:
    plan = Plan(str(text_line), time_s=0.05, warmup_s=0.0, processes=1, num_cores=(1,))
    outcome = Lab().benchmark(plan).outcomes[0]
    assert outcome.cell.shapes == (("x", (1, 3, 48, 320)),)
    said = Finding("shapes-guessed", {"shapes": {"x": [1, 3, 48, 320]}})
    assert said in find_all(outcome)
    assert finding(said) == (
        "the model leaves its input shapes open; it was measured with x=[1,3,48,320], which may not be what you "
        "use. Give your own input shapes."
    )


def test_a_shape_that_was_given_is_no_guess_and_the_same_cell(text_line: Path) -> None:
    plan = Plan(str(text_line), time_s=0.05, warmup_s=0.0, processes=1, num_cores=(1,))
    guessed, given = [
        Lab().benchmark(one).outcomes[0] for one in (plan, replace(plan, input_shapes="[1,3,48,320]"))
    ]
    assert "shapes-guessed" not in [one.code for one in find_all(given)]
    assert guessed.cell.id == given.cell.id
