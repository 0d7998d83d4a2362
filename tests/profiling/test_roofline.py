from __future__ import annotations

from dataclasses import replace

import pytest

from inferlab.errors import BadInput, EngineFailed
from inferlab.profiling.roofline import Round, measure_ceilings, of_rounds, place, place_all
from inferlab.records import Event
from inferlab.records.profile import Ceilings
from inferlab.views.profile import overhead
from inferlab.views.text import finding
from tests.helpers.profiles import a_performance_profile

# 100 GFLOP/s and 10 GB/s: the ridge lies at 10 FLOPs per byte (40 in INT8).
LIMITS = Ceilings(2, 100.0, 400.0, 10.0)


@pytest.mark.parametrize(
    ("flops", "moved", "ms", "dtype", "expected"),
    [
        (10**9, 10**6, 20.0, "float32", ("compute", 0.5)),
        (10**9, 10**6, 10.0, "int8", ("compute", 0.25)),
        (10**6, 10**7, 4.0, "float32", ("memory", 0.25)),
        (0, 10**7, 2.0, "float32", ("memory", 0.5)),
        (20 * 10**6, 10**6, 1.0, "float32", ("compute", 0.2)),
        (20 * 10**6, 10**6, 1.0, "int8", ("memory", 0.1)),
        (0, 0, 1.0, "float32", (None, None)),
        (None, 10**6, 1.0, "float32", (None, None)),
        (10**6, None, 1.0, "float32", (None, None)),
        (10**6, 10**6, 0.0, "float32", (None, None)),
    ],
)
def test_a_layer_is_bound_by_what_would_take_it_longer(
    flops: int | None, moved: int | None, ms: float, dtype: str, expected: tuple[str | None, float | None]
) -> None:
    bound, of_limit = place(flops, moved, ms, dtype, LIMITS)
    assert bound == expected[0]
    assert of_limit == (None if expected[1] is None else pytest.approx(expected[1]))


def test_without_an_int8_ceiling_the_one_of_fp32_holds() -> None:
    assert place(10**9, 10**6, 10.0, "int8", Ceilings(2, 100.0, None, 10.0)) == ("compute", 1.0)


def test_ceilings_are_measured_and_dated() -> None:
    events: list[Event] = []
    found = measure_ceilings(1, events.append, seconds=0.05)
    assert found.num_cores == 1
    assert found.fp32_gflops > 0.5
    assert found.int8_gops is None or found.int8_gops > 0.5
    assert found.bandwidth_gb_per_s > 0.1
    assert found.measured_at.endswith("+00:00")
    assert [event.code for event in events if event.code != "waiting"] == ["ceilings"]


def test_more_cores_than_there_are_have_no_ceilings() -> None:
    with pytest.raises(BadInput, match="4096 cores were asked for"):
        measure_ceilings(4096)


def a_round(fp32: float, int8: float = 400.0, bandwidth: float = 10e9, lost: float = 0.0) -> Round:
    return Round({"float32": fp32, "int8": int8}, bandwidth, lost)


def test_a_ceiling_is_the_best_of_all_rounds_and_says_how_far_they_differ() -> None:
    found = of_rounds(2, [a_round(40.0, lost=0.3), a_round(100.0, lost=0.1), a_round(80.0, lost=0.2)])
    assert (found.fp32_gflops, found.int8_gops, found.bandwidth_gb_per_s) == (100.0, 400.0, 10.0)
    assert found.spread == pytest.approx(0.25)
    assert (found.lost, found.rounds) == (0.1, 3)
    with pytest.raises(EngineFailed, match=r"could not be measured: no engine\."):
        of_rounds(2, [Round({}, 10e9, 0.0, ("no engine.",))] * 2)


@pytest.mark.parametrize(
    ("reached", "rounds", "codes"),
    [
        ([100.0, 99.0, 1.0], 2, []),
        ([14.0, 100.0, 98.0], 3, []),
        ([14.0, 100.0, 30.0, 100.0], 3, ["ceilings-unsteady"]),
    ],
)
def test_ceilings_are_measured_until_a_second_round_confirms_the_best(
    monkeypatch: pytest.MonkeyPatch, reached: list[float], rounds: int, codes: list[str]
) -> None:
    left = iter(reached)
    monkeypatch.setattr("inferlab.profiling.roofline._round", lambda *_: a_round(next(left)))
    found = measure_ceilings(1)
    assert (found.rounds, found.fp32_gflops) == (rounds, 100.0)
    layers, findings = place_all([], found)
    assert (layers, [one.code for one in findings]) == ((), codes)


def test_ceilings_of_a_disturbed_machine_are_said_to_be_rough() -> None:
    _, (found,) = place_all([], replace(LIMITS, spread=0.02, lost=0.31, rounds=2))
    assert finding(found) == (
        "the ceilings of this machine are rough (the best of 2 rounds is 2 % higher; others took 31 % of the "
        "CPUs' time): so is the share of its limit that a layer reaches. Stop other programs and repeat."
    )


def test_a_layer_that_computes_faster_than_the_ceiling_is_a_finding_about_the_ceiling() -> None:
    some = a_performance_profile().layers[0]
    layers = [
        replace(some, flops=flops, bytes=moved, ms=ms, dtype="float32")
        for flops, moved, ms in ((703 * 10**6, 10**3, 1.0), (104 * 10**6, 10**3, 1.0), (10**3, 3 * 10**7, 1.0))
    ]
    placed, (found,) = place_all(layers, LIMITS)
    assert [one.bound for one in placed] == ["compute", "compute", "memory"]
    # Data may come from a cache, faster than from memory.
    assert [one.of_limit for one in placed] == [None, pytest.approx(1.04), pytest.approx(3.0)]
    assert (found.code, found.data["layers"]) == ("ceiling-too-low", 1)
    assert found.data["most"] == pytest.approx(7.03)
    assert finding(found).startswith(
        "1 layer computed faster than the ceiling, up to 703 % of it: it was measured"
    )


@pytest.mark.parametrize(
    ("value", "ends", "said"),
    [
        (0.06, (0.01, 0.11), "6 % (1 % to 11 %)"),
        (-0.234, (-0.5, 0.17), "not measurable (-50 % to 17 %)"),
        (0.03, (-0.1, 0.17), "not measurable (-10 % to 17 %)"),
        (-0.234, None, "not measurable"),
        (0.06, None, "6 %"),
    ],
)
def test_what_the_profiler_adds_has_its_interval_or_is_not_measurable(
    value: float, ends: tuple[float, float] | None, said: str
) -> None:
    assert overhead(replace(a_performance_profile(), profiler_overhead=value, overhead_interval=ends)) == said
