"""Profiles as a user reads them: numbers exact for a profile made by hand, and everything that can be chosen."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from inferlab.profiling.diff import diff
from inferlab.profiling.gains import estimated_ms, with_estimate
from inferlab.profiling.zeros import estimate
from inferlab.records import OutputCheck
from inferlab.records.profile import ChannelGroup, PerformanceProfile, Profile
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.store.store import Store
from inferlab.units import decimal
from tests.helpers.http_calls import ended
from tests.helpers.odd_models import random_model
from tests.helpers.profiles import a_loss_profile, a_performance_profile, a_profile, repeated, with_copies
from tests.helpers.web_server import Server, left_the_machine, requested, until
from tests.helpers.web_user import User

PROFILE = with_estimate(a_profile())
PERFORMANCE = PROFILE.performance
assert PERFORMANCE is not None
LAYERS = PERFORMANCE.layers
THEORY = replace(
    PROFILE, performance=None, estimate=None, loss=a_loss_profile(method="approximated", items=0, findings=())
)


def slower(factor: float) -> PerformanceProfile:
    """The same model on an engine that gains nothing from zeros, and takes so many times as long."""
    found = a_performance_profile(engine="onnxruntime", versions={"onnxruntime": "1.31.1"}, name="slower")
    return replace(
        found,
        ms_per_batch=factor * found.ms_per_batch,
        ms_interval=None,
        processes_ms=tuple(factor * one for one in found.processes_ms),
        pruned=dict.fromkeys(found.pruned, factor * found.ms_per_batch),
        pruning="zeroed",
        layers=tuple(
            replace(layer, ms=factor * layer.ms, times_ms=tuple(factor * ms for ms in layer.times_ms))
            for layer in found.layers
        ),
    )


@dataclass(frozen=True, slots=True)
class Shelf:
    """A project with profiles made by hand."""

    store: Store
    project: str
    theory: str
    baseline: str
    slower: str

    def add(self, profile: Profile) -> str:
        """Save a further profile of it."""
        content = content_of(profile)
        return self.store.add_document("profile", profile.model.source, content, project_id=self.project)


@pytest.fixture
def shelf(server: Server) -> Iterator[Shelf]:
    with open_store(str(server.store)) as store:
        project = store.projects.add("MobileNetV2", "", PROFILE.model).id
        first = Shelf(store, project, "", "", "")
        found = [
            first.add(one) for one in (THEORY, PROFILE, with_estimate(replace(PROFILE, performance=slower(1.5))))
        ]
        yield Shelf(store, project, *found)
        store.projects.remove(project)


class Reader(User):
    """A user who reads profiles."""

    def stat(self, name: str) -> list[str]:
        """The label, the number and what is said of it, once it is there."""
        return self.read(name).split("\n")

    def choose(self, name: str, text: str) -> None:
        """Choose from a list."""
        options = ".q-menu .q-item"
        self.near(name)
        self.click(name)
        (found,) = until(
            lambda: [
                element
                for element in self.browser.find_elements(By.CSS_SELECTOR, options)
                if element.text.startswith(text)
            ],
            f"{name} offers no {text}",
        )
        found.click()
        until(lambda: not self.browser.find_elements(By.CSS_SELECTOR, options), "the list stays open")

    def near(self, name: str) -> None:
        """Scroll until something is in the middle of the window."""
        found = until(lambda: self.browser.find_elements(By.CSS_SELECTOR, f'[data-testid="{name}"]'), f"no {name}")
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])

    def chart(self, name: str) -> Any:
        """The data and the layout of a chart that has been drawn."""
        self.near(name)
        script = """
            const chart = document.querySelector(`[data-testid="${arguments[0]}"]`);
            return chart?._fullLayout ? {data: chart.data, layout: chart.layout} : null;"""
        return until(lambda: self.browser.execute_script(script, name), f"{name} was not drawn")

    def drawn(self, name: str, values: Mapping[Any, float | None]) -> None:
        """Wait until the bars of a chart are these, whatever their order."""
        known = {key: value for key, value in values.items() if value is not None}
        until(lambda: _bars(self.chart(name)) == pytest.approx(known, rel=1e-4), f"{name} does not show {known}")

    def rows(self) -> list[list[str]]:
        """The cells of the layer table that are drawn."""
        return self._cells("layer-table")

    def _cells(self, table: str) -> list[list[str]]:
        script = """
            const rows = document.querySelectorAll(`[data-testid="${arguments[0]}"] tbody tr[data-row]`);
            return [...rows].map((row) => [...row.cells].map((cell) => cell.textContent));"""
        found: list[list[str]] = self.browser.execute_script(script, table)
        return found

    def diff_rows(self) -> list[list[str]]:
        """The cells of the table of differences."""
        return self._cells("diff-table")

    def sort(self, title: str) -> None:
        """Click on the title of a column."""
        heads = self.browser.find_elements(By.CSS_SELECTOR, '[data-testid="layer-table"] th')
        script = "arguments[0].scrollIntoView({block: 'center', inline: 'center'}); arguments[0].click()"
        (found,) = [
            head
            for head in heads
            if str(head.get_attribute("textContent")).replace("arrow_upward", "").strip() == title
        ]
        self.browser.execute_script(script, found)


def _bars(chart: Any) -> dict[Any, float]:
    """The bars that have a value."""
    traces = chart["data"]
    if traces[0].get("orientation") == "h":
        return dict(zip(chart["layout"]["yaxis"]["ticktext"], traces[0]["x"], strict=True))
    return {x: y for trace in traces for x, y in zip(trace["x"], trace["y"], strict=True) if y is not None}


def by_type(times: dict[int, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for layer in LAYERS:
        name = f"{layer.type} (fallback)" if layer.fallback else layer.type
        found[name] = found.get(name, 0.0) + times[layer.index]
    return found


@pytest.fixture
def reader(browser: webdriver.Chrome, server: Server) -> Reader:
    return Reader(browser, server.login)


@pytest.fixture
def page(shelf: Shelf) -> str:
    return f"/projects/{shelf.project}/performance/{shelf.baseline}"


def test_the_summary_shows_the_best_that_was_tried_and_the_budget_moves_it(reader: Reader, shelf: Shelf) -> None:
    profile = with_copies(PROFILE)
    assert profile.performance is not None
    ms = profile.performance.ms_per_batch
    entry = shelf.add(profile)
    reader.open(f"/projects/{shelf.project}/performance/{entry}")
    assert reader.stat("estimated-ms")[1:] == [f"{ms / 2:.3f}", "loss 0.01 of 0.1"]
    assert reader.stat("estimated-speedup")[1:] == ["2.00 ×", "INT8"]
    reader.see("estimate-note", "Also tried: 25 % of channels removed: 1.78 × (its loss of 0.25 is above")
    reader.choose("summaries-summary-type", "50 % of channels removed ms")
    reader.type("budget", "0.6")
    reader.see("estimated-speedup", "INT8 with 50 % of channels removed")
    reader.type("budget", "0.001")
    reader.see("estimated-speedup", "nothing that was tried gains within the loss budget")
    reader.see("estimate-note", "Tried: INT8: 2.00 × (its loss of 0.01 is above the budget of 0.001)")


def test_the_summary_tells_what_was_measured_with_its_intervals(reader: Reader, page: str) -> None:
    assert PERFORMANCE is not None
    reader.open(page)
    ms, items = PERFORMANCE.ms_per_batch, PERFORMANCE.items_per_second
    assert reader.stat("ms-per-batch") == [
        "Time per batch (ms, median)",
        f"{ms:.3f}",
        f"{0.97 * ms:.2f} to {1.03 * ms:.2f} (95 %)",
    ]
    assert reader.stat("items-per-second")[:2] == ["Throughput (items/s, mean)", f"{items:.2f}"]
    assert reader.stat("int8-ms-per-batch")[1] == decimal(PERFORMANCE.int8_ms_per_batch or 0.0, 3)
    assert reader.stat("engine") == ["Engine", "DeepSparse 1.8.0"]
    assert [reader.stat(name)[1] for name in ("name", "batch-size", "num-cores")] == ["baseline", "1", "2"]
    assert reader.stat("instruction-sets")[1] == "AVX-512, VNNI"
    assert reader.read("output-check") == "outputs: match"
    # One chip, until somebody wants to read them.
    assert reader.read("notes").startswith("1 note")
    reader.click("notes")
    assert reader.read("notes").endswith(
        "Threads waited 4 % of the time for a CPU (visible in 2 of 12 windows): other programs took it. Stop them "
        "and repeat."
    )
    assert not reader.sees("wrong-outputs")


def test_moving_the_budget_estimates_again(reader: Reader, page: str) -> None:
    def estimated(budget: float) -> list[str]:
        found = with_estimate(PROFILE, budget).estimate
        assert found is not None and found.estimated_ms_per_batch is not None
        return [
            decimal(found.estimated_ms_per_batch, 3),
            f"loss {found.loss:.3g} of {budget:g}",
            f"{found.estimated_speedup:.2f} ×",
        ]

    def shown() -> list[str]:
        return [*reader.stat("estimated-ms")[1:], reader.stat("estimated-speedup")[1]]

    reader.open(page)
    reader.see("estimated-ms")
    assert shown() == estimated(0.1)
    reader.type("budget", "0.5")
    until(lambda: shown() == estimated(0.5), "the estimate does not follow the number")
    reader.choose("summaries-summary-type", "Estimated ms")
    reader.drawn("summaries-chart", by_type(estimated_ms(with_estimate(PROFILE, 0.5))))
    slider = reader.browser.find_element(By.CSS_SELECTOR, '[data-testid=budget-slider] [tabindex="0"]')
    reader.near("budget-slider")
    # Half a power of ten.
    slider.send_keys(Keys.PAGE_DOWN)
    until(lambda: shown() == estimated(0.16), "the estimate does not follow the slider")
    assert reader.value("budget") == "0.16"
    reader.drawn("summaries-chart", by_type(estimated_ms(with_estimate(PROFILE, 0.16))))


def test_the_estimate_goes_by_another_loss_profile(reader: Reader, shelf: Shelf, page: str) -> None:
    reader.open(page)
    reader.see("estimated-ms")
    gentle = a_loss_profile(
        name="gentle",
        layers=tuple(
            replace(layer, losses=dict.fromkeys(layer.losses, 1e-06)) for layer in a_loss_profile().layers
        ),
    )
    shelf.add(replace(PROFILE, performance=None, estimate=None, loss=gentle))
    reader.open(page)
    reader.choose("budget-loss", "gentle")
    expected = estimate(PERFORMANCE, gentle, 0.1)
    assert expected is not None and expected.estimated_ms_per_batch is not None
    ms = decimal(expected.estimated_ms_per_batch, 3)
    until(lambda: reader.stat("estimated-ms")[1] == ms, "the estimate does not follow the loss profile")


def test_an_engine_that_gains_nothing_from_zeros_is_said_to(reader: Reader, shelf: Shelf) -> None:
    reader.open(f"/projects/{shelf.project}/performance/{shelf.slower}")
    assert reader.read("estimate-note") == (
        "Zeros in the weights gain nothing on ONNX Runtime: pruning would not make this model faster here."
    )
    assert reader.stat("estimated-speedup")[1] == "1.00 ×"
    assert reader.stat("ms-per-batch")[2] == "no interval: one process"
    reader.near("pruning-told")
    assert reader.read("pruning-told") == "Zeros in the weights gain nothing on onnxruntime"


def test_wrong_outputs_cannot_be_missed(reader: Reader, shelf: Shelf) -> None:
    wrong = OutputCheck("mismatch", 0.5, "max", 1e-3, "a reference", "y")
    performance = a_performance_profile(output_check=wrong, findings=(), problems=("No INT8 here.",))
    entry = shelf.add(replace(PROFILE, performance=performance, interrupted=True))
    reader.open(f"/projects/{shelf.project}/performance/{entry}")
    told = reader.read("wrong-outputs")
    assert "The outputs are WRONG (output 'y': largest error 0.5" in told
    assert "These times are meaningless." in told
    assert reader.painted("wrong-outputs", "background-color") == "rgb(179, 38, 30)"
    assert reader.see("wrong-outputs").location["y"] < reader.see("ms-per-batch").location["y"]
    reader.click("notes")
    assert reader.read("notes").split("\n")[-2:] == [
        "No INT8 here.",
        "It was interrupted; what was done by then is kept.",
    ]
    assert reader.read("output-check") == "outputs: mismatch"


def test_summary_type_and_value_display_change_the_charts(reader: Reader, page: str) -> None:
    reader.open(page)
    now = {layer.index: layer.ms for layer in LAYERS}
    reader.drawn("summaries-chart", by_type(now))
    reader.drawn("results-chart", dict(now))
    reader.choose("results-summary-type", "Pruned 0.9 ms")
    reader.drawn("results-chart", {layer.index: layer.pruned["0.9"] for layer in LAYERS})
    reader.choose("results-summary-type", "INT8 ms")
    reader.drawn("results-chart", {layer.index: layer.int8_ms for layer in LAYERS})
    reader.choose("results-value-display", "logarithm")
    until(lambda: reader.chart("results-chart")["layout"]["yaxis"]["type"] == "log", "the axis is not logarithmic")
    reader.choose("summaries-value-display", "percent")
    total = sum(now.values())
    reader.drawn("summaries-chart", {name: 100 * ms / total for name, ms in by_type(now).items()})
    reader.choose("summaries-summary-type", "Potential speed-up")
    reader.choose("summaries-value-display", "values")
    after = estimated_ms(PROFILE)
    reader.drawn("summaries-chart", by_type({index: ms - after[index] for index, ms in now.items()}))
    # The page has the title; the chart has none.
    assert "text" not in (reader.chart("summaries-chart")["layout"].get("title") or {})


def test_who_points_at_a_layer_reads_its_depth_id_type_and_weight(reader: Reader, page: str) -> None:
    reader.open(page)
    told = [text for trace in reader.chart("results-chart")["data"] for text in trace["hovertext"]]
    assert any(
        text.startswith("layer 2<br>id: 302<br>type: Conv<br>weight: features.1.conv.2.weight") for text in told
    )
    assert reader.chart("roofline-chart")["data"]
    assert reader.read("pruning-told").startswith("At best 2.14 × as fast, with 0.99")


def test_the_layer_table_searches_filters_and_sorts(reader: Reader, page: str) -> None:
    reader.open(page)
    reader.near("layer-table")
    reader.see("layer-table-count", "66 layers")
    first = reader.rows()[0]
    one = LAYERS[0]
    share = f"{100 * one.share:.2f}"
    assert first[:7] == ["0", "300", f"{one.ms:.4f}", share, "Conv", "features.0.0.weight", "gemm_avx512"]
    ranked = sorted(LAYERS, key=lambda layer: -layer.ms)
    reader.sort("ms")
    until(lambda: reader.rows()[0][0] == str(ranked[0].index), "the slowest is not first")
    assert [row[0] for row in reader.rows()[:3]] == [str(layer.index) for layer in ranked[:3]]
    reader.sort("ms")
    until(lambda: reader.rows()[0][0] == str(ranked[-1].index), "the fastest is not first")
    reader.type("layer-table-search", "features.4.conv DW_AVX512")
    reader.see("layer-table-count", "1 of 66 layers")
    assert [row[5] for row in reader.rows()] == ["features.4.conv.1.0.weight"]
    reader.type("layer-table-search", "nothing is called so")
    reader.see("layer-table-count", "0 of 66 layers")
    reader.type("layer-table-search", "classifier")
    reader.see("layer-table-count", "1 of 66 layers")
    reader.type("layer-table-search", "features")
    reader.choose("layer-table-type", "Gemm")
    reader.see("layer-table-count", "0 of 66 layers")
    reader.choose("layer-table-type", "Conv")
    reader.see("layer-table-count", "52 of 66 layers")
    # The last column is found by scrolling.
    last = "const all = document.querySelectorAll('.il-layers-table th'); const one = all[all.length - 1];"
    within = "one.scrollIntoView(); return one.getBoundingClientRect().right <= innerWidth"
    assert reader.browser.execute_script(f"{last} {within}")


def test_of_thousands_of_layers_only_those_in_sight_are_drawn(reader: Reader, shelf: Shelf) -> None:
    entry = shelf.add(repeated(PROFILE, 76))
    reader.open(f"/projects/{shelf.project}/performance/{entry}")
    reader.see("ms-per-batch")
    reader.near("layer-table")
    reader.see("layer-table-count", "5,016 layers")
    assert 10 < len(reader.rows()) < 200
    bottom = (
        "const area = document.querySelector('.il-layers-table .il-scroll'); area.scrollTop = area.scrollHeight"
    )
    reader.browser.execute_script(bottom)
    until(lambda: reader.rows()[-1][0] == "5015", "the last layer was never drawn")
    assert len(reader.rows()) < 200
    reader.type("layer-table-search", "stack.40.classifier")
    reader.see("layer-table-count", "1 of 5,016 layers")
    until(lambda: [row[0] for row in reader.rows()] == [str(40 * 66 + 64)], "what was found is not drawn")


def test_the_layers_are_downloaded_as_csv(reader: Reader, page: str) -> None:
    reader.open(page)
    reader.near("table-csv")
    reader.click("table-csv")
    folder: Path = reader.browser.downloads  # type: ignore[attr-defined]
    (path,) = until(lambda: list(folder.glob(f"*{page.rpartition('/')[2]}.csv")), "nothing was downloaded")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 66
    assert float(rows[2]["ms"]) == LAYERS[2].ms and rows[2]["weight"] == LAYERS[2].weight


def test_layers_are_compared_with_another_profile(reader: Reader, shelf: Shelf, page: str) -> None:
    reader.open(page)
    reader.choose("diff-with", "slower (ONNX Runtime, batch 1, 2 cores")
    found = diff(replace(PROFILE, performance=slower(1.5)), PROFILE)
    told = reader.read("diff-verdict", "This profile (B) takes")
    assert told.startswith(f"This profile (B) takes {decimal(found.ratio.value)} of the other's (A) time per item")
    assert f": {found.verdict}. They differ in engine: onnxruntime and deepsparse" in told
    assert len(reader.chart("diff-chart")["data"]) == 3
    reader.near("diff-table")
    row = until(lambda: reader.diff_rows() or None, "the table of differences stays empty")[0]
    assert row[0] == found.rows[0].type and row[1] == found.rows[0].id
    assert (row[2], row[3], row[-1]) == ("1", "1", found.rows[0].verdict)
    reader.see("diff-table-count", "66 rows")
    # Tables that are wider than the page scroll by themselves.
    wider = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
    assert reader.browser.execute_script(wider) == 0


def test_a_profile_is_removed_and_put_back(reader: Reader, shelf: Shelf, page: str) -> None:
    reader.open(page)
    reader.click("menu")
    reader.click("remove")
    section = f"/projects/{shelf.project}/performance"
    assert reader.at(f"{section}/{shelf.slower}")
    assert not shelf.store.has(shelf.baseline)
    reader.see("ms-per-batch")
    assert not [one for one in rail(reader) if one.startswith("baseline")]
    reader.click("undo")
    assert reader.at(f"{section}/{shelf.baseline}")
    assert shelf.store.has(shelf.baseline)
    reader.see("ms-per-batch")
    assert [one.partition("\n")[0] for one in rail(reader)] == ["slower", "baseline", "FLOPS"]


def rail(reader: Reader) -> list[str]:
    script = "return [...document.querySelectorAll('.il-items .il-item')].map((one) => one.innerText)"
    found: list[str] = reader.browser.execute_script(script)
    return found


def test_the_newest_profile_is_what_a_section_opens_with(reader: Reader, shelf: Shelf) -> None:
    section = f"/projects/{shelf.project}"
    reader.open(f"{section}/performance")
    assert reader.at(f"{section}/performance/") == f"{section}/performance/{shelf.slower}"
    reader.open(f"{section}/loss")
    assert reader.at(f"{section}/loss/") == f"{section}/loss/{shelf.slower}"
    shelf.store.remove(shelf.slower)
    shelf.store.remove(shelf.baseline)
    reader.open(f"{section}/performance")
    assert reader.at(f"{section}/performance/") == f"{section}/performance/flops"
    reader.open(f"{section}/loss")
    assert reader.at(f"{section}/loss/") == f"{section}/loss/approximated"


def test_a_profile_of_another_project_or_a_file_is_not_opened(reader: Reader, shelf: Shelf) -> None:
    for name in ("aaaaaaaaaa", "profile.json", shelf.theory):
        reader.open(f"/projects/{shelf.project}/performance/{name}")
        reader.see("no-profile", f"This project has no performance profile {name}: it may have been removed.")


def test_the_flops_page_tells_what_the_architecture_needs(reader: Reader, shelf: Shelf) -> None:
    assert PROFILE.flops is not None
    reader.open(f"/projects/{shelf.project}/performance/flops")
    assert reader.stat("flops") == ["FLOPs", "602 MFLOP", "602 MFLOP in float32"]
    assert reader.stat("macs")[1] == "301 MMAC"
    assert reader.stat("params") == ["Parameters", "3.49 M", "13.3 MiB"]
    assert reader.stat("intensity")[1] == f"{PROFILE.flops.intensity:.3g}"
    assert "Not counted: 1 × Softmax: its cost depends" in reader.read("uncounted")
    reader.drawn("results-chart", {layer.index: layer.flops for layer in PROFILE.flops.layers})
    reader.choose("results-summary-type", "Parameters")
    reader.drawn("results-chart", {layer.index: layer.params for layer in PROFILE.flops.layers})
    reader.near("layer-table")
    reader.see("layer-table-count", "66 nodes")
    assert reader.rows()[0][:6] == ["0", "300", "Conv", "features.0.0.weight", "float32", "21,676,032"]


def test_the_loss_page_tells_what_pruning_costs(reader: Reader, shelf: Shelf) -> None:
    loss = PROFILE.loss
    assert loss is not None

    def estimated(budget: float) -> tuple[str, str]:
        found = estimate(None, loss, budget)
        assert found is not None
        return f"{1 / (1 - found.parameter_reduction):.2f} ×", f"loss {found.loss:.3g} of {budget:g}"

    def shown() -> tuple[str, str]:
        return reader.stat("reduction")[1], reader.stat("recovery")[2]

    reader.open(f"/projects/{shelf.project}/loss/{shelf.baseline}")
    assert reader.stat("params")[1] == "3.49 M"
    assert reader.stat("sensitivity")[1] == f"{loss.average_sensitivity:.3g}"
    assert reader.stat("pruning-settings")[1] == "weight magnitude, unstructured"
    assert reader.stat("method")[1] == "Measured without data: each layer pruned alone, on 8 inputs."
    assert "features.0.1.running_mean: it is no weight of a layer" in reader.read("left-out")
    assert shown() == estimated(0.1)
    reader.type("budget", "1")
    until(lambda: shown() == estimated(1.0), "the estimate does not follow the budget")
    sensitivities = {place: layer.sensitivity for place, layer in enumerate(loss.layers)}
    bars = until(lambda: _indexed(reader.chart("sensitivities-chart")), "no sensitivities")
    assert bars == pytest.approx(sensitivities)
    reader.choose("sensitivities-value-display", "logarithm")
    until(
        lambda: reader.chart("sensitivities-chart")["layout"]["yaxis"]["type"] == "log",
        "the axis is not logarithmic",
    )
    assert len(reader.chart("curves-chart")["data"]) == 8
    assert _indexed(reader.chart("parameters-chart")) == {
        place: layer.params for place, layer in enumerate(loss.layers)
    }
    reader.near("layer-table")
    reader.see("layer-table-count", "53 layers")
    assert reader.rows()[0][3] == "features.0.0.weight" and reader.rows()[0][-1] == "–"


def test_the_loss_page_tells_what_removing_channels_costs(reader: Reader, shelf: Shelf) -> None:
    assert PROFILE.loss is not None
    weights = [layer.weight for layer in PROFILE.loss.layers]
    groups = (
        ChannelGroup((weights[2],), 16, {weights[2]: 1.0}, {weights[3]: 1.0}, {"0.25": 0.0125, "0.5": 0.125}),
        ChannelGroup((weights[5],), 24, {}, {}, {"0.25": 0.25}),
    )
    entry = shelf.add(replace(PROFILE, loss=replace(PROFILE.loss, groups=groups)))
    reader.open(f"/projects/{shelf.project}/loss/{entry}")
    reader.near("group-table")
    reader.see("group-table-count", "2 groups")
    assert reader._cells("group-table") == [
        [weights[2], "16", "0.0125", "0.125"],
        [weights[5], "24", "0.25", "–"],
    ]


def test_a_performance_profile_goes_by_the_losses_that_were_measured(reader: Reader, shelf: Shelf) -> None:
    rough = replace(THEORY.loss, method="approximated") if THEORY.loss else None
    entry = shelf.add(replace(PROFILE, performance=a_performance_profile(name="later"), loss=rough))
    reader.open(f"/projects/{shelf.project}/performance/{entry}")
    assert reader.read("budget-loss", "baseline").startswith("baseline (")


def test_a_profile_that_failed_in_part_is_told_of_where_it_failed(
    reader: Reader, server: Server, http: httpx.Client
) -> None:
    random_model(server.folder / "random.onnx")
    project = http.post("/projects", json={"source": "random.onnx", "name": "Random"}).json()["id"]
    job = ended(http, http.post(f"/projects/{project}/profiles", json={"time_s": 0.2, "roofline": False}))
    assert (job["status"], "random operators" in job["failure"]) == ("failed", True)
    reader.open(f"/projects/{project}/loss")
    assert "random operators" in reader.read(f"job-{job['id']}", "failed")
    reader.open(f"/projects/{project}/performance")
    reader.at(f"/projects/{project}/performance/{job['entry_id']}")
    reader.see("ms-per-batch")
    assert not reader.sees(f"job-{job['id']}")
    begins = urlsplit(reader.asked("start-optimizing", "href"))
    assert begins.path == f"/projects/{project}/optimization"
    assert parse_qs(begins.query)["performance"] == [job["entry_id"]]
    http.delete(f"/projects/{project}")


def _indexed(chart: Any) -> dict[int, float | None]:
    (trace,) = chart["data"]
    return dict(zip(trace["x"], trace["y"], strict=True))


def test_the_approximated_losses_are_always_there_and_cannot_be_removed(reader: Reader, shelf: Shelf) -> None:
    reader.open(f"/projects/{shelf.project}/loss/approximated")
    assert reader.stat("name")[1] == "Approximated"
    assert reader.stat("method")[1] == "Estimated from the weights alone."
    assert not reader.sees("menu")


def test_a_dialog_queues_a_profile_whose_failure_is_told_with_its_log(reader: Reader, shelf: Shelf) -> None:
    reader.open(f"/projects/{shelf.project}/performance/flops")
    reader.click("add-profile")
    reader.see("profile-dialog", "New performance profile")
    assert reader.value("performance-name") == "profile 2"
    reader.type("performance-name", "on one core")
    reader.type("num-cores", "1")
    reader.see("profile-dialog", "ONNX Runtime")
    reader.click("add")
    reader.miss("profile-dialog")
    (job,) = until(lambda: shelf.store.jobs.of_project(shelf.project), "nothing was queued")
    assert job.kind == "profile" and job.content["wanted"]["performance_name"] == "on one core"
    assert job.content["plan"]["num_cores"] == [1] and job.content["wanted"]["loss"] is False
    # The model of a profile made by hand is nowhere.
    assert "mobilenet_v2.onnx" in reader.read(f"job-{job.id}", "failed")
    reader.click(f"log-{job.id}")
    until(lambda: [log for log in logs(reader) if "mobilenet_v2.onnx" in log], "the log was not shown")
    reader.browser.find_element(By.CSS_SELECTOR, "body").send_keys(Keys.ESCAPE)
    until(lambda: not logs(reader), "the log stays open")
    reader.click(f"dismiss-{job.id}")
    reader.miss(f"job-{job.id}")
    assert not shelf.store.jobs.of_project(shelf.project)


def logs(reader: Reader) -> list[str]:
    script = "return [...document.querySelectorAll('.il-log-dialog')].map((one) => one.innerText)"
    found: list[str] = reader.browser.execute_script(script)
    return found


def test_a_loss_profile_is_asked_for_by_its_own_dialog(reader: Reader, shelf: Shelf) -> None:
    reader.open(f"/projects/{shelf.project}/loss/approximated")
    reader.click("add-profile")
    reader.see("profile-dialog", "New loss profile")
    reader.type("loss-name", "with data")
    reader.type("data", "/nowhere/inputs.npz")
    reader.click("add")
    until(
        lambda: (
            "is not below a folder from which models may be opened"
            in reader.browser.find_element(By.TAG_NAME, "body").text
        ),
        "a file outside the folders was taken",
    )
    reader.type("data", "demo:digits")
    reader.click("add")
    reader.miss("profile-dialog")
    (job,) = until(lambda: shelf.store.jobs.of_project(shelf.project), "nothing was queued")
    assert job.content["wanted"]["data_file"] == "demo:digits"
    assert (job.content["wanted"]["performance"], job.content["wanted"]["loss_name"]) == (False, "with data")


def test_a_profile_that_was_measured_meanwhile_is_offered_and_listed(reader: Reader, shelf: Shelf) -> None:
    reader.open(f"/projects/{shelf.project}/performance/flops")
    reader.see("flops")
    entry = shelf.add(replace(PROFILE, performance=a_performance_profile(name="just now")))
    assert reader.read(f"news-{entry}") == "The profile “just now” is measured. Open it."
    until(lambda: any(one.startswith("just now") for one in rail(reader)), "the navigation does not show it")
    reader.click(f"news-{entry}")
    reader.at(f"/projects/{shelf.project}/performance/{entry}")
    assert reader.stat("name")[1] == "just now"
    # Removed in another tab, or on the command line.
    shelf.store.remove(entry)
    reader.at(f"/projects/{shelf.project}/performance/{shelf.slower}")


def test_pages_of_profiles_ask_no_other_host_and_report_no_errors(reader: Reader, shelf: Shelf, page: str) -> None:
    for path in (page, f"/projects/{shelf.project}/loss/{shelf.baseline}"):
        reader.open(path)
        reader.near("layer-table")
        reader.see("layer-table-count", "layers")
    assert left_the_machine(requested(reader.browser)) == []
    severe = [one for one in reader.browser.get_log("browser") if one["level"] == "SEVERE"]  # type: ignore[no-untyped-call]
    assert severe == []
