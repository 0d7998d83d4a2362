"""Lab.optimize: the version, what it costs and gains, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput, EngineFailed
from inferlab.lab import Lab, read_model
from inferlab.lab.executor import Local
from inferlab.measure.paired import ComparisonJob
from inferlab.model.inputs import load_data
from inferlab.model.reading import digits_data
from inferlab.optimizing import recipes
from inferlab.profiling.gains import with_estimate
from inferlab.profiling.loss import evaluate
from inferlab.records import Comparison, Finding, Listener, Model, Plan
from inferlab.records.optimization import (
    CHANNEL,
    Distance,
    Optimization,
    Pruning,
    Quantization,
    Recipe,
    VersionOptions,
)
from inferlab.records.profile import ChangedCopy, Profile, ProfileOptions
from inferlab.store import open_store
from inferlab.store.entries import Document
from inferlab.store.formats import VERSIONS, content_of
from inferlab.store.store import Store
from inferlab.transform.prune import prune
from inferlab.units import share
from inferlab.views import results
from inferlab.views.optimization import facts
from tests.helpers.perceptrons import MIDDLE, perceptron
from tests.helpers.sweeps import WRONG, compared

PRUNED = Recipe(pruning=Pruning(0.5))


class Timed(Local):
    """Compares without measuring: the optimised model takes a given share of the original's time."""

    def __init__(
        self,
        ratios: dict[str, float | BaseException],
        interrupted: bool = False,
        spread: float = 1.1,
        settle_s: float | None = None,
    ) -> None:
        self.ratios, self.interrupted, self.spread, self.settle_s = ratios, interrupted, spread, settle_s
        self.contests: list[ComparisonJob] = []

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """The ratio of the engine, or what it raises."""
        self.contests.append(job)
        ratio = self.ratios[job.a.cell.engine]
        if isinstance(ratio, BaseException):
            raise ratio
        verdict: Any = "inconclusive" if ratio == 0.99 else "faster" if ratio < 0.98 else "same"
        more: Any = {"verdict": verdict, "interrupted": self.interrupted, "settle_s": self.settle_s}
        return compared(job, ratio, self.spread, **more)


@pytest.fixture
def optimise(tmp_path: Path) -> Callable[..., Optimization]:
    model = perceptron(tmp_path / "model")

    def run(recipe: Recipe = PRUNED, lab: Lab | None = None, **asked: Any) -> Optimization:
        wanted = VersionOptions(recipe, **{"out": str(tmp_path / "out.onnx"), "engines": (), **asked})
        return (lab or Lab()).optimize(Plan(model.path, num_cores=(1,)), wanted)

    return run


def test_a_version_says_what_it_is_and_how_far_its_outputs_moved(optimise: Callable[..., Optimization]) -> None:
    found = optimise(name="half")
    assert (found.name, found.model.parameters, found.optimized.parameters) == ("half", 114, 114)
    assert found.optimized.zero_fraction == pytest.approx(36 / 114)
    assert found.distance is not None and found.distance.relative_power is not None
    assert 0 < found.distance.relative_power < 1
    assert (found.distance.items, found.distance.generated) == (8, True)
    assert found.measured == () and found.problems == ()
    assert Path(found.optimized.path).is_file()


def test_every_engine_is_measured_and_one_that_fails_costs_the_others_nothing(
    optimise: Callable[..., Optimization],
) -> None:
    executor = Timed({"onnxruntime": 0.5, "fake": EngineFailed("it died."), "openvino": 1.0})
    found = optimise(lab=Lab(executor=executor), engines=("onnxruntime", "fake", "openvino"))
    first, last = found.measured
    assert (first.engine, first.speedup, first.original_ms, first.ms) == ("onnxruntime", 2.0, 2.0, 1.0)
    assert first.speedup_interval == pytest.approx((1 / 0.55, 2.2))
    assert first.verdict == "faster" and first.findings == ()
    assert found.problems == ("fake: it died.",)
    zeros = found.optimized.zero_fraction
    assert last.findings == (
        Finding("zeros-no-faster", {"engine": "openvino", "verdict": "same", "zeros": zeros}),
    )
    assert not found.interrupted
    assert [contest.a.inputs[0]["x"].tolist() for contest in executor.contests] == [
        contest.b.inputs[0]["x"].tolist() for contest in executor.contests
    ]


def test_the_truth_about_zeros_is_told_in_words(optimise: Callable[..., Optimization]) -> None:
    lab = Lab(executor=Timed({"onnxruntime": 1.0}))
    text = "\n".join(results.lines(optimise(lab=lab, engines=("onnxruntime",))))
    assert "onnxruntime gained nothing from zeros: with 31.6 % of the weights zero the model is as fast as" in text
    int8 = optimise(Recipe(quantization=Quantization("dynamic")), lab, engines=("onnxruntime",))
    assert "on onnxruntime the optimised model is as fast as the original." in "\n".join(results.lines(int8))


def test_wrong_outputs_in_one_pair_of_several_are_told(optimise: Callable[..., Optimization]) -> None:
    class WrongOnce(Timed):
        def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
            found = super().compare(job, listener)
            (pair,) = found.pairs
            wrong = replace(pair, b=replace(pair.b, check=WRONG))
            return replace(found, pairs=(pair, wrong, pair))

    found = optimise(lab=Lab(executor=WrongOnce({"onnxruntime": 0.5})), engines=("onnxruntime",))
    assert found.measured[0].output_check == WRONG


def test_a_verdict_that_is_open_is_told_as_open(optimise: Callable[..., Optimization]) -> None:
    found = optimise(lab=Lab(executor=Timed({"onnxruntime": 0.99}, spread=1.05)), engines=("onnxruntime",))
    assert [finding.code for finding in found.measured[0].findings] == ["zeros-no-faster"]
    for settle_s, advice in (
        (None, "Give more time."),
        (90.0, "About 90 s would settle it."),
        (4000.0, "It cannot"),
    ):
        executor = Timed({"onnxruntime": 0.99}, spread=1.5, settle_s=settle_s)
        wide = optimise(lab=Lab(executor=executor), engines=("onnxruntime",))
        assert (
            f"it is not settled whether the optimised model is faster (1.01x in 1 pair of processes). {advice}"
            in "\n".join(results.lines(wide))
        )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(str(tmp_path / "lab.db")) as opened:
        yield opened


def test_it_is_kept_as_a_version_with_its_comparisons(optimise: Callable[..., Optimization], store: Store) -> None:
    found = optimise(lab=Lab(store, Timed({"onnxruntime": 0.5})), engines=("onnxruntime",), name="half")
    comparison, version = store.history(10)
    assert (version.kind, comparison.kind, comparison.id) == ("version", "comparison", found.measured[0].entry_id)
    assert version.title.endswith("model.onnx: half") and version.model_digest == found.model.digest
    brief = version.brief
    assert (brief["name"], brief["optimized"]["digest"]) == ("half", found.optimized.digest)
    assert brief["measured"][0]["speedup"] == 2.0
    assert Lab(store).saved_optimization(found.id) == found
    document = store.get(found.id)
    assert isinstance(document, Document)
    assert VERSIONS.from_content(document.content, "v") == replace(found, id="")
    with pytest.raises(BadInput, match="is not an optimised version"):
        Lab(store).saved_optimization(comparison.id)


def test_ctrl_c_keeps_the_model_and_what_was_measured(optimise: Callable[..., Optimization], store: Store) -> None:
    executor = Timed({"onnxruntime": 0.5, "openvino": KeyboardInterrupt(), "fake": 1.0})
    found = optimise(lab=Lab(store, executor), engines=("onnxruntime", "openvino", "fake"))
    assert found.interrupted and [one.engine for one in found.measured] == ["onnxruntime"]
    assert Lab(store).saved_optimization(found.id) == found
    cut = optimise(
        lab=Lab(executor=Timed({"onnxruntime": 0.5}, interrupted=True)), engines=("onnxruntime", "fake")
    )
    assert cut.interrupted and len(cut.measured) == 1


def test_what_cannot_be_is_refused_before_anything_is_made(
    optimise: Callable[..., Optimization], tmp_path: Path
) -> None:
    refused: dict[str, dict[str, Any]] = {
        "Nothing was asked for that would change the model": {"recipe": Recipe()},
        "does not exist. Make it first": {"out": str(tmp_path / "none" / "out.onnx")},
        "nix": {"engines": ("nix",)},
        "must be more than 0 seconds": {"time_s": 0.0},
    }
    for said, asked in refused.items():
        with pytest.raises(BadInput, match=said):
            optimise(**asked)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_static_int8_without_data_warns_and_is_repeated_with_the_same_inputs(
    optimise: Callable[..., Optimization], tmp_path: Path
) -> None:
    found = optimise(Recipe(quantization=Quantization("static")))
    assert found.findings == (Finding("generated-inputs", {"items": 8}),)
    assert found.recipe.shapes == {"x": (1, 4)} and found.recipe.data == ""
    recipe = recipes.load(tmp_path / "out.recipe.yaml")
    again = optimise(recipe, out=str(tmp_path / "again.onnx"))
    assert again.optimized.digest == found.optimized.digest
    # Data to judge it by does not change what ranges were found on.
    np.savez(tmp_path / "data.npz", x=np.ones((6, 4), np.float32))
    judged = optimise(recipe, out=str(tmp_path / "third.onnx"), data_file=str(tmp_path / "data.npz"))
    assert judged.optimized.digest == found.optimized.digest
    assert judged.distance is not None and (judged.distance.items, judged.distance.generated) == (6, False)


def test_static_int8_with_data_is_repeated_with_that_data_alone(
    optimise: Callable[..., Optimization], tmp_path: Path
) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32))
    found = optimise(Recipe(quantization=Quantization("static", calibration_items=16)), data_file=str(data))
    assert (found.recipe.data, found.recipe.shapes, found.findings) == ("data.npz", {}, ())
    assert found.recipe.quantization is not None and found.recipe.quantization.calibration_items == 16
    # What this CPU decided is written down for others.
    assert found.recipe.quantization.reduce_range is not None
    recipe = recipes.load(tmp_path / "out.recipe.yaml")
    with pytest.raises(BadInput, match=r"The recipe found its ranges on data\.npz\. Name that file with --data\."):
        optimise(recipe)
    again = optimise(recipe, out=str(tmp_path / "again.onnx"), data_file=str(data))
    assert again.optimized.digest == found.optimized.digest
    np.savez(tmp_path / "other.npz", x=np.ones((20, 4), np.float32))
    other = optimise(recipe, out=str(tmp_path / "other.onnx"), data_file=str(tmp_path / "other.npz"))
    assert other.findings == (Finding("other-data", {"data": "data.npz"}),)


def test_accuracy_is_told_where_there_are_labels(tmp_path: Path) -> None:
    asked = VersionOptions(
        Recipe(pruning=Pruning(0.3)), str(tmp_path / "digits.onnx"), data_file="demo:digits", engines=()
    )
    found = Lab().optimize(Plan("demo:digits"), asked)
    distance = found.distance
    assert distance is not None and distance.items == 540
    assert distance.original_accuracy is not None and distance.original_accuracy > 0.99
    assert distance.accuracy is not None and distance.accuracy > 0.9
    assert distance.loss_rise is not None and distance.relative_power is not None
    assert found.recipe.model == "demo:digits" and found.recipe.data == ""


def test_the_accuracy_that_was_expected_stands_beside_the_one_that_came(tmp_path: Path) -> None:
    recipe = Recipe(pruning=Pruning(budget=0.02, scope="layers"))
    asked = VersionOptions(recipe, str(tmp_path / "a.onnx"), data_file="demo:digits", engines=())
    pruned = Lab().optimize(Plan("demo:digits"), asked)
    assert pruned.distance is not None and pruned.recipe.pruning is not None
    expected, original = pruned.distance.expected_accuracy, pruned.distance.original_accuracy
    model = read_model("demo:digits")
    data = load_data(digits_data(), model.inputs, model.outputs)
    drops = [
        max(
            0.0,
            (original or 0.0) - (evaluate(prune(model, {weight: level}, tmp_path), model, data).accuracy or 0.0),
        )
        for weight, level in pruned.recipe.pruning.layers.items()
    ]
    assert original is not None and drops and expected == pytest.approx(original - sum(drops))
    (told,) = [pair.value for pair in facts(pruned) if pair.name == "Accuracy"]
    came = pruned.distance.accuracy
    assert came is not None and expected is not None
    assert told == f"{share(came)}, of the original {share(original)}, expected {share(expected)}"
    # Of INT8 the loss profile says nothing.
    both = replace(recipe, quantization=Quantization("dynamic"))
    quantized = Lab().optimize(Plan("demo:digits"), replace(asked, recipe=both, out=str(tmp_path / "b.onnx")))
    assert quantized.distance is not None and quantized.distance.expected_accuracy is None


def test_layers_that_lose_most_by_quantising_keep_their_precision(tmp_path: Path) -> None:
    wild = np.ones((6, 6), np.float32)
    wild[0, 0] = 1e4  # one large value leaves no steps for the others in its channel
    model = perceptron(tmp_path / "model", middle=wild)
    asked = VersionOptions(
        Recipe(quantization=Quantization("dynamic", per_channel=False, keep_sensitive=1)),
        str(tmp_path / "out.onnx"),
        engines=(),
    )
    found = Lab().optimize(Plan(model.path), asked)
    assert found.recipe.quantization is not None and found.recipe.quantization.exclude == ("middle",)
    assert {layer.weight: layer.precision for layer in found.layers}["middle"] == "FP32"
    (kept,) = [finding for finding in found.findings if finding.code == "kept-sensitive"]
    assert (kept.data["layers"], kept.data["tried"], kept.data["of"]) == (["middle"], 4, 4)
    again = Lab().optimize(Plan(model.path), replace(asked, recipe=found.recipe, out=str(tmp_path / "b.onnx")))
    assert again.optimized.digest == found.optimized.digest


def test_layers_that_are_left_out_anyway_do_not_count_as_sensitive(tmp_path: Path) -> None:
    wild = np.ones((6, 6), np.float32)
    wild[0, 0] = 1e4
    model = perceptron(tmp_path / "model", middle=wild)
    quantization = Quantization("dynamic", per_channel=False, exclude=("two",), keep_sensitive=1)
    asked = VersionOptions(Recipe(quantization=quantization), str(tmp_path / "out.onnx"), engines=())
    found = Lab().optimize(Plan(model.path), asked)
    (kept,) = [finding for finding in found.findings if finding.code == "kept-sensitive"]
    assert "middle" not in kept.data["layers"]
    assert (len(kept.data["layers"]), kept.data["of"]) == (1, 3)
    precisions = {layer.weight: layer.precision for layer in found.layers}
    assert [precisions["middle"], precisions[kept.data["layers"][0]]] == ["FP32", "FP32"]


def test_a_budget_makes_its_profiles_and_predicts_what_it_gives(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    recipe = Recipe(pruning=Pruning(budget=0.3, scope="layers"))
    asked = VersionOptions(recipe, str(tmp_path / "out.onnx"), engines=("onnxruntime",), time_s=0.3)
    found = Lab(executor=Timed({"onnxruntime": 1.0})).optimize(Plan(model.path, num_cores=(1,)), asked)
    assert found.recipe.pruning is not None and found.recipe.pruning.layers
    assert all(level >= 0.2 for level in found.recipe.pruning.layers.values())
    assert found.measured[0].predicted_speedup is not None
    size = Lab().optimize(Plan(model.path), replace(asked, engines=(), out=str(tmp_path / "b.onnx")))
    assert size.measured == () and size.recipe.pruning is not None and size.recipe.pruning.layers


def test_a_profile_made_before_predicts_any_levels(tmp_path: Path, store: Store) -> None:
    from inferlab.records.profile import ProfileOptions

    model = perceptron(tmp_path / "model")
    lab = Lab(store, Timed({"onnxruntime": 1.0}))
    plan = Plan(model.path, num_cores=(1,))
    profile = lab.profile(plan, ProfileOptions(levels=(0.5,), int8=True, time_s=0.3))
    asked = VersionOptions(
        PRUNED, str(tmp_path / "o.onnx"), performance_id=profile.id, loss_id=profile.id, time_s=0.3
    )
    found = lab.optimize(plan, asked)
    assert found.measured[0].predicted_speedup is not None
    assert found.measured[0].predicted_error == pytest.approx(1 / found.measured[0].predicted_speedup - 1)
    assert profile.performance is not None and profile.performance.int8_ms_per_batch is not None
    int8 = lab.optimize(plan, replace(asked, recipe=Recipe(quantization=Quantization("static"))))
    gain = profile.performance.ms_per_batch / profile.performance.int8_ms_per_batch
    assert int8.measured[0].predicted_speedup == pytest.approx(gain)
    both = lab.optimize(plan, replace(asked, recipe=replace(PRUNED, quantization=Quantization("static"))))
    assert both.measured[0].predicted_speedup == pytest.approx(gain * found.measured[0].predicted_speedup)
    other = perceptron(tmp_path / "other", late=MIDDLE)
    with pytest.raises(BadInput, match="is a profile of another model"):
        lab.optimize(replace(plan, model=other.path), asked)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_real_engines_run_what_was_made_of_both(engine: str, tmp_path: Path) -> None:
    recipe = Recipe(pruning=Pruning(0.5), quantization=Quantization("static"))
    asked = VersionOptions(
        recipe, str(tmp_path / "o.onnx"), data_file="demo:digits", engines=(engine,), time_s=0.5
    )
    found = Lab().optimize(Plan("demo:digits", num_cores=(1,)), asked)
    assert found.problems == ()
    (one,) = found.measured
    assert one.engine == engine and one.speedup > 0 and one.output_check.status == "match"
    assert found.distance is not None and found.distance.accuracy is not None and found.distance.accuracy > 0.8


def gaining_profile(tmp_path: Path, generated: bool = True) -> tuple[Profile, Model]:
    """A profile of a perceptron whose copy in INT8 took half the time and lost 1 %, as if it was measured."""
    model = perceptron(tmp_path / "model")
    profile = Lab().profile(
        Plan(model.path, num_cores=(1,)), ProfileOptions(loss=False, estimate=False, time_s=0.3)
    )
    performance = profile.performance
    assert performance is not None
    recipe = Recipe(
        quantization=Quantization("static", calibration_items=5, reduce_range=True),
        seed=7,
        shapes={"x": (1, 4)} if generated else {},
    )
    copy = ChangedCopy(recipe, performance.ms_per_batch / 2, {}, Distance(0.01, 8, generated))
    performance = replace(performance, copies=(copy,), int8_ms_per_batch=copy.ms_per_batch)
    return with_estimate(replace(profile, performance=performance)), model


def test_what_a_profile_estimates_is_made_from_the_recipe_of_its_copy(tmp_path: Path, store: Store) -> None:
    profile, model = gaining_profile(tmp_path)
    saved = store.add_document("profile", model.path, content_of(profile))
    plan, lab = Plan(model.path, num_cores=(1,)), Lab(store, Timed({"onnxruntime": 0.5}))
    asked = VersionOptions(
        Recipe(), str(tmp_path / "o.onnx"), performance_id=saved, loss_id=saved, as_estimated=True
    )
    # Data to judge it by changes nothing of what was estimated.
    np.savez(tmp_path / "data.npz", x=np.ones((6, 4), np.float32))
    found = lab.optimize(plan, replace(asked, data_file=str(tmp_path / "data.npz")))
    recipe = found.recipe
    assert (recipe.quantization, recipe.seed, recipe.shapes) == (
        Quantization("static", calibration_items=5, reduce_range=True),
        7,
        {"x": (1, 4)},
    )
    assert found.measured[0].predicted_speedup == pytest.approx(2.0)
    with pytest.raises(BadInput, match=r"Nothing that the profile tried gains within the loss budget of 0\.001"):
        lab.optimize(plan, replace(asked, estimate_budget=0.001))


def test_an_estimate_on_the_user_s_data_is_made_on_them_alone(tmp_path: Path, store: Store) -> None:
    profile, model = gaining_profile(tmp_path, generated=False)
    saved = store.add_document("profile", model.path, content_of(profile))
    asked = VersionOptions(
        Recipe(), str(tmp_path / "o.onnx"), engines=(), performance_id=saved, loss_id=saved, as_estimated=True
    )
    with pytest.raises(BadInput, match="found its ranges on your data: name that file"):
        Lab(store).optimize(Plan(model.path), asked)
    np.savez(tmp_path / "data.npz", x=np.ones((6, 4), np.float32))
    found = Lab(store).optimize(Plan(model.path), replace(asked, data_file=str(tmp_path / "data.npz")))
    assert found.recipe.data == "data.npz"
    assert found.recipe.quantization == Quantization("static", calibration_items=5, reduce_range=True)


def test_of_int8_and_of_channels_the_accuracy_is_expected_that_copies_had(tmp_path: Path, store: Store) -> None:
    profile = Lab().profile(
        Plan("demo:digits", num_cores=(1,)), ProfileOptions(data_file="demo:digits", estimate=False, time_s=0.3)
    )
    performance = profile.performance
    assert performance is not None and profile.loss is not None
    before = performance.ms_per_batch
    layers = dict.fromkeys(("2.weight", "6.weight"), 0.25)
    recipes = {
        0.98: Recipe(quantization=Quantization("static", calibration_items=8)),
        0.9: Recipe(pruning=Pruning(0.25, pattern=CHANNEL, layers=layers)),
    }
    copies = tuple(
        ChangedCopy(recipe, before / 2, {}, Distance(0.1, 540, False, 0.1, accuracy, 0.99))
        for accuracy, recipe in recipes.items()
    )
    profile = replace(profile, performance=replace(performance, copies=copies, int8_ms_per_batch=before / 2))
    saved = store.add_document("profile", "demo:digits", content_of(profile))

    def expected(recipe: Recipe, name: str) -> float | None:
        out = str(tmp_path / f"{name}.onnx")
        asked = VersionOptions(recipe, out, name, "demo:digits", (), performance_id=saved, loss_id=saved)
        distance = Lab(store).optimize(Plan("demo:digits"), asked).distance
        assert distance is not None and distance.accuracy is not None
        return distance.expected_accuracy

    assert expected(Recipe(quantization=Quantization("static")), "int8") == pytest.approx(0.98)
    assert expected(Recipe(pruning=Pruning(0.25, pattern=CHANNEL)), "channels") == pytest.approx(0.9)
    both = Recipe(pruning=Pruning(0.25, pattern=CHANNEL), quantization=Quantization("static"))
    assert expected(both, "both") == pytest.approx(0.89)
    # Zeros in blocks cost more than the zeros anywhere that were tried.
    anywhere = expected(Recipe(pruning=Pruning(0.5)), "anywhere")
    assert anywhere is not None and expected(Recipe(pruning=Pruning(0.5, pattern="block4")), "blocks") == anywhere
