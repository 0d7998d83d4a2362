"""The report of a profile: what stands in the page, and what its selectors do in a real browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.profiling.gains import with_estimate
from inferlab.records import Finding, OutputCheck
from inferlab.records.profile import PerformanceProfile, Profile, Verified
from inferlab.views import tables
from inferlab.views.profile import blocks
from inferlab.views.reports.profile import report
from tests.helpers.browser import BROWSER, found_in
from tests.helpers.profiles import a_performance_profile, a_profile, with_copies, with_layers
from tests.helpers.report_pages import Page, drawn, options, own, titles

PROFILE = a_profile()
LEVELS = ["0.2", "0.4", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95", "0.975", "0.99"]
SECTIONS = [
    "Model summary",
    "Layer summaries",
    "Layer results",
    "Pruning",
    "Roofline",
    "Estimate",
    "Loss profile",
    "FLOPS profile",
    "How it was measured",
]


def measured() -> PerformanceProfile:
    assert PROFILE.performance is not None
    return PROFILE.performance


@pytest.fixture(scope="module")
def text() -> str:
    return report(PROFILE)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_page_has_all_sections_in_order(text: str) -> None:
    assert titles(text) == SECTIONS
    assert titles(report(replace(PROFILE, loss=None, estimate=None))) == [*SECTIONS[:5], *SECTIONS[7:]]
    without = replace(PROFILE, performance=None, estimate=None)
    assert titles(report(without)) == [SECTIONS[0], *SECTIONS[6:]]
    nothing = replace(without, loss=None, flops=None, problems=("The engine cannot profile it.",))
    bare = report(nothing)
    assert titles(bare) == [SECTIONS[0], SECTIONS[-1]]
    assert "The engine cannot profile it." in Page(bare).texts


def test_the_head_and_the_summary_tell_the_numbers_with_their_intervals(page: Page) -> None:
    assert page.texts[1] == "mobilenet_v2.onnx"
    assert page.texts[2] == (
        "3.49 M parameters · 13.3 MiB · FP32 · digest 5b0c1f7e9a3d · 2026-11-17 00:41 · Example CPU @ 2.6 GHz · "
        "deepsparse 1.8.0"
    )
    tiles = {label: page.texts[page.texts.index(label) + 1] for label in page.texts[:-1]}  # the first so called
    ms = measured().ms_per_batch
    assert tiles["Batch size"] == "1" and tiles["Core count"] == "2"
    assert tiles["Instruction sets"] == "AVX-512, VNNI"
    assert tiles["Time per batch (ms, median)"] == f"{ms:.2f}"
    assert (
        page.texts[page.texts.index("Time per batch (ms, median)") + 2]
        == f"{0.97 * ms:.2f} to {1.03 * ms:.2f} (95 %)"
    )
    assert tiles["Throughput (items/s, mean)"] == f"{1000 / ms:.1f}"
    assert measured().estimated_speedup is not None
    assert tiles["Estimated speed-up"] == f"{measured().estimated_speedup:.2f} ×"
    assert tiles["Profiler overhead"] == "6 %" and tiles["Not attributed"] == "1.2 %"
    assert tiles["Output check"] == "match"
    assert tiles["Parameters"] == "3.49 M" and tiles["Average sensitivity"] == "0.0984"
    assert tiles["Estimated reduction"] == "74 %" and tiles["Estimated recovery"] == "95.7 %"


def test_with_labels_the_estimate_names_the_accuracy_that_it_expects() -> None:
    assert PROFILE.estimate is not None
    labelled = replace(PROFILE, estimate=replace(PROFILE.estimate, accuracy=0.912))
    texts = Page(report(labelled)).texts
    place = texts.index("Estimated recovery")
    assert texts[place + 1 : place + 3] == ["95.7 %", "accuracy 91.2 % expected"]
    assert "95.7 % recovered, accuracy 91.2 % expected)" in "\n".join(tables.text(blocks(labelled)))


def test_what_must_not_be_missed_stands_above_everything() -> None:
    wrong = OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y")
    found = (Finding("output-mismatch", {"error": 0.5, "output": "y"}), Finding("of-tomorrow", {"share": 0.25}))
    profile = replace(
        PROFILE, performance=a_performance_profile(output_check=wrong, findings=found, problems=("No INT8 here.",))
    )
    text = own(report(profile))
    (first, second) = re.findall(r'<div class="box.*?</div>', text[: text.index("<nav>")])
    assert first.startswith('<div class="box wrong"') and "The outputs are WRONG" in first
    assert "of-tomorrow: share 0.25" in second and "No INT8 here." in second


def test_selectors_offer_what_was_measured(text: str) -> None:
    values = ["values", "log", "percent"]
    timed = ["baseline", *LEVELS, "int8", "estimated", "speedup"]
    assert options(text, "summaries") == options(text, "results") == [timed, values]
    assert (
        options(text, "flops-summaries")
        == options(text, "flops-results")
        == [["flops", "params", "bytes"], values]
    )
    assert options(text, "sensitivities") == options(text, "parameters") == [values]
    labels = re.findall(r'<label>([^<]*)<select data-chart="results"', text)
    assert labels == ["Summary type", "Value display"]


def test_every_choice_has_its_values_and_values_are_kept_once(text: str) -> None:
    data = drawn(text)
    for chart, views in data["charts"].items():
        choices = options(text, chart)
        keys = (
            [""]
            if not choices
            else choices[0]
            if len(choices) == 1
            else [f"{a}|{b}" for a in choices[0] for b in choices[1]]
        )
        assert list(views) == keys
    results = data["charts"]["results"]
    trace = results["0.9|values"]["traces"][0]
    convs = [layer for layer in measured().layers if layer.type == "Conv"]
    assert data["pool"][trace["y"]] == pytest.approx([conv.pruned["0.9"] for conv in convs], rel=1e-6)
    assert trace == results["0.9|log"]["traces"][0]  # only the axis differs
    assert trace["hovertext"] == results["baseline|percent"]["traces"][0]["hovertext"]


def test_the_page_asks_no_host_for_anything(text: str, page: Page) -> None:
    assert not re.search(r"https?://", own(text))
    assert not any(
        {"src", "href"} & given.keys() and not given.get("href", "").startswith("#") for _, given in page.elements
    )
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert not page.all("link") and not page.all("img")
    assert text.count("plotly.js v") == 1


def test_names_of_a_model_do_not_run() -> None:
    odd = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    assert PROFILE.loss is not None and PROFILE.flops is not None
    layers = [
        replace(layer, id=odd, type=odd, weight=odd, kernel=odd, nodes=(odd,), name=odd)
        for layer in measured().layers
    ]
    profile = replace(
        with_layers(PROFILE, layers),
        model=replace(PROFILE.model, source=odd, digest=odd),
        loss=replace(
            PROFILE.loss,
            name=odd,
            left_out={odd: odd},
            layers=tuple(replace(layer, weight=odd, id=odd, type=odd) for layer in PROFILE.loss.layers),
        ),
        flops=replace(
            PROFILE.flops,
            shapes={odd: (1,)},
            layers=tuple(
                replace(layer, weight=odd, id=odd, type=odd, dtype=odd) for layer in PROFILE.flops.layers
            ),
        ),
        problems=(odd,),
    )
    text = report(profile)
    page = Page(text)
    assert len(page.all("script")) == 3 and not page.all("img")
    assert not any(name.startswith("on") for _, given in page.elements for name in given)
    assert "<script>alert" not in own(text)
    assert any(given.get("title") == odd for given in page.all("td"))


def test_the_table_has_every_layer_with_the_numbers_it_is_sorted_by(text: str) -> None:
    found = re.search(r'id="layers">(.*?)</table>', text, re.DOTALL)
    assert found
    head, *rows = re.findall(r"<tr.*?</tr>", found[1], re.DOTALL)
    names = re.findall(r"<button[^>]*>(.*?)</button>", head)
    assert names[:8] == ["#", "ID", "Type", "Weight", "Kernel", "ms", "± ms", "Share %"]
    assert names[8:] == [
        "MFLOP",
        "GFLOP/s",
        "KiB",
        "Params",
        "Zeros %",
        "At 0.9 ms",
        "INT8 ms",
        "Est. ms",
        "Speed-up",
        "Bound by",
        "Of limit %",
    ]
    assert len(rows) == 66
    cells = re.findall(r"<td[^>]*>(.*?)</td>", rows[2])
    layer = measured().layers[2]
    assert cells[:6] == ["2", "302", "Conv", "features.1.conv.2.weight", "gemm_avx512", f"{layer.ms:.4f}"]
    assert f'data-v="{layer.ms:.9g}"' in rows[2]
    assert 'data-type="ORT (fallback)"' in rows[63]


def test_other_budgets_are_estimated_too_and_the_own_one_is_shown(text: str) -> None:
    found = re.search(r'<select data-shows="budget">(.*?)</select>', text)
    assert found
    assert re.findall(r'value="(.*?)"', found[1]) == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    assert re.findall(r'value="(\S*?)" selected', found[1]) == ["0.05"]
    assert re.findall(r'data-key="(\S*?)">', text) == ["0.05"]  # all others are hidden
    assert "The estimate is off by -3.85 %." in text


def test_the_best_that_was_tried_is_the_headline_and_all_else_stands_beside_it() -> None:
    profile = with_copies(PROFILE)
    ms = measured().ms_per_batch
    page = Page(report(profile))
    assert {"Estimated time per batch (ms)", f"{ms / 2:.3f}", "2.00 ×", "INT8"} <= set(page.texts)
    assert "25 % of channels removed" in page.texts
    assert "its loss of 0.25 is above the budget of 0.1" in page.texts
    shown = "\n".join(tables.text(blocks(profile)))
    assert f"Estimate: {ms / 2:.4f} ms/batch, 2 times as fast (INT8; loss 0.01 of a budget of 0.1)" in shown
    assert f"Also tried: 25 % of channels removed: {0.5625 * ms:.4f} ms/batch, 1.78 times as fast" in shown


def test_other_budgets_move_all_that_was_tried_not_only_zeros() -> None:
    panels = dict(re.findall(r'data-key="([\d.]+)"[^>]*>(.*?)(?=data-key=|$)', report(with_copies(PROFILE)), re.S))
    head = {key: re.findall(r"\d\.\d\d ×", panel)[0] for key, panel in panels.items() if "×" in panel}
    within_int8 = dict.fromkeys(["0.01", "0.02", "0.05", "0.1"], "2.00 ×")
    assert head == {**within_int8, "0.2": "2.47 ×", "0.5": "6.61 ×", "1": "8.00 ×"}
    assert "INT8 with 50 % of channels removed" in panels["1"] and "INT8 with" not in panels["0.1"]


def test_a_verified_gain_stands_beside_its_measurement() -> None:
    profile = with_copies(PROFILE)
    ms = measured().ms_per_batch
    verified = Verified(ms / 1.6, (ms / 1.7, ms / 1.5), ms, -0.2, 0.02, OutputCheck("match"))
    best = replace(profile.gains[0], verified=verified)
    texts = Page(report(replace(profile, gains=(best, *profile.gains[1:])))).texts
    place = texts.index("Verified at a budget of 0.1")
    assert {"2.00 ×", "1.60 ×", "0.01", "0.02"} <= set(texts[place:])
    assert any(text.startswith("The estimate is off by -20 %.") for text in texts[place:])


def test_where_nothing_gains_every_view_says_so() -> None:
    nothing = with_copies(PROFILE, 0.001)
    shown = "\n".join(tables.text(blocks(nothing)))
    assert "Estimate: no faster: nothing that was tried gains within the loss budget" in shown
    assert "Tried: INT8: " in shown
    page = Page(report(nothing)).texts
    tile = page.index("Estimated speed-up")
    assert page[tile : tile + 3] == [
        "Estimated speed-up",
        "1.00 ×",
        "nothing that was tried gains within the loss budget",
    ]


def test_levels_that_gain_no_time_are_no_estimate_of_one() -> None:
    slow = a_performance_profile(pruned={"0.9": measured().ms_per_batch}, copies=())
    nothing = with_estimate(replace(PROFILE, performance=slow, estimate=None), 0.1)
    assert nothing.gains == ()
    shown = "\n".join(tables.text(blocks(nothing)))
    assert "Estimate: no faster: nothing that was tried gains within the loss budget" in shown


def test_without_layers_nothing_is_said_of_their_profiler() -> None:
    found = Page(report(CASES["no layers"])).texts
    assert "Time per batch (ms, median)" in found and "Profiler overhead" not in found


def test_uncounted_operators_are_told(page: Page) -> None:
    assert "Not counted: 1 node of Softmax: its cost depends on the library's exponential." in page.texts


def with_one_layer() -> Profile:
    assert PROFILE.loss is not None and PROFILE.flops is not None
    alone = with_layers(
        PROFILE, [replace(measured().layers[0], spread_ms=None, flops=None, gflops_per_second=None)]
    )
    return replace(
        alone,
        loss=replace(PROFILE.loss, layers=PROFILE.loss.layers[:1]),
        flops=replace(PROFILE.flops, layers=PROFILE.flops.layers[:1], uncounted=()),
        estimate=None,
    )


def without_numbers() -> Profile:
    assert PROFILE.loss is not None
    layers = tuple(
        replace(layer, sensitivity=None, losses=dict.fromkeys(layer.losses)) for layer in PROFILE.loss.layers
    )
    return replace(PROFILE, loss=replace(PROFILE.loss, layers=layers, average_sensitivity=None))


CASES: Mapping[str, Profile] = {
    "one layer": with_one_layer(),
    "no layers": replace(with_layers(PROFILE, []), estimate=None),
    "no losses that are numbers": without_numbers(),
    "no loss": replace(PROFILE, loss=None),
    "no ceilings, levels or INT8": replace(
        PROFILE,
        performance=a_performance_profile(
            ceilings=None,
            pruned={},
            int8_ms_per_batch=None,
            ms_interval=None,
            items_interval=None,
            layers=tuple(replace(layer, pruned={}, int8_ms=None, bound=None) for layer in measured().layers),
        ),
        estimate=None,
    ),
    "an estimate by parameters": replace(
        PROFILE,
        performance=None,
        estimate=replace(
            PROFILE.estimate,
            gained="parameters",
            ms_per_batch=None,
            estimated_ms_per_batch=None,
            estimated_speedup=None,
            by_type=(),
            verified=None,
        )
        if PROFILE.estimate
        else None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_profiles_with_gaps_make_a_page_whose_data_can_be_read(name: str) -> None:
    text = report(CASES[name])
    data = drawn(text)
    for views in data["charts"].values():
        for view in views.values():
            numbers = [view["layout"], *(number for trace in view["traces"] for number in trace.values())]
            assert max(numbers) < len(data["pool"])
    assert "None" not in " ".join(Page(text).texts) and "nan" not in Page(text).texts


SCRIPT = """
function choose(select, value) { select.value = value; select.dispatchEvent(new Event("change")); }
const [summary, value] = document.querySelectorAll('select[data-chart="summaries"]');
const seen = () => Array.from(document.getElementById("chart-summaries").data[0].x);
const found = {charts: Array.from(document.querySelectorAll(".chart .main-svg")).length, first: seen()};
choose(summary, "0.9");
found.pruned = seen();
choose(value, "percent");
found.percent = seen();
choose(value, "log");
found.axis = document.getElementById("chart-summaries").layout.xaxis.type;
const table = document.getElementById("layers");
const visible = (elements) => Array.from(elements).filter((one) => !one.hidden);
const shown = () => visible(table.tBodies[0].rows).map((row) => row.cells[0].textContent);
const column = (name) => Array.from(table.querySelectorAll("th button")).find((one) => one.textContent === name);
column("ms").click();
found.slowest = shown().slice(0, 3);
column("ms").click();
found.fastest = shown().slice(0, 2);
const bar = document.querySelector('[data-filters="layers"]');
const [words, kind] = [bar.querySelector("input"), bar.querySelector("select")];
choose(kind, "Gemm");
found.gemms = shown();
choose(kind, "");
words.value = "features.4.conv DW_AVX512";
words.dispatchEvent(new Event("input"));
found.words = shown();
found.told = bar.querySelector("output").textContent;
choose(document.querySelector('select[data-shows="budget"]'), "0.2");
found.budgets = visible(document.querySelectorAll('[data-of="budget"]')).map((one) => one.dataset.key);
found.requests = performance.getEntriesByType("resource").length;
"""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
def test_selectors_sorting_and_filters_work_in_a_browser(text: str, tmp_path: Path) -> None:
    found = found_in(text, SCRIPT, tmp_path)
    layers = measured().layers
    pruned = {
        kind: sum(layer.pruned["0.9"] for layer in layers if layer.type == kind)
        for kind in {layer.type for layer in layers}
    }
    times = sorted((sum(layer.ms for layer in layers if layer.type == kind) for kind in pruned), reverse=True)
    assert found["charts"] >= 9
    assert found["first"] == pytest.approx(times, rel=1e-6)
    assert found["pruned"] == pytest.approx(sorted(pruned.values(), reverse=True), rel=1e-6)
    assert sum(found["percent"]) == pytest.approx(100, rel=1e-5)
    assert found["axis"] == "log"
    ranked = sorted(layers, key=lambda layer: -layer.ms)
    assert found["slowest"] == [str(one.index) for one in ranked[:3]]
    assert found["fastest"] == [str(one.index) for one in ranked[:-3:-1]]
    assert found["gemms"] == ["64"]
    expected = [
        str(layer.index) for layer in layers if "features.4.conv" in layer.weight and layer.kernel == "dw_avx512"
    ]
    assert (found["words"], found["told"]) == (expected, "1 of 66 layers")
    assert found["budgets"] == ["0.2"]
    assert found["requests"] == 0
