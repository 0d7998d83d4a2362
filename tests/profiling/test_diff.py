"""Two profiles layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from inferlab.errors import BadInput
from inferlab.profiling.diff import diff
from inferlab.records.profile import Layer, Profile
from inferlab.views.layer_diff import diff_blocks
from inferlab.views.tables import text
from tests.helpers.profiles import a_profile

WHOLE = a_profile()


def layer(index: int, nodes: Sequence[str], times: Sequence[float]) -> Layer:
    assert WHOLE.performance is not None
    return replace(
        WHOLE.performance.layers[0],
        index=index,
        id=nodes[0] if nodes else f"copy{index}",
        type="Conv",
        nodes=tuple(nodes),
        ms=sorted(times)[len(times) // 2],
        times_ms=tuple(times),
    )


def made(layers: Sequence[Layer], batch: int = 1, engine: str = "onnxruntime") -> Profile:
    assert WHOLE.performance is not None
    times = [sum(one) for one in zip(*(one.times_ms for one in layers), strict=True)]
    performance = replace(
        WHOLE.performance,
        engine=engine,
        batch_size=batch,
        layers=tuple(layers),
        ms_per_batch=sorted(times)[len(times) // 2],
        processes_ms=tuple(times),
    )
    return replace(WHOLE, performance=performance)


STEADY = (1.0, 1.001, 0.999, 1.0, 1.0)


def test_layers_that_cover_the_same_nodes_are_compared_however_they_are_fused() -> None:
    a = made([layer(0, ["conv", "relu"], STEADY), layer(1, ["pool"], STEADY)])
    b = made(
        [layer(0, ["conv"], STEADY), layer(1, ["relu"], STEADY), layer(2, ["pool"], STEADY)], engine="openvino"
    )
    found = diff(a, b)
    first, second = found.rows
    assert (first.id, len(first.a), len(first.b), first.verdict) == ("conv", 1, 2, "slower")
    assert first.ratio is not None and first.ratio.value == pytest.approx(2.0)
    assert (second.id, second.verdict) == ("pool", "same")
    assert "engine: onnxruntime and openvino" in found.differences


def test_a_layer_that_only_one_side_has_is_its_own_row() -> None:
    a = made([layer(0, ["conv"], STEADY)])
    b = made([layer(0, ["conv"], STEADY), layer(1, [], STEADY)])
    rows = diff(a, b).rows
    assert [(len(row.a), len(row.b), row.ratio is None) for row in rows] == [(0, 1, True), (1, 1, False)]


def test_times_of_other_batch_sizes_are_compared_an_item() -> None:
    a = made([layer(0, ["conv"], STEADY)])
    b = made([layer(0, ["conv"], [4 * one for one in STEADY])], batch=4)
    found = diff(a, b)
    assert (found.verdict, found.rows[0].verdict) == ("same", "same")
    assert found.rows[0].b_ms == pytest.approx(1.0)


def test_noisy_layers_are_not_called_different() -> None:
    a = made([layer(0, ["conv"], (1.0, 2.0, 3.0, 1.5, 2.5))])
    b = made([layer(0, ["conv"], (2.0, 1.0, 3.0, 2.5, 2.2))])
    assert diff(a, b).rows[0].verdict == "inconclusive"


def test_the_interval_of_a_row_allows_for_the_number_of_rows() -> None:
    many = [layer(index, [f"n{index}"], STEADY) for index in range(10)]
    ratio = diff(made(many), made(many)).rows[0].ratio
    assert ratio is not None and ratio.level == pytest.approx(0.995)


def test_a_profile_without_measured_layers_is_refused() -> None:
    whole = made([layer(0, ["conv"], STEADY)])
    with pytest.raises(BadInput, match="The second of the two profiles has no measured layers"):
        diff(whole, replace(whole, performance=None))


def test_the_text_names_both_sides_and_the_largest_difference_first() -> None:
    a = made([layer(0, ["conv"], STEADY), layer(1, ["pool"], STEADY)])
    b = made([layer(0, ["conv"], STEADY), layer(1, ["pool"], [3 * one for one in STEADY])], engine="openvino")
    told = text(diff_blocks(diff(a, b)))
    assert told[0].startswith("A: baseline: onnxruntime, batch 1, ")
    assert told[2].startswith("Verdict: B is slower (2.0000 of A's time, 98% interval ")
    table = told[told.index(next(one for one in told if one.startswith("Layers by difference"))) + 1 :]
    assert table[1].split()[:2] == ["Conv", "pool"]
    assert table[1].endswith("slower")
