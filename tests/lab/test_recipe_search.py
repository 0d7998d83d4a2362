"""Lab.search and Lab.reach: models really made, their speeds scripted so that answers are exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import inferlab
from inferlab.cli.optimize import command
from inferlab.lab import Lab
from inferlab.lab.executor import Executor, Local
from inferlab.lab.versions import Workbench
from inferlab.measure.cells import jobs
from inferlab.measure.paired import ComparisonJob
from inferlab.model import reading
from inferlab.model.onnx_file import read_onnx
from inferlab.optimizing import pareto, recipes
from inferlab.optimizing.recipes import parse_goal
from inferlab.optimizing.search import Speed
from inferlab.records import Comparison, Listener, Model, OutputCheck, Plan, ignore
from inferlab.records.optimization import Candidate, Front, Goal, Pruning, Quantization, Recipe, VersionOptions
from inferlab.records.profile import Profile, ProfileOptions
from inferlab.store import open_store
from inferlab.store.entries import Document
from inferlab.store.formats import record_of
from inferlab.views import optimization as render
from inferlab.views import results
from tests.helpers.sweeps import compared

WRONG = OutputCheck("mismatch", 9.0, "max", 0.01, "onnxruntime", "logits")


class Scripted(Local):
    """Compares without measuring: `speed` says how many times as fast the changed model is."""

    def __init__(self, speed: Callable[[Model], float], wrong: bool = False) -> None:
        self.speed, self.wrong = speed, wrong
        self.contests: list[ComparisonJob] = []

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """A ratio that is sure within a tenth."""
        self.contests.append(job)
        ratio = 1 / self.speed(job.b.model)
        found = compared(job, ratio, verdict="faster" if ratio < 0.9 else "inconclusive")
        (pair,) = found.pairs
        return replace(found, pairs=(replace(pair, b=replace(pair.b, check=WRONG)),)) if self.wrong else found


def speed(model: Model) -> float:
    """What static INT8 is about on many engines, and the rest."""
    return {"QDQ": 3.0}.get(model.quantization, 0.9)


def asked(folder: Path, goal: str, max_loss: str = "1%", data: str | None = "demo:digits") -> VersionOptions:
    return VersionOptions(
        Recipe(), str(folder / "out.onnx"), data_file=data, goal=parse_goal(goal, max_loss), search_s=600.0
    )


PLAN = Plan("demo:digits", num_cores=(1,))


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Front, Any, Scripted]:
    """A goal that static INT8 reaches, with all that came of it."""
    folder = tmp_path_factory.mktemp("reached")
    executor = Scripted(speed)
    with open_store(str(folder / "lab.db")) as store:
        found, version = Lab(store, executor).reach(PLAN, asked(folder, "2x faster"))
        kept = {one.kind: store.get(one.id) for one in store.history()}
    assert version is not None
    return folder, found, (version, kept), executor


def test_the_cheapest_recipe_that_reaches_the_goal_is_made(reached: tuple[Path, Front, Any, Scripted]) -> None:
    folder, found, (version, _), _ = reached
    assert [candidate.label for candidate in found.candidates] == [
        "FP16",
        "INT8 weights",
        "INT8 dynamic",
        "INT8 static",
    ]
    assert found.chosen == 3
    chosen = found.candidates[3]
    assert chosen.speedup == pytest.approx(3.0)
    assert chosen.speedup_interval == pytest.approx((3 / 1.1, 3.3))
    made = read_onnx(folder / "out.onnx", "out.onnx")
    assert (made.size_bytes, made.quantization) == (chosen.size_bytes, "QDQ")
    assert version.optimized.digest == made.digest
    assert recipes.load(folder / "out.recipe.yaml") == chosen.recipe
    assert sorted(one.name for one in folder.iterdir() if "lab.db" not in one.name) == [
        *("out.onnx", "out.recipe.yaml")
    ]


def test_with_labels_a_loss_is_the_drop_of_the_accuracy(reached: tuple[Path, Front, Any, Scripted]) -> None:
    found = reached[1]
    assert (found.metric, found.items, found.generated) == ("accuracy", 540, False)
    assert found.original_accuracy == pytest.approx(536 / 540)
    for candidate in found.candidates:
        assert candidate.accuracy is not None
        assert candidate.loss == pytest.approx(536 / 540 - candidate.accuracy)


def test_the_chosen_one_is_measured_anew_and_a_comparison_ends_early_only_past_the_goal(
    reached: tuple[Path, Front, Any, Scripted],
) -> None:
    *_, (version, _), executor = reached
    assert [one.speedup for one in version.measured] == pytest.approx([3.0])
    *tried, last = executor.contests
    assert [one.goal for one in tried] == [0.5] * 4
    assert (last.goal, last.time_s) == (0.5, 150.0)


def test_the_search_is_kept_and_read_again_as_it_was(reached: tuple[Path, Front, Any, Scripted]) -> None:
    _, found, (version, kept), _ = reached
    document = kept["search"]
    assert isinstance(document, Document)
    again = record_of(document)
    assert again == found
    assert version.search == found
    assert {"search", "version", "comparison"} <= set(kept)


def test_what_is_said_of_it_names_the_goal_the_recipe_and_what_a_loss_is(
    reached: tuple[Path, Front, Any, Scripted],
) -> None:
    text = "\n".join(results.lines(reached[1]))
    assert "1 core, batch size 1: to be 2 times as fast within a loss of 1 %" in text
    assert (
        "Reached: measured again, #4, INT8 static: 3.00 times as fast (98% interval 2.73 to 3.30), loss " in text
    )
    assert "A loss is the drop of the accuracy, on 540 items of the data." in text


def test_what_comes_nearest_to_a_goal_out_of_reach_is_made_where_that_is_asked(tmp_path: Path) -> None:
    found, version = Lab(executor=Scripted(speed)).reach(PLAN, asked(tmp_path, "9x faster"), nearest=True)
    assert found.complete
    assert (found.chosen, found.nearest) == (None, 3)
    assert [candidate.label for candidate in found.candidates[4:6]] == ["pruned", "10% of the channels cut"]
    text = " ".join(render.goal_verdict(found))
    assert (
        "Not reached: no recipe is certainly 9 times as fast within a loss of 1 %; all candidates were tried"
        in text
    )
    assert "Nearest within the loss: #4, INT8 static: 3.00 times as fast" in text
    assert version is not None
    assert version.optimized.quantization == "QDQ"
    assert (tmp_path / "out.onnx").is_file()


class Lucky(Scripted):
    """The search sees a speed that a second measurement does not."""

    def __init__(self, again: float) -> None:
        super().__init__(speed)
        self.again = again

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        """Copies of the search lie in folders of their own, what was chosen is the file that was asked for."""
        chosen = Path(job.b.model.path).name == "out.onnx"
        self.speed = (lambda _: self.again) if chosen else speed
        return super().compare(job, listener)


@pytest.mark.parametrize(("again", "outcome"), [(1.5, "missed"), (2.1, "open"), (2.5, "reached")])
def test_the_second_measurement_says_whether_the_goal_is_reached(
    tmp_path: Path, again: float, outcome: str
) -> None:
    with open_store(str(tmp_path / "lab.db")) as store:
        found, version = Lab(store, Lucky(again)).reach(PLAN, replace(asked(tmp_path, "2x faster"), engines=()))
        kept = next(store.get(one.id) for one in store.history() if one.kind == "search")
    assert found.chosen == 3
    assert found.candidates[3].speedup == pytest.approx(3.0)
    assert found.confirmed is not None
    assert found.confirmed.speedup == pytest.approx(again)
    assert found.confirmed.reaches is (outcome == "reached")
    assert pareto.outcome(found) == outcome
    assert version is not None
    assert [one.engine for one in version.measured] == ["onnxruntime"]
    assert isinstance(kept, Document)
    assert record_of(kept) == found


def test_wrong_outputs_of_what_was_chosen_miss_the_goal() -> None:
    chosen = Candidate("INT8 static", Recipe(), 3.0, (2.9, 3.1), 0.0, 250)
    found = Front(Goal(size_ratio=2.0), "fake", (chosen,), 0, 0, 1000, 1.0)
    wrong = replace(chosen, speedup=None, speedup_interval=None, reason=pareto.WRONG_OUTPUTS)
    assert pareto.outcome(replace(found, confirmed=chosen)) == "reached"
    assert pareto.outcome(replace(found, confirmed=wrong)) == "missed"


class _Known(Lab):
    """A lab that has these profiles and must not make others."""

    def __init__(self, executor: Executor, profiles: dict[str, Profile]) -> None:
        super().__init__(executor=executor)
        self._profiles = profiles

    def profile(self, *_: Any, **__: Any) -> Profile:
        raise AssertionError("no other profile is needed")

    def saved_profile(self, name: str) -> Profile:
        return self._profiles[name]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A bench for the digits and generated inputs, whose changed models are all wrong on the engine."""
    (job,) = jobs(replace(PLAN, scenarios=("sync",)), read_onnx(reading.build_demo("digits"), "demo:digits"))

    lab = _Known(Scripted(speed, wrong=True), {})
    plan = replace(PLAN, scenarios=("sync",))
    return Workbench(lab, plan, asked(tmp_path, "2x faster", data=None), job, tmp_path, ignore)


def test_a_copy_that_computes_something_else_on_the_engine_has_no_speed(bench: Workbench, tmp_path: Path) -> None:
    copy = bench.make(Recipe(quantization=Quantization("fp16")))
    assert bench.time(copy, 1.0, 2.0) == Speed(None, None, reason="its outputs on this engine are wrong")
    bench.discard(copy)
    assert list(tmp_path.iterdir()) == []


def test_sensitive_layers_are_found_once_and_the_worst_are_kept_first(bench: Workbench) -> None:
    one, two = (bench.make(Recipe(quantization=Quantization("static", keep_sensitive=count))) for count in (1, 2))
    first, both = (copy.recipe.quantization for copy in (one, two))
    assert first is not None
    assert both is not None
    assert (len(first.exclude), both.exclude[:1], len(both.exclude)) == (1, first.exclude, 2)
    assert (first.keep_sensitive, both.keep_sensitive) == (0, 0)
    assert one.loss is not None
    assert two.loss is not None
    assert 0 < two.loss < one.loss
    with pytest.raises(inferlab.BadInput, match="no more than 4 layers"):
        bench.make(Recipe(quantization=Quantization("static", keep_sensitive=8)))


def test_profiles_made_before_are_not_made_again(tmp_path: Path) -> None:
    plan = replace(PLAN, scenarios=("sync",))
    profile = Lab().profile(plan, ProfileOptions(levels=(0.5, 0.9), time_s=0.2))
    (job,) = jobs(plan, profile.model)

    lab = _Known(Scripted(speed), {"known": profile})
    wanted = replace(asked(tmp_path, "2x faster", data=None), performance_id="known", loss_id="known")
    bench = Workbench(lab, plan, wanted, job, tmp_path, ignore)
    copy = bench.make(Recipe(pruning=Pruning(scope="layers", budget=0.5)))
    assert copy.recipe.pruning is not None
    assert copy.recipe.pruning.layers


def test_the_api_raises_what_was_found_where_the_goal_is_not_reached(tmp_path: Path) -> None:
    with pytest.raises(inferlab.GoalNotReached, match=r"Not reached: .* 99 times as fast") as raised:
        inferlab.optimize(
            *("demo:digits", tmp_path / "out.onnx"),
            goal="99x faster",
            max_loss=0.5,
            search_time=0.5,
            num_cores=1,
            store=False,
        )
    assert isinstance(raised.value.front, Front)
    assert not raised.value.front.complete
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("again", "code"), [(1.5, 1), (2.1, 4), (2.5, 0)])
def test_a_goal_that_the_second_measurement_misses_is_an_error_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: float, code: int
) -> None:
    monkeypatch.setattr(Local, "compare", Lucky(again).compare)
    options: dict[str, Any] = {"goal": "2x faster", "data": "demo:digits", "num_cores": 1, "store": False}
    if code:
        with pytest.raises(inferlab.GoalNotReached, match="measured again, #4, INT8 static") as raised:
            inferlab.optimize("demo:digits", tmp_path / "out.onnx", **options)
        made = raised.value.version
        assert isinstance(made, inferlab.OptimizationResult)
        assert made.speedups == {"onnxruntime": pytest.approx(again)}
        made = inferlab.optimize("demo:digits", tmp_path / "out.onnx", nearest=True, **options)
    else:
        made = inferlab.optimize("demo:digits", tmp_path / "out.onnx", **options)
    assert made.speedups == {"onnxruntime": pytest.approx(again)}
    done = CliRunner().invoke(
        command, ["demo:digits", "-o", str(tmp_path / "out.onnx"), "--goal", "2x faster", "--data", "demo:digits",
                  "-ncores", "1", "--no-save", "-q"], standalone_mode=False,
    )  # fmt: skip
    assert done.return_value == code


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"goal": 2}, "The goal '2' cannot be read"),
        ({"goal": "2x faster", "int8": "static"}, "leave out what says how to prune or quantise"),
        ({"goal": "2x faster", "max_loss": "1"}, "1 % is written as 1% or 0.01"),
        ({"goal": "2x faster", "search_time": 0}, "more than 0 seconds"),
        ({"int8": "static", "max_loss": "1%"}, "max_loss belongs to a search"),
        ({"int8": "static", "nearest": True}, "nearest belongs to a search"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(inferlab.BadInput, match=said):
        inferlab.optimize("demo:digits", tmp_path / "out.onnx", store=False, **options)
