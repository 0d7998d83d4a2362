from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.model.flops.count import costs
from inferlab.optimizing.levels import ResolvedRecipe, global_levels, resolve
from inferlab.profiling.loss import approximate
from inferlab.records import Finding, Model
from inferlab.records.optimization import Pruning, Quantization, Recipe
from inferlab.records.profile import LEVELS, LossProfile, PerformanceProfile, level_key
from tests.helpers.graphs import FLOAT, model_of, node, saved
from tests.helpers.perceptrons import SHAPES, perceptron
from tests.helpers.profiles import a_performance_profile


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return perceptron(tmp_path_factory.mktemp("model"))


def resolved(model: Model, pruning: Pruning | None = None, **recipe: Any) -> ResolvedRecipe:
    return resolve(Recipe(pruning=pruning, **recipe), costs(model, SHAPES), None, None, model)


def levels(model: Model, **pruning: Any) -> dict[str, float]:
    found = resolved(model, Pruning(**pruning)).recipe.pruning
    assert found is not None
    return dict(found.layers)


def test_every_layer_but_the_first_and_the_last_is_pruned_alike(model: Model) -> None:
    found = resolved(model, Pruning(0.8))
    assert found.recipe.pruning == Pruning(0.8, layers={"middle": 0.8, "late": 0.8})
    assert found.left_alone == {
        "first": "not pruned: it is the first layer",
        "last": "not pruned: it is the last layer",
    }
    assert (found.recipe.model, found.recipe.digest) == ("model.onnx", model.digest)
    assert levels(model, sparsity=0.8, ends=True) == dict.fromkeys(("first", "middle", "late", "last"), 0.8)


def test_layers_are_chosen_by_the_names_of_weights_or_nodes_or_by_expressions(model: Model) -> None:
    assert levels(model, sparsity=0.5, include=("middle",)) == {"middle": 0.5}
    assert levels(model, sparsity=0.5, include=("three",)) == {"late": 0.5}
    assert levels(model, sparsity=0.5, include=("c",)) == {"middle": 0.5}
    assert levels(model, sparsity=0.5, include=("l.*",)) == {"late": 0.5}
    assert levels(model, sparsity=0.5, exclude=("l.*",)) == {"middle": 0.5}
    # By its whole name the last layer is asked for.
    assert levels(model, sparsity=0.5, include=("last",)) == {"last": 0.5}


def test_levels_of_layers_go_before_everything_else_and_a_name_before_an_expression(model: Model) -> None:
    given = {"l.*": 0.3, "late": 0.6, "first": 0.0}
    assert levels(model, layers=given, scope="layers") == {"late": 0.6, "last": 0.3}
    assert levels(model, sparsity=0.9, layers={"last": 0.2}) == {"middle": 0.9, "late": 0.9, "last": 0.2}


def test_one_threshold_for_all_layers_takes_the_smallest_of_all(model: Model) -> None:
    # 0.1 to 3.6 beside 1 to 36: half of the 72 are those up to 3.6 but for three, and 1, 2, 3.
    found = levels(model, sparsity=0.5, scope="global")
    assert found == {"middle": round(33 / 36, 6), "late": round(3 / 36, 6)}
    assert sum(round(level * 36) for level in found.values()) == 36


def test_limits_hold_for_one_threshold_too_and_what_is_fixed_counts(model: Model) -> None:
    limited = levels(model, sparsity=0.5, scope="global", maximum=0.75, minimum=0.25)
    assert limited == {"middle": 0.75, "late": 0.25}
    fixed = levels(model, sparsity=0.5, scope="global", layers={"late": 0.5})
    assert fixed == {"middle": 0.5, "late": 0.5}


def test_of_equal_magnitudes_at_the_threshold_the_first_layers_go(tmp_path: Path) -> None:
    flat = np.full((6, 6), 0.5, np.float32)
    model = perceptron(tmp_path, middle=flat, late=-flat)
    assert global_levels(model, ["middle", "late"], 0.75, 0.0, 1.0, {}) == {"middle": 1.0, "late": 0.5}


def test_a_target_that_the_limits_keep_out_of_reach_says_how_far_it_got(model: Model) -> None:
    for scope in ("uniform", "global"):
        found = resolved(model, Pruning(0.9, scope, maximum=0.5))
        data = {"wanted": 0.9, "reached": 0.5, "maximum": 0.5}
        assert found.findings == (Finding("target-not-reached", data),)


def test_n_of_m_prunes_every_layer_by_its_share(model: Model) -> None:
    assert levels(model, pattern="2:4") == {"middle": 0.5, "late": 0.5}
    assert levels(model, pattern="1:4", layers={"late": 0.25}) == {"late": 0.25}


def test_a_recipe_that_was_carried_out_is_taken_as_it_is(model: Model) -> None:
    before = resolved(model, Pruning(0.5, "global")).recipe
    again = resolve(before, costs(model, SHAPES), None, None, model)
    assert again == ResolvedRecipe(before)
    other = replace(before, digest="another", model="other.onnx")
    found = resolve(other, costs(model, SHAPES), None, None, model)
    assert found == ResolvedRecipe(before, findings=(Finding("other-model", {"model": "other.onnx"}),))


@pytest.mark.parametrize(
    ("pruning", "said"),
    [
        (Pruning(0.5, include=("nix",)), "The model has no layer 'nix', which include names."),
        (
            Pruning(layers={"midle": 0.5}),
            "no layer 'midle', which layers names. Its layers are called like 'middle'.",
        ),
        (
            Pruning(0.5, exclude=("(",)),
            "'(' in exclude is neither the name of a layer nor a valid regular expression: ",
        ),
        (
            Pruning(0.5, exclude=("middle", "late")),
            "is left to be pruned (it is the first layer, it was excluded, ",
        ),
        (Pruning(layers={"middle": 0.0}), "would be pruned: every level that was given is 0."),
        (Pruning(budget=0.1), "A loss budget needs a loss profile, and there is none of this model."),
    ],
)
def test_what_cannot_be_resolved_is_said_in_a_sentence(model: Model, pruning: Pruning, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        resolved(model, pruning)
    assert said in str(refused.value)


def test_a_recipe_of_another_model_names_a_weight_that_is_missing(model: Model) -> None:
    recipe = Recipe(model="vgg.onnx", digest="d", pruning=Pruning(layers={"late": 0.5, "conv9": 0.5}))
    with pytest.raises(BadInput, match=r"made for vgg\.onnx: .* has no weight 'conv9' .* \(1 of 2 are missing\)"):
        resolve(recipe, costs(model, SHAPES), None, None, model)


def test_a_model_without_weights_cannot_be_pruned(tmp_path: Path) -> None:
    bare = saved(model_of([node("Relu", ["x"])], {"x": (FLOAT, (2, 4))}), tmp_path)
    with pytest.raises(BadInput, match="has no layer with weights that could be pruned"):
        resolved(bare, Pruning(0.5))


def test_weights_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    wrong = perceptron(tmp_path, middle=np.full((6, 6), np.nan, np.float32))
    with pytest.raises(BadInput, match=r"'middle' has 36 values that are not numbers \(NaN\)"):
        resolved(wrong, Pruning(0.5, "global"))


def test_grouped_convolutions_are_left_alone_unless_they_are_named(tmp_path: Path) -> None:
    weights = {
        "one": np.ones((4, 4, 1, 1), np.float32),
        "depth": np.ones((4, 1, 3, 3), np.float32),
        "two": np.ones((4, 4, 1, 1), np.float32),
        "three": np.ones((4, 4, 1, 1), np.float32),
    }
    nodes = [
        node("Conv", ["x", "one"], ["a"]),
        node("Conv", ["a", "depth"], ["b"], group=4),
        node("Conv", ["b", "two"], ["c"]),
        node("Conv", ["c", "three"], ["y"]),
    ]
    model = saved(model_of(nodes, {"x": (FLOAT, (1, 4, 8, 8))}, weights), tmp_path)
    counted = costs(model, {"x": (1, 4, 8, 8)})
    found = resolve(Recipe(pruning=Pruning(0.5)), counted, None, None, model)
    assert found.recipe.pruning is not None and found.recipe.pruning.layers == {"two": 0.5}
    assert found.left_alone["depth"].startswith("not pruned: it is a grouped convolution")
    named = resolve(Recipe(pruning=Pruning(0.5, include=("depth",))), counted, None, None, model)
    assert named.recipe.pruning is not None and named.recipe.pruning.layers == {"depth": 0.5}


def profiles(model: Model, faster: bool) -> tuple[LossProfile, PerformanceProfile]:
    """Losses from the weights, and times of an engine on which `late` gains from zeros, or nothing does."""
    loss = approximate(model, costs(model, SHAPES))
    pattern = a_performance_profile().layers[0]
    layers = []
    for one in loss.layers:
        gain = 0.8 if faster and one.weight == "late" else 0.0
        times = {level_key(level): 1 - gain * level for level in LEVELS}
        layers.append(
            replace(pattern, index=one.index, id=one.id, weight=one.weight, nodes=(one.id,), ms=1.0, pruned=times)
        )
    whole = {level_key(level): sum(layer.pruned[level_key(level)] for layer in layers) for level in LEVELS}
    performance = a_performance_profile(layers=tuple(layers), pruned=whole, ms_per_batch=4.0, ms_interval=None)
    return loss, performance


def test_a_budget_prunes_what_gains_most_time_for_its_loss(model: Model) -> None:
    loss, performance = profiles(model, faster=True)
    found = resolve(Recipe(pruning=Pruning(budget=0.2)), costs(model, SHAPES), loss, performance, model)
    assert found.recipe.pruning is not None
    assert set(found.recipe.pruning.layers) == {"late"}
    assert found.findings == ()
    most = resolve(
        Recipe(pruning=Pruning(budget=5.0, maximum=0.6)), costs(model, SHAPES), loss, performance, model
    )
    assert most.recipe.pruning is not None and most.recipe.pruning.layers == {"late": 0.6}


def test_where_zeros_gain_no_time_a_budget_goes_by_parameters_and_says_so(model: Model) -> None:
    loss, performance = profiles(model, faster=False)
    found = resolve(Recipe(pruning=Pruning(budget=0.2)), costs(model, SHAPES), loss, performance, model)
    assert found.recipe.pruning is not None
    assert set(found.recipe.pruning.layers) == {"middle", "late"}
    assert found.findings == (Finding("zeros-gain-nothing", {"engine": performance.engine}),)


def test_a_least_sparsity_holds_for_layers_that_a_budget_would_spare(model: Model) -> None:
    loss, performance = profiles(model, faster=True)
    recipe = Recipe(pruning=Pruning(budget=0.2, minimum=0.3))
    found = resolve(recipe, costs(model, SHAPES), loss, performance, model)
    assert found.recipe.pruning is not None
    assert found.recipe.pruning.layers["middle"] == 0.3
    assert found.recipe.pruning.layers["late"] >= 0.3


def test_a_budget_below_every_loss_is_said(model: Model) -> None:
    loss, performance = profiles(model, faster=True)
    with pytest.raises(BadInput, match="can be pruned within a loss of 0: every level costs more"):
        resolve(Recipe(pruning=Pruning(budget=0.0)), costs(model, SHAPES), loss, performance, model)


def test_what_is_not_to_be_quantised_is_named_by_weights_and_nodes(model: Model) -> None:
    wanted = Quantization("dynamic", exclude=("t.*",))
    found = resolved(model, quantization=wanted).recipe.quantization
    assert found == Quantization("dynamic", exclude=("middle", "late"))
    only = resolved(model, quantization=Quantization("dynamic", include=("middle",))).recipe.quantization
    assert only == Quantization("dynamic", exclude=("first", "b", "d", "late", "f", "last"))
