"""Copies that are really made and timed for the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab.lab import Lab
from inferlab.model.flops.count import costs
from inferlab.optimizing.levels import resolve
from inferlab.profiling import copies, interleaved
from inferlab.profiling.gains import gain_recipe, with_estimate
from inferlab.profiling.zeros import gains_from_zeros
from inferlab.records import Event, Model, Plan
from inferlab.records.optimization import CHANNEL, Pruning, Recipe, VersionOptions
from inferlab.records.profile import Gain, Profile, ProfileOptions
from inferlab.views import tables
from inferlab.views.profile import blocks
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
    # An engine that does not run that copy is there with the model itself.
    changed = {(other.int8, other.channels) for other in others if other.ms_per_batch != other.unchanged_ms}
    assert changed == {(best.int8, best.channels)}
    assert all(other.ms_per_batch > 0 and (other.unchanged_ms or 0) > 0 for other in others)
    assert list(others) == sorted(others, key=lambda other: other.ms_per_batch)


def test_where_no_copy_is_within_the_budget_the_model_itself_is_timed_on_the_other_engines(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), replace(WANTED, budget=1e-9))
    assert profile.performance is not None
    others = profile.performance.other_engines
    assert "openvino" in {other.engine for other in others}
    assert all((other.int8, other.channels) == (False, 0.0) for other in others)
    assert all(other.ms_per_batch == other.unchanged_ms for other in others)


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
        if event.code in ("making-copy", "measuring-copy", "estimated") and "engine" not in event.data:
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
        "making-copy INT8 with 25 % of channels removed",
        "measuring-copy INT8 with 25 % of channels removed",
    ]
    assert profile.performance is not None
    assert [(copy.int8, copy.channels) for copy in profile.performance.copies] == [
        (True, 0.0),
        (False, 0.25),
        (False, 0.5),
        (True, 0.25),
    ]
    # A larger budget offers both together, as in the copy that was timed.
    assert not any(gain.int8 and gain.channels for gain in profile.gains)
    larger = with_estimate(profile, 1e9)
    assert [gain.channels for gain in larger.gains if gain.int8 and gain.channels] == [0.25]


def test_an_interruption_keeps_the_copies_that_were_timed_by_then(tmp_path: Path) -> None:
    model = perceptron(tmp_path / "model")

    def interrupt(event: Event) -> None:
        if event.code == "measuring-copy" and event.data["copy"] == "25 % of channels removed":
            raise KeyboardInterrupt

    profile = Lab().profile(Plan(model.path, num_cores=(1,)), WANTED, interrupt)
    assert profile.interrupted and profile.performance is not None
    assert [(copy.int8, copy.channels) for copy in profile.performance.copies] == [(True, 0.0)]


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


def test_an_engine_that_computes_wrongly_is_not_asked_what_it_would_gain(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(SPARSE)
    model = perceptron(tmp_path / "model")
    told: list[str] = []
    # Its outputs are all zero.
    plan = Plan(model.path, engines=(f"{tmp_path / 'engine.py'}:Sparse",), num_cores=(1,))
    wanted = replace(WANTED, loss=True, verify=True)
    profile = Lab().profile(plan, wanted, lambda event: told.append(event.code))
    assert profile.performance is not None and profile.performance.output_check.status == "mismatch"
    assert profile.performance.layers and profile.flops is not None
    assert (profile.performance.copies, dict(profile.performance.pruned)) == ((), {})
    assert not {"pruned-copy", "making-copy", "measuring-copy", "loss", "verifying"} & {*told}
    assert (profile.estimate, profile.gains, profile.performance.estimated_speedup) == (None, (), None)
    assert profile.loss is not None and profile.loss.method == "approximated"
    shown = "\n".join(tables.text(blocks(profile)))
    assert "Estimate: none, for the outputs are wrong; --no-verify makes it all the same" in shown


def test_zeros_within_the_budget_are_timed_on_the_other_engines_that_gain_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_computes_zeros_faster", lambda engine: engine == "openvino")
    model = perceptron(tmp_path / "model")
    budget = 0.9
    profile = Lab().profile(Plan(model.path, num_cores=(1,)), replace(WANTED, loss=True, budget=budget))
    assert profile.performance is not None and profile.problems == ()
    # Beside all that was timed before.
    assert profile.performance.copies and {other.zeros > 0 for other in profile.performance.other_engines} == {
        True,
        False,
    }
    (other,) = (other for other in profile.performance.other_engines if other.zeros)
    # Of three layers the middle one may be pruned, to 0.8 or 0.9.
    assert other.engine == "openvino" and round(3 * other.zeros, 2) in (0.8, 0.9)
    assert other.loss is not None and 0 < other.loss <= budget
    assert other.ms_per_batch > 0 and (other.unchanged_ms or 0) > 0


# A layer takes a time that goes with the elements of its weight.
DENSE = """
import time
import numpy
import onnx

class Dense:
    capabilities = frozenset({"layer_times"})

    def load(self, model, options):
        graph = onnx.load(model).graph
        sizes = {one.name: numpy.prod(one.dims) for one in graph.initializer}
        products = [node for node in graph.node if node.op_type == "MatMul"]
        self.seconds = {node.output[0]: 0.004 * sizes[node.input[1]] / 1024 for node in products}
        return {}

    def bind(self, inputs, stream=0):
        def call():
            time.sleep(sum(self.seconds.values()))
            return [numpy.zeros((1, 32), numpy.float32)]
        return call

    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        layers = [{"name": name, "covers": [name], "ns": 1e9 * each} for name, each in self.seconds.items()]
        wall_ns = sum(layer["ns"] for layer in layers)
        return {"layers": layers, "wall_ns": wall_ns, "iterations": 1, "unnamed": "before"}
"""
_MIXED_BUDGET = 0.6


@pytest.fixture(scope="module")
def mixed(patience: None, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Of five layers, those in the middle may lose channels."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "engine.py").write_text(DENSE)
    draw = np.random.default_rng(0)
    names = ("first", "two", "three", "four", "last")
    weights = {name: draw.standard_normal((32, 32)).astype(np.float32) / 5 for name in names}
    nodes = []
    for number, name in enumerate(names):
        out = "y" if name == "last" else f"a{number}"
        nodes.append(node("MatMul", [f"r{number - 1}" if number else "x", name], [out]))
        nodes += [] if name == "last" else [node("Relu", [out], [f"r{number}"])]
    (folder / "model").mkdir()
    model = saved(model_of(nodes, {"x": (FLOAT, ("n", 32))}, weights, opsets={"": 17}), folder / "model")
    plan = Plan(model.path, engines=(f"{folder / 'engine.py'}:Dense",), num_cores=(1,), verify=False)
    return Lab().profile(plan, replace(WANTED, loss=True, budget=_MIXED_BUDGET))


def test_copies_lose_another_share_of_each_group_of_channels(mixed: Profile) -> None:
    performance, loss = mixed.performance, mixed.loss
    assert performance is not None and loss is not None and mixed.problems == ()
    assert [group.weights for group in loss.groups] == [("two",), ("three",), ("four",)]
    assert loss.channels_kept == {}
    assert 1 <= len(performance.mixed_copies) <= 3
    for copy in performance.mixed_copies:
        assert copy.mixed and copy.recipe.pruning is not None and copy.recipe.pruning.sparsity is None
        assert set(copy.recipe.pruning.layers) <= {"two", "three", "four"}
        assert copy.distance is not None and copy.distance.items == 8
    assert not any(copy.mixed for copy in performance.copies)


def test_optimize_makes_the_shares_of_channels_that_were_estimated(mixed: Profile, tmp_path: Path) -> None:
    gain = next(gain for gain in mixed.gains if gain.shares)
    recipe = gain_recipe(mixed, gain)
    assert recipe is not None and recipe.pruning is not None and mixed.performance is not None
    plan = Plan(mixed.model.path, num_cores=(1,))
    done = Lab().optimize(plan, VersionOptions(recipe, str(tmp_path / "out.onnx"), engines=()))
    assert replace(done.recipe, model="", digest="", inferlab="") == recipe
    left = {layer.weight: layer.params_after for layer in done.layers}
    kept = {name: 32 - round(32 * recipe.pruning.layers.get(name, 0.0)) for name in ("two", "three", "four")}
    assert left == {
        "first": 32 * 32,
        "two": 32 * kept["two"],
        "three": kept["two"] * kept["three"],
        "four": kept["three"] * kept["four"],
        "last": kept["four"] * 32,
    }
    made = [copy for copy in mixed.performance.mixed_copies if copy.recipe == recipe]
    assert [copy.distance for copy in made] in ([], [done.distance])
    # From the same profile a budget gives the same shares.
    budget = Recipe(pruning=Pruning(scope="layers", pattern=CHANNEL, budget=_MIXED_BUDGET))
    counted = costs(mixed.model, {"x": (1, 32)})
    resolved = resolve(budget, counted, mixed.loss, mixed.performance, mixed.model).recipe
    assert resolved.pruning is not None and resolved.pruning.layers == gain.shares
