"""What given shares of zeros would give, with answers that can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from inferlab.profiling.zeros import estimate, loss_at, predict, weight_shares
from inferlab.views.charts.losses import layer_curves
from tests.helpers.estimates import WHOLE, layer, lost, measured, weight


def test_between_measured_levels_times_and_losses_lie_on_straight_lines() -> None:
    layers = [layer(0, 10.0, {"0.8": 6.0, "0.9": 4.0})]
    found = predict(measured(layers), lost([weight(0, {"0.8": 0.1, "0.9": 0.3})]), {"w0": 0.85})
    assert found.estimated_ms_per_batch == pytest.approx(5.0)
    assert found.estimated_speedup == pytest.approx(2.0)
    assert found.loss == pytest.approx(0.2)
    assert found.recovery == pytest.approx(0.8)
    assert found.parameter_reduction == pytest.approx(0.85)


def test_below_the_first_level_lines_begin_at_the_model_as_it_is() -> None:
    layers = [layer(0, 10.0, {"0.8": 6.0})]
    found = predict(measured(layers), lost([weight(0, {"0.8": 0.4})]), {"w0": 0.2})
    assert found.estimated_ms_per_batch == pytest.approx(9.0)
    assert found.loss == pytest.approx(0.1)


def test_at_measured_levels_it_says_what_the_estimate_says() -> None:
    assert WHOLE.performance is not None and WHOLE.loss is not None
    chosen = estimate(WHOLE.performance, WHOLE.loss, 0.1)
    assert chosen is not None and chosen.levels
    found = predict(WHOLE.performance, WHOLE.loss, chosen.levels)
    assert replace(found, budget=0.1, loss=chosen.loss) == chosen
    assert found.loss == pytest.approx(chosen.loss)


def test_what_runs_as_one_is_as_fast_as_its_least_pruned_weight() -> None:
    together = layer(0, 10.0, {"0.5": 5.0, "0.9": 1.0}, nodes=("out0", "out1"))
    losses = lost([weight(0, {"0.9": 0.1}), weight(1, {"0.9": 0.1})])
    assert predict(measured([together]), losses, {"w0": 0.9, "w1": 0.5}).estimated_ms_per_batch == 5.0
    assert predict(measured([together]), losses, {"w0": 0.9, "w1": 0.0}).estimated_ms_per_batch == 10.0


def test_without_times_nothing_is_said_of_time() -> None:
    found = predict(None, lost([weight(0, {"0.9": 0.1})]), {"w0": 0.9})
    assert (found.gained, found.estimated_ms_per_batch, found.estimated_speedup) == ("parameters", None, None)
    assert found.parameter_reduction == pytest.approx(0.9)


def test_an_engine_that_gains_nothing_is_predicted_to_gain_nothing() -> None:
    layers = [layer(0, 10.0, {"0.9": 9.95})]
    found = predict(measured(layers), lost([weight(0, {"0.9": 0.1})]), {"w0": 0.9})
    assert found.estimated_speedup == 1.0
    assert found.levels == {"w0": 0.9}


def test_a_weight_that_is_sparser_already_costs_and_changes_nothing() -> None:
    losses = lost([weight(0, {"0.5": 0.0, "0.9": 0.1}, zero_fraction=0.8)])
    assert predict(None, losses, {"w0": 0.5}).levels == {}
    half = predict(None, losses, {"w0": 0.85})
    assert half.loss == pytest.approx(0.05)
    assert half.parameter_reduction == pytest.approx(0.05)


def test_outputs_that_are_no_numbers_are_an_endless_loss() -> None:
    one = weight(0, {"0.8": 0.1, "0.9": None, "0.95": None})
    assert loss_at(one, 0.8) == 0.1
    assert loss_at(one, 0.85) == math.inf
    assert predict(None, lost([one]), {"w0": 0.95}).recovery == 0.0


def test_with_labels_what_is_left_is_accuracy() -> None:
    losses = lost([weight(0, {"0.8": 0.1}, accuracies={"0.8": 0.6})], metric="cross-entropy", dense_accuracy=0.8)
    assert predict(None, losses, {"w0": 0.4}).recovery == pytest.approx(0.875)


def test_the_time_of_what_runs_as_one_is_divided_among_its_weights_by_their_flops() -> None:
    together = layer(0, 12.0, {"0.9": 6.0}, nodes=("out0", "out1", "activation"))
    losses = lost([weight(0, {"0.9": 0.1}), weight(1, {"0.9": 0.1})])
    assert WHOLE.flops is not None
    nodes = [
        replace(WHOLE.flops.layers[0], id=f"out{number}", flops=flops) for number, flops in ((0, 300), (1, 100))
    ]
    profile = replace(
        WHOLE, performance=measured([together]), loss=losses, flops=replace(WHOLE.flops, layers=tuple(nodes))
    )
    assert weight_shares(together, profile) == {"w0": 0.75, "w1": 0.25}
    assert list(layer_curves(profile, "w0", 0.9).data[0].y) == [9.0, 4.5]
    assert list(layer_curves(profile, "w1", 0.9).data[0].y) == [3.0, 1.5]
    assert weight_shares(together, replace(profile, flops=None)) == {"w0": 0.5, "w1": 0.5}
