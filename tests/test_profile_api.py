"""Profiles from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import inferlab
from inferlab.errors import BadInput
from inferlab.model_results import ProfileResult
from inferlab.optimizing import recipes
from tests.helpers.profiles import a_profile, with_copies

RESULT = ProfileResult(a_profile())


def test_a_model_is_profiled_and_its_layers_are_a_frame() -> None:
    heard: list[str] = []
    found = inferlab.profile(
        "demo:mlp", num_cores=1, time=0.5, store=False, progress=lambda fraction, line: heard.append(line)
    )
    frame = found.to_frame()
    assert frame["ms"].sum() == pytest.approx(found.ms_per_batch)
    assert frame["share"].sum() == pytest.approx(1.0)
    assert found.problems == ()
    assert "Counting operations and parameters" in heard
    # A second call must find a function under the same name, not a package.
    assert callable(inferlab.profile)


def test_an_estimate_follows_the_budget() -> None:
    small, large = RESULT.estimate(0.01), RESULT.estimate(0.5)
    assert small is not None and large is not None
    assert small.loss <= 0.01 and large.loss <= 0.5
    assert small.estimated_ms_per_batch is not None and large.estimated_ms_per_batch is not None
    assert large.estimated_ms_per_batch <= small.estimated_ms_per_batch
    assert RESULT.with_budget(0.5).record.estimate == large
    for budget, sentence in ((-1, "must be 0 or more"), (float("nan"), "0 or more"), ("much", "is a number")):
        with pytest.raises(BadInput, match=sentence):
            RESULT.estimate(budget)  # type: ignore[arg-type]


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    RESULT.save(tmp_path / "p.json")
    again = inferlab.profile(tmp_path / "p.json", store=False)
    assert again.record == RESULT.record
    assert inferlab.profile(tmp_path / "p.json", budget=0.5, store=False).record.estimate == RESULT.estimate(0.5)
    with pytest.raises(BadInput, match="A profile that was made before is read as it is: leave out int8"):
        inferlab.profile(tmp_path / "p.json", int8=True, store=False)
    RESULT.save(tmp_path / "p.html")
    assert (tmp_path / "p.html").read_text().lower().startswith("<!doctype html>")
    assert json.loads(RESULT.to_json())["format"] == "inferlab-profile/2"


def test_rows_have_a_column_for_every_level() -> None:
    row = RESULT.rows()[0]
    assert {"index", "id", "type", "weight", "ms", "pruned_0.9_ms", "estimated_ms"} <= row.keys()
    assert {"weight", "sensitivity", "loss_0.9"} <= RESULT.loss_rows()[0].keys()


def test_the_figures_are_those_of_the_report() -> None:
    layers = RESULT.plot_layers("0.9")
    performance = RESULT.record.performance
    assert performance is not None
    assert len(layers.data[0].y) <= len(performance.layers)
    for figure in (RESULT.plot_types(), RESULT.plot_loss(), RESULT.plot_roofline()):
        assert figure.data


def test_a_notebook_shows_the_summary() -> None:
    assert "Median time (ms/batch)" in RESULT._repr_html_()
    assert repr(RESULT).startswith("<ProfileResult of mobilenet_v2.onnx: ")


def test_unknown_arguments_are_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="Did you mean 'levels'"):
        inferlab.profile("demo:mlp", level=[0.9])  # type: ignore[call-arg]


def test_wrong_types_are_refused() -> None:
    with pytest.raises(BadInput, match="int8 is True or False"):
        inferlab.profile("demo:mlp", int8="yes")  # type: ignore[arg-type]
    for levels in (0.9, "most"):
        with pytest.raises(BadInput, match="levels is a list such as"):
            inferlab.profile("demo:mlp", levels=levels)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="data is a path, not 5"):
        inferlab.profile("demo:mlp", data=5)  # type: ignore[arg-type]


def test_what_was_tried_and_the_best_of_it_have_recipes() -> None:
    copies = ProfileResult(with_copies(a_profile(), 0.6))
    assert copies.gains == copies.record.gains and copies.best == copies.gains[0]
    assert copies.best is not None and (copies.best.int8, copies.best.channels) == (True, 0.5)
    both = recipes.loads(copies.recipe(), "r")
    assert both.quantization is not None and both.pruning is not None and both.pruning.sparsity == 0.5
    int8 = next(gain for gain in copies.gains if gain.int8 and not gain.channels)
    assert recipes.loads(copies.recipe(int8), "r").pruning is None
    assert copies.with_budget(0.1).best == next(gain for gain in copies.with_budget(0.1).gains if gain.int8)
    with pytest.raises(BadInput, match="nothing that was tried counts within the loss budget"):
        copies.with_budget(0.0).recipe()
