"""Charts of generations: what lies along their axes, and which intervals are drawn."""

from __future__ import annotations

import pytest

from inferlab.errors import BadInput
from inferlab.views.charts.points import GenerationPoint
from inferlab.views.charts.sweeps import generation_chart

Ends = tuple[float, float] | None


def point(rate: float | None = None, depth: int = 0, **numbers: tuple[float, Ends]) -> GenerationPoint:
    return GenerationPoint(
        model="model.gguf",
        engine="llamacpp",
        version="1",
        num_cores=1,
        batch_size=1,
        prompt_tokens=8,
        new_tokens=8,
        depth=depth,
        rate=rate,
        scenario="sync" if rate is None else "server",
        engine_options="",
        status="done",
        failure="",
        wrong=False,
        numbers=numbers,
    )


def test_requests_that_arrive_by_themselves_are_drawn_over_the_tokens_that_they_get() -> None:
    points = [
        point(rate, output_tokens_per_s=(8 * rate, None), tpot_ms=(tpot, None), ttft_ms=(10.0, None))
        for rate, tpot in ((2.0, 5.0), (4.0, 6.0))
    ]
    (trace,) = generation_chart(points, x="decode_tokens_per_s").data
    assert (list(trace.x), list(trace.y), list(trace.text)) == ([16.0, 32.0], [5.0, 6.0], ["2", "4"])
    (bars,) = generation_chart(points, x="cell").data
    assert list(bars.x) == [32.0, 16.0]


def test_an_interval_that_says_nothing_is_not_drawn() -> None:
    narrow, wide = (4.0, 6.0), (0.1, 160_000.0)
    points = [point(depth=0, tpot_ms=(5.0, narrow)), point(depth=64, tpot_ms=(5.0, wide))]
    (trace,) = generation_chart(points, x="depth").data
    assert (list(trace.error_y.array), list(trace.error_y.arrayminus)) == ([1.0, None], [1.0, None])
    assert points[1].ends("tpot_ms") is None


def test_a_single_token_has_no_curve() -> None:
    with pytest.raises(BadInput, match="fewer than two tokens were generated"):
        generation_chart([point(tpot_ms=(5.0, None))], x="decode_tokens_per_s")
