"""Versions as a user makes them: sliders that predict, progress, what was measured, what is taken away, undo."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from inferlab.lab import Lab, read_model
from inferlab.optimizing import recipes
from inferlab.profiling.gains import best_gain, gain_recipe, with_estimate
from inferlab.records import Plan
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Quantization, Recipe
from inferlab.records.profile import ChangedCopy, ChannelGroup, Profile, ProfileOptions, RecipeEstimate
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.units import decimal, share
from inferlab.workspace.versions import Basis
from tests.helpers.http_calls import ABSENT, ended, job_of, refused
from tests.helpers.odd_models import weightless_model
from tests.helpers.profiles import a_loss_profile, a_profile, with_copies
from tests.helpers.web_server import Server, left_the_machine, requested, until
from tests.helpers.web_user import Reader as CardReader

PROFILE = replace(a_profile(), loss=a_loss_profile())
BASIS = Basis(PROFILE, "", "")
LAYERS = BASIS.loss.layers
QUICK = {"name": "Half", "sparsity": 0.5, "engines": [], "data": "demo:digits"}


class Maker(CardReader):
    """A user who makes versions."""

    def number(self, name: str) -> str:
        """The number of a stat."""
        return self.read(name).split("\n")[1]

    def shows(self, found: RecipeEstimate) -> None:
        """Wait until the page predicts this."""
        assert found.estimated_ms_per_batch is not None
        expected = [
            decimal(found.estimated_ms_per_batch, 3),
            f"{found.estimated_speedup:.2f} ×",
            share(found.parameter_reduction),
            share(found.recovery or 0.0),
        ]
        names = ("estimated-ms", "estimated-speedup", "estimated-zeros", "estimated-recovery")
        until(lambda: [self.number(name) for name in names] == expected, f"never predicted {expected}")

    def at_layer(self, weight: str, what: str) -> str:
        """The name of what belongs to a layer, brought into sight by searching for it."""
        self.type("editor-search", weight)
        self.see("editor-count", "1 of")
        place = next(index for index, layer in enumerate(LAYERS) if layer.weight == weight)
        return f"{what}-{place}"

    def steps(self, name: str, key: str, times: int) -> None:
        """Move a slider by keys."""
        self.press(name, key * times)

    def chart(self, name: str) -> Any:
        """The data and the layout of a chart that has been drawn."""
        script = """
            const chart = document.querySelector(`[data-testid="${arguments[0]}"]`);
            return chart?._fullLayout ? {data: chart.data, layout: chart.layout} : null;"""
        return until(lambda: self.browser.execute_script(script, name), f"{name} was not drawn")

    def saved(self, name: str) -> Path:
        """A file that was downloaded, once it is whole."""
        file = Path(self.browser.downloads) / name  # type: ignore[attr-defined]
        return until(lambda: file if file.exists() and file.stat().st_size else None, f"{name} was not saved")


@pytest.fixture
def maker(browser: webdriver.Chrome, server: Server) -> Maker:
    found = Maker(browser, server.login)
    browser.set_window_size(1280, 1400)
    # Programs are saved only after the user agreed to it, which is asked where nobody can see it here.
    allowed = {"behavior": "allow", "downloadPath": str(browser.downloads)}  # type: ignore[attr-defined]
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", allowed)
    return found


@pytest.fixture
def predicted(server: Server) -> Iterator[str]:
    """A project whose profile was made by hand: an engine that gains from zeros, everything measured."""
    with open_store(str(server.store)) as store:
        project = store.projects.add("MobileNetV2", "", PROFILE.model).id
        store.add_document("profile", PROFILE.model.source, content_of(PROFILE), project_id=project)
        yield project
        store.projects.remove(project)


@dataclass(frozen=True, slots=True)
class Digits:
    """A project of demo:digits with a version that was measured on nothing."""

    project: str
    version: str

    @property
    def page(self) -> str:
        return f"/projects/{self.project}/optimization"


@pytest.fixture(scope="module")
def digits(http: httpx.Client) -> Iterator[Digits]:
    project = http.post("/projects", json={"source": "demo:digits", "name": "Digits"}).json()["id"]
    job = ended(http, http.post(f"/projects/{project}/versions", json=QUICK))
    assert job["status"] == "done", job
    yield Digits(project, job["entry_id"])
    http.delete(f"/projects/{project}")


# What is predicted.


def test_what_is_predicted_follows_the_sliders(maker: Maker, predicted: str) -> None:
    maker.open(f"/projects/{predicted}/optimization")
    maker.shows(BASIS.predicted(BASIS.alike(0.8)))
    maker.type("sparsity", "90")
    maker.shows(BASIS.predicted(BASIS.alike(0.9)))
    maker.type("budget", "0.5")
    maker.shows(BASIS.predicted(BASIS.within(0.5)))
    maker.see("levels-told", "gain most within the loss budget")
    # The sparsity is what the layers come to, until it is moved itself.
    mean = int(maker.value("sparsity"))
    assert 10 < mean < 90
    maker.see("sparsity-slider").find_element(By.CSS_SELECTOR, "[tabindex]").send_keys(Keys.ARROW_LEFT * 3)
    maker.shows(BASIS.predicted(BASIS.alike((mean - 3) / 100)))


def test_a_version_as_estimated_has_the_channels_and_the_precision_of_the_estimate(
    maker: Maker, server: Server
) -> None:
    profile = with_copies(PROFILE, 0.6)
    assert profile.performance is not None
    with open_store(str(server.store)) as store:
        project = store.projects.add("MobileNetV2", "", profile.model).id
        store.add_document("profile", profile.model.source, content_of(profile), project_id=project)
        maker.open(f"/projects/{project}/optimization")
        maker.type("budget", "0.6")
        maker.click("preset-estimated")
        maker.see("levels-told", "Whole channels go")
        # An eighth is left of the time: INT8 halves it, half of the channels are a quarter of the work.
        maker.see("estimated-ms", f"{profile.performance.ms_per_batch / 8:.3f}")
        maker.see("estimated-speedup", "8.00 ×")
        maker.type("budget", "0.1")
        maker.click("preset-estimated")
        maker.see("estimated-speedup", "2.00 ×")
        store.projects.remove(project)


def test_a_version_as_estimated_has_each_group_s_share_of_channels(maker: Maker, server: Server) -> None:
    profile = with_copies(PROFILE)
    performance, loss = profile.performance, profile.loss
    assert performance is not None and loss is not None
    first, other = (layer.weight for layer in loss.layers if layer.index in (2, 3))
    groups = tuple(
        ChannelGroup((name,), 16, {name: 1.0}, {}, {"0.25": 0.02, "0.5": 0.3}) for name in (first, other)
    )
    recipe = Recipe(pruning=Pruning(scope="layers", pattern=CHANNEL, layers={other: 0.25}))
    copy = ChangedCopy(recipe, performance.ms_per_batch / 4, {}, Distance(0.0625, 8, generated=True))
    performance = replace(performance, mixed_copies=(copy,))
    profile = with_estimate(replace(profile, performance=performance, loss=replace(loss, groups=groups)))
    with open_store(str(server.store)) as store:
        project = store.projects.add("MobileNetV2", "", profile.model).id
        store.add_document("profile", profile.model.source, content_of(profile), project_id=project)
        maker.open(f"/projects/{project}/optimization")
        maker.click("preset-estimated")
        maker.see("levels-told", "Whole channels go")
        # The copy that was made and timed, with what it lost.
        maker.see("estimated-speedup", "4.00 ×")
        maker.see("estimated-recovery", "93.8 %")
        assert maker.number("estimated-zeros") == share(BASIS.predicted({other: 0.25}).parameter_reduction)
        store.projects.remove(project)


def gaining_profile() -> Profile:
    """A profile of demo:digits on OpenVINO at batch size 2, as if INT8 with fewer channels gained most."""
    profile = Lab().profile(
        Plan("demo:digits", engines=("openvino",), num_cores=(1,), batch_sizes=(2,)),
        ProfileOptions(estimate=False, time_s=0.2),
    )
    performance = profile.performance
    assert performance is not None
    before = performance.ms_per_batch
    quantization = Quantization("static", calibration_items=5, reduce_range=True)
    int8 = Recipe(quantization=quantization, seed=7, shapes=dict(performance.shapes))
    pruning = Pruning(0.25, pattern=CHANNEL, layers={"2.weight": 0.25, "6.weight": 0.25})
    distance = Distance(0.01, 8, generated=True)
    copies = tuple(
        ChangedCopy(recipe, part * before, {}, distance)
        for recipe, part in ((int8, 0.5), (Recipe(pruning=pruning), 0.6), (replace(int8, pruning=pruning), 0.3))
    )
    performance = replace(performance, copies=copies, int8_ms_per_batch=0.5 * before)
    return with_estimate(replace(profile, performance=performance), 0.2)


def test_what_is_created_from_a_profile_is_what_verifying_its_estimate_makes(
    maker: Maker, server: Server, http: httpx.Client
) -> None:
    project = http.post("/projects", json={"source": "demo:digits", "name": "Estimated"}).json()["id"]
    profile = gaining_profile()
    best = best_gain(profile)
    assert best is not None and (best.int8, best.channels) == (True, 0.25)
    with open_store(str(server.store)) as store:
        saved = store.add_document("profile", profile.model.source, content_of(profile), project_id=project)
    maker.open(f"/projects/{project}/performance/{saved}")
    maker.click("start-optimizing")
    maker.at(f"/projects/{project}/optimization")
    maker.see("estimated-speedup", "3.33 ×")
    assert maker.value("budget") == "0.2"
    maker.click("create-version")
    maker.see("version-what", "As estimated")
    assert maker.is_on("on-openvino") and not maker.is_on("on-onnxruntime")
    assert (maker.value("batch-size"), maker.value("num-cores")) == ("2", "1")
    maker.type("time", "0.5")
    maker.click("create")
    maker.miss("version-dialog")
    (job,) = [one for one in http.get(f"/projects/{project}/jobs").json() if one["kind"] == "optimization"]
    until(lambda: job_of(http, job["id"])["status"] not in ("queued", "running"), "it was not made")
    assert job_of(http, job["id"])["status"] == "done", job_of(http, job["id"])
    whole = http.get(f"/versions/{job_of(http, job['id'])['entry_id']}").json()
    recipe = gain_recipe(profile, best)
    assert recipe is not None and recipe.pruning is not None and recipe.quantization is not None
    made = recipes.loads(http.get(f"/versions/{whole['id']}/recipe").text, "recipe")
    assert (made.pruning, made.quantization) == (recipe.pruning, recipe.quantization)
    assert (made.seed, made.shapes, made.cleanup) == (recipe.seed, recipe.shapes, recipe.cleanup)
    (measured,) = whole["measured"]
    assert (measured["engine"], measured["batch_size"], measured["num_cores"]) == ("openvino", 2, 1)
    assert measured["predicted_speedup"] == pytest.approx(1 / 0.3)
    same = {"as_estimated": True, "budget": 0.2, "performance": saved}
    assert http.post(f"/projects/{project}/estimate", json=same).json()["estimated_speedup"] == pytest.approx(
        1 / 0.3
    )
    told = refused(http.post(f"/projects/{project}/estimate", json={**same, "sparsity": 0.5}), 400)
    assert "as_estimated takes a budget at most" in told
    http.delete(f"/projects/{project}")


def test_presets_say_what_they_cannot_know(maker: Maker, predicted: str) -> None:
    maker.open(f"/projects/{predicted}/optimization")
    maker.click("preset-int8")
    maker.see("levels-told", "No layer is pruned")
    gain = BASIS.int8_speedup()
    assert gain is not None
    until(lambda: maker.number("estimated-speedup") == f"{gain:.2f} ×", "INT8 is not predicted")
    assert maker.number("estimated-zeros") == "0 %"
    maker.see("estimate-note", "measured when the version is made")
    maker.click("preset-both")
    pruned = BASIS.predicted(BASIS.alike(0.8)).estimated_speedup or 0.0
    until(lambda: maker.number("estimated-speedup") == f"{gain * pruned:.2f} ×", "both are not predicted")
    maker.see("estimate-note", "both gains are multiplied")
    maker.click("preset-best")
    maker.shows(BASIS.predicted(BASIS.within(0.1)))


def test_each_layer_has_a_switch_a_slider_and_its_two_curves(maker: Maker, predicted: str) -> None:
    maker.open(f"/projects/{predicted}/optimization")
    levels = BASIS.alike(0.8)
    maker.shows(BASIS.predicted(levels))
    weight = BASIS.usual()[5]
    slider = maker.at_layer(weight, "level")
    maker.steps(slider, Keys.ARROW_RIGHT, 5)
    levels[weight] = 0.85
    maker.shows(BASIS.predicted(levels))
    maker.see("levels-told", "set by hand")
    maker.click(slider.replace("level", "zeros"), "85 %")
    maker.see("curves", weight)
    until(
        lambda: maker.chart("curves-chart")["layout"]["shapes"][0]["x0"] == 0.85, "the curves mark another level"
    )
    assert len(maker.chart("curves-chart")["data"]) == 2
    maker.click(slider.replace("level", "switch"))
    del levels[weight]
    maker.shows(BASIS.predicted(levels))
    first = LAYERS[0].weight
    maker.click(maker.at_layer(first, "switch"))
    levels[first] = 0.8
    maker.shows(BASIS.predicted(levels))
    maker.type("editor-search", "no such layer")
    maker.see("editor", "Nothing is called so")


def test_a_pattern_of_groups_fixes_the_sparsity(maker: Maker, predicted: str) -> None:
    maker.open(f"/projects/{predicted}/optimization")
    maker.choose("pattern", "2 of every 4")
    maker.shows(BASIS.predicted(BASIS.alike(0.5)))
    assert maker.value("sparsity") == "50"
    assert not maker.can_click("sparsity")
    maker.see("estimate-note", "zeros in a pattern cost more")
    # A budget has nothing to choose then, and what is made is not called by it.
    maker.click("preset-best")
    maker.click("create-version")
    maker.see("version-dialog", "Create version")
    assert maker.value("version-name") == "Pruned 50 % + 2 of every 4"
    maker.click("cancel-dialog")
    maker.miss("version-dialog")
    maker.choose("pattern", "Whole channels")
    maker.see("estimate-note", "whole channels cost more")
    assert maker.number("estimated-speedup") == "–"


def test_without_times_of_pruned_copies_it_goes_by_parameters(maker: Maker, server: Server) -> None:
    plain = replace(PROFILE, performance=None)
    with open_store(str(server.store)) as store:
        project = store.projects.add("Untimed", "", PROFILE.model).id
        store.add_document("profile", "x", content_of(_untimed(PROFILE)), project_id=project)
        maker.open(f"/projects/{project}/optimization")
        maker.see("estimate-note", "Times of pruned copies were not measured")
        assert maker.number("estimated-speedup") == "–"
        expected = share(Basis(plain, None, "").predicted(BASIS.alike(0.8)).parameter_reduction)
        assert maker.number("estimated-zeros") == expected
        store.projects.remove(project)


def test_layers_that_were_not_measured_are_shown_and_approximated_brings_them_back(
    maker: Maker, server: Server
) -> None:
    assert PROFILE.loss is not None
    layers = PROFILE.loss.layers
    left_out = {layer.id: "the time was up" for layer in layers[5:]}
    cut = replace(PROFILE, loss=replace(PROFILE.loss, layers=layers[:5], left_out=left_out))
    rough = replace(PROFILE.loss, method="approximated", name="rough")
    theory = replace(PROFILE, performance=None, estimate=None, loss=rough)
    last = len(layers) - 2
    with open_store(str(server.store)) as store:
        project = store.projects.add("Cut short", "", PROFILE.model).id
        for one in (theory, cut):
            store.add_document("profile", "x", content_of(one), project_id=project)
        maker.open(f"/projects/{project}/optimization")
        maker.see("editor-count", f"{len(layers)} layers")
        maker.see("estimate-note", f"The losses of {len(layers) - 5} of {len(layers)} layers were not measured")
        assert maker.number("estimated-recovery") == "–"
        maker.type("editor-search", layers[last].weight)
        maker.see(f"loss-{last}", "not measured")
        assert maker.is_on(f"switch-{last}")
        maker.choose("budget-loss", "Approximated")
        maker.see(f"loss-{last}", "0.")
        assert maker.number("estimated-recovery").endswith("%")
        store.projects.remove(project)


def test_without_weights_to_prune_the_precision_can_be_changed(
    maker: Maker, server: Server, http: httpx.Client
) -> None:
    weightless_model(server.folder / "weightless.onnx")
    project = http.post("/projects", json={"source": "weightless.onnx", "name": "Table"}).json()["id"]
    maker.open(f"/projects/{project}/optimization")
    maker.see("nothing-to-prune", "Nothing can be pruned")
    maker.choose("scheme", "FP16")
    maker.click("create-version")
    maker.see("version-what", "FP16")
    assert maker.value("version-name") == "FP16"
    maker.type("time", "0.5")
    maker.click("create")
    maker.miss("version-dialog")
    (version,) = until(lambda: http.get(f"/projects/{project}/versions").json(), "no version was made")
    assert (version["precision"], version["name"]) == ("FP16", "FP16")
    http.delete(f"/projects/{project}")


def _untimed(profile: Profile) -> Profile:
    assert profile.performance is not None
    layers = tuple(replace(layer, pruned={}) for layer in profile.performance.layers)
    return replace(profile, performance=replace(profile.performance, pruned={}, pruning="", layers=layers))


# What is made.


def test_a_version_is_made_measured_and_taken_away(maker: Maker, digits: Digits, http: httpx.Client) -> None:
    maker.open(digits.page)
    maker.click("preset-pruned")
    maker.type("sparsity", "60")
    maker.see("zeros-1", "60 %")
    maker.click("create-version")
    maker.see("version-what", "2 layers pruned to 60 % zeros")
    assert maker.value("version-name") == "Pruned 60 %"
    maker.type("version-name", "Mine")
    maker.type("time", "1")
    maker.see("estimate", "Made, then measured on 1 engine")
    maker.click("create")
    maker.miss("version-dialog")
    (job,) = [one for one in http.get(f"/projects/{digits.project}/jobs").json() if one["kind"] == "optimization"]
    maker.see(f"job-{job['id']}", "Version “Mine”")
    until(lambda: job_of(http, job["id"])["status"] == "done", "it was not made")
    made = job_of(http, job["id"])["entry_id"]
    maker.see(f"version-{made}", "ONNX Runtime")
    maker.click(f"news-{made}", "“Mine” is made and measured")
    maker.at(f"{digits.page}/{made}")
    row = maker.read("measured-onnxruntime", "×")
    assert "ONNX Runtime" in row
    assert maker.read("zeros").split("\n")[1] == "58.7 %"
    maker.see("fidelity", "% right")
    maker.click("notes")
    maker.see("notes", "first layer")

    maker.see("export-text", "2.weight: 0.6")
    maker.click("save-text")
    recipe = recipes.load(maker.saved("mine.recipe.yaml"))
    assert recipe.pruning is not None
    assert recipe.pruning.layers == {"2.weight": 0.6, "6.weight": 0.6}
    maker.click("download-model")
    model = maker.saved("mine.onnx")
    until(lambda: read_model(str(model)).digest == recipe_digest(http, made), "another model was saved")
    maker.see("export-tabs").find_elements(By.TAG_NAME, "button")[1].click()
    maker.see("export-text", "InferenceSession")
    maker.click("save-text")
    code = maker.saved("mine-onnxruntime.py")
    ran = subprocess.run([sys.executable, code.name], cwd=code.parent, capture_output=True, text=True)
    assert ran.stdout == "[(1, 10)]\n", ran.stderr
    assert left_the_machine(requested(maker.browser)) == []


def recipe_digest(http: httpx.Client, version: str) -> str:
    """The digest that a version had when it was made."""
    return str(http.get(f"/versions/{version}").json()["digest"])


def test_a_version_is_cancelled_while_it_is_measured(maker: Maker, digits: Digits, http: httpx.Client) -> None:
    form = {**QUICK, "name": "Long", "engines": ["onnxruntime"], "time_s": 600}
    job = http.post(f"/projects/{digits.project}/versions", json=form).json()["id"]
    maker.open(digits.page)
    maker.see(f"job-{job}", "Measuring on ONNX Runtime")
    maker.click(f"cancel-{job}")
    until(lambda: job_of(http, job)["status"] == "cancelled", "it was not cancelled")
    # What was made by then is kept, and says that it is not all.
    kept = job_of(http, job)["entry_id"]
    maker.see(f"version-{kept}", "not all was measured")
    assert http.delete(f"/entries/{kept}").status_code == 204
    maker.miss(f"version-{kept}")


def test_the_original_is_compared_with_a_version_on_the_same_engine(maker: Maker, digits: Digits) -> None:
    maker.open(f"{digits.page}/{digits.version}")
    maker.click("benchmark-version")
    maker.see("benchmark-dialog")
    assert maker.is_on("enable-comparison")
    maker.click("cores-1")
    maker.type("time", "1")
    maker.see("estimate", "1 comparison")
    maker.click("run")
    maker.at(f"/projects/{digits.project}/benchmarks")
    maker.see("engines", "Half vs original")
    until(lambda: maker.sees(f"card-{maker.cards()[0]}/menu"), "it was not measured")
    newest = f"card-{maker.cards()[0]}"
    maker.see(newest, "Speed-up over original")
    assert "Engine\nONNX Runtime" in maker.read(newest)
    maker.see(f"{newest}/different-outputs", "different models")


def test_a_benchmark_of_a_version_says_which(maker: Maker, digits: Digits, http: httpx.Client) -> None:
    form = {"num_cores": [1], "time_s": 0.3, "version": digits.version}
    entry = ended(http, http.post(f"/projects/{digits.project}/benchmarks", json=form))["entry_id"]
    maker.open(f"/projects/{digits.project}/benchmarks")
    maker.see(f"card-{entry}", "Half")
    listed = http.get(f"/projects/{digits.project}/benchmarks").json()
    assert [one["title"] for one in listed if one["id"] == entry] == ["half.onnx"]
    assert "versions/" in http.get(f"/entries/{entry}/command").json()["command"]


def test_a_removed_version_comes_back_with_undo(maker: Maker, digits: Digits) -> None:
    maker.open(f"{digits.page}/{digits.version}")
    maker.click("menu")
    maker.click("remove")
    # The address says for a moment only what was removed.
    maker.see("undo")
    maker.miss(f"version-{digits.version}")
    maker.click("undo")
    maker.at(f"{digits.page}/{digits.version}")
    maker.see("recipe-told", "Pruned by magnitude")
    maker.open(f"{digits.page}/{ABSENT}")
    maker.see("no-version", "may have been removed")


# The same over HTTP.


def test_versions_over_http(http: httpx.Client, digits: Digits, server: Server) -> None:
    listed = http.get(f"/projects/{digits.project}/versions").json()
    (line,) = [one for one in listed if one["id"] == digits.version]
    assert (line["name"], line["file"], line["downloadable"], line["measured"]) == ("Half", "there", True, [])
    whole = http.get(f"/versions/{digits.version}")
    assert whole.json()["recipe"]["pruning"]["layers"] == {"2.weight": 0.5, "6.weight": 0.5}
    assert str(server.home) not in whole.text
    model = http.get(f"/versions/{digits.version}/model")
    assert model.headers["content-disposition"] == 'attachment; filename="half.onnx"'
    assert len(model.content) == line["size_bytes"]
    recipe = http.get(f"/versions/{digits.version}/recipe")
    assert recipes.loads(recipe.text, "recipe").digest == whole.json()["original"]["digest"]
    code = http.get(f"/versions/{digits.version}/code", params={"engine": "openvino"})
    assert "openvino" in code.text and "MODEL = 'half.onnx'" in code.text
    predicted = http.post(f"/projects/{digits.project}/estimate", json={"sparsity": 0.5}).json()
    assert predicted["levels"] == {"2.weight": 0.5, "6.weight": 0.5}
    assert predicted["loss_method"] == "approximated"


@pytest.mark.parametrize(
    ("asked", "part", "loss"),
    [
        ({"sparsity": 0.5, "pattern": "channel"}, 0.25, 0.5),
        ({"sparsity": 0.5, "pattern": "channel", "quantization": "static"}, 0.125, 0.51),
        ({"quantization": "static"}, 0.5, 0.01),
        ({"quantization": "dynamic"}, None, None),
    ],
)
def test_an_estimate_over_http_is_of_the_pattern_and_the_precision_that_are_asked(
    http: httpx.Client, server: Server, asked: dict[str, Any], part: float | None, loss: float | None
) -> None:
    profile = with_copies(PROFILE)
    with open_store(str(server.store)) as store:
        project = store.projects.add("MobileNetV2", "", profile.model).id
        store.add_document("profile", profile.model.source, content_of(profile), project_id=project)
        found = http.post(f"/projects/{project}/estimate", json=asked).json()
        store.projects.remove(project)
    assert (found["loss"], found["estimated_speedup"]) == (loss, None if part is None else pytest.approx(1 / part))
    assert found["estimated_ms_per_batch"] == (
        None if part is None else pytest.approx(part * found["ms_per_batch"])
    )
    assert found["recovery"] == (None if loss is None else pytest.approx(1 - loss))


def test_a_version_whose_file_has_a_name_in_other_letters_is_taken_away(
    http: httpx.Client, digits: Digits, server: Server
) -> None:
    named = server.folder / "模型 №1.onnx"
    versions = f"/projects/{digits.project}/versions"
    before = {one["id"] for one in http.get(versions).json()}
    server.command("optimize", "demo:digits", "--sparsity", "0.5", "--measure", "none", "-o", str(named))
    (version,) = {one["id"] for one in http.get(versions).json()} - before
    encoded = quote("模型 №1")
    for what, ending in (("model", ".onnx"), ("recipe", ".recipe.yaml"), ("code", "-onnxruntime.py")):
        answer = http.get(f"/versions/{version}/{what}")
        assert answer.status_code == 200, answer.text
        assert f"filename*=utf-8''{encoded}{ending}" in answer.headers["content-disposition"].replace("UTF", "utf")
    http.delete(f"/entries/{version}")


@pytest.mark.parametrize(
    ("ask", "status", "told"),
    [
        (lambda http, one: http.get(f"/versions/{ABSENT}"), 404, "aaaaaaaaaa"),
        (
            lambda http, one: http.get(f"/versions/{one.version}/model", params={"part": "data"}),
            404,
            "All weights",
        ),
        (
            lambda http, one: http.get(f"/versions/{one.version}/code", params={"engine": "/x.py:E"}),
            400,
            "no engine",
        ),
        (lambda http, one: _post(http, one, name=""), 400, "needs a name"),
        (lambda http, one: _post(http, one, budget=0.1), 400, "one of them"),
        (lambda http, one: _post(http, one, sparsity=1.5), 400, "The sparsity must lie between 0 and 1"),
        (lambda http, one: _post(http, one, engines=["/x.py:E"]), 400, "no engine"),
        (lambda http, one: _post(http, one, data="/etc/passwd"), 400, "not below a folder"),
        (lambda http, one: _post(http, one, pattern="zigzag"), 400, "zigzag"),
        (lambda http, one: _post(http, one, performance=ABSENT), 404, "is not a profile"),
        (lambda http, one: _post(http, one, out="/tmp/x.onnx"), 422, "out"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    http: httpx.Client,
    digits: Digits,
    ask: Callable[[httpx.Client, Digits], httpx.Response],
    status: int,
    told: str,
) -> None:
    assert told in refused(ask(http, digits), status)


def _post(http: httpx.Client, one: Digits, **changed: object) -> httpx.Response:
    return http.post(f"/projects/{one.project}/versions", json={**QUICK, **changed})
