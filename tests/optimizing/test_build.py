from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from inferlab.errors import BadInput, EngineRefused, InferlabError
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import read_onnx
from inferlab.optimizing import recipes
from inferlab.optimizing.build import METADATA_KEY, BuiltModel, build_model, check_target
from inferlab.optimizing.levels import resolve
from inferlab.profiling.loss import Evaluation
from inferlab.records import Event, Finding, Model, ignore
from inferlab.records.optimization import ChangedLayer, Pruning, Quantization, Recipe
from tests.helpers.perceptrons import MIDDLE, SHAPES, perceptron, some_data


def optimised(model: Model, folder: Path, recipe: Recipe, name: str = "out.onnx") -> BuiltModel:
    folder.mkdir(exist_ok=True)
    ready = resolve(recipe, costs(model, SHAPES), None, None, model).recipe
    return build_model(model, ready, some_data(model), folder / name)


def weights(path: str | Path) -> dict[str, Any]:
    return {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_smallest_weights_are_zero_and_all_else_is_as_it_was(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    made = optimised(model, tmp_path / "out", Recipe(pruning=Pruning(0.5)))
    found = weights(made.model.path)
    assert (found["middle"] == np.where(np.abs(MIDDLE) > 1.85, MIDDLE, 0)).all()
    for name in ("first", "last"):
        assert (found[name] == weights(model.path)[name]).all()
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["out.onnx", "out.recipe.yaml"]
    assert made.layers[:2] == (
        ChangedLayer("first", "a", "MatMul", 24, 0.0, 0.0, None, 24, "FP32", 0.0),
        ChangedLayer("middle", "c", "MatMul", 36, 0.0, 0.5, 0.5, 36, "FP32", 0.5),
    )
    assert made.findings == ()


def test_the_recipe_stands_beside_the_model_and_in_its_metadata(tmp_path: Path) -> None:
    made = optimised(perceptron(tmp_path / "model"), tmp_path, Recipe(pruning=Pruning(0.5)))
    beside = (tmp_path / "out.recipe.yaml").read_text()
    inside = {
        metadata_prop.key: metadata_prop.value for metadata_prop in onnx.load(made.model.path).metadata_props
    }
    assert inside == {METADATA_KEY: beside}
    assert recipes.loads(beside, "recipe") == made.recipe


RECIPES = {
    "pruned": Recipe(pruning=Pruning(0.5, "global")),
    "blocks": Recipe(pruning=Pruning(0.5, pattern="block4")),
    "groups": Recipe(pruning=Pruning(pattern="2:4")),
    "static": Recipe(quantization=Quantization("static", calibration_items=4), shapes={"x": (2, 4)}),
    "dynamic": Recipe(quantization=Quantization("dynamic")),
    "weights": Recipe(quantization=Quantization("weights", bits=4)),
    "fp16": Recipe(quantization=Quantization("fp16")),
    "both": Recipe(pruning=Pruning(0.5), quantization=Quantization("static"), shapes={"x": (2, 4)}),
    "as it was": Recipe(cleanup=False, pruning=Pruning(0.5)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_recipe_and_model_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    first = optimised(model, tmp_path / "one", RECIPES[name], "a.onnx")
    recipe = recipes.load(tmp_path / "one" / "a.recipe.yaml")
    again = optimised(model, tmp_path / "two", recipe, "b.onnx")
    assert digest(tmp_path / "one" / "a.onnx") == digest(tmp_path / "two" / "b.onnx")
    assert again.recipe == first.recipe
    # It is an ordinary model, which says what it is.
    assert read_onnx(tmp_path / "two" / "b.onnx", "b").digest == first.model.digest


def test_both_keep_the_zeros_of_pruning_in_int8(tmp_path: Path) -> None:
    made = optimised(perceptron(tmp_path / "model"), tmp_path, RECIPES["both"])
    assert made.model.precision == "INT8" and made.model.quantization == "QDQ"
    middle = next(layer for layer in made.layers if layer.weight == "middle")
    assert (middle.zeros_after, middle.precision) == (0.5, "INT8")
    quantised = next(value for name, value in weights(made.model.path).items() if name.startswith("middle_quant"))
    assert ((quantised == 0) >= (np.abs(MIDDLE) < 1.85)).all()


def test_zeros_of_a_version_are_those_that_it_has_after_rounding_to_int8(tmp_path: Path) -> None:
    tiny = np.where(np.abs(MIDDLE) > 1.85, MIDDLE, MIDDLE * 1e-6).astype(np.float32)
    made = optimised(perceptron(tmp_path / "model", middle=tiny), tmp_path, RECIPES["static"])
    middle = next(layer for layer in made.layers if layer.weight == "middle")
    assert (middle.zeros_before, middle.zeros_by_pruning, middle.zeros_after) == (0.0, 0.0, 0.5)


def test_layers_that_are_excluded_stay_in_their_precision(tmp_path: Path) -> None:
    recipe = Recipe(quantization=Quantization("dynamic", exclude=("middle", "relu_one")))
    made = optimised(perceptron(tmp_path / "model"), tmp_path, recipe)
    assert {layer.weight: layer.precision for layer in made.layers} == {
        **dict.fromkeys(("first", "late", "last"), "INT8"),
        "middle": "FP32",
    }
    assert "two" in made.left_alone


def test_a_model_whose_outputs_are_no_numbers_any_more_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferlab.optimizing.build.evaluate", lambda *_: Evaluation(None, broken=True))
    with pytest.raises(EngineRefused, match="so it was not kept"):
        optimised(perceptron(tmp_path / "model"), tmp_path / "out", Recipe(pruning=Pruning(0.5)))
    assert list((tmp_path / "out").iterdir()) == []


def test_nothing_is_to_be_seen_before_the_model_was_run(tmp_path: Path) -> None:
    model, target = perceptron(tmp_path / "model"), tmp_path / "out" / "m.onnx"
    target.parent.mkdir()
    seen: list[tuple[str, bool]] = []

    def listen(event: Event) -> None:
        if event.code == "optimizing":
            seen.append((event.data["step"], target.exists()))

    ready = resolve(RECIPES["both"], costs(model, SHAPES), None, None, model).recipe
    build_model(model, ready, some_data(model), target, listen)
    assert seen == [("cleanup", False), ("prune", False), ("quantize", False), ("check", False)]
    assert target.exists()


def test_weights_that_are_not_numbers_are_refused_and_leave_nothing_behind(tmp_path: Path) -> None:
    wrong = perceptron(tmp_path / "model", middle=np.full((6, 6), np.nan, np.float32))
    for recipe in (RECIPES["pruned"], Recipe(pruning=Pruning(0.5)), RECIPES["dynamic"]):
        with pytest.raises(InferlabError, match="NaN"):
            optimised(wrong, tmp_path / "out", recipe)
    assert list((tmp_path / "out").iterdir()) == []


def test_data_in_files_of_its_own_gets_the_targets_name_and_the_originals_is_untouched(tmp_path: Path) -> None:
    plain = perceptron(tmp_path / "model")
    proto = onnx.load(plain.path)
    folder = tmp_path / "external"
    folder.mkdir()
    for number, one in enumerate(proto.graph.initializer):
        onnx.external_data_helper.set_external_data(one, f"part{number % 2}.bin")
    onnx.save(proto, folder / "model.onnx")
    model = read_onnx(folder / "model.onnx", "model.onnx")
    before = {one.name: digest(one) for one in folder.iterdir()}
    # Written over an older one, in the original's own folder.
    (folder / "out.onnx").write_bytes(b"older")
    made = optimised(model, folder, Recipe(pruning=Pruning(0.5)))
    assert {name: digest(folder / name) for name in before} == before
    new = {one.name for one in folder.iterdir()} - before.keys()
    assert new == {"out.onnx", "out.onnx.data", "out.recipe.yaml"}
    found = weights(made.model.path)
    assert (found["middle"] == np.where(np.abs(MIDDLE) > 1.85, MIDDLE, 0)).all()
    assert (found["last"] == weights(plain.path)["last"]).all()


def test_what_a_pattern_cannot_take_out_is_said(tmp_path: Path) -> None:
    # Rows of 6 have no 8 in a row: of such a rest the same share goes, rounded down.
    model = perceptron(tmp_path / "model")
    ready = resolve(Recipe(pruning=Pruning(pattern="3:8")), costs(model, SHAPES), None, None, model).recipe
    made = build_model(model, ready, some_data(model), tmp_path / "out.onnx")
    reached = pytest.approx(1 / 3)
    assert made.findings == (
        Finding("pattern-fell-short", {"wanted": 0.375, "reached": reached, "pattern": "3:8"}),
    )


def test_a_target_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    for out, said in {
        model.path: "would be written over the model itself",
        str(tmp_path / "none" / "out.onnx"): "does not exist. Make it first: mkdir -p ",
        str(tmp_path): "is a folder. Give the name of a file",
        str(tmp_path / "out.txt"): "The output file must end in .onnx, not 'out.txt'.",
    }.items():
        with pytest.raises(BadInput) as refused:
            check_target(out, model)
        assert said in str(refused.value)
    (tmp_path / "link.onnx").symlink_to(model.path)
    with pytest.raises(BadInput, match="over the model itself"):
        check_target(str(tmp_path / "link.onnx"), model)
    # The recipe of one and the other's own data must not meet either.
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(BadInput, match="cannot be written"):
        check_target(str(tmp_path / "pipe.onnx"), model)


def test_only_onnx_models_can_be_optimised(tmp_path: Path) -> None:
    model = replace(perceptron(tmp_path / "model"), kind="torchscript", source="m.pt")
    with pytest.raises(BadInput, match=r"Only ONNX models can be optimised; m\.pt is of the kind torchscript"):
        build_model(model, Recipe(pruning=Pruning(0.5)), some_data(model), tmp_path / "out.onnx")


def test_a_weight_that_the_clean_up_removes_is_named(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    recipe = Recipe(digest="d", pruning=Pruning(layers={"middle": 0.5, "gone": 0.5}))
    made = build_model(model, recipe, some_data(model), tmp_path / "out.onnx", ignore)
    assert made.left_alone == {"gone": "nothing used it, so the clean-up removed it"}
