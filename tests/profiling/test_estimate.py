"""Which layer takes which sparsity: small profiles whose best answer can be seen."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.profiling.gains import estimated_ms, with_estimate
from inferlab.profiling.zeros import estimate, gains_from_zeros, smoothed
from tests.helpers.estimates import WHOLE, layer, lost, measured, weight


def test_the_layer_that_gains_most_for_its_loss_is_pruned_first() -> None:
    layers = [layer(0, 10.0, {"0.9": 2.0}), layer(1, 10.0, {"0.9": 8.0})]
    weights = [weight(0, {"0.9": 0.08}), weight(1, {"0.9": 0.08})]
    found = estimate(measured(layers), lost(weights), budget=0.1)
    assert found is not None
    assert found.levels == {"w0": 0.9}
    assert found.estimated_ms_per_batch == pytest.approx(12.0)
    assert found.estimated_speedup == pytest.approx(20 / 12)
    assert found.loss == pytest.approx(0.08)
    assert found.parameter_reduction == pytest.approx(0.45)
    assert found.recovery == pytest.approx(0.92)
    assert [(one.type, one.ms, one.estimated_ms) for one in found.by_type] == [("Gemm", 20.0, 12.0)]


def test_a_budget_of_nothing_takes_only_what_costs_nothing() -> None:
    layers = [layer(0, 10.0, {"0.5": 6.0, "0.9": 2.0}), layer(1, 10.0, {"0.5": 6.0})]
    weights = [weight(0, {"0.5": 0.0, "0.9": 0.1}), weight(1, {"0.5": 0.01})]
    found = estimate(measured(layers), lost(weights), budget=0.0)
    assert found is not None
    assert found.levels == {"w0": 0.5}


def test_a_level_that_costs_more_than_the_budget_does_not_hide_a_cheaper_one() -> None:
    # From 0 straight to 0.9 gains more for its loss than 0.5 does, but the budget does not reach so far.
    layers = [layer(0, 10.0, {"0.5": 9.0, "0.9": 1.0})]
    profiles = measured(layers), lost([weight(0, {"0.5": 0.1, "0.9": 0.5})])
    chosen = [estimate(*profiles, budget=budget) for budget in (0.05, 0.1, 0.5)]
    assert [found.levels if found else None for found in chosen] == [{}, {"w0": 0.5}, {"w0": 0.9}]


def test_the_first_and_the_last_layer_and_grouped_ones_stay_as_they_are() -> None:
    layers = [layer(index, 10.0, {"0.9": 1.0}) for index in range(4)]
    weights = tuple(weight(index, {"0.9": 0.0}, groups=32 if index == 1 else 1) for index in range(4))
    profiles = measured(layers), lost([], layers=weights)
    found, named = estimate(*profiles), estimate(*profiles, weights=["w0", "w1"])
    assert found is not None and named is not None
    assert found.levels == {"w2": 0.9}
    assert named.levels == {"w0": 0.9, "w1": 0.9}


def test_a_layer_that_is_sparse_already_takes_only_higher_levels() -> None:
    layers = [layer(0, 10.0, {"0.8": 12.0, "0.9": 7.0})]
    found = estimate(
        measured(layers), lost([weight(0, {"0.8": 0.0, "0.9": 0.02}, zero_fraction=0.85)]), budget=0.1
    )
    assert found is not None
    assert found.levels == {"w0": 0.9}
    assert found.parameter_reduction == pytest.approx(0.05)


def test_what_ran_in_the_fallback_gains_nothing() -> None:
    layers = [layer(0, 10.0, {"0.9": 1.0}, fallback=True), layer(1, 10.0, {"0.9": 1.0})]
    found = estimate(measured(layers), lost([weight(0, {"0.9": 0.0}), weight(1, {"0.9": 0.0})]))
    assert found is not None
    assert found.levels == {"w1": 0.9}


def test_differences_as_small_as_the_noise_are_no_gain() -> None:
    layers = [layer(0, 10.0, {"0.9": 9.0}, spread_ms=0.6), layer(1, 10.0, {"0.9": 9.6}, spread_ms=0.0)]
    performance = measured(layers, ms_interval=(19.9, 20.1))
    found = estimate(performance, lost([weight(0, {"0.9": 0.0}), weight(1, {"0.9": 0.0})]))
    assert found is not None
    assert found.levels == {}
    assert found.estimated_speedup == 1.0


def test_an_engine_whose_whole_model_gets_no_faster_has_no_estimated_gain() -> None:
    layers = [layer(0, 10.0, {"0.9": 8.0}), layer(1, 10.0, {"0.9": 12.0})]
    found = estimate(measured(layers), lost([weight(0, {"0.9": 0.0}), weight(1, {"0.9": 0.0})]))
    assert found is not None
    assert found.estimated_speedup == 1.0


def test_a_model_that_is_faster_by_a_per_cent_alone_does_not_gain() -> None:
    layers = [layer(0, 10.0, {"0.9": 9.0}), layer(1, 90.0, {"0.9": 90.0})]
    performance = measured(layers)
    assert not gains_from_zeros(performance)
    assert gains_from_zeros(replace(performance, pruned={"0.9": 97.9}))
    assert not gains_from_zeros(replace(performance, pruned={"0.9": 97.9}, ms_interval=(97.0, 103.0)))
    assert not gains_from_zeros(replace(performance, pruned={}))


def test_a_level_without_a_loss_is_not_taken() -> None:
    found = estimate(
        measured([layer(0, 10.0, {"0.5": 6.0, "0.9": 1.0})]), lost([weight(0, {"0.5": 0.0, "0.9": None})])
    )
    assert found is not None
    assert found.levels == {"w0": 0.5}


def test_a_shared_weight_is_pruned_once_and_gains_in_every_layer_that_reads_it() -> None:
    layers = [layer(0, 4.0, {"0.9": 1.0}), layer(1, 6.0, {"0.9": 1.0})]
    weights = [weight(0, {"0.9": 0.05}), weight(1, {"0.9": 0.05}, weight="w0")]
    found = estimate(measured(layers), lost(weights))
    assert found is not None
    assert found.levels == {"w0": 0.9}
    assert found.estimated_ms_per_batch == pytest.approx(2.0)


def test_a_level_that_was_lucky_is_brought_in_line_with_the_next_ones() -> None:
    assert smoothed(layer(0, 10.0, {"0.5": 4.0, "0.8": 8.0, "0.9": 3.0}, times_ms=(10.0,))) == {
        "0.5": 6.0,
        "0.8": 6.0,
        "0.9": 3.0,
    }
    # A level that seems slower than the model as it is weighs as one process against all of those.
    slower = smoothed(layer(0, 10.0, {"0.5": 12.0}, times_ms=(9.0, 10.0, 11.0)))
    assert slower == {"0.5": 10.5}


def test_without_times_the_estimate_goes_by_parameters() -> None:
    weights = [weight(0, {"0.5": 0.09}, params=10), weight(1, {"0.5": 0.09}, params=1000)]
    found = estimate(None, lost(weights), budget=0.1)
    assert found is not None
    assert (found.gained, found.levels) == ("parameters", {"w1": 0.5})
    assert found.estimated_ms_per_batch is None
    assert found.parameter_reduction == pytest.approx(500 / 1010)


def test_with_labels_recovery_is_the_accuracy_that_is_left() -> None:
    one = weight(0, {"0.5": 0.02}, accuracies={"0.5": 0.72})
    found = estimate(None, lost([one], metric="cross-entropy", dense_loss=0.5, dense_accuracy=0.8))
    assert found is not None
    assert found.recovery == pytest.approx(0.9)
    assert found.accuracy == pytest.approx(0.72)
    unlabelled = estimate(None, lost([one]))
    assert unlabelled is not None and unlabelled.accuracy is None


def test_a_model_without_prunable_layers_has_no_estimate() -> None:
    assert estimate(None, lost([], layers=())) is None


def test_where_there_is_nothing_but_a_first_and_a_last_layer_they_count() -> None:
    found = estimate(None, lost([], layers=(weight(0, {"0.9": 0.0}), weight(1, {"0.9": 0.0}))))
    assert found is not None and found.levels == {"w0": 0.9, "w1": 0.9}


def test_the_estimated_times_of_all_layers_add_up_to_the_estimate() -> None:
    found = with_estimate(WHOLE, 0.2)
    assert found.estimate is not None and found.estimate.estimated_ms_per_batch is not None
    assert sum(estimated_ms(found).values()) == pytest.approx(found.estimate.estimated_ms_per_batch)
    assert found.performance is not None
    assert found.performance.estimated_speedup == found.estimate.estimated_speedup


@given(
    st.lists(
        st.tuples(st.floats(1, 10), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.1), st.floats(0, 0.1)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 0.3),
)
def test_an_estimate_keeps_its_budget_and_is_near_the_best(
    drawn: list[tuple[float, float, float, float, float]], budget: float
) -> None:
    layers, weights = [], []
    for index, (ms, first, second, loss, more) in enumerate(drawn):
        layers.append(layer(index, ms, {"0.5": ms * first, "0.9": ms * first * second}))
        weights.append(weight(index, {"0.5": loss, "0.9": loss + more}))
    found = estimate(measured(layers), lost(weights), budget)
    assert found is not None
    assert found.loss <= budget + 1e-9
    choices = [(None, "0.5", "0.9")] * len(layers)
    best = min(
        sum(one.ms if level is None else one.pruned[level] for one, level in zip(layers, chosen, strict=True))
        for chosen in itertools.product(*choices)
        if sum(w.losses[level] or 0.0 for w, level in zip(weights, chosen, strict=True) if level) <= budget
    )
    # Greedy leaves at most one step of one layer on the table.
    largest = max(one.ms for one in layers)
    assert found.estimated_ms_per_batch is not None
    assert found.estimated_ms_per_batch <= best + largest * (1 + 0.05 * len(layers)) + 1e-9
