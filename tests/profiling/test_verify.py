"""What is told of an estimate, and an estimate held against the model that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.lab import Lab
from inferlab.measure.cells import Job, only_job
from inferlab.measure.paired import ComparisonJob
from inferlab.model.inputs import Data
from inferlab.profiling import build as module
from inferlab.profiling.build import verify
from inferlab.profiling.channel_shares import best_shares
from inferlab.profiling.gains import best_gain, shares_recipe, with_estimate
from inferlab.profiling.loss import evaluate
from inferlab.records import Comparison, Listener, Model, OutputCheck, Plan, ignore
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Quantization, Recipe
from inferlab.records.profile import ChangedCopy, PerformanceProfile, Profile, ProfileOptions, Verified
from inferlab.transform.prune import prune
from tests.helpers.perceptrons import perceptron, some_data
from tests.helpers.sweeps import WRONG, compared


def test_wrong_outputs_in_one_pair_of_several_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(contest: ComparisonJob, listener: Listener) -> Comparison:
        found = compared(contest, 0.5)
        (pair,) = found.pairs
        return replace(found, pairs=(pair, replace(pair, b=replace(pair.b, check=WRONG)), pair))

    monkeypatch.setattr(module, "compare", compare)
    model = perceptron(tmp_path)
    job = only_job(Plan(model.path, num_cores=(1,)), model)
    recipe = Recipe(pruning=Pruning(scope="layers", layers={"middle": 0.5}))
    data = some_data(model)
    verified = verify(job, recipe, 0.4, data, 1.0, {}, ignore)
    pruned = prune(model, {"middle": 0.5}, tmp_path / "pruned")
    assert (verified.output_check, verified.ms_per_batch) == (WRONG, 1.0)
    assert verified.error == pytest.approx(0.4 / 0.5 - 1)
    assert verified.loss == pytest.approx(evaluate(pruned, model, data).loss)


def test_the_best_gain_is_made_and_held_against_its_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Model] = []

    def half_the_time(
        job: Job, wanted: ProfileOptions, costs: object, profile: PerformanceProfile, *_: object
    ) -> Iterator[tuple[PerformanceProfile, bool]]:
        recipe = Recipe(pruning=Pruning(0.5, pattern=CHANNEL, layers={"middle": 0.5, "late": 0.5}))
        copy = ChangedCopy(recipe, profile.ms_per_batch / 2, {}, Distance(0.01, 8, generated=True))
        yield replace(profile, copies=(copy,), ms_interval=None), True

    def compare(contest: ComparisonJob, listener: Listener) -> Comparison:
        made.append(contest.b.model)
        return compared(contest, 0.4)

    monkeypatch.setattr(module, "measure_copies", half_the_time)
    monkeypatch.setattr(module, "compare", compare)
    model = perceptron(tmp_path / "model")
    wanted = ProfileOptions(loss=False, verify=True, time_s=0.3)
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), wanted)
    (gain,) = profile.gains
    assert (gain.channels, gain.counts, profile.problems) == (0.5, True, ())
    assert gain.speedup == pytest.approx(2.0)
    assert gain.verified is not None and gain.verified.error == pytest.approx(0.5 / 0.4 - 1)
    # Of 36 weights 9 are left in each of both, and half of those that read the last of them.
    assert [one.parameters for one in made] == [24 + 18 + 9 + 9]


def test_shares_of_channels_are_not_told_before_a_copy_with_them_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As predicted, layers take a hundredth without 25 % of the channels; really they take no less."""
    told: list[str] = []

    def predicts_much(
        job: Job, wanted: ProfileOptions, costs: object, profile: PerformanceProfile, *_: object
    ) -> Iterator[tuple[PerformanceProfile, bool]]:
        recipe = Recipe(pruning=Pruning(0.25, pattern=CHANNEL, layers={"middle": 0.25, "late": 0.25}))
        times = {layer.id: 0.01 * layer.ms for layer in profile.layers}
        # Its loss is not known, so that it does not count itself.
        copy = ChangedCopy(recipe, 0.01 * profile.ms_per_batch, times, None)
        yield replace(profile, copies=(copy,), ms_interval=None), True

    def gains_nothing(
        job: Job, wanted: ProfileOptions, costs: object, profile: Profile, *_: object
    ) -> Iterator[PerformanceProfile]:
        gain = best_gain(with_estimate(profile, wanted.budget))
        told.append("predicted" if gain is not None and gain.shares else "")
        performance, loss = profile.performance, profile.loss
        assert performance is not None and loss is not None
        best = best_shares(performance, loss, wanted.budget)
        assert best is not None
        times = {layer.id: layer.ms for layer in performance.layers}
        distance = Distance(2 * wanted.budget, 8, generated=True)
        copy = ChangedCopy(shares_recipe(best.shares), performance.ms_per_batch, times, distance)
        yield replace(performance, mixed_copies=(copy,), copies=())

    monkeypatch.setattr(module, "measure_copies", predicts_much)
    monkeypatch.setattr(module, "measure_mixed_copies", gains_nothing)

    model = perceptron(tmp_path / "model")
    wanted = ProfileOptions(time_s=0.3, budget=1e9)
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), wanted, lambda event: told.append(event.code))
    assert best_gain(profile) is None and profile.problems == ()
    assert "predicted" in told and "estimated" not in told


def test_what_was_estimated_is_made_with_the_same_data_however_few_the_loss_profile_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Recipe, int]] = []

    def quantized(
        job: Job, wanted: ProfileOptions, costs: object, profile: PerformanceProfile, data: Data, *_: object
    ) -> Iterator[tuple[PerformanceProfile, bool]]:
        recipe = Recipe(quantization=Quantization("static", calibration_items=data.items))
        copy = ChangedCopy(recipe, profile.ms_per_batch / 2, {}, Distance(0.01, data.items, generated=True))
        yield replace(profile, copies=(copy,), ms_interval=None), True

    def verified(job: Job, recipe: Recipe, predicted: float, data: Data, time_s: float, *_: object) -> Verified:
        made.append((recipe, data.items))
        return Verified(1.0, None, 2.0, 0.0, 0.01, OutputCheck("unchecked"))

    monkeypatch.setattr(module, "measure_copies", quantized)
    monkeypatch.setattr(module, "measure_mixed_copies", lambda *_: iter(()))
    monkeypatch.setattr(module, "verify", verified)
    monkeypatch.setattr(module, "_items", lambda *_: 2)
    model = perceptron(tmp_path / "model")
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), ProfileOptions(verify=True, time_s=0.3))
    assert profile.loss is not None and profile.loss.items == 2
    (copy,) = profile.performance.copies if profile.performance is not None else ()
    assert made == [(copy.recipe, 8)]
    assert copy.recipe.quantization is not None and copy.recipe.quantization.calibration_items == 8
