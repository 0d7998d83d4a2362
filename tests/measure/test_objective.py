"""Objectives: read from text, judged on times with exact answers."""

from __future__ import annotations

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.measure.queueing import carried, meets, parse_objective, samples_needed, value_s


@pytest.mark.parametrize(
    ("text", "statistic", "limit_s"),
    [
        ("p99<20ms", "p99", 0.02),
        ("p95 < 5 ms", "p95", 0.005),
        (" P99.9 <= 1.5 S ", "p99.9", 1.5),
        ("p99.90<1s", "p99.9", 1.0),
        ("median<3ms", "median", 0.003),
        ("p50<3ms", "median", 0.003),
        ("mean<250us", "mean", 0.00025),
        ("mean<250µs", "mean", 0.00025),
        ("mean≤.5ms", "mean", 0.0005),
    ],
)
def test_an_objective_is_a_statistic_and_a_limit_in_seconds(text: str, statistic: str, limit_s: float) -> None:
    objective = parse_objective(text)
    assert objective.statistic == statistic
    assert objective.limit_s == pytest.approx(limit_s)
    assert " " not in objective.text


@pytest.mark.parametrize(
    "text",
    ["", "fast", "p99", "p99<", "p99<20", "p99<20 furlongs", "p99>20ms", "p99<-1ms", "p99=20ms", "99<20ms",
     "p99<20ms and p50<1ms", "p99<1e400s", "p99<nanms", "max<20ms"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadInput, match="p99<20ms") as refused:
        parse_objective(text)
    assert f"'{text}'" in str(refused.value)


@pytest.mark.parametrize("text", ["p0<1ms", "p10<1ms", "p100<1ms", "p250<1ms"])
def test_percentiles_that_are_none_to_serve_by_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="p50 to below p100"):
        parse_objective(text)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="limit of 0"):
        parse_objective("p99<0.0ms")


def test_the_limit_itself_is_kept_and_what_is_above_is_not() -> None:
    times_s = np.array([0.001, 0.002, 0.006])
    assert value_s(parse_objective("mean<3ms"), times_s) == pytest.approx(0.003)
    assert meets(parse_objective("median<2ms"), times_s)
    assert meets(parse_objective("mean<3.001ms"), times_s)
    assert not meets(parse_objective("mean<2.999ms"), times_s)
    assert not meets(parse_objective("p90<2ms"), times_s)


def test_a_statistic_is_there_only_where_the_times_carry_it() -> None:
    times_s = np.arange(661.0)
    assert carried(times_s, "p99") is None
    assert carried(np.arange(662.0), "p99") == pytest.approx(654.39)
    assert carried(times_s, "mean") == 330.0
    assert carried(times_s, "median") == 330.0
    assert carried(np.empty(0), "mean") is None


def test_a_percentile_needs_its_samples_and_everything_a_hundred() -> None:
    assert [samples_needed(parse_objective(text)) for text in ("p99<1s", "p95<1s", "median<1s", "mean<1s")] == [
        662,
        130,
        100,
        100,
    ]
