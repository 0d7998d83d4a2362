"""Results that were saved: what of them is compared, and which of them cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inferlab.errors import BadInput
from inferlab.measure.unpaired import SavedResult, compare_saved, compare_sweeps, saved_result
from inferlab.records import Benchmark, Model, Outcome, Plan
from tests.helpers.runs import a_cell, a_run, a_window, samples, steady_run

MODEL = Model("onnx", "m.onnx", "/m.onnx", "d", (), (), 4096)
PERIOD_MS = 20.0


def result(label: str, outcome: Outcome) -> SavedResult:
    found = saved_result(label, Benchmark(Plan("m"), MODEL, (outcome,)), outcome)
    assert found is not None
    return found


def served(
    label: str, responses_ms: Sequence[float], rate: float = 1e3 / PERIOD_MS, **cell: object
) -> SavedResult:
    """Requests that arrive at a rate, each process answering all of them in the same time."""
    due_ms = [PERIOD_MS * number for number in range(50)]
    runs = [
        a_run(a_window(samples(*((due, due + taken_ms) for due in due_ms), due_ms=due_ms)))
        for taken_ms in responses_ms
    ]
    fixed = {"scenario": "server", "rate": rate, **cell}
    return result(label, Outcome(a_cell(**fixed), "done", tuple(runs)))


def test_requests_at_the_same_rate_are_compared_by_their_response_times() -> None:
    # Both serve all that arrives: their throughput is the same.
    found = compare_saved(served("a", (1.0, 1.01, 1.02)), served("b", (8.0, 8.01, 8.02)), 0.01)
    assert (found.metric, found.verdict) == ("response", "slower")
    assert found.ratio.value == pytest.approx((8 * 8.01 * 8.02 / (1 * 1.01 * 1.02)) ** (1 / 3))
    assert found.times_ms == ((1.0, 1.01, 1.02), (8.0, 8.01, 8.02))


def test_a_response_is_of_a_request_and_not_of_its_items() -> None:
    found = compare_saved(served("a", (4.0, 4.0)), served("b", (4.0, 4.0), batch_size=4), 0.01)
    assert found.ratio.value == 1.0 and found.times_ms[1] == (4.0, 4.0)


def test_requests_at_different_rates_are_not_compared() -> None:
    slow, fast = served("a", (1.0, 1.1)), served("b", (1.0, 1.1), rate=80.0)
    with pytest.raises(
        BadInput, match="a and b were measured with other requests: 50 per second and 80 per second"
    ):
        compare_saved(slow, fast, 0.01)
    alone = result("c", Outcome(a_cell(), "done", (steady_run(1.0),)))
    with pytest.raises(BadInput, match="other requests: no rate and 80 per second"):
        compare_saved(alone, fast, 0.01)
    with pytest.raises(BadInput, match="other requests: 50 per second and 80 per second"):
        compare_sweeps([slow, served("a", (1.0, 1.1), batch_size=2)], [fast], 0.01)


def test_cells_of_two_sweeps_are_paired_by_their_rate() -> None:
    a = [served("a", (1.0, 1.01), rate=rate) for rate in (10.0, 20.0)]
    b = [served("b", (2.0, 2.01), rate=rate) for rate in (20.0, 40.0)]
    (found,) = compare_sweeps(a, b, 0.01).results
    assert (found.place, found.metric) == ("rate 20.0", "response")
    of_a, of_b = (
        [served(engine, (1.0, 1.01), rate, engine=engine) for rate in (20.0, 50.0)] for engine in ("fake", "torch")
    )
    assert [one.place for one in compare_sweeps(of_a, of_b, 0.01).results] == ["rate 20.0", "rate 50.0"]


@pytest.mark.parametrize(
    ("scenarios", "metric"),
    [
        (("sync", "sync"), "median"),
        (("sync", "async"), "throughput"),
        (("async", "elastic"), "throughput"),
        (("offline", "sync"), "throughput"),
    ],
)
def test_calls_at_full_load_are_compared_by_their_median_only_where_both_arms_are_sync(
    scenarios: tuple[str, str], metric: str
) -> None:
    a, b = (
        result(name, Outcome(a_cell(scenario=scenario), "done", (steady_run(1.0),)))
        for name, scenario in zip("ab", scenarios, strict=True)
    )
    assert compare_saved(a, b, 0.01).metric == metric
