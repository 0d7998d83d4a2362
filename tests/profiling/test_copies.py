"""Copies that are really made and timed for the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab.lab import Lab
from inferlab.profiling import copies, interleaved
from inferlab.profiling.gains import gain_recipe
from inferlab.profiling.predict import gains_from_zeros
from inferlab.records import Event, Model, Plan
from inferlab.records.optimization import VersionOptions
from inferlab.records.profile import Gain, Profile, ProfileOptions
from tests.helpers.graphs import FLOAT, model_of, node, saved

WANTED = ProfileOptions(loss=False, approximate=False, time_s=1.0, budget=1e9)


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Let no copy be left out because the machine is busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_LIMIT", 1000.0)
        patch.setattr(interleaved, "_HOPELESS", 1000.0)
        yield


def perceptron(folder: Path, tapped: bool = False) -> Model:
    """Three layers of 32; where it is tapped, what the middle one makes is an output too."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    weights = {name: draw.standard_normal((32, 32)).astype(np.float32) / 6 for name in ("first", "middle", "last")}
    nodes = [
        node("MatMul", ["x", "first"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MatMul", ["b", "middle"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("MatMul", ["d", "last"], ["y"]),
    ]
    proto = model_of(nodes, {"x": (FLOAT, ("n", 32))}, weights, opsets={"": 17})
    if tapped:
        tap = proto.graph.output.add()
        tap.CopyFrom(proto.graph.output[0])
        tap.name = "c"
    return saved(proto, folder)


@pytest.fixture(scope="module")
def profile(patience: None, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    model = perceptron(tmp_path_factory.mktemp("copies") / "model")
    return Lab().profile(Plan(model.path, num_cores=(1,)), WANTED)


def test_a_profile_times_copies_in_int8_and_with_fewer_channels(profile: Profile) -> None:
    performance = profile.performance
    assert performance is not None and performance.problems == () and profile.problems == ()
    tried = [(copy.int8, copy.channels) for copy in performance.copies]
    # Everything is within this budget: the largest share, and the same in INT8.
    assert tried == [(True, 0.0), (False, 0.25), (False, 0.5), (True, 0.5)]
    for copy in performance.copies:
        assert copy.ms_per_batch > 0 and copy.layers_ms
        assert copy.distance is not None and copy.distance.items == 8 and copy.distance.relative_power is not None
    int8, quarter, half, _ = performance.copies
    assert int8.distance and quarter.distance and half.distance
    assert (int8.distance.relative_power or 0) < (quarter.distance.relative_power or 0) < 2
    assert performance.int8_ms_per_batch == int8.ms_per_batch
    assert [layer.int8_ms for layer in performance.layers] == [
        int8.layers_ms.get(layer.id) for layer in performance.layers
    ]
    assert half.recipe.pruning is not None and dict(half.recipe.pruning.layers) == {"middle": 0.5}
    assert [(gain.int8, gain.channels) for gain in sorted(profile.gains, key=lambda gain: gain.loss or 0)] == [
        (True, 0.0),
        (False, 0.5),
        (True, 0.5),
    ]


def test_the_best_copy_is_timed_on_the_other_engines_too(profile: Profile) -> None:
    assert profile.performance is not None
    others = profile.performance.other_engines
    best = min(profile.performance.copies, key=lambda copy: copy.ms_per_batch)
    assert others and "onnxruntime" not in {other.engine for other in others}
    assert {(other.int8, other.channels) for other in others} == {(best.int8, best.channels)}
    assert all(other.ms_per_batch > 0 for other in others)
    assert list(others) == sorted(others, key=lambda other: other.ms_per_batch)


def test_optimize_makes_exactly_what_was_estimated(profile: Profile, tmp_path: Path) -> None:
    gain = Gain(True, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0, counts=True)
    recipe = gain_recipe(profile, gain)
    assert recipe is not None
    plan = Plan(profile.model.path, num_cores=(1,))
    done = Lab().optimize(plan, VersionOptions(recipe, str(tmp_path / "out.onnx"), engines=()))
    # All but what names the model, which the options of `inferlab optimize` leave to it too.
    assert replace(done.recipe, model="", digest="", inferlab="") == recipe
    assert profile.performance is not None
    together = profile.performance.copies[-1]
    assert together.recipe == recipe
    assert done.distance == together.distance
    assert (done.optimized.precision, done.optimized.parameters) != (
        profile.model.precision,
        profile.model.parameters,
    )


def test_a_copy_that_cannot_be_made_leaves_the_rest_whole(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model", tapped=True)
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), replace(WANTED, budget=1e-9))
    assert profile.performance is not None
    assert [(copy.int8, copy.channels) for copy in profile.performance.copies] == [(True, 0.0)]
    (finding,) = (one for one in profile.performance.findings if one.code == "copy-left-out")
    assert finding.data["copy"] == "25 % of channels removed"
    assert str(finding.data["reason"]).startswith("channels cannot be removed: ")
    assert profile.problems == () and profile.performance.problems == ()


def test_no_copy_is_made_where_none_is_wanted(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    wanted = replace(WANTED, estimate=False, time_s=0.3)
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), wanted)
    assert profile.performance is not None
    assert (profile.performance.copies, profile.gains) == ((), ())


def test_shares_of_channels_that_the_budget_does_not_allow_are_timed_last(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    told: list[str] = []

    def listen(event: Event) -> None:
        if event.code in ("making-copy", "measuring-copy", "estimated"):
            told.append(f"{event.code} {event.data.get('copy', '')}".strip())

    # Less than any copy costs: nothing counts, so no estimate is told.
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), replace(WANTED, budget=1e-9), listen)
    assert told == [
        "making-copy INT8",
        "making-copy 25 % of channels removed",
        "measuring-copy INT8",
        "measuring-copy 25 % of channels removed",
        "making-copy 50 % of channels removed",
        "measuring-copy 50 % of channels removed",
    ]
    assert profile.performance is not None
    assert [(copy.int8, copy.channels) for copy in profile.performance.copies] == [
        (True, 0.0),
        (False, 0.25),
        (False, 0.5),
    ]


# The more of the middle layer is zero, the less it takes.
SPARSE = """
import time
import numpy
import onnx

class Sparse:
    capabilities = frozenset({"layer_times", "sparse_weights"})

    def load(self, model, options):
        weights = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer}
        self.seconds = 0.004 * (1 - numpy.mean(weights["middle"] == 0))
        return {}

    def bind(self, inputs, stream=0):
        def call():
            time.sleep(self.seconds)
            return [numpy.zeros((1, 32), numpy.float32)]
        return call

    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        layers = [{"name": "all", "covers": ["a", "c", "y"], "ns": 1e9 * self.seconds}]
        return {"layers": layers, "wall_ns": 1e9 * self.seconds, "iterations": 1, "unnamed": "before"}
"""


def test_an_engine_that_computes_zeros_faster_is_timed_on_copies_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(SPARSE)
    model = perceptron(tmp_path / "model")
    plan = Plan(model.path, engines=(f"{tmp_path / 'engine.py'}:Sparse",), num_cores=(1,), verify=False)
    profile = Lab().profile(plan, replace(WANTED, approximate=True, budget=1e-9))
    assert profile.performance is not None
    assert (profile.performance.pruning, list(profile.performance.pruned)) == ("zeroed", ["0.8", "0.9"])
    assert gains_from_zeros(profile.performance)
    without = Lab().profile(plan, replace(WANTED, estimate=False)).performance
    assert without is not None and dict(without.pruned) == {}
