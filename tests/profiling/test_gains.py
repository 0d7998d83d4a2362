"""What INT8, fewer channels and zeros would give: read off copies that were timed, within a loss budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.profiling.gains import best_gain, estimated_ms, gain_recipe, time_without, with_estimate
from inferlab.profiling.zeros import is_faster
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Quantization, Recipe
from inferlab.records.profile import ChangedCopy, Gain, OtherEngine, PerformanceProfile, Profile
from inferlab.views import tables
from inferlab.views.profile import blocks, gain_verdict, other_engine
from inferlab.views.reports.profile import report
from tests.helpers.estimates import layer, lost, measured, weight
from tests.helpers.profiles import a_profile

INT8 = Recipe(quantization=Quantization("static", calibration_items=8), seed=3, shapes={"x": (1, 4)})


def without(share: float, recipe: Recipe | None = None) -> Recipe:
    pruning = Pruning(share, pattern=CHANNEL, layers={"w1": share})
    return replace(recipe or Recipe(), pruning=pruning)


def copy(recipe: Recipe, first_ms: float, second_ms: float, loss: float | None, **more: float) -> ChangedCopy:
    distance = None if loss is None else Distance(loss, 8, generated=True, **more)
    return ChangedCopy(recipe, first_ms + second_ms, {"out0": first_ms, "out1": second_ms}, distance)


def timed(*copies: ChangedCopy) -> PerformanceProfile:
    """Two layers of 4 and 6 ms, measured without any spread."""
    return measured([layer(0, 4.0, {}), layer(1, 6.0, {})], copies=copies, int8_ms_per_batch=None)


def profiled(*copies: ChangedCopy, budget: float = 0.1) -> Profile:
    losses = lost([weight(0, {"0.9": 0.5}), weight(1, {"0.9": 0.5})])
    return with_estimate(a_profile(performance=timed(*copies), loss=losses, estimate=None), budget)


def test_int8_within_the_budget_is_the_estimate() -> None:
    profile = profiled(copy(INT8, 2.0, 3.0, 0.02))
    gain = Gain(True, 0.0, 0.0, 5.0, 2.0, 0.02, 0.1, counts=True)
    assert profile.gains == (gain,)
    assert profile.performance is not None
    assert (profile.performance.estimated_ms_per_batch, profile.performance.estimated_speedup) == (5.0, 2.0)
    assert estimated_ms(profile) == {0: 2.0, 1: 3.0}
    assert gain_recipe(profile, gain) == INT8


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (copy(INT8, 2.0, 3.0, 0.3), "above the budget"),
        (copy(INT8, 2.0, 3.0, None), "unknown"),
        (copy(INT8, 4.0, 5.9, 0.0), "no faster beyond the noise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_loses_too_much_or_gains_nothing_is_shown_and_does_not_count(
    changed: ChangedCopy, reason: str
) -> None:
    profile = profiled(changed)
    assert [gain.counts for gain in profile.gains] == [False], reason
    assert best_gain(profile) is None
    assert profile.performance is not None
    assert (profile.performance.estimated_ms_per_batch, profile.performance.estimated_speedup) == (10.0, 1.0)
    assert estimated_ms(profile) == {0: 4.0, 1: 6.0}


def test_with_labels_and_no_loss_profile_yet_a_loss_is_that_of_the_labels() -> None:
    """As far as the outputs move, the copy would be within the budget; by the labels it is not."""
    changed = copy(INT8, 2.0, 3.0, 0.02, loss_rise=0.3)
    approximated = lost([weight(0, {"0.9": 0.5}), weight(1, {"0.9": 0.5})], method="approximated")
    for losses in (approximated, None):
        profile = a_profile(performance=timed(changed), loss=losses, estimate=None)
        assert best_gain(with_estimate(profile, 0.1)) is None
        best = best_gain(with_estimate(profile, 0.5))
        assert best is not None and best.loss == 0.3


def test_noise_between_processes_does_not_hide_a_gain_that_was_measured_interleaved() -> None:
    noisy = replace(timed(copy(INT8, 2.0, 3.0, 0.02)), ms_interval=(3.0, 30.0))
    assert is_faster(noisy, 8.9) and not is_faster(noisy, 9.1)
    assert not is_faster(replace(noisy, ms_interval=(9.5, 10.5)), 9.6)
    assert not is_faster(replace(noisy, ms_interval=None), 9.9) and is_faster(
        replace(noisy, ms_interval=None), 9.7
    )


@pytest.mark.parametrize(
    ("other", "budget", "named"),
    [
        (
            OtherEngine("openvino", True, 0.0, 2.5),
            0.1,
            "openvino takes 2.5000 ms/batch (INT8), 2 times as fast as the ",
        ),
        (OtherEngine("openvino", True, 0.0, 4.95), 0.1, ""),
        (OtherEngine("openvino", True, 0.0, 2.5), 0.01, ""),
        (OtherEngine("openvino", False, 0.5, 2.5), 0.1, ""),
    ],
    ids=["faster", "as fast", "not within the budget", "another change"],
)
def test_an_engine_that_is_faster_still_is_named(other: OtherEngine, budget: float, named: str) -> None:
    performance = replace(timed(copy(INT8, 2.0, 3.0, 0.02)), other_engines=(other,))
    profile = with_estimate(a_profile(performance=performance, loss=None, estimate=None), budget)
    told = other_engine(profile)
    assert told == (f"{named}estimate here" if named else "")
    shown = "\n".join(tables.text(blocks(profile)))
    assert ("Elsewhere: openvino takes" in shown) == bool(named)
    # The report has other budgets too.
    assert not named or "Elsewhere: openvino takes" in report(profile)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            OtherEngine("openvino", True, 0.0, 2.5, unchanged_ms=2.6),
            "openvino takes 2.5000 ms/batch (INT8), and 2.6000 without that, 2 times as fast as the estimate here",
        ),
        (
            OtherEngine("openvino", True, 0.0, 2.5, unchanged_ms=2.0),
            "openvino takes 2.0000 ms/batch (the model as it is), 2.5 times as fast as the estimate here",
        ),
        # What the budget does not allow is no reason to hide an engine that is faster by itself.
        (
            OtherEngine("openvino", False, 0.5, 1.0, unchanged_ms=2.5),
            "openvino takes 2.5000 ms/batch (the model as it is), 2 times as fast as the estimate here",
        ),
        (OtherEngine("openvino", False, 0.0, 5.0, unchanged_ms=5.0), ""),
        (
            OtherEngine("mnn", False, 0.0, 2.0, unchanged_ms=12.0, zeros=0.7, loss=0.08),
            "mnn takes 2.0000 ms/batch (70 % of the parameters zero, loss 0.08), and 12.0000 without that, "
            "2.5 times as fast as the estimate here",
        ),
        (OtherEngine("mnn", False, 0.0, 2.0, unchanged_ms=12.0, zeros=0.7, loss=0.12), ""),
    ],
    ids=[
        *("the change gains there", "it does not", "it is not allowed", "no faster than the estimate"),
        *("zeros", "too many zeros"),
    ],
)
def test_what_an_engine_is_faster_by_itself_is_not_credited_to_the_change(other: OtherEngine, told: str) -> None:
    performance = replace(timed(copy(INT8, 2.0, 3.0, 0.02)), other_engines=(other,))
    losses = lost([weight(1, {"0.9": 0.5})])
    assert other_engine(with_estimate(a_profile(performance=performance, loss=losses, estimate=None), 0.1)) == told


def test_an_interrupted_profile_says_that_it_is_why_no_speed_up_is_predicted() -> None:
    untimed = replace(profiled(), interrupted=True)
    shown = "\n".join(tables.text(blocks(untimed)))
    assert "it was interrupted before any changed copy was timed, so no speed-up is predicted." in shown
    assert "--levels" not in shown
    assert "other engines measure them with --levels" in "\n".join(tables.text(blocks(profiled())))


def test_no_loss_profile_is_needed_where_copies_tell_their_own() -> None:
    profile = with_estimate(
        a_profile(performance=timed(copy(INT8, 2.0, 3.0, 0.02)), loss=None, estimate=None), 0.01
    )
    assert profile.estimate is None
    assert [(gain.loss, gain.budget, gain.counts) for gain in profile.gains] == [(0.02, 0.01, False)]


def test_with_labels_the_rise_of_the_cross_entropy_counts() -> None:
    changed = copy(INT8, 2.0, 3.0, 0.5, loss_rise=-0.01)
    assert [gain.loss for gain in profiled(changed).gains] == [0.5]
    labelled = lost([weight(1, {"0.9": 0.5})], metric="cross-entropy")
    profile = with_estimate(replace(profiled(changed), loss=labelled), 0.1)
    assert [(gain.loss, gain.counts) for gain in profile.gains] == [(0.0, True)]


QUARTER, HALF = copy(without(0.25), 3.0, 2.625, 0.04), copy(without(0.5), 2.0, 0.5, 0.2)


@pytest.mark.parametrize(
    ("budget", "share", "ms", "loss"),
    [
        # Measured as they are.
        (0.04, 0.25, 5.625, 0.04),
        (0.2, 0.5, 2.5, 0.2),
        # Times on a line over the square of what is left, losses over the root of the share.
        (0.03, 0.1, 10 - 4.375 * (1 - 0.81) / (1 - 0.5625), 0.04 * (0.1 / 0.25) ** 0.5),
        (
            0.1,
            0.3,
            5.625 - 3.125 * (0.5625 - 0.49) / (0.5625 - 0.25),
            0.04 + 0.16 * (0.3**0.5 - 0.5) / (0.5**0.5 - 0.5),
        ),
    ],
)
def test_the_budget_says_how_many_channels_go(budget: float, share: float, ms: float, loss: float) -> None:
    (gain,) = profiled(QUARTER, HALF, budget=budget).gains
    assert (gain.channels, gain.int8, gain.counts) == (share, False, True)
    assert (gain.ms_per_batch, gain.loss) == pytest.approx((ms, loss))
    assert gain.speedup == pytest.approx(10 / ms)


def test_a_share_between_has_the_recipe_and_the_layers_of_that_share() -> None:
    profile = profiled(QUARTER, HALF, budget=0.1)
    (gain,) = profile.gains
    assert gain_recipe(profile, gain) == without(0.3)
    part = (0.5625 - 0.49) / (0.5625 - 0.25)
    assert estimated_ms(profile) == pytest.approx({0: 3.0 - part * 1.0, 1: 2.625 - part * 2.125})


def test_where_no_share_is_within_the_budget_the_smallest_that_was_timed_is_shown() -> None:
    (gain,) = profiled(QUARTER, HALF, budget=0.001).gains
    assert (gain.channels, gain.ms_per_batch, gain.loss, gain.counts) == (0.25, 5.625, 0.04, False)


def test_both_together_are_no_estimate_where_no_copy_with_both_was_timed() -> None:
    quantized, pruned = profiled(copy(INT8, 2.0, 3.0, 0.01), QUARTER, HALF, budget=0.06).gains
    assert (quantized.int8, quantized.channels) == (True, 0.0)
    assert (pruned.int8, pruned.channels) == (False, 0.25)


def test_both_as_they_were_timed_together_go_before_the_product() -> None:
    together = copy(without(0.25, INT8), 1.0, 2.0, 0.055)
    profile = profiled(copy(INT8, 2.0, 3.0, 0.01), QUARTER, HALF, together, budget=0.06)
    assert (profile.gains[0].ms_per_batch, profile.gains[0].loss) == (3.0, 0.055)
    assert gain_recipe(profile, profile.gains[0]) == without(0.25, INT8)
    # At a smaller share the copy says how far the product is off; a larger one was never timed with both.
    assert profile.performance is not None
    assert time_without(profile.performance, 0.1, int8=True) == pytest.approx(8.1 * 0.5 * 3.0 / (5.625 * 0.5))
    assert time_without(profile.performance, 0.5, int8=True) is None
    wider = [gain for gain in with_estimate(profile, 0.22).gains if gain.channels]
    assert [(gain.int8, gain.channels, gain.ms_per_batch) for gain in wider] == [
        (False, 0.5, 2.5),
        (True, 0.25, 3.0),
    ]


def test_zeros_are_a_gain_where_the_engine_has_them() -> None:
    layers = [layer(0, 4.0, {"0.9": 4.0}), layer(1, 6.0, {"0.9": 1.0})]
    losses = lost([weight(0, {"0.9": 0.5}), weight(1, {"0.9": 0.05})])
    performance = measured(layers, copies=(copy(INT8, 3.0, 4.0, 0.02),), int8_ms_per_batch=None)
    profile = with_estimate(a_profile(performance=performance, loss=losses, estimate=None), 0.1)
    zeros, quantized = profile.gains
    assert (zeros.zeros, zeros.ms_per_batch, zeros.loss) == pytest.approx((0.45, 5.0, 0.05))
    assert (quantized.int8, quantized.ms_per_batch) == (True, 7.0)
    assert estimated_ms(profile) == {0: 4.0, 1: 1.0}
    assert gain_recipe(profile, zeros) == Recipe(pruning=Pruning(scope="layers", layers={"w1": 0.9}))


def test_with_labels_every_gain_names_the_accuracy_that_it_expects() -> None:
    quantized = copy(INT8, 2.0, 3.0, 0.01, accuracy=0.94, original_accuracy=0.95)
    smaller = copy(without(0.25), 2.0, 3.5, 0.08, accuracy=0.75, original_accuracy=0.95)
    profile = profiled(quantized, smaller, budget=0.04)
    # Of 0.25 of the channels, 0.05 fit into the budget; their drop is on a line over the square root.
    drop = 0.2 * (0.05 / 0.25) ** 0.5
    expected = {(True, 0.0): 0.94, (False, 0.05): 0.95 - drop}
    assert {
        (gain.int8, gain.channels): gain.accuracy for gain in profile.gains if not (gain.int8 and gain.channels)
    } == (pytest.approx(expected))
    best = best_gain(profile)
    assert best is not None and best.int8
    assert gain_verdict(replace(best, channels=0.0, loss=0.01, accuracy=0.94)) == (
        "loss 0.01 of a budget of 0.04, accuracy 94 % expected"
    )
    assert [gain.accuracy for gain in profiled(copy(INT8, 2.0, 3.0, 0.02)).gains] == [None]
    # What does not count names it too.
    assert gain_verdict(replace(best, counts=False, loss=0.01)) == (
        "no faster beyond the noise, loss 0.01, accuracy 94 % expected"
    )
    assert gain_verdict(replace(best, counts=False, loss=0.05)) == (
        "its loss of 0.05 is above the budget of 0.04, accuracy 94 % expected"
    )


def test_a_time_without_channels_is_known_only_where_copies_tell_it() -> None:
    performance = timed(QUARTER, HALF)
    assert time_without(performance, 0.5) == 2.5
    assert time_without(performance, 0.3) == pytest.approx(5.625 - 3.125 * (0.5625 - 0.49) / (0.5625 - 0.25))
    assert [time_without(performance, 0.6), time_without(performance, 0.5, int8=True)] == [None, None]
    quantized = copy(INT8, 2.0, 3.0, 0.0)
    assert time_without(timed(quantized, HALF), 0.5, int8=True) is None
    assert time_without(timed(quantized, HALF, copy(without(0.5, INT8), 0.5, 0.5, 0.2)), 0.5, int8=True) == 1.0
    assert time_without(timed(), 0.25) is None
