"""What a schedule says of an epoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferlab.records.optimization import Schedule
from inferlab.training import learning_rate_at, sparsity_at

RAMP = Schedule(start_epoch=1.0, end_epoch=5.0, update_frequency=1.0, initial_sparsity=0.1, epochs=8.0)


@pytest.mark.parametrize(
    ("epoch", "sparsity"),
    [
        (0.0, 0.0),
        (0.99, 0.0),
        (1.0, 0.1),
        (1.99, 0.1),
        (2.0, 0.9 - 0.8 * 0.75**3),
        (3.0, 0.9 - 0.8 * 0.5**3),
        (4.5, 0.9 - 0.8 * 0.25**3),
        (5.0, 0.9),
        (7.3, 0.9),
    ],
)
def test_the_share_of_zeros_rises_by_a_cubic_ramp_in_steps(epoch: float, sparsity: float) -> None:
    assert sparsity_at(RAMP, 0.9, epoch) == pytest.approx(sparsity, abs=1e-12)


def test_a_layer_that_ends_below_the_first_share_never_exceeds_its_own() -> None:
    assert [sparsity_at(RAMP, 0.05, epoch) for epoch in (1.0, 3.0, 6.0)] == pytest.approx([0.05] * 3)


def test_a_schedule_that_starts_where_it_ends_prunes_at_once() -> None:
    at_once = Schedule(start_epoch=2.0, end_epoch=2.0)
    assert [sparsity_at(at_once, 0.8, epoch) for epoch in (1.9, 2.0)] == [0.0, 0.8]


def test_an_update_is_not_missed_for_rounding() -> None:
    fine = Schedule(start_epoch=0.0, end_epoch=1.0, update_frequency=0.1, initial_sparsity=0.0)
    assert sparsity_at(fine, 1.0, 0.1 + 0.2) == pytest.approx(1 - 0.7**3)
    assert sparsity_at(fine, 1.0, 0.3 - 1e-12) == pytest.approx(1 - 0.7**3)


@given(st.floats(0, 0.99), st.floats(0, 20), st.floats(0, 20), st.floats(0.01, 3), st.floats(0, 1))
def test_the_share_never_falls_and_never_exceeds_the_last(
    final: float, one: float, other: float, frequency: float, initial: float
) -> None:
    schedule = Schedule(0.5, 9.0, frequency, initial * 0.99, 12.0)
    low, high = sorted((one, other))
    assert 0 <= sparsity_at(schedule, final, low) <= sparsity_at(schedule, final, high) + 1e-12 <= final + 2e-12


def test_the_learning_rate_is_the_last_that_began() -> None:
    schedule = Schedule(learning_rates=((4.0, 0.001), (1.0, 0.01)))
    assert [learning_rate_at(schedule, epoch) for epoch in (0.5, 1.0, 3.9, 4.0, 9.0)] == [
        *(None, 0.01, 0.01, 0.001, 0.001)
    ]
