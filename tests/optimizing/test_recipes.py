from __future__ import annotations

from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.optimizing import recipes
from inferlab.records.optimization import Pruning, Recipe
from tests.helpers.recipes import WHOLE


@pytest.mark.parametrize("recipe", [WHOLE, Recipe(), Recipe(pruning=Pruning(budget=0.1, scope="layers"))])
def test_a_recipe_is_read_as_it_was_written(recipe: Recipe, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(recipes.dump(recipe))
    assert recipes.load(file) == recipe


def test_a_recipe_is_text_for_people_with_a_line_that_says_what_it_is_for() -> None:
    assert recipes.dump(Recipe(pruning=Pruning(0.5, layers={"w": 0.5}), inferlab="0.1.0")).splitlines() == [
        "# A recipe of inferlab; repeat it with: inferlab optimize MODEL --recipe FILE.yaml -o out.onnx",
        "format: inferlab-recipe/1",
        "cleanup: true",
        "pruning:",
        "  sparsity: 0.5",
        "  scope: uniform",
        "  pattern: unstructured",
        "  layers:",
        "    w: 0.5",
        "  minimum: 0.0",
        "  maximum: 1.0",
        "  ends: false",
        "seed: 0",
        "inferlab: 0.1.0",
    ]


HEAD = "format: inferlab-recipe/1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "r.yaml is not a recipe: it must hold keys with values. See docs/optimize.md for",
        ),
        ("pruning: {sparsity: 0.5}", "its format is None, not 'inferlab-recipe/1'"),
        ("format: inferlab-recipe/9", "its format is 'inferlab-recipe/9', not 'inferlab-recipe/1'"),
        (HEAD + "prunning: {}", "The recipe r.yaml: there is no key 'prunning'. Did you mean 'pruning'?"),
        (HEAD + "pruning: {sparsty: 0.5}", "there is no key 'pruning.sparsty'. Did you mean 'sparsity'?"),
        (
            HEAD + "pruning: {zzz: 1}",
            "there is no key 'pruning.zzz'. Allowed are sparsity, scope, pattern, layers",
        ),
        (HEAD + "pruning: 0.5", "pruning takes keys with values, not 0.5."),
        (HEAD + "pruning: {sparsity: much}", "pruning.sparsity is a number, not 'much'."),
        (HEAD + "pruning: {sparsity: true}", "pruning.sparsity is a number, not True."),
        (HEAD + "pruning: {sparsity: .nan}", "pruning.sparsity is a number, not nan."),
        (HEAD + "pruning: {sparsity: 1.5}", "pruning.sparsity is a share between 0 and 1, such as 0.8"),
        (
            HEAD + "pruning: {sparsity: 0.5, scope: all}",
            "pruning.scope is one of uniform, global, layers, not 'all'.",
        ),
        (HEAD + "pruning: {sparsity: 0.5, ends: 1}", "pruning.ends is true or false, not 1."),
        (HEAD + "pruning: {sparsity: 0.5, include: conv}", "pruning.include is a list, not 'conv'."),
        (HEAD + "pruning: {sparsity: 0.5, include: [1]}", "pruning.include[0] is text, not 1."),
        (HEAD + "pruning: {layers: {w: 2}}", "pruning.layers.w is a sparsity from 0 to below 1, not 2."),
        (HEAD + "pruning: {layers: [w]}", "pruning.layers takes names with values, not ['w']."),
        (HEAD + "pruning: {sparsity: 0.5, minimum: 0.9, maximum: 0.1}", "pruning.minimum (0.9) is above"),
        (HEAD + "pruning: {sparsity: 0.5, budget: 0.1}", "A sparsity and a loss budget contradict each other"),
        (HEAD + "pruning: {budget: -1}", "The loss budget must be 0 or more, not -1."),
        (HEAD + "pruning: {pattern: 4:2}", "The pattern 4:2 cannot be"),
        (HEAD + "pruning: {pattern: stripes, sparsity: 0.5}", "'stripes' is not a pruning pattern."),
        (HEAD + "pruning: {pattern: '2:4', sparsity: 0.9}", "The pattern 2:4 makes 0.5 of every layer zero."),
        (HEAD + "pruning: {pattern: '2:4', scope: global}", "prunes every layer alike"),
        (HEAD + "pruning: {}", "Pruning needs a sparsity, a loss budget, or levels of layers."),
        (HEAD + "quantization: {}", "quantization.scheme is missing."),
        (
            HEAD + "quantization: {scheme: int7}",
            "quantization.scheme is one of dynamic, static, weights, fp16",
        ),
        (HEAD + "quantization: {scheme: static, bits: 4}", "4 bits are for the scheme weights only"),
        (HEAD + "quantization: {scheme: weights, bits: 3}", "quantization.bits is 8 or 4, not 3."),
        (HEAD + "quantization: {scheme: static, keep_sensitive: -1}", "quantization.keep_sensitive is a whole"),
        (HEAD + "seed: 1.5", "seed is a whole number, not 1.5."),
        (HEAD + "shapes: {x: [0, 3]}", "shapes.x has whole numbers of 1 or more, not [0, 3]."),
        (HEAD + "schedule: {start_epoch: 9}", "start_epoch, end_epoch and epochs must be in this order"),
        (HEAD + "schedule: {learning_rates: [[1]]}", "schedule.learning_rates[0] has 2 values, not 1."),
        (HEAD + "pruning: {layers: {w: 0.5", "The recipe r.yaml cannot be read: it is not valid YAML: "),
        (HEAD + "digest: abc\npruning: {layers: {w: 0.5}}", "r.yaml is cut off: its last line, the version"),
        (HEAD + "a: &a [1]\nb: *a", "it has references (&name, *name), which are not read."),
        (HEAD + "model: !!python/object:os.system x", "it has the tag 'tag:yaml.org,2002:python/object:os.sys"),
    ],
)
def test_what_is_odd_in_a_recipe_is_said_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        recipes.loads(text, "r.yaml")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numbers_are_read_as_people_mean_them() -> None:
    pruning = recipes.loads(HEAD + "pruning: {pattern: 2:4, include: [1.weight]}", "r.yaml").pruning
    assert pruning == Pruning(pattern="2:4", include=("1.weight",))
    assert recipes.loads(HEAD + "pruning: {budget: 1e-3}", "r.yaml").pruning == Pruning(budget=0.001)


def test_a_recipe_that_is_not_there_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The recipe .*none\.yaml cannot be read: No such file or directory\."):
        recipes.load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match=r"cannot be read: it is not UTF-8 text\."):
        recipes.load(tmp_path / "bytes.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 25)
    with pytest.raises(BadInput, match="cannot be read: it is larger than 2 MiB"):
        recipes.load(tmp_path / "large.yaml")
