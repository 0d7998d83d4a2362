"""When training code prunes: how sparse a layer is and how fast it learns at an epoch, as pure functions."""

from __future__ import annotations

import math

from inferlab.records.optimization import Schedule

# An epoch is a count of steps over the steps of an epoch: 3 × 0.1 shall not come before 0.3.
_SLACK = 1e-9


def sparsity_at(schedule: Schedule, final: float, epoch: float) -> float:
    """The share of zeros that a layer shall have at an epoch whose last share is `final`.

    Nothing before the start; from then on a cubic ramp, steep at first while there is much to spare, in steps of
    the update frequency; `final` from the end on.
    """
    if epoch < schedule.start_epoch - _SLACK:
        return 0.0
    if epoch >= schedule.end_epoch - _SLACK:
        return final
    first = min(schedule.initial_sparsity, final)
    updates = math.floor((epoch - schedule.start_epoch) / schedule.update_frequency + _SLACK)
    done = updates * schedule.update_frequency / (schedule.end_epoch - schedule.start_epoch)
    return final + (first - final) * (1 - done) ** 3


def learning_rate_at(schedule: Schedule, epoch: float) -> float | None:
    """The learning rate at an epoch; None where the schedule leaves it to the training code."""
    begun = [(start, rate) for start, rate in schedule.learning_rates if start <= epoch + _SLACK]
    return max(begun)[1] if begun else None
