"""What profiles let expect of a recipe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.profiling.gains import gain_recipe
from inferlab.profiling.recipe_estimate import estimate_recipe
from inferlab.profiling.zeros import usual_weights
from inferlab.records.optimization import CHANNEL, Pruning, Quantization, Recipe
from inferlab.records.profile import ChangedCopy, ChannelGroup, LossProfile, PerformanceProfile, Profile
from tests.helpers.profiles import a_loss_profile, a_profile, with_copies

INT8 = Quantization("static")


def parts(profile: Profile) -> tuple[PerformanceProfile, LossProfile]:
    assert profile.performance is not None and profile.loss is not None
    return profile.performance, profile.loss


def labelled(profile: Profile) -> Profile:
    """The same, with labels: all copies but the one in INT8 lose as much accuracy as channels, that one 3 %."""
    performance, loss = parts(profile)

    def judged(copy: ChangedCopy) -> ChangedCopy:
        assert copy.distance is not None
        drop = copy.channels + (0.03 if copy.int8 else 0.0)
        accurate = replace(copy.distance, original_accuracy=0.9, accuracy=0.9 - drop, loss_rise=2 * drop)
        return replace(copy, distance=accurate)

    performance = replace(performance, copies=tuple(map(judged, performance.copies)))
    loss = replace(
        loss,
        metric="cross-entropy",
        dense_accuracy=0.88,
        layers=tuple(
            replace(layer, accuracies={level: 0.88 - 0.01 * float(level) for level in layer.losses})
            for layer in loss.layers
        ),
    )
    return replace(profile, performance=performance, loss=loss)


def pruned(level: float, *weights: str, pattern: str = "unstructured") -> Pruning:
    return Pruning(scope="layers", pattern=pattern, layers=dict.fromkeys(weights, level))


PROFILE = with_copies(a_profile(), 0.6)
WEIGHTS = usual_weights(a_loss_profile().layers)[:2]


@pytest.mark.parametrize(
    ("recipe", "part", "loss"),
    [
        (Recipe(), 1.0, 0.0),
        (Recipe(quantization=INT8), 0.5, 0.01),
        (Recipe(pruning=pruned(0.5, *WEIGHTS, pattern=CHANNEL)), 0.25, 0.5),
        (Recipe(pruning=pruned(0.5, *WEIGHTS, pattern=CHANNEL), quantization=INT8), 0.125, 0.51),
        (Recipe(quantization=Quantization("dynamic")), None, None),
        (Recipe(pruning=pruned(0.5, *WEIGHTS, pattern=CHANNEL), quantization=Quantization("fp16")), None, None),
    ],
)
def test_channels_and_int8_are_as_copies_have_them(recipe: Recipe, part: float | None, loss: float | None) -> None:
    performance, losses = parts(PROFILE)
    found = estimate_recipe(recipe, performance, losses)
    assert found.loss == loss
    assert found.estimated_ms_per_batch == (
        None if part is None else pytest.approx(part * performance.ms_per_batch)
    )
    assert found.recovery == (None if loss is None else pytest.approx(1 - loss))


def test_of_zeros_and_int8_gains_are_multiplied_and_losses_added_up() -> None:
    performance, losses = parts(a_profile())
    performance = replace(performance, copies=PROFILE.performance.copies if PROFILE.performance else ())
    zeros = estimate_recipe(Recipe(pruning=pruned(0.8, *WEIGHTS)), performance, losses)
    both = estimate_recipe(Recipe(pruning=pruned(0.8, *WEIGHTS), quantization=INT8), performance, losses)
    assert performance.int8_ms_per_batch is not None and zeros.loss is not None
    assert zeros.estimated_speedup is not None and zeros.estimated_speedup > 1
    gain = performance.ms_per_batch / performance.int8_ms_per_batch
    assert both.estimated_speedup == pytest.approx(gain * zeros.estimated_speedup)
    assert both.loss == pytest.approx(zeros.loss + 0.01)


def test_the_recipe_of_every_gain_is_expected_to_give_that_gain() -> None:
    for profile in (PROFILE, labelled(PROFILE)):
        performance, losses = parts(profile)
        for gain in profile.gains:
            recipe = gain_recipe(profile, gain)
            assert recipe is not None
            found = estimate_recipe(recipe, performance, losses)
            assert found.estimated_ms_per_batch == pytest.approx(gain.ms_per_batch)


@pytest.mark.parametrize(
    ("recipe", "accuracy"),
    [
        (Recipe(quantization=INT8), 0.87),
        (Recipe(pruning=pruned(0.5, *WEIGHTS, pattern=CHANNEL)), 0.4),
        (Recipe(pruning=pruned(0.5, *WEIGHTS, pattern=CHANNEL), quantization=INT8), 0.37),
        # Two layers lose 0.8 % each.
        (Recipe(pruning=pruned(0.8, *WEIGHTS)), 0.864),
        (Recipe(pruning=pruned(0.8, *WEIGHTS), quantization=INT8), 0.834),
        (Recipe(quantization=Quantization("dynamic")), None),
    ],
)
def test_with_labels_an_accuracy_is_expected(recipe: Recipe, accuracy: float | None) -> None:
    found = estimate_recipe(recipe, *parts(labelled(PROFILE)))
    assert found.accuracy == (None if accuracy is None else pytest.approx(accuracy))


def test_shares_of_channels_lose_the_accuracy_that_their_groups_lose_one_by_one() -> None:
    performance, losses = parts(labelled(a_profile()))
    groups = tuple(
        ChannelGroup((name,), 16, {name: 1.0}, {}, {"0.25": 0.02, "0.5": 0.3}, {"0.25": 0.87, "0.5": 0.8})
        for name in WEIGHTS
    )
    losses = replace(losses, groups=groups)
    layers = dict(zip(WEIGHTS, (0.25, 0.5), strict=True))
    recipe = Recipe(pruning=Pruning(scope="layers", pattern=CHANNEL, layers=layers))
    found = estimate_recipe(recipe, performance, losses)
    assert found.accuracy == pytest.approx(0.88 - 0.01 - 0.08)
    assert found.loss == pytest.approx(0.32) and found.estimated_speedup is None
    assert found.recovery == pytest.approx(0.79 / 0.88)
