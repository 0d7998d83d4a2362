from __future__ import annotations

import pytest

from inferlab.errors import BadInput
from inferlab.profiling.records import Ceilings
from inferlab.profiling.roofline import measure_ceilings, place
from inferlab.records import Event

# 100 GFLOP/s and 10 GB/s: the ridge lies at 10 FLOPs a byte (40 in INT8).
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
