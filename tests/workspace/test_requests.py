"""What a form asks for, and what it refuses."""

from __future__ import annotations

import pytest

from inferlab.errors import BadInput
from inferlab.records.profile import LEVELS
from inferlab.workspace.requests import (
    BenchmarkRequest,
    ComparisonRequest,
    Side,
    benchmark_request,
    from_content,
    kind_of,
    profile_request,
    to_content,
)
from tests.helpers.requests import asked_benchmark, asked_profile
from tests.helpers.stored import MODEL


def test_a_form_becomes_a_plan_of_its_lists() -> None:
    form = asked_benchmark(
        engine="openvino", num_cores=(1, 1), batch_sizes=(1, 8, 8), scenario="async", num_streams=2
    )
    asked = benchmark_request(form, Side(MODEL))
    assert isinstance(asked, BenchmarkRequest)
    plan = asked.plan
    assert (plan.model, plan.engines, plan.num_cores, plan.batch_sizes) == (
        MODEL.source,
        ("openvino",),
        (1,),
        (1, 8),
    )
    assert (plan.scenarios, plan.num_streams, asked.against) == (("async",), (2,), None)


def test_of_a_comparison_the_engine_that_was_chosen_is_b() -> None:
    form = asked_benchmark(
        engine="openvino", num_cores=(1,), batch_sizes=(1, 8), compare_engine="onnxruntime", time_s=30.0
    )
    asked = benchmark_request(form, Side(MODEL))
    assert isinstance(asked, ComparisonRequest)
    assert (asked.a.engines, asked.b.engines) == (("onnxruntime",), ("openvino",))
    assert (asked.labels, asked.time_s) == (("onnxruntime", "openvino"), 30.0)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (asked_benchmark(num_cores=()), "Choose at least one core count and one batch size."),
        (asked_benchmark(batch_sizes=(0,)), "The batch size must be at least 1, not 0."),
        (asked_benchmark(num_cores=(100_000,)), "cores"),
        (asked_benchmark(time_s=0.0), "The measuring time must be more than 0 seconds"),
        (asked_benchmark(time_s=float("nan")), "The measuring time must be more than 0 seconds"),
        (asked_benchmark(scenario="server"), "needs the rate of requests"),
        (asked_benchmark(scenario="sync", num_streams=4), "The scenario sync has one stream, not 4."),
        (asked_benchmark(batch_sizes=tuple(range(1, 300))), "These are 299 combinations"),
        (asked_benchmark(compare_engine="onnxruntime"), "Both sides of the comparison are ONNX Runtime."),
        (asked_benchmark(compare_engine="openvino", against="abcdefghij"), "not with both"),
        (asked_benchmark(scenario="nonsense"), "'nonsense' is not possible here"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_it_is_queued(form: BenchmarkRequest, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        benchmark_request(form, Side(MODEL))


def test_what_is_switched_off_is_not_asked_for() -> None:
    off = profile_request(asked_profile(performance=False, int8=True, levels=True, roofline=True), MODEL).wanted
    assert (off.performance, off.loss, off.int8, off.levels, off.roofline) == (False, True, False, None, False)
    on = profile_request(asked_profile(loss=False, levels=True, performance_name="  two  words "), MODEL).wanted
    assert (on.performance_name, on.levels, on.loss) == ("two words", LEVELS, False)


@pytest.mark.parametrize("name", ["", "   ", "x" * 81])
def test_a_profile_needs_a_name_of_a_sensible_length(name: str) -> None:
    with pytest.raises(BadInput, match="performance profile"):
        profile_request(asked_profile(performance_name=name), MODEL)


def test_what_is_asked_for_comes_back_from_the_queue_as_it_was() -> None:
    for asked in (
        benchmark_request(asked_benchmark(against="abcdefghij"), Side(MODEL)),
        benchmark_request(asked_benchmark(compare_engine="openvino"), Side(MODEL)),
        profile_request(asked_profile(levels=True), MODEL),
    ):
        assert from_content(kind_of(asked), to_content(asked)) == asked
