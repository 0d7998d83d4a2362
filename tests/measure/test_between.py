"""Intervals over machines, and how much machines differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inferlab.measure.intervals import across

#: Student's t of 95 % with 2 degrees of freedom.
T2 = 4.302652729749464


def test_each_machine_counts_once_however_many_processes_it_has() -> None:
    found = across([[1.0] * 5, [2.0] * 5, [4.0] * 5])
    assert found.typical.value == pytest.approx(2.0)
    assert found.typical.high == pytest.approx(2 * math.exp(T2 * math.log(2) / math.sqrt(3)))
    assert (found.machines, found.within) == (3, 0.0)
    assert found.between == pytest.approx(math.log(2))


def test_machines_that_are_alike_differ_by_nothing() -> None:
    spread = [math.exp(x) for x in (-0.1, 0.0, 0.1)]
    found = across([spread, spread, spread])
    assert found.between == 0.0
    assert found.within == pytest.approx(0.1)
    assert found.typical.ends == pytest.approx((1.0, 1.0))


def test_the_interval_is_wider_than_one_that_takes_processes_for_machines_and_covers_the_type() -> None:
    rng = np.random.default_rng(0)
    covered, trials = 0, 400
    for _ in range(trials):
        machines = rng.normal(0.0, 0.05, 4)
        found = across([list(np.exp(rng.normal(one, 0.02, 5))) for one in machines])
        low, high = found.typical.ends or (0.0, 0.0)
        covered += low <= 1.0 <= high
    assert 0.92 < covered / trials < 0.98


def test_one_process_a_machine_tells_nothing_of_processes() -> None:
    found = across([[1.0], [math.e]])
    assert found.within == 0.0
    assert found.between == pytest.approx(math.sqrt(0.5))
