"""Charts of profiles: what is drawn where, exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.profiling.diff import diff
from inferlab.records.optimization import CHANNEL, Pruning, Recipe
from inferlab.records.profile import ChangedCopy, LossLayer, PerformanceProfile, Profile
from inferlab.views import profile as words
from inferlab.views.charts import losses
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.profile_values import summaries
from inferlab.views.tables import Table
from tests.helpers.profiles import (
    a_loss_profile,
    a_performance_profile,
    a_profile,
    repeated,
    with_copies,
    with_layers,
)

PROFILE = a_profile()
LEVELS = ["0.2", "0.4", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95", "0.975", "0.99"]
MODELLED = replace(PROFILE, performance=None, estimate=None)
BARE = replace(MODELLED, flops=None, loss=None)


def measured(profile: Profile = PROFILE) -> PerformanceProfile:
    assert profile.performance is not None
    return profile.performance


def types(figure: Any) -> list[str]:
    return list(figure.layout.yaxis.ticktext)


def by_index(figure: Any) -> dict[int, float | None]:
    """The bars of layers, from all traces."""
    return {x: y for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True)}


def hover(figure: Any, index: int) -> list[str]:
    """What is said of the layer at this index."""
    (found,) = [
        f"{told}<br>{text}"
        for trace in figure.data
        for x, told, text in zip(trace.x, trace.customdata, trace.hovertext, strict=True)
        if x == index
    ]
    return found.split("<br>")


def total(kind: str, profile: Profile = PROFILE) -> float:
    return sum(layer.ms for layer in measured(profile).layers if layer.type == kind)


def test_the_example_is_a_mobilenet() -> None:
    assert PROFILE.flops is not None
    assert (len(measured().layers), PROFILE.flops.macs) == (66, 300_774_272)
    assert sum(layer.ms for layer in measured().layers) == pytest.approx(measured().ms_per_batch)


def test_what_can_be_chosen_is_what_was_measured() -> None:
    timed = ["baseline", *LEVELS, "int8", "estimated", "speedup"]
    assert list(summaries(PROFILE)) == [*timed, "flops", "params", "bytes"]
    assert summaries(PROFILE)["0.9"] == "Pruned 0.9 ms"
    assert list(summaries(MODELLED)) == ["flops", "params", "bytes"]
    assert summaries(BARE) == {}
    plain = [replace(layer, pruned={}, int8_ms=None) for layer in measured().layers]
    assert list(summaries(with_layers(replace(PROFILE, estimate=None), plain)))[:2] == ["baseline", "flops"]
    assert PROFILE.estimate is not None
    by_parameters = replace(PROFILE.estimate, gained="parameters", estimated_ms_per_batch=None)
    assert "estimated" not in summaries(replace(PROFILE, estimate=by_parameters))


def test_copies_with_fewer_channels_can_be_chosen_and_the_estimate_follows_the_budget() -> None:
    profile = with_copies(PROFILE)
    known = summaries(profile)
    assert list(known)[:4] == ["baseline", "int8", "channels-0.25", "channels-0.5"]
    assert list(known)[4:7] == ["int8-channels-0.5", "estimated", "speedup"]
    assert known["channels-0.25"] == "25 % of channels removed ms"
    before = {layer.index: layer.ms for layer in measured().layers}
    halved = by_index(charts.layer_results(profile, "channels-0.5"))
    assert halved == pytest.approx({index: 0.25 * ms for index, ms in before.items()})
    estimated = charts.layer_results(profile, "estimated")
    assert by_index(estimated) == pytest.approx({index: 0.5 * ms for index, ms in before.items()})
    assert "INT8" in estimated.layout.title.text
    # Within this budget both are done: an eighth is left.
    wide = by_index(charts.layer_results(with_copies(PROFILE, 0.6), "estimated"))
    assert wide == pytest.approx({index: 0.125 * ms for index, ms in before.items()})


def test_a_copy_in_which_each_group_lost_its_own_share_can_be_chosen_too() -> None:
    profile = with_copies(PROFILE)
    assert profile.performance is not None
    recipe = Recipe(pruning=Pruning(scope="layers", pattern=CHANNEL, layers={"a": 0.25, "b": 0.5}))
    layers_ms = {layer.id: 0.3 * layer.ms for layer in measured().layers}
    mixed = ChangedCopy(recipe, 0.3 * profile.performance.ms_per_batch, layers_ms, None)
    profile = replace(profile, performance=replace(profile.performance, mixed_copies=(mixed,)))
    assert summaries(profile)["groups-1"] == "25 % to 50 % of channels removed by group ms"
    expected = {layer.index: 0.3 * layer.ms for layer in measured().layers}
    assert by_index(charts.layer_results(profile, "groups-1")) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("key", "title", "part"),
    [("channels-0.25", "25 % of channels removed (ms)", 0.5625), ("int8-channels-0.5", "INT8, 50 % of", 0.125)],
)
def test_the_tables_of_layers_have_the_summary_that_is_asked_for(key: str, title: str, part: float) -> None:
    profile = with_copies(PROFILE)
    for table in (*words.types(profile, key), *words.slowest(profile, 15, key)[:1]):
        assert isinstance(table, Table)
        (field,) = [field for field in table.fields if field.key == f"{key}_ms"]
        (before,) = [field for field in table.fields if field.key == "ms"]
        assert field.label.startswith(title)
        for row in table.rows:
            assert field.get(row) == pytest.approx(part * before.get(row))
    assert [field.key for field in words.types(profile, "baseline")[0].fields] == ["type", "layers", "ms", "share"]  # type: ignore[union-attr]
    with pytest.raises(
        BadInput, match=r"no times of layers called '0\.9'\. It has: baseline, int8, channels-0\.25"
    ):
        words.types(profile, "0.9")


def test_types_are_sorted_by_their_time_and_fallbacks_are_marked() -> None:
    figure = charts.layer_summaries(PROFILE)
    (trace,) = figure.data
    assert types(figure) == ["Conv", "Gemm", "Add", "GlobalAveragePool", "ORT (fallback)"]
    assert list(trace.x) == pytest.approx([total(one.partition(" ")[0]) for one in types(figure)])
    assert list(trace.marker.line.width) == [0, 0, 0, 0, 1]
    assert trace.marker.color[-1] == "rgba(0,0,0,0)"
    assert trace.hovertext[-1] == "type: ORT<br>2 layers<br>ran in the engine's fallback: pruning gains nothing"
    assert list(figure.layout.yaxis.range) == [4.5, -0.5]
    assert trace.text[0] == f"{total('Conv'):.3f} ms"
    assert "hollow: ran in the engine's fallback" in figure.layout.title.text


def test_percentages_are_shares_of_the_whole_and_a_logarithm_is_an_axis() -> None:
    percent, log = (charts.layer_summaries(PROFILE, "baseline", value) for value in ("percent", "log"))
    assert sum(percent.data[0].x) == pytest.approx(100, abs=1e-5)
    assert percent.data[0].x[0] == pytest.approx(100 * total("Conv") / measured().ms_per_batch, abs=1e-5)
    assert percent.layout.xaxis.title.text == "% of the whole"
    assert log.layout.xaxis.type == "log" and log.layout.xaxis.title.text == "ms per batch, logarithmic"
    assert list(log.data[0].x) == list(charts.layer_summaries(PROFILE).data[0].x)
    low, high = log.layout.xaxis.range
    assert low < math.log10(min(log.data[0].x)) and high > math.log10(max(log.data[0].x))


def test_levels_int8_and_the_estimate_have_values_of_their_own() -> None:
    layers = measured().layers
    assert by_index(charts.layer_results(PROFILE, "0.9")) == {layer.index: layer.pruned["0.9"] for layer in layers}
    assert by_index(charts.layer_results(PROFILE, "int8")) == {layer.index: layer.int8_ms for layer in layers}
    estimated = by_index(charts.layer_results(PROFILE, "estimated"))
    assert estimated[0] == layers[0].ms  # the first layer stays as it is
    assert estimated[2] == layers[2].pruned["0.8"]
    saved = by_index(charts.layer_results(PROFILE, "speedup"))
    assert saved[2] == layers[2].ms - layers[2].pruned["0.8"]
    share = by_index(charts.layer_results(PROFILE, "speedup", "percent"))[2]
    assert share == pytest.approx(48, abs=1e-3)  # of its own time: 0.75 × 0.8²
    figure = charts.layer_summaries(PROFILE, "speedup")
    assert types(figure)[0] == "Conv" and "loss budget 0.05" in figure.layout.title.text


def test_layers_without_a_time_at_a_level_have_no_bar_but_count_as_they_are_in_their_type() -> None:
    first, *rest = measured().layers
    profile = with_layers(PROFILE, [replace(first, pruned={}), *rest])
    assert by_index(charts.layer_results(profile, "0.9"))[0] is None
    figure = charts.layer_summaries(profile, "0.9")
    expected = first.ms + sum(one.pruned["0.9"] for one in rest if one.type == "Conv")
    assert figure.data[0].x[types(figure).index("Conv")] == pytest.approx(expected)
    assert "1 of them counted as they are: not measured so" in figure.data[0].hovertext[0]


def test_every_layer_is_a_bar_in_its_place_with_its_spread() -> None:
    figure = charts.layer_results(PROFILE)
    layers = measured().layers
    assert by_index(figure) == {layer.index: layer.ms for layer in layers}
    convs, others, fallbacks = figure.data
    assert {layer.type for layer in layers if layer.index in convs.x} == {"Conv"}
    assert list(convs.error_y.array) == [layer.spread_ms for layer in layers if layer.type == "Conv"]
    assert list(fallbacks.x) == [63, 65] and fallbacks.marker.color == "rgba(0,0,0,0)"
    assert (convs.marker.color, others.marker.color) == ("#2f7fd6", "#777b80")
    assert len({trace.width for trace in figure.data}) == 1
    assert list(figure.layout.xaxis.range) == [-0.6, 65.6]
    # Between few layers there is no half of one, and none before the first.
    few = charts.layer_results(with_layers(PROFILE, layers[:3])).layout.xaxis
    assert (list(few.range), few.dtick) == ([-0.6, 2.6], 1)


def test_who_points_at_a_layer_reads_all_about_it() -> None:
    layer = measured().layers[2]
    assert hover(charts.layer_results(PROFILE, "0.9"), 2) == [
        f"{layer.pruned['0.9']:.4f} ms · {100 * layer.pruned['0.9'] / measured().pruned['0.9']:.3g} %",
        "layer 2",
        "id: 302",
        "type: Conv",
        "weight: features.1.conv.2.weight",
        "nodes: 302, relu_2",
        "kernel: gemm_avx512",
        f"time: {layer.ms:.4f} ± {layer.spread_ms:.4f} ms, {100 * layer.share:.3g} % of the model",
        "work: 12.8 MFLOP",
        f"speed: {layer.gflops_per_second:.3g} GFLOP/s",
        "bound by compute, at 70 % of it",
    ]


def test_without_times_the_architecture_is_drawn() -> None:
    assert MODELLED.flops is not None
    figure = charts.layer_results(MODELLED)
    assert figure.layout.title.text.startswith("FLOPs by layer<br>")
    assert by_index(figure) == {layer.index: layer.flops for layer in MODELLED.flops.layers}
    assert (
        "from the architecture alone" in figure.layout.title.text
        and "1 without a value" in figure.layout.title.text
    )
    figure = charts.layer_summaries(MODELLED)
    assert types(figure) == ["Conv", "Gemm", "Add", "GlobalAveragePool", "Flatten", "Softmax (uncounted)"]
    moved = MODELLED.flops.layers[0]
    assert moved.read_bytes and moved.write_bytes
    expected = moved.read_bytes + moved.write_bytes + moved.weight_bytes
    assert by_index(charts.layer_results(MODELLED, "bytes"))[0] == expected
    assert by_index(charts.layer_results(MODELLED, "params"))[0] == moved.params


@pytest.mark.parametrize(
    ("summary", "value", "profile", "sentence"),
    [
        ("0.33", "values", PROFILE, "This profile has no '0.33' to draw. It has: baseline, 0.2,"),
        ("int8", "values", MODELLED, "This profile has no 'int8' to draw. It has: flops, params, bytes."),
        ("baseline", "values", BARE, "It has neither times nor FLOPs."),
        ("baseline", "cubic", PROFILE, "A value is displayed as one of values, log, percent, not 'cubic'."),
    ],
)
def test_what_is_not_there_is_refused(summary: str, value: str, profile: Profile, sentence: str) -> None:
    for draw in (charts.layer_summaries, charts.layer_results):
        with pytest.raises(BadInput) as caught:
            draw(profile, summary, value)
        assert sentence in str(caught.value)


def test_the_roofline_has_its_ceilings_and_a_point_for_each_layer_with_work() -> None:
    figure = charts.roofline(PROFILE)
    int8, fp32, *points = figure.data
    assert list(fp32.y)[1:] == [110.0, 110.0] and fp32.x[1] == pytest.approx(110 / 14)
    assert fp32.y[0] == pytest.approx(14 * fp32.x[0])
    assert int8.x[1] == pytest.approx(400 / 14) and int8.y[-1] == 400
    assert [point.name for point in points] == ["Conv", "Gemm", "Add", "GlobalAveragePool"]
    layer = measured().layers[0]
    assert layer.flops and layer.bytes
    assert points[0].x[0] == layer.flops / layer.bytes and points[0].y[0] == layer.gflops_per_second
    assert points[0].marker.color != points[1].marker.color
    assert sum(len(point.x) for point in points) == 64
    assert "2 layers without counted work left out" in figure.layout.title.text
    names = [annotation.text for annotation in figure.layout.annotations]
    assert names == ["FP32 110 GFLOP/s", "INT8 400 GOP/s", "memory 14 GB/s"]
    assert [annotation.yanchor for annotation in figure.layout.annotations] == ["bottom"] * 3


def test_ceilings_that_are_close_are_named_on_either_side() -> None:
    ceilings = measured().ceilings
    assert ceilings is not None
    close = a_performance_profile(ceilings=replace(ceilings, int8_gops=125.0))
    named = charts.roofline(replace(PROFILE, performance=close)).layout.annotations
    assert [one.yanchor for one in named] == ["top", "bottom", "bottom"]


def test_a_roofline_without_ceilings_says_so_and_one_without_points_is_refused() -> None:
    figure = charts.roofline(replace(PROFILE, performance=a_performance_profile(ceilings=None)))
    assert len(figure.data) == 4 and "--roofline" in figure.layout.title.text
    for profile in (MODELLED, with_layers(PROFILE, [replace(layer, flops=None) for layer in measured().layers])):
        with pytest.raises(BadInput, match="There is no roofline"):
            charts.roofline(profile)


def test_sensitivities_and_parameters_stand_in_the_order_of_execution() -> None:
    assert PROFILE.loss is not None
    figure = losses.loss_sensitivities(PROFILE)
    assert list(figure.data[0].y) == [layer.sensitivity for layer in PROFILE.loss.layers]
    first = figure.data[0].hovertext[0].split("<br>")
    assert first[:5] == ["layer 0", "id: 300", "type: Conv", "weight: features.0.0.weight", "parameters: 896"]
    assert first[5] == "at 0.2: 0.0048" and first[-1] == "at 0.99: not a number"
    counts = losses.parameter_counts(PROFILE)
    assert list(counts.data[0].y) == [layer.params for layer in PROFILE.loss.layers]
    assert counts.data[0].customdata[-1] == "1,281,000"
    assert sum(losses.parameter_counts(PROFILE, "percent").data[0].y) == pytest.approx(100, abs=1e-4)
    assert losses.loss_sensitivities(PROFILE, "log").layout.yaxis.type == "log"


def unknown(one: LossLayer) -> LossLayer:
    return replace(one, sensitivity=None, losses=dict.fromkeys(one.losses))


def test_losses_that_are_no_numbers_are_told_and_leave_a_gap() -> None:
    assert PROFILE.loss is not None
    first, *rest = PROFILE.loss.layers
    some = replace(PROFILE, loss=a_loss_profile(layers=(unknown(first), *rest)))
    figure = losses.loss_sensitivities(some)
    assert figure.data[0].y[0] is None and figure.data[0].customdata[0] == "not a number"
    assert "1 layer whose outputs were not numbers" in figure.layout.title.text
    none = replace(PROFILE, loss=a_loss_profile(layers=tuple(map(unknown, PROFILE.loss.layers))))
    for value in ("values", "log", "percent"):
        assert set(losses.loss_sensitivities(none, value).data[0].y) == {None}
    with pytest.raises(BadInput, match="no level gave a number"):
        losses.loss_curves(none)


def test_loss_curves_are_those_of_the_most_sensitive_layers() -> None:
    assert PROFILE.loss is not None
    figure = losses.loss_curves(PROFILE, most=3)
    worst = sorted(PROFILE.loss.layers, key=lambda layer: -(layer.sensitivity or 0))[:3]
    assert [annotation.text for annotation in figure.layout.annotations] == [one.weight for one in worst]
    assert list(figure.data[-1].x) == [0.0, *map(float, LEVELS)]
    assert list(figure.data[-1].y) == [0.0, *(worst[0].losses[key] for key in LEVELS)]
    assert len(losses.loss_curves(PROFILE).data) == 8
    # What lies beyond the axis would not be drawn.
    assert (
        max(annotation.y for annotation in losses.loss_curves(PROFILE).layout.annotations)
        < figure.layout.yaxis.range[1]
    )


def test_pruning_shows_every_level_with_the_baseline_and_its_interval() -> None:
    figure = charts.pruning(PROFILE)
    (line,) = figure.data
    assert list(line.x) == [0.0, *map(float, LEVELS)]
    assert list(line.y) == [measured().ms_per_batch, *(measured().pruned[key] for key in LEVELS)]
    assert figure.layout.title.text.startswith("At best 2.14 × as fast, with 0.99 of the weights zero<br>")
    assert [annotation.text.partition(":")[0] for annotation in figure.layout.annotations] == [
        "as it is",
        "INT8",
        "estimated",
    ]
    band = figure.layout.shapes[0]
    assert (band.y0, band.y1) == measured().ms_interval


def test_an_engine_that_gains_nothing_is_said_to_gain_nothing() -> None:
    ms = measured().ms_per_batch
    pruned = {"0.8": 0.985 * ms, "0.9": 1.01 * ms}
    profile = replace(
        PROFILE, performance=a_performance_profile(pruned=pruned, pruning="zeroed", engine="onnxruntime")
    )
    title = charts.pruning(profile).layout.title.text
    assert title.startswith("Zeros in the weights gain nothing on onnxruntime<br>")
    assert "weights zeroed in a copy" in title
    with pytest.raises(BadInput, match="Give some with --levels"):
        charts.pruning(replace(PROFILE, performance=a_performance_profile(pruned={})))


def test_names_of_a_model_are_no_markup() -> None:
    odd = "<script>alert(1)</script>"
    layers = [
        replace(layer, type=odd, weight=odd, id=odd, kernel=odd, nodes=(odd,)) for layer in measured().layers
    ]
    profile = with_layers(replace(PROFILE, model=replace(PROFILE.model, source=odd)), layers)
    for draw in (charts.layer_summaries, charts.layer_results, charts.roofline):
        assert "<script" not in str(draw(profile).to_plotly_json())


def test_one_layer_and_five_hundred_are_drawn() -> None:
    one = with_layers(replace(PROFILE, estimate=None), measured().layers[:1])
    for draw in (charts.layer_summaries, charts.layer_results):
        for value in ("values", "log", "percent"):
            assert len(draw(one, "baseline", value).data[0].x) == 1
    assert by_index(charts.layer_results(one, "baseline", "percent")) == {0: 100}
    many = charts.layer_results(repeated(PROFILE, 8))
    assert len(by_index(many)) == 528
    assert many.data[0].error_y.array is None and many.data[0].width == 1.0


def test_of_thousands_of_bars_the_outline_is_drawn_and_each_can_still_be_pointed_at() -> None:
    deep = repeated(PROFILE, 16)
    layers = measured(deep).layers
    figure = charts.layer_results(deep)
    convs, others, fallbacks, places = figure.data
    assert {trace.type for trace in figure.data} == {"scatter"} and figure.layout.hovermode == "x"
    assert list(convs.y) == [layer.ms if layer.type == "Conv" else 0.0 for layer in layers]
    assert [trace.hoverinfo for trace in (convs, others, fallbacks)] == ["skip"] * 3
    assert list(places.y) == [layer.ms for layer in layers]
    assert places.hovertext[68].startswith("layer 68<br>id: 302_1<br>type: Conv")
    log = charts.layer_results(deep, "baseline", "log")
    assert min(log.data[0].y) == pytest.approx(10 ** (log.layout.yaxis.range[0] - 1))
    sensitivities = losses.loss_sensitivities(repeated(PROFILE, 20))
    assert deep.loss is not None and sensitivities.layout.hovermode == "x"
    assert list(sensitivities.data[0].y) == list(sensitivities.data[1].y)


def test_of_thousands_of_layers_the_roofline_shows_those_that_take_most_time() -> None:
    deep = repeated(PROFILE, 16)
    figure = charts.roofline(deep)
    shown = [text for trace in figure.data if trace.mode == "markers" for text in trace.hovertext]
    worked = sorted((layer for layer in measured(deep).layers if layer.flops), key=lambda one: -one.ms)
    assert len(shown) == 1000 and len(worked) == 1024
    assert sum(text.startswith("layer") for text in shown) == 1000
    assert "24 layers that take less time left out" in figure.layout.title.text


def other_engine() -> Profile:
    """The same model where the Gemm takes half the time, and nothing else differs."""
    layers = [
        replace(layer, ms=layer.ms / 2, times_ms=tuple(ms / 2 for ms in layer.times_ms))
        if layer.type == "Gemm"
        else layer
        for layer in measured().layers
    ]
    return replace(PROFILE, performance=a_performance_profile(engine="openvino", layers=tuple(layers)))


def test_the_layer_that_differs_most_stands_at_the_top_of_a_diff() -> None:
    found = diff(PROFILE, other_engine())
    figure = charts.layer_diff(found)
    _, a, b = figure.data
    gemm = measured().layers[64]
    assert types(figure)[0] == "Gemm 364" and len(a.x) == 30
    assert (a.x[0], b.x[0]) == (gemm.ms, gemm.ms / 2)
    assert figure.layout.annotations[0].text == "faster, 0.50"
    assert b.hovertext[0].split("<br>")[1:3] == [
        f"A: {gemm.ms:.4f} ms per item in 1 layer: gemm_avx512",
        f"B: {gemm.ms / 2:.4f} ms per item in 1 layer: gemm_avx512",
    ]
    assert "36 layers that differ less left out" in figure.layout.title.text
    assert len(charts.layer_diff(found, most=100).data[1].x) == 66


def test_a_layer_of_one_profile_alone_says_so() -> None:
    found = diff(PROFILE, with_layers(PROFILE, measured().layers[:-1]))
    assert "only in A" in [annotation.text for annotation in charts.layer_diff(found, most=100).layout.annotations]
    with pytest.raises(BadInput, match="neither profile has a layer"):
        charts.layer_diff(replace(found, rows=()))
