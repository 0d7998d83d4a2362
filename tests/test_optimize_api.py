"""inferlab.optimize(): the Python API of optimised versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import inferlab
import inferlab.optimizing
from inferlab import BadInput, OptimizationResult
from tests.helpers.perceptrons import perceptron


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> OptimizationResult:
    folder = tmp_path_factory.mktemp("api")
    model = perceptron(folder / "model")
    return inferlab.optimize(
        model.path,
        folder / "out.onnx",
        name="half",
        sparsity=0.5,
        layers={"late": 0.25},
        exclude="relu_one",
        measure=["onnxruntime"],
        num_cores=1,
        time=0.3,
        store=False,
    )


def test_the_result_has_the_model_the_recipe_and_the_numbers(result: OptimizationResult) -> None:
    assert result.path.is_file() and result.id == ""
    assert "late: 0.25" in result.recipe and result.recipe == (result.path.parent / "out.recipe.yaml").read_text()
    assert list(result.speedups) == ["onnxruntime"] and result.problems == ()
    assert {row["weight"]: row["wanted"] for row in result.rows()} == {
        **dict.fromkeys(("first", "last")),
        "middle": 0.5,
        "late": 0.25,
    }
    assert list(result.to_frame()["weight"]) == ["first", "middle", "late", "last"]


def test_it_shows_itself_as_text_as_html_and_as_a_file(result: OptimizationResult, tmp_path: Path) -> None:
    assert str(result).startswith("Model: ") and "Speed, measured interleaved with the original:" in str(result)
    assert repr(result).startswith("<OptimizationResult of ") and "half, onnxruntime " in repr(result)
    page = result._repr_html_()
    assert "<strong>Speed on onnxruntime</strong>" in page and "Output distance" in page
    result.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(result.to_json()) == result.to_dict()
    result.save(tmp_path / "report.html")
    assert "<title>" in (tmp_path / "report.html").read_text()
    with pytest.raises(BadInput, match=r"A result is saved as \.json.*, by the ending"):
        result.save(tmp_path / "report.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Nothing was asked for that would change the model"),
        ({"sparsty": 0.5}, "optimize() has no argument 'sparsty'. Did you mean 'sparsity'?"),
        ({"sparsity": "much"}, "sparsity is a number, not 'much' (str)."),
        ({"layers": ["late"]}, "layers is a dictionary such as {'conv1.weight': 0.9}, not ['late'] (list)."),
        ({"layers": {"late": "x"}}, "layers['late'] is a number, not 'x' (str)."),
        ({"sparsity": 0.5, "scope": "all"}, "pruning.scope is one of uniform, global, layers, not 'all'."),
        ({"int8": "both"}, "quantization.scheme is one of dynamic, static, weights, fp16, not 'both'."),
        ({"weights_only": 3}, "quantization.bits is 8 or 4, not 3."),
        ({"sparsity": 0.5, "cleanup": 1}, "cleanup is True or False, not 1 (int)."),
        ({"sparsity": 0.5, "recipe": "r.yaml"}, "The option sparsity and a recipe contradict each other"),
    ],
)
def test_arguments_that_cannot_be_are_refused_in_a_sentence(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    model = perceptron(tmp_path / "model")
    with pytest.raises(BadInput) as refused:
        inferlab.optimize(model.path, tmp_path / "out.onnx", store=False, **arguments)
    assert said in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_the_function_is_not_hidden_by_a_package() -> None:
    assert callable(inferlab.optimize) and inferlab.optimize.__module__ == "inferlab.api"
